"""One tuner has a device at a time, for as long as it gives signs of life."""

from __future__ import annotations

import threading

import pytest

from ingot.device.leases import LEAST_SECONDS, MOST_SECONDS, Leases
from shared_ir.errors import ErrorCode, IngotError


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(name="clock")
def make_clock() -> Clock:
    return Clock()


@pytest.fixture(name="leases")
def make_leases(clock: Clock) -> Leases:
    return Leases(clock)


def code_of(call: object) -> ErrorCode:
    with pytest.raises(IngotError) as caught:
        call()  # type: ignore[operator]
    return caught.value.code


def test_a_second_tuner_is_told_for_how_long(leases: Leases, clock: Clock) -> None:
    leases.take(10.0)
    clock.now += 4.0
    with pytest.raises(IngotError, match=r"for 6\.0 s more") as caught:
        leases.take(10.0)
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED


def test_a_lease_that_is_renewed_lasts(leases: Leases, clock: Clock) -> None:
    lease = leases.take(10.0)
    for _ in range(5):
        clock.now += 9.0
        assert leases.renew(lease) == 10.0
    leases.require(lease)


def test_a_lease_that_nobody_renews_ends(leases: Leases, clock: Clock) -> None:
    lease = leases.take(10.0)
    clock.now += 10.0
    assert code_of(lambda: leases.require(lease)) is ErrorCode.NOT_FOUND
    assert code_of(lambda: leases.renew(lease)) is ErrorCode.NOT_FOUND
    assert leases.seconds_left is None
    assert leases.take(10.0) != lease


def test_what_runs_under_a_lease_ends_with_it(leases: Leases, clock: Clock) -> None:
    lease, ended = leases.take(10.0), []
    with leases.under(lease, lambda: ended.append("first")):
        with leases.under(lease, lambda: ended.append("second")):
            pass
        clock.now += 10.0
        leases.look()
    assert ended == ["first"]


def test_a_released_lease_ends_what_runs(leases: Leases) -> None:
    lease, ended = leases.take(10.0), []
    with leases.under(lease, lambda: ended.append(1)):
        leases.release(lease)
        leases.release(lease)
    assert ended == [1]
    assert code_of(lambda: leases.require(lease)) is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("other", ["", "x", "é", "\0" * 100])
def test_the_lease_of_nobody(leases: Leases, other: str) -> None:
    lease = leases.take(10.0)
    leases.release(other)
    leases.require(lease)
    assert code_of(lambda: leases.require(other)) is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("seconds", [0.0, -1.0, LEAST_SECONDS / 2, MOST_SECONDS * 2, float("nan"), float("inf")])
def test_times_that_are_none(leases: Leases, seconds: float) -> None:
    assert code_of(lambda: leases.take(seconds)) is ErrorCode.INVALID_ARGUMENT


def test_an_expired_lease_is_noticed_by_itself() -> None:
    leases, stopping, ended = Leases(), threading.Event(), threading.Event()
    leases.watch(stopping)
    try:
        with leases.under(leases.take(LEAST_SECONDS), ended.set):
            assert ended.wait(20)
    finally:
        stopping.set()
