"""Trials of staged programs: what they run on, and which results are the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, compute, placeholder, reduce
from compiler_service.compiler.tune.measuring.local import LocalMeasurer
from compiler_service.compiler.tune.programs import ProgramTrials, differs, drawn_numbers
from shared_ir.dtype import DType
from shared_ir.expr.dim import symbol

N = symbol("n")
X = placeholder("X", (N, 5), DType.FLOAT32)
ROWS = reduce(ReduceOp.SUM, (N,), (5,), lambda i, k: X[i, k], name="rows", axes=("i",), reduced=("k",))
SCALED = compute((N, 5), lambda i, j: X[i, j] * ROWS[i], name="scaled")


@pytest.fixture
def trials() -> Iterator[ProgramTrials]:
    target, sizes = host_target(), {"n": 7}
    with backend_of(target).objects(target, workers=0) as maker:
        yield ProgramTrials(target, drawn_numbers([X], sizes), sizes, maker)


def test_a_trial_computes_all_results(trials: ProgramTrials) -> None:
    program = StagedProgram.of([SCALED, ROWS])
    trial = trials.of(program)
    assert [launch.symbols for launch in trial.launches] == [(7,), (7,)]
    assert [b.size for b in trial.buffers] == [7 * 5 * 4, 7 * 4, 7 * 5 * 4]
    assert [b.is_result for b in trial.buffers] == [False, True, True]
    measurer = LocalMeasurer()
    try:
        (outcome,) = measurer.run((trial,), 0.01)
    finally:
        measurer.close()
    found, x = trials.results(program, outcome.results), trials.arguments[X]
    np.testing.assert_allclose(found["rows"], x.sum(1), rtol=1e-5)
    np.testing.assert_allclose(found["scaled"], x * x.sum(1, keepdims=True), rtol=1e-5)


def test_equal_loops_are_compiled_once(trials: ProgramTrials) -> None:
    first, again = (trials.of(StagedProgram.of([SCALED, ROWS])) for _ in range(2))
    assert all(one is other for one, other in zip(first.code, again.code, strict=True))


@pytest.mark.parametrize("kind", ["float32", "float16", "float64"])
def test_roundings_are_no_difference(kind: str) -> None:
    wanted = np.linspace(-3, 5, 100).astype(kind)
    assert differs(wanted, wanted) == ""
    assert differs((wanted * (1 + 4 * np.finfo(kind).eps)).astype(kind), wanted) == ""
    assert "off by" in differs((wanted.astype(np.float64) + 3000 * np.finfo(kind).eps).astype(kind), wanted)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_must_stand_where_it_stood(wrong: float) -> None:
    wanted = np.array([1.0, 2.0, wrong], np.float32)
    assert differs(wanted, wanted) == ""
    assert differs(wanted[::-1], wanted)
    assert differs(np.array([1.0, 2.0, 3.0], np.float32), wanted)
    assert differs(wanted, np.array([1.0, 2.0, 3.0], np.float32))


def test_whole_numbers_are_the_same_or_are_not() -> None:
    wanted = np.arange(5)
    assert differs(wanted, wanted) == ""
    assert differs(wanted + (wanted == 3), wanted) == "1 of 5 elements differ"


def test_numbers_are_the_same_each_time() -> None:
    kinds = [
        placeholder("a", (4,), DType.FLOAT16),
        placeholder("b", (4,), DType.INT64),
        placeholder("c", (4,), DType.BOOL),
    ]
    first, again = drawn_numbers(kinds, {}), drawn_numbers(kinds, {})
    for tensor in kinds:
        np.testing.assert_array_equal(first[tensor], again[tensor])
        assert first[tensor].dtype == tensor.dtype.numpy
