"""Programs as scheduling problems: what their trials run on, and what they compute."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest

from compiler_service.compiler.backends.face import SourceCode
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.steps import Split
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, compute, placeholder, reduce
from compiler_service.compiler.tune import programs
from compiler_service.compiler.tune.building import Builders
from compiler_service.compiler.tune.measuring.local import LocalMeasurer
from compiler_service.compiler.tune.measuring.trial import Outcome, Trial
from compiler_service.compiler.tune.programs import MakeProgram, ProgramProblem
from compiler_service.compiler.tune.records.record import Workload, distance
from compiler_service.compiler.tune.tasks import TuningTask
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr import cast
from shared_ir.expr.dim import symbol

N = symbol("n")
X = placeholder("X", (N, 5), DType.FLOAT32)
ROWS = reduce(ReduceOp.SUM, (N,), (5,), lambda i, k: X[i, k], name="rows", axes=("i",), reduced=("k",))
SCALED = compute((N, 5), lambda i, j: X[i, j] * ROWS[i], name="scaled", axes=("i", "j"))
NUMBERS = np.random.default_rng(1).random((7, 5), dtype=np.float32)


def tiled(knobs: Knobs) -> StagedProgram:
    program = StagedProgram.of([SCALED, ROWS])
    stage = program.stage("scaled")
    steps = (Split("scaled", "i", knobs.choice("tile", (2, 4), 2)),)
    return program.with_stage(replace(stage, steps=steps))


def problem() -> ProgramProblem:
    return ProgramProblem(tiled, "tiled", host_target(), {X: NUMBERS}, {"n": 7})


def run(own: ProgramProblem, knobs: Knobs) -> tuple[Trial, Outcome]:
    with Builders([own], host_target()) as builders:
        trial = own.trial(builders.submit(own, own.candidate(knobs)).result(), 0)
    measurer = LocalMeasurer()
    try:
        return trial, measurer.run((trial,), 0.01)[0]
    finally:
        measurer.close()


def test_a_trial_computes_all_results() -> None:
    own = problem()
    trial, outcome = run(own, Knobs())
    assert [launch.symbols for launch in trial.launches] == [(7,), (7,)]
    assert [b.size for b in trial.buffers] == [7 * 5 * 4, 7 * 4, 7 * 5 * 4]
    assert [b.is_result for b in trial.buffers] == [False, True, True]
    rows, scaled = (np.frombuffer(r, np.float32) for r in outcome.results)
    np.testing.assert_allclose(rows, NUMBERS.sum(1), rtol=1e-5)
    np.testing.assert_allclose(scaled.reshape(7, 5), NUMBERS * NUMBERS.sum(1, keepdims=True), rtol=1e-5)


def test_candidates_are_told_apart_by_their_schedules() -> None:
    own = problem()
    first, same, other = (own.candidate(Knobs({"tile": tile})) for tile in (2, 2, 4))
    assert first.digest == same.digest != other.digest
    assert "tiled" in own.text
    assert own.label == "scaled, rows by tiled"


def test_what_shares_of_time_hang_on_is_told_apart_in_one_family() -> None:
    def other_default(knobs: Knobs) -> StagedProgram:
        program = StagedProgram.of([SCALED, ROWS])
        steps = (Split("scaled", "i", knobs.choice("tile", (2, 4), 4)),)
        return program.with_stage(replace(program.stage("scaled"), steps=steps))

    def workload(make: MakeProgram, extent: int) -> Workload:
        return TuningTask(ProgramProblem(make, "tiled", host_target(), {X: NUMBERS}, {"n": extent})).workload

    one, longer, other = workload(tiled, 7), workload(tiled, 9), workload(other_default, 7)
    assert one == workload(tiled, 7)
    assert len({w.digest for w in (one, longer, other)}) == 3
    assert len({w.family for w in (one, longer, other)}) == 1
    assert 0 == distance(one, other) < distance(one, longer) < 1


def test_results_of_another_type_are_others() -> None:
    own = problem()
    halved = compute((N, 5), lambda i, j: cast(X[i, j], DType.INT32), name="scaled", axes=("i", "j"))
    candidate = replace(own.candidate(Knobs()), program=StagedProgram.of([halved, ROWS]))
    results = run(own, Knobs())[1].results
    assert "in place of" in own.disagreement(results, results, candidate)


def test_results_without_a_number_prove_nothing() -> None:
    own = problem()
    rows, scaled = run(own, Knobs())[1].results
    assert own.fault([rows, scaled]) == ""
    assert "no finite number" in own.fault([rows, np.full(35, np.nan, np.float32).tobytes()])


def test_results_are_compared_one_by_one() -> None:
    own = problem()
    candidate, results = own.candidate(Knobs()), run(own, Knobs())[1].results
    assert own.disagreement(results, results, candidate) == ""
    wrong = (results[0], (np.frombuffer(results[1], np.float32) + 1).tobytes())
    assert "differs" in own.disagreement(results, wrong, candidate)
    assert "1 results in place of 2" in own.disagreement(results, results[:1], candidate)


class Counting:
    """Makes no objects, and counts what is asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def submit(self, name: str, source: SourceCode) -> Future[bytes]:
        self.asked += 1
        return Future()


def test_nests_in_common_are_compiled_once() -> None:
    own, maker = problem(), Counting()
    for tile in (2, 4, 2):
        own.lowered(own.candidate(Knobs({"tile": tile}))).submit(maker)
    assert maker.asked == 3  # the rows, and two ways to scale them


def test_code_that_takes_too_long_to_compile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = problem()
    monkeypatch.setattr(programs, "_MOST_TEXT", 1000)
    with pytest.raises(IngotError, match="repeated too often"):
        own.lowered(own.candidate(Knobs()))
