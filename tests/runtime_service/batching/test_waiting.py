"""The queue: every row is computed once, whoever is short does not wait for all of who is long, priorities go first."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_service.batching.waiting import Waiting
from runtime_service.batching.work import Work


def work(rows: int, width: int = 1, level: int = 0, since: float = 0.0, deadline: float | None = None) -> Work:
    inputs = {"x": np.zeros((rows, width), np.float32)}
    return Work(inputs, rows, rows if width else 0, ((width,),), deadline, None, since, level)


REQUESTS = st.lists(
    st.builds(work, st.integers(0, 30), st.sampled_from([0, 1, 1, 1, 2]), st.integers(1, 3)), min_size=1, max_size=12
)


@given(REQUESTS, st.integers(1, 9))
def test_every_row_is_computed_once(requests: list[Work], limit: int) -> None:
    waiting = Waiting(limit)
    for each in requests:
        waiting.add(each)
    begun: dict[int, list[tuple[int, int]]] = defaultdict(list)
    while waiting:
        head = waiting.head
        assert head is not None
        pieces, late = waiting.take(0.0, limit)
        assert pieces[0].work is head
        assert not late
        assert len({piece.work.key for piece in pieces}) == 1
        assert sum(piece.rows for piece in pieces if piece.work.weight) <= limit
        assert len({id(piece.work) for piece in pieces}) == len(pieces)
        for piece in pieces:
            begun[id(piece.work)].append((piece.begin, piece.rows))
            if piece.work.left > 0:
                waiting.add(piece.work)
    for each in requests:
        ends = [begin + rows for begin, rows in begun[id(each)]]
        assert [begin for begin, _ in begun[id(each)]] == [0, *ends[:-1]]
        assert ends[-1] == each.rows
        assert len(ends) == 1 or each.rows > limit
        assert waiting.rows(each.key) == 0


@given(REQUESTS, st.integers(1, 9))
def test_a_higher_priority_goes_first(requests: list[Work], limit: int) -> None:
    waiting = Waiting(limit)
    for each in requests:
        waiting.add(each)
    levels = []
    while waiting:
        pieces, _ = waiting.take(0.0, limit)
        levels.append(pieces[0].work.level)
        for piece in pieces:
            if piece.work.left > 0:
                waiting.add(piece.work)
    assert levels == sorted(levels)


@pytest.mark.parametrize("neighbours", [1, 5])
def test_neighbours_of_a_long_request_wait_for_one_piece(neighbours: int) -> None:
    waiting = Waiting(4)
    waiting.add(long := work(4000))
    (piece,), _ = waiting.take(0.0, 4)
    for _ in range(neighbours):
        waiting.add(work(1))
    waiting.add(long)
    assert piece.rows == 4
    computed = 0
    for _ in range(-(-neighbours // 4)):
        pieces, _ = waiting.take(0.0, 4)
        computed += sum(piece.work is not long for piece in pieces)
        if any(piece.work is long for piece in pieces):
            waiting.add(long)
    assert computed == neighbours


def test_what_is_late_is_taken_out_and_not_computed() -> None:
    waiting = Waiting(4)
    for deadline in (1.0, 3.0, None):
        waiting.add(work(1, deadline=deadline))
    pieces, late = waiting.take(2.0, 4)
    assert [piece.work.deadline for piece in pieces] == [3.0, None]
    assert [each.deadline for each in late] == [1.0]
    assert len(waiting) == 0


def test_without_batches_each_request_is_one() -> None:
    waiting = Waiting(0)
    for each in (work(5), work(7)):
        each.rows = each.weight = 0
        waiting.add(each)
    assert [len(waiting.take(0.0, 0)[0]) for _ in range(2)] == [1, 1]
