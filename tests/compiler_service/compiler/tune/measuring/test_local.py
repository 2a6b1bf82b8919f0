"""Trials in a child: what runs, what crashes, what hangs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.codegen.toolchain.machine import compile_ir
from compiler_service.compiler.tune.measuring import local
from compiler_service.compiler.tune.measuring.local import LocalMeasurer, beside, measuring_core
from compiler_service.compiler.tune.measuring.trial import Content, OutcomeKind, Trial, TrialBuffer, TrialLaunch

_KERNEL = """
define void @k(ptr %buffers, ptr %symbols, i64 %begin, i64 %end, ptr %scratch, ptr %goes_on) {{
entry:
  %second = getelementptr ptr, ptr %buffers, i64 1
  %x = load ptr, ptr %buffers
  %y = load ptr, ptr %second
  {body}
}}
"""
_COPIES = "%v = load i64, ptr %x\n  store i64 %v, ptr %y\n  ret void"
_CRASHES = "store i64 1, ptr null\n  ret void"
_HANGS = "br label %again\nagain:\n  br label %again"
_COUNTS = "%v = load i64, ptr %y\n  %w = add i64 %v, 1\n  store i64 %w, ptr %y\n  ret void"


def trial(body: str, content: bytes = b"\x07\0\0\0\0\0\0\0", copies: int = 1) -> Trial:
    target = host_target()
    code = compile_ir(_KERNEL.format(body=body), target)
    buffers = (TrialBuffer(8, Content.of(content), copies), TrialBuffer(8, is_result=True))
    return Trial(target, (code,), (TrialLaunch("k", (0, 1), (), 1, 64),), buffers)


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalMeasurer]:
    monkeypatch.setattr(local, "_SECONDS_OF_FIRST_RUN", 1.0)
    measurer = LocalMeasurer()
    yield measurer
    measurer.close()


def test_a_candidate_is_timed_and_gives_its_result(measurer: LocalMeasurer) -> None:
    (outcome,) = measurer.run([trial(_COPIES)], 0.01)
    assert outcome.kind is OutcomeKind.MEASURED
    assert outcome.results == (b"\x07\0\0\0\0\0\0\0",)
    assert outcome.timing is not None
    assert len(outcome.timing.rounds) >= 3
    assert 0 < outcome.timing.seconds < 1


def test_results_are_those_of_the_first_run(measurer: LocalMeasurer) -> None:
    (outcome,) = measurer.run([trial(_COUNTS)], 0.01)
    assert np.frombuffer(outcome.results[0], np.int64).tolist() == [1]


def test_trials_are_timed_in_turns(measurer: LocalMeasurer) -> None:
    one, other = measurer.run([trial(_COPIES), trial(_COPIES, b"\x09" * 8, copies=5)], 0.01)
    assert one.timing is not None
    assert other.timing is not None
    assert len(one.timing.rounds) == len(other.timing.rounds)
    assert other.results == (b"\x09" * 8,)


def test_a_crash_is_an_outcome_and_the_next_trial_runs(measurer: LocalMeasurer) -> None:
    beside_it, crashed = measurer.run([trial(_COPIES), trial(_CRASHES)], 0.01)
    assert crashed.kind is OutcomeKind.CRASHED
    assert "signal 11" in crashed.reason
    assert beside_it.timing is None
    assert measurer.run([trial(_COPIES)], 0.01)[0].kind is OutcomeKind.MEASURED


def test_one_that_never_ends_is_late(measurer: LocalMeasurer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_START_SECONDS", 5.0)
    assert measurer.run([trial(_COPIES)], 0.01)[0].kind is OutcomeKind.MEASURED
    (late,) = measurer.run([trial(_HANGS)], 0.01)
    assert late.kind is OutcomeKind.LATE
    assert late.timing is None


def test_contents_are_sent_again_after_the_child_forgot_them(
    measurer: LocalMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_MOST_KEPT_BYTES", 10)
    for number in (1, 2, 3, 1):
        content = bytes([number]) * 8
        assert measurer.run([trial(_COPIES, content)], 0.001)[0].results == (content,)


def test_who_compiles_keeps_off_the_core_that_measures() -> None:
    core = measuring_core()
    if core is None:
        pytest.skip("this machine has one core")
    before = os.sched_getaffinity(0)
    with beside(core):
        assert os.sched_getaffinity(0) == before - {core}
    assert os.sched_getaffinity(0) == before


def test_why_a_child_has_ended_is_told(measurer: LocalMeasurer) -> None:
    """More memory than there is: an exception ends the child, and its last line says so."""
    endless = replace(trial(_COPIES), buffers=(TrialBuffer(8), TrialBuffer(1 << 46, is_result=True)))
    (outcome,) = measurer.run([endless], 0.01)
    assert outcome.kind is OutcomeKind.CRASHED
    assert "exit status 1: " in outcome.reason
    assert "Unable to allocate" in outcome.reason
