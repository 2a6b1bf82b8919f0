"""Processes that make candidates: what they make, what they refuse, and what happens when one dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.tune import building
from compiler_service.compiler.tune.building import Builders
from compiler_service.compiler.tune.problem import Candidate, LoweredCandidate
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.appended import holding_lines
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
        for process in reversed(builders._living):  # a later one holds the pipes of those before it
            os.close(process._orders)
            assert os.waitpid(process._pid, 0) == (process._pid, 0)
            process._orders = os.open(os.devnull, os.O_RDONLY)


def test_they_end_at_once_with_the_tuner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for what is being made."""
    monkeypatch.setattr(building, "_LIMIT_SECONDS", 3600.0)
    problem = OddProblem()
    with Builders([problem], host_target()) as builders:
        made = [builders.submit(problem, problem.candidate(Knobs({"way": "endless"}))) for _ in range(9)]
    assert all(future.cancelled() or future.exception() for future in made)


_KILLED = """
import os, signal
from tests.compiler_service.compiler.tune.test_building import Builders, Knobs, OddProblem, host_target
problem = OddProblem()
with Builders([problem], host_target()) as builders:
    for _ in range(9):
        builders.submit(problem, problem.candidate(Knobs({"way": "endless"})))
    while not builders._idle.empty():
        pass
    print(*(process._pid for process in builders._living), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_candidate_that_has_no_end_ends_with_the_tuner_that_is_killed() -> None:
    """The pipe of its answers is at its end only when all of them are gone."""
    tuner = subprocess.run([sys.executable, "-c", _KILLED], capture_output=True, text=True, timeout=120, check=False)
    assert tuner.returncode == -signal.SIGKILL
    assert tuner.stdout.split()


def test_they_have_no_file_of_the_tuner_open(tmp_path: Path) -> None:
    """A lock on a file belongs to all who have it open: one that is made anew while records are written would keep it for ever."""
    path, problem = tmp_path / "records.jsonl", OddProblem()
    with holding_lines(path) as held, Builders([problem], host_target()) as builders:
        assert asked(builders, problem, "killed") is not None
        assert asked(builders, problem, "plain") is None
        fcntl.flock(held.file, fcntl.LOCK_UN)
        for process in builders._living:
            until = time.monotonic() + 20  # the new one closes them as it begins
            while holds(process._pid, path) and time.monotonic() < until:
                time.sleep(0.02)
            assert not holds(process._pid, path)


def holds(pid: int, path: Path) -> bool:
    """Whether a process has a file open."""
    found = set[str]()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(entry))
    return str(path) in found


def test_a_program_with_many_open_files_can_tune() -> None:
    problem = OddProblem()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit[1], 4096), limit[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with Builders([problem], host_target()) as builders:
            assert asked(builders, problem, "plain") is None
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
