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

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= end]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
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


def test_a_call_that_fails_keeps_no_other_waiting() -> None:
    loop, place, done = Loop(), Instance(), list[str]()
    putting_off = PuttingOff(loop.later, lambda: loop.now)

    def fail() -> None:
        done.append("failed")
        raise ValueError

    putting_off.until_free(place, fail)
    putting_off.until_free(place, lambda: done.append("went on"))
    place.is_free = True
    for _ in range(2):
        try:
            loop.run(0.01)
        except ValueError:
            continue
    assert done == ["failed", "went on"]
