"""When a batch is formed: clients that come again are waited for, those that do not are not."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_service.batching.execution import BatchOptions
from runtime_service.batching.forming import Forming, Release
from runtime_service.batching.waiting import Waiting
from runtime_service.batching.work import Work


def row(now: float) -> Work:
    return Work({"x": np.zeros((1, 1), np.float32)}, 1, 1, ((1,),), None, None, now)


def batches(clients: int, seconds: Callable[[int], float], away: Callable[[int], float], count: int) -> list[int]:
    """Sizes of ``count`` batches of one instance: a batch of ``n`` takes ``seconds(n)``, and a client is away for ``away(number)``."""
    options = BatchOptions(64)
    forming, waiting = Forming(options), Waiting(64)
    arrivals = sorted((0.001 * number, number) for number in range(clients))
    owners: dict[int, int] = {}
    now, sizes = 0.0, list[int]()
    while len(sizes) < count:
        while arrivals and arrivals[0][0] <= now:
            come, number = arrivals.pop(0)
            waiting.add(work := row(come))
            owners[id(work)] = number
        release = forming.release(waiting, False, now) if waiting else arrivals[0][0] - now
        if not isinstance(release, Release):
            now = min(now + release, arrivals[0][0] if arrivals else now + release)
            continue
        pieces, _ = waiting.take(now, release.rows)
        begin, now = now, now + seconds(len(pieces))
        arrivals = sorted([*arrivals, *((now + away(n), n) for n in (owners.pop(id(p.work)) for p in pieces))])
        sizes.append(len(pieces))
        came = sum(come <= now for come, _ in arrivals)
        forming.executed(len(pieces), now - begin, came, now)
    return sizes


@given(st.integers(2, 48), st.floats(0.01, 1.0), st.floats(0.0, 0.02), st.floats(0.0, 1.0))
def test_clients_that_come_again_are_in_the_next_batch(clients: int, each: float, away: float, spread: float) -> None:
    """Each sends the next request a small part of an execution after it has the answer to the last."""
    longest = away * each
    sizes = batches(clients, lambda n: each * n, lambda number: longest * (1 - spread * number / clients), 40)
    assert fmean(sizes[3:]) >= 0.9 * clients


@pytest.mark.parametrize("away", [0.1, 10.0])
def test_clients_that_stay_away_cost_little(away: float) -> None:
    """Of the time that batches take, hardly any is spent in waiting for them."""
    forming, waiting = Forming(BatchOptions(8)), Waiting(8)
    waited = now = 0.0
    for _ in range(64):
        forming.executed(4, 1.0, 0, now)
        waiting.add(row(now))
        release = forming.release(waiting, False, now)
        if not isinstance(release, Release):
            waited += release
            now += release
            assert isinstance(forming.release(waiting, False, now), Release)
        waiting.take(now, 8)
        now += 1.0 + away
    assert 0 < waited < 64 * 0.005


def test_nobody_is_waited_for_after_runs_that_take_no_time() -> None:
    forming, waiting = Forming(BatchOptions(8)), Waiting(8)
    forming.executed(4, 100e-6, 0, 0.0)
    assert forming.is_immediate(row(0.0), 0.0)
    waiting.add(row(0.0))
    assert isinstance(forming.release(waiting, False, 0.0), Release)
