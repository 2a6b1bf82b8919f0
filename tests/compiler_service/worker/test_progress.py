"""How often what the process of a stage says is written down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from compiler_service.worker.progress import INTERVAL_SECONDS, MOST_PROMPT, ProgressEvents


class Written:
    """A store that counts, at a time that does not go by itself."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.updates = 0
        self.now = 1000.0

    def update_target(self, job: str, number: int, **changes: Any) -> bool:
        self.updates += 1
        return True

    def add_event(self, job: str, event: Any) -> None:
        self.events.append(event.data)

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    found = Written()
    monkeypatch.setattr("compiler_service.worker.progress.time.monotonic", found.monotonic)
    return found


def say(events: ProgressEvents, messages: Iterable[tuple[str, int, int]]) -> None:
    for stage, done, total in messages:
        events({"stage": stage, "done": done, "total": total, "message": ""})


def test_the_first_and_the_last_of_a_stage_are_sent_at_once(written: Written) -> None:
    events = ProgressEvents(written, "job", 0, "host", "build")  # type: ignore[arg-type]
    say(events, [("a", 0, 9), ("a", 1, 9), ("a", 2, 9), ("b", 0, 2), ("b", 1, 2), ("b", 2, 2)])
    assert [(e["stage"], e["done"]) for e in written.events] == [("a", 0), ("a", 2), ("b", 0), ("b", 2)]


@pytest.mark.parametrize(
    "messages",
    [
        [("a", 0, 0), ("b", 0, 0)],
        [("a", 1, 1)],
        [("a", 1, 1), ("b", 1, 1)],
        [("a", 1, 2), ("a", 2, 2)],
    ],
)
def test_a_process_that_says_so_without_end_does_not_write_without_end(
    written: Written, messages: list[tuple[str, int, int]]
) -> None:
    events = ProgressEvents(written, "job", 0, "host", "build")  # type: ignore[arg-type]
    say(events, messages * 10_000)
    assert len(written.events) <= MOST_PROMPT + 1
    before = len(written.events)
    for _ in range(100):
        written.now += INTERVAL_SECONDS
        say(events, messages * 100)
    assert before + 100 <= len(written.events) <= before + 201
    assert written.updates == len(written.events)
