"""The watch of a process: reminders come in their order, also where nothing runs, and whatever others of them do."""

from __future__ import annotations

import threading
import weakref
from functools import partial

from runtime_service.batching.watch import Watch
from tests.runtime_service.toy_models import wait_until


def test_reminders_come_in_their_order() -> None:
    watch, found = Watch(), list[str]()
    watch.remind(0.2, partial(found.append, "second"))
    watch.remind(0.05, lambda: 1 // 0)
    watch.remind(0.1, partial(found.append, "first"))
    wait_until(lambda: len(found) == 2)
    assert found == ["first", "second"]


def test_a_watch_that_sleeps_is_woken_by_a_reminder() -> None:
    watch, ended = Watch(), threading.Event()
    watch.end(watch.begin(lambda: False))
    wait_until(lambda: not watch._wake.is_set())  # it waits to be woken
    watch.remind(0.01, ended.set)
    assert ended.wait(10)
    ended.clear()
    watch.remind(1.5, ended.set)
    wait_until(lambda: not watch._wake.is_set())
    assert ended.wait(10)


def test_nothing_of_a_run_is_kept() -> None:
    class Wanted:
        def __call__(self) -> bool:
            looked.set()
            return False

    watch, looked, wanted = Watch(), threading.Event(), Wanted()
    run, kept = watch.begin(wanted), weakref.ref(wanted)
    assert looked.wait(10)
    del wanted
    watch.end(run)
    wait_until(lambda: kept() is None)
