"""Who has to go where there is no room, and what that costs those who ask."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.memory.room import GRACE_SECONDS, SMALL_BYTES, WAITING_BYTES, Guest, RequestRoom
from shared_ir.service_kit.waiting import WouldWait

TOTAL = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now, self.reads = 100.0, 0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def room(clock: Clock) -> RequestRoom:
    return RequestRoom(TOTAL, clock)


def crowd(
    room: RequestRoom, clock: Clock, gone: list[int], count: int, size: int, peer: str = "10.0.0.1"
) -> list[Guest]:
    """Guests that wait for their clients from now on."""
    found = [room.enter(peer, partial(gone.append, number)) for number in range(count)]
    for each in found:
        each.waits_since = clock.now
        each.take_at_once(size, WAITING_BYTES)
    return found


def refusal(ask: Callable[[], None]) -> ErrorCode:
    with pytest.raises(IngotError) as caught:
        ask()
    return caught.value.code


def test_many_who_hold_little_go_together(room: RequestRoom, clock: Clock) -> None:
    gone: list[int] = []
    guests = crowd(room, clock, gone, 50, 10_000)
    assert room.held == 500_000
    asking = room.enter("10.0.0.1", lambda: None)
    ask = partial(asking.take_at_once, 30_000)
    assert refusal(ask) is ErrorCode.RESOURCE_EXHAUSTED
    clock.now += 2 * GRACE_SECONDS
    for _ in range(3):  # those who are told to go have not gone yet
        with pytest.raises(WouldWait):
            ask()
    assert 3 <= len(gone) < 50
    for number in gone:
        guests[number].leave()
    ask()
    assert asking.held == 30_000


def test_those_who_hold_much_go_one_by_one(room: RequestRoom, clock: Clock) -> None:
    gone: list[int] = []
    crowd(room, clock, gone, 5, 100_000)
    clock.now += 2 * GRACE_SECONDS
    with pytest.raises(WouldWait):
        room.enter("10.0.0.1", lambda: None).take_at_once(50_000)
    assert gone == [0] or len(gone) == 1


def test_who_is_refused_is_not_looked_up_among_thousands_each_time(room: RequestRoom, clock: Clock) -> None:
    asked = []

    class Counted(Guest):
        __slots__ = ()

        @property
        def waits_since(self) -> float:
            asked.append(self)
            return 100.0

        @waits_since.setter
        def waits_since(self, value: float | None) -> None: ...

    guests = [Counted(room, "10.0.0.1", lambda: None) for _ in range(50)]
    for each in guests:
        each.take_at_once(10_400, WAITING_BYTES)
    asking = room.enter("10.0.0.1", lambda: None)
    for _ in range(3):
        assert refusal(partial(asking.take_at_once, 20_000)) is ErrorCode.RESOURCE_EXHAUSTED
    once = len(asked)
    for _ in range(100):
        assert refusal(partial(asking.take_at_once, 20_000)) is ErrorCode.RESOURCE_EXHAUSTED
    assert len(asked) == once
    clock.now += 2 * GRACE_SECONDS
    with pytest.raises(WouldWait):
        asking.take_at_once(20_000)


def test_who_came_late_with_what_he_had_is_found(room: RequestRoom, clock: Clock) -> None:
    gone: list[int] = []
    crowd(room, clock, [], 4, 100_000)
    asking = room.enter("10.0.0.1", lambda: None)
    assert refusal(partial(asking.take_at_once, 200_000)) is ErrorCode.RESOURCE_EXHAUSTED
    slow = room.enter("10.0.0.1", partial(gone.append, 1))
    slow.waits_since = clock.now - 10
    slow.take_at_once(100_000)
    with pytest.raises(WouldWait):
        asking.take_at_once(100_000)
    assert gone == [1]


def test_who_has_left_is_not_told_to_go_and_holds_nothing(room: RequestRoom) -> None:
    gone: list[int] = []
    guest = room.enter("10.0.0.1", partial(gone.append, 1))
    guest.take_at_once(SMALL_BYTES)
    guest.leave()
    guest.evict()
    assert (gone, room.held) == ([], 0)
