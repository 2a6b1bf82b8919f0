"""Candidates that somebody says were measured, and that are none here."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.tune.measuring.trial import Outcome, OutcomeKind, Trial, TrialTiming
from compiler_service.compiler.tune.problem import BuiltCandidate
from compiler_service.compiler.tune.trying import Default, Trials
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.tune.toy_problems import ToyProblem


class SmallProblem(ToyProblem):
    def trial(self, built: BuiltCandidate, most_copied: int) -> Trial:
        return cast(Trial, built)

    def disagreement(self, expected: Sequence[bytes], found: Sequence[bytes], candidate: Any) -> str:
        return "" if expected == found else "they differ"


def confirmed(building: Future[Any], results: bytes = b"same") -> tuple[bool, float]:
    """Whether a candidate that takes a tenth of the default's time is faster, where its code is ``building``, and its time."""
    problem, slow = SmallProblem(), TrialTiming((1e-3, 1e-3))
    default = Default(problem.candidate(Knobs()), cast(Trial, None), cast(Trial, None), (b"same",), slow)
    fast = Outcome(OutcomeKind.MEASURED, TrialTiming((1e-4, 1e-4)), (results,))
    standing = Outcome(OutcomeKind.MEASURED, slow, (b"same",))
    measurer = SimpleNamespace(size=1, run=lambda trials, seconds: (standing, fast))
    trials = Trials([], host_target(), cast(Any, measurer))
    trials._builders = cast(Any, SimpleNamespace(submit=lambda problem, candidate: building))
    holds, own, _ = trials.confirmed(problem, default, problem.candidate(Knobs({"rows": 8})), 0.01)
    return holds, own.seconds


def test_what_is_faster_is_confirmed() -> None:
    building: Future[Any] = Future()
    building.set_result(None)
    assert confirmed(building) == (True, 1e-4)


def test_what_computes_something_else_is_not_confirmed() -> None:
    building: Future[Any] = Future()
    building.set_result(None)
    assert confirmed(building, b"else") == (False, 1e-3)


@pytest.mark.parametrize("error", [IngotError(ErrorCode.INVALID_ARGUMENT, "it does not fit"), ValueError("LLVM")])
def test_what_cannot_be_made_is_not_confirmed(error: Exception) -> None:
    building: Future[Any] = Future()
    building.set_exception(error)
    assert confirmed(building) == (False, 1e-3)
