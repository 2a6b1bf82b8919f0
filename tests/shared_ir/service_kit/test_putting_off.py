"""Calls that wait in a loop until a place is free: for how long, and in which order they go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shared_ir.service_kit.putting_off import PuttingOff


@dataclass(eq=False)
class Instance:
    is_free: bool = False


@dataclass
class Loop:
    """Time passes when it is told to."""

    now: float = 100.0
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.timers.append((self.now + seconds, action))

    def step(self) -> None:
        """What is due first."""
        first = min(self.timers, key=lambda timer: timer[0])
        self.timers.remove(first)
        self.now = max(self.now, first[0])
        first[1]()

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while any(timer[0] <= end for timer in self.timers):
            self.step()
        self.now = end


def test_a_call_goes_on_in_its_turn_when_the_place_is_free() -> None:
    loop, place, done = Loop(), Instance(), list[int]()
    putting_off = PuttingOff(loop.later, lambda: loop.now)
    for number in range(3):
        assert putting_off.until_free(place, lambda number=number: done.append(number))  # type: ignore[misc]
    loop.run(0.005)
    assert done == []
    place.is_free = True
    loop.run(0.002)
    assert done == [0, 1, 2]
    assert loop.timers == []
    place.is_free = False
    assert putting_off.until_free(place, lambda: done.append(3))


def test_a_place_that_does_not_become_free_is_not_waited_for_again_for_a_second() -> None:
    loop, place, done = Loop(), Instance(), list[float]()
    putting_off = PuttingOff(loop.later, lambda: loop.now)
    assert putting_off.until_free(place, lambda: done.append(loop.now))
    loop.run(0.05)
    assert len(done) == 1
    assert 100.02 <= done[0] <= 100.03
    assert not putting_off.until_free(place, lambda: None)
    assert putting_off.until_free(Instance(is_free=True), lambda: None), "another place"
    loop.run(1.0)
    assert putting_off.until_free(place, lambda: None)


def test_there_is_nothing_to_wait_for_without_a_place() -> None:
    loop = Loop()
    assert not PuttingOff(loop.later).until_free(None, lambda: None)
    assert loop.timers == []


def test_where_waiting_was_in_vain_the_next_try_is_twice_as_far_away() -> None:
    loop, place = Loop(), Instance()
    putting_off = PuttingOff(loop.later, lambda: loop.now)
    for pause in (1, 2, 4, 8, 16, 32, 60, 60):
        assert putting_off.until_free(place, lambda: None)
        loop.run(0.027)
        loop.run(pause - 0.1)
        assert not putting_off.until_free(place, lambda: None)
        loop.run(0.2)
    assert putting_off.until_free(place, lambda: None)
    place.is_free = True
    loop.run(0.01)
    place.is_free = False
    assert putting_off.until_free(place, lambda: None)
    loop.run(1.1)
    assert putting_off.until_free(place, lambda: None), "it was not in vain in between"


def test_a_call_that_has_little_time_is_not_put_off() -> None:
    putting_off = PuttingOff(Loop().later)
    assert not putting_off.until_free(Instance(), lambda: None, remaining=0.04)
    assert putting_off.until_free(Instance(), lambda: None, remaining=1.0)


def test_a_crowd_goes_on_in_several_turns() -> None:
    loop, place, done = Loop(), Instance(), list[int]()
    putting_off = PuttingOff(loop.later, lambda: loop.now)
    for number in range(100):
        putting_off.until_free(place, lambda number=number: done.append(number))  # type: ignore[misc]
    place.is_free = True
    turns = list[int]()
    while loop.timers:
        loop.step()
        turns.append(len(done))
    assert done == [*range(100)]
    assert turns == [0, 32, 64, 96, 100]
