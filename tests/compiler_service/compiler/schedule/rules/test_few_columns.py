"""Sums of products with fewer results of a row than a vector has lanes."""

from __future__ import annotations

import pytest

from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.loop_ir.ir import BufferLoad, Ramp, expressions_of, walk_statements
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.steps import CacheRead, Overlap, Vectorize
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Const, maximum, walk
from shared_ir.expr.dim import Dim, symbol
from shared_ir.machine.target import Target
from tests.compiler_service.compiler.schedule.kernels import (
    AVX2,
    AVX512,
    ONE_QUICK_TARGET,
    TARGETS,
    arguments_of,
    check,
)

F32 = DType.FLOAT32


def product(lines: Dim, rows: Dim, columns: int, depth: int) -> Tensor:
    x, weight = placeholder("x", (lines, rows, depth), F32), placeholder("w", (depth, columns), F32)
    total = reduce(
        ReduceOp.SUM, (lines, rows, columns), (depth,), lambda h, i, j, k: x[h, i, k] * weight[k, j], name="sum"
    )
    return compute((lines, rows, columns), lambda h, i, j: maximum(total[h, i, j] - 0.5, 0.0), name="relu")


def upsampled(lines: int, rows: int, depth: int) -> Tensor:
    """Every pixel becomes a square of 2 x 2."""
    x, weight = placeholder("x", (lines, rows, depth), F32), placeholder("w", (depth, 2, 2), F32)
    shape = (lines, 2, rows, 2)
    total = reduce(ReduceOp.SUM, shape, (depth,), lambda h, a, i, b, k: x[h, i, k] * weight[k, a, b], name="phases")
    return compute(shape, lambda h, a, i, b: total[h, a, i, b] + 1.0, name="bias")


def weights(output: Tensor) -> frozenset[Tensor]:
    return frozenset(t for t in arguments_of(output) if t.name == "w")


def is_transposed(output: Tensor, target: Target = AVX512) -> bool:
    return any(isinstance(s, CacheRead) for s in default_schedule(output, weights(output), target))


@pytest.mark.sampled
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("rows", [16, 32, 37, 100])
@pytest.mark.parametrize(("columns", "depth"), [(2, 24), (3, 8), (4, 4), (8, 16)])
def test_few_columns(rows: int, columns: int, depth: int, target: str) -> None:
    output = product(3, rows, columns, depth)
    check(output, {}, TARGETS[target], weights(output), after_passes=True)


@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
def test_columns_of_two_axes(target: str) -> None:
    for rows in (32, 40, 19):
        output = upsampled(5, rows, 24)
        check(output, {}, TARGETS[target], weights(output), after_passes=True)


def test_one_long_line_is_cut_into_tasks() -> None:
    output = product(1, 40_000, 4, 16)
    schedule = default_schedule(output, weights(output), AVX512)
    assert lower("few", output, arguments_of(output), (), schedule, AVX512).tasks == AVX512.cores * 4
    assert not any(isinstance(s, Overlap) for s in schedule)
    small = product(1, 1000, 4, 4)
    check(small, {}, AVX512, weights(small), after_passes=True)


def test_vectors_lie_along_the_rows_and_nothing_is_gathered() -> None:
    output = upsampled(5, 64, 24)
    schedule = default_schedule(output, weights(output), AVX512)
    assert {s.loop for s in schedule if isinstance(s, Vectorize)} == {"i2", "x_1"}
    function = passes.run(lower("few", output, arguments_of(output), (), schedule, AVX512))
    strides = {
        index.stride
        for statement in walk_statements(function.body)
        for part in expressions_of(statement)
        for e in walk(part)
        if isinstance(e, BufferLoad)
        for index in e.indices
        if isinstance(index, Ramp)
    }
    assert strides <= {Const(0), Const(1)}


def test_only_where_it_pays() -> None:
    assert is_transposed(product(3, 64, 8, 24))
    assert not is_transposed(product(3, 64, 9, 24))  # more than half a vector
    assert not is_transposed(product(3, 64, 8, 24), AVX2)
    assert not is_transposed(product(3, 64, 1, 24))  # a sum along the vectors of a row
    assert not is_transposed(product(3, 64, 4, 25))  # no squares
    assert not is_transposed(product(3, 12, 4, 24))  # rows of less than a vector
    assert not is_transposed(product(3, 64, 4, 4096))  # a tile of rows would not stay in the cache
    assert not is_transposed(product(3, symbol("n"), 4, 24))
