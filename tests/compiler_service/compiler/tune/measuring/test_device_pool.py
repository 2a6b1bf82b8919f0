"""Devices that are lost leave their trials to others, and are tried again later."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from compiler_service.compiler.tune.measuring.device import DevicePool, device_timeout
from compiler_service.compiler.tune.measuring.trial import Outcome, OutcomeKind, Trial, TrialTiming
from compiler_service.compiler.tune.problem import BuiltCandidate
from compiler_service.compiler.tune.trying import Trials
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import PRESETS
from tests.compiler_service.compiler.tune.measuring.at_once import run_at_once
from tests.compiler_service.compiler.tune.toy_problems import ToyProblem

TARGET = PRESETS["raspberry-pi/4b"][0]
TRIAL = Trial(TARGET, (), (), ())
MEASURED = Outcome(OutcomeKind.MEASURED, TrialTiming((1e-3,)))


@dataclass
class Board:
    """Fails with ``errors``, one a call, then measures."""

    name: str
    errors: list[IngotError] = field(default_factory=list)
    barrier: threading.Barrier | None = None
    calls: int = 0
    is_closed: bool = False
    busy: threading.Lock = field(default_factory=threading.Lock)
    size: int = 1

    @property
    def machine(self) -> str:
        return self.name

    def run(self, trials: Sequence[Trial], seconds: float) -> tuple[Outcome, ...]:
        assert self.busy.acquire(blocking=False), "one call at a time"
        try:
            self.calls += 1
            if self.barrier is not None:
                self.barrier.wait(20)
            if self.errors:
                raise self.errors.pop(0)
            return (MEASURED,) * len(trials)
        finally:
            self.busy.release()

    def close(self) -> None:
        self.is_closed = True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lost(name: str = "board") -> IngotError:
    return device_timeout(name, "it does not answer")


def test_trials_of_a_lost_device_are_done_by_another() -> None:
    first, second = Board("first", [lost()]), Board("second")
    pool = DevicePool([first, second], clock=Clock())
    assert pool.run([TRIAL, TRIAL], 1.0) == (MEASURED, MEASURED)
    assert (first.calls, second.calls) == (1, 1)
    pool.run([TRIAL], 1.0)
    assert (first.calls, second.calls) == (1, 2), "it is left out"


def test_a_lost_device_is_tried_again_later() -> None:
    clock = Clock()
    first, second = Board("first", [lost()]), Board("second", [])
    pool = DevicePool([first, second], retry_seconds=20.0, clock=clock)
    pool.run([TRIAL], 1.0)
    second.errors.append(lost())
    clock.now = 20.0
    assert pool.run([TRIAL], 1.0) == (MEASURED,)
    assert (first.calls, second.calls) == (2, 2), "after the one that is known to work"


def test_all_devices_are_lost() -> None:
    boards = [Board(name, [lost(name)]) for name in "ab"]
    pool = DevicePool(boards, clock=Clock())
    for _ in range(2):
        with pytest.raises(IngotError) as caught:
            pool.run([TRIAL], 1.0)
        assert caught.value.code is ErrorCode.DEVICE_TIMEOUT
    assert [board.calls for board in boards] == [1, 1]


def test_what_is_no_matter_of_the_device_goes_to_the_caller() -> None:
    refusal = IngotError(ErrorCode.ARTIFACT_UNTRUSTED, "not signed")
    first, second = Board("first", [refusal]), Board("second")
    pool = DevicePool([first, second], clock=Clock())
    with pytest.raises(IngotError) as caught:
        pool.run([TRIAL], 1.0)
    assert caught.value is refusal
    assert second.calls == 0


def test_batches_are_measured_by_all_devices_at_once() -> None:
    """Neither of two goes on before the other one has begun, so both work."""
    meeting = threading.Barrier(2)
    boards = [Board(name, barrier=meeting) for name in "ab"]
    found = run_at_once(DevicePool(boards), [[TRIAL]] * 6, 1.0)
    assert found == ((MEASURED,),) * 6
    assert [board.calls for board in boards] == [3, 3]


def test_batches_go_on_with_the_devices_that_are_left() -> None:
    boards = [Board("a", [lost("a")]), Board("b")]
    assert (
        run_at_once(DevicePool(boards), [[TRIAL], [TRIAL, TRIAL]] * 5, 1.0) == ((MEASURED,), (MEASURED, MEASURED)) * 5
    )


def test_batches_without_any_device() -> None:
    boards = [Board(name, [lost(name)]) for name in "ab"]
    with pytest.raises(IngotError) as caught:
        run_at_once(DevicePool(boards), [[TRIAL]] * 3, 1.0)
    assert caught.value.code is ErrorCode.DEVICE_TIMEOUT


def busy() -> IngotError:
    return IngotError(ErrorCode.RESOURCE_EXHAUSTED, "the device is leased by another tuner")


def test_a_device_that_another_tuner_has_is_not_called_lost() -> None:
    """Whoever asks: the one that has met the tuner, and those after him."""
    clock, only = Clock(), Board("a", [busy(), busy()])
    pool = DevicePool([only], retry_seconds=20.0, clock=clock)
    for _ in range(3):
        with pytest.raises(IngotError, match="leased by another tuner") as caught:
            pool.run([TRIAL], 1.0)
        assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
    clock.now = 20.0
    with pytest.raises(IngotError, match="leased by another tuner"):
        pool.run([TRIAL], 1.0)
    clock.now = 40.0
    assert pool.run([TRIAL], 1.0) == (MEASURED,)
    assert only.calls == 3


@pytest.mark.parametrize("fault", [busy(), lost()])
def test_a_device_that_is_away_is_no_fault_of_what_was_to_be_measured(fault: IngotError) -> None:
    class Problem(ToyProblem):
        def trial(self, built: BuiltCandidate, most_copied: int) -> Trial:
            return TRIAL

    building: Future[Any] = Future()
    building.set_result(SimpleNamespace(candidate=None))
    with Trials([], TARGET, DevicePool([Board("a", [fault])], clock=Clock())) as trials:
        trials._builders.submit = lambda *_: building  # type: ignore[method-assign]
        with pytest.raises(IngotError) as caught:
            list(trials.defaults([Problem(), Problem()], 0.01))
    assert caught.value.code is fault.code


def test_all_are_given_back() -> None:
    boards = [Board(name) for name in "ab"]
    DevicePool(boards).close()
    assert all(board.is_closed for board in boards)
