"""Processes that make candidates: what they make, what they refuse, and what happens when one dies."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.tune import building
from compiler_service.compiler.tune.building import Builders
from compiler_service.compiler.tune.problem import Candidate, LoweredCandidate
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.tune.toy_problems import ToyProblem


@dataclass
class OddProblem(ToyProblem):
    """Does what its knob says while it is lowered."""

    def candidate(self, knobs: Knobs) -> Candidate:
        knobs.choice("way", ("plain", "refused", "faulty", "killed", "endless"), "plain")
        return Candidate("toy", knobs.values, ())

    def lowered(self, candidate: Candidate) -> LoweredCandidate:
        match candidate.values.get("way", "plain"):
            case "refused":
                raise IngotError(ErrorCode.INVALID_ARGUMENT, "it does not fit", field="way")
            case "faulty":
                raise KeyError("k")
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "endless":
                signal.pause()
        return LoweredCandidate(candidate, (), ())


def asked(builders: Builders, problem: OddProblem, way: str) -> IngotError | None:
    future = builders.submit(problem, problem.candidate(Knobs({"way": way})))
    found = future.exception(timeout=60)
    assert found is None or isinstance(found, IngotError)
    return found


def test_what_is_wrong_with_a_candidate_is_told_and_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_LIMIT_SECONDS", 3.0)
    problem = OddProblem()
    with Builders([ToyProblem("other"), problem], host_target()) as builders:
        assert asked(builders, problem, "plain") is None
        refused = asked(builders, problem, "refused")
        assert refused is not None
        assert (refused.code, refused.field) == (ErrorCode.INVALID_ARGUMENT, "way")
        faulty = asked(builders, problem, "faulty")
        assert faulty is not None
        assert "KeyError" in faulty.message
        for way, code in (("killed", ErrorCode.COMPILER_FAULT), ("endless", ErrorCode.DEADLINE_EXCEEDED)):
            for _ in range(3):  # more often than there are processes
                found = asked(builders, problem, way)
                assert found is not None
                assert found.code is code
            assert asked(builders, problem, "plain") is None


def test_they_end_when_nobody_orders_any_more() -> None:
    """As when the tuner is killed: the kernel closes its ends of the pipes."""
    with Builders([OddProblem()], host_target()) as builders:
        processes = [builders._idle.get() for _ in range(builders._idle.qsize())]
        for process in reversed(processes):  # a later one holds the pipes of those before it
            os.close(process._orders)
            assert os.waitpid(process._pid, 0) == (process._pid, 0)
            os.close(process._answers)
