"""Answers about jobs wait for no store."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from compiler_service.api import reports
from compiler_service.api.reports import VerificationReports
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb

FOUND = {
    "state": "verified",
    "oracle": "onnxruntime 1",
    "outputs": [{"name": "y", "max_abs_error": 0.1, "max_rel_error": 0.2}],
}


class Repository:
    """Holds ``report`` back until ``is_open``."""

    def __init__(self, error: IngotError | None = None) -> None:
        self.asked = 0
        self.is_open = threading.Event()
        self._error = error

    def report(self, key: str) -> Mapping[str, Any]:
        self.asked += 1
        self.is_open.wait(20.0)
        if self._error is not None:
            raise self._error
        return {"verification": FOUND}


def job(state: str = "SUCCEEDED") -> pb.Job:
    return pb.Job(targets=[pb.TargetJob(artifact_key="ab" * 32, state=f"JOB_STATE_{state}")])


def made(repository: Repository) -> VerificationReports:
    return VerificationReports(repository)  # type: ignore[arg-type]


def test_what_is_known_is_told_and_read_once() -> None:
    repository = Repository()
    repository.is_open.set()
    found = made(repository)
    for _ in range(3):
        (target,) = found.verified(job()).targets
        assert (target.verification.state, target.verification.outputs[0].name) == ("verified", "y")
    assert repository.asked == 1
    assert not found.verified(job("RUNNING")).targets[0].HasField("verification")


def test_a_slow_store_delays_one_answer_a_little_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "PATIENCE_SECONDS", 0.2)
    repository = Repository()
    found, start = made(repository), time.monotonic()
    for _ in range(20):
        assert not found.verified(job()).targets[0].HasField("verification")
    assert 0.2 <= time.monotonic() - start < 2.0
    assert repository.asked == 1
    repository.is_open.set()
    while not found.verified(job()).targets[0].HasField("verification"):
        assert time.monotonic() - start < 20.0
    assert repository.asked == 1


@pytest.mark.parametrize(("code", "times"), [(ErrorCode.NOT_FOUND, 1), (ErrorCode.UNAVAILABLE, 2)])
def test_what_is_gone_is_not_asked_for_again_and_a_store_that_was_away_is(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, times: int
) -> None:
    repository = Repository(IngotError(code, "no"))
    repository.is_open.set()
    found = made(repository)
    for _ in range(5):
        assert not found.verified(job()).targets[0].HasField("verification")
    assert repository.asked == 1
    found._not_before = 0.0  # the pause is over
    found.verified(job())
    assert repository.asked == times


@pytest.mark.parametrize(
    "odd", [{"state": 3}, {"seconds": "x"}, {"sizes": 1}, {"outputs": [{}]}, {"outputs": 7}, {"sizes": {"n": 1 << 70}}]
)
def test_a_report_that_makes_no_sense_harms_no_answer(odd: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written by a process that had read the model."""
    repository = Repository()
    repository.is_open.set()
    monkeypatch.setitem(globals(), "FOUND", odd)
    (target,) = made(repository).verified(job()).targets
    assert target.artifact_key == "ab" * 32


def test_of_more_outputs_than_a_message_has_room_for_the_worst_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [{"name": f"output {n}", "max_abs_error": 0.0, "max_rel_error": float(n % 30_011)} for n in range(40_000)]
    monkeypatch.setitem(FOUND, "outputs", many)
    repository = Repository()
    repository.is_open.set()
    own = pb.Job(targets=[pb.TargetJob(artifact_key=f"{n:064x}", state="JOB_STATE_SUCCEEDED") for n in range(8)])
    shown = made(repository).verified(own)
    assert shown.ByteSize() < 4 << 20  # what gRPC takes where nobody says otherwise
    whole, *_, cut = (target.verification for target in shown.targets)
    assert len(whole.outputs) == 40_000
    assert cut.state == "verified"
    assert [output.name for output in cut.outputs] == [f"output {n}" for n in range(30_001, 30_011)]


def test_of_names_that_no_message_has_room_for_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    long = [{"name": "n" * (5 << 20), "max_abs_error": 0.0, "max_rel_error": 0.0}]
    monkeypatch.setitem(FOUND, "outputs", long)
    repository = Repository()
    repository.is_open.set()
    (target,) = made(repository).verified(job()).targets
    assert (target.verification.state, len(target.verification.outputs)) == ("verified", 0)
