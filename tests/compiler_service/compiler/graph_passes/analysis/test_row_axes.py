"""Axes that count rows are read off definitions: what a row reads of another one, and what says which row it is, is refused."""

from __future__ import annotations

import pytest

from compiler_service.compiler.graph_passes.analysis.row_axes import SAME, BatchRows, RowAxis, Rows, rows_of
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.expr import cast, select
from shared_ir.expr.dim import symbol

N, S = symbol("batch"), symbol("s")
BATCH = BatchRows("batch", frozenset({"s"}))
X = placeholder("x", (N * 4, 6), DType.FLOAT32)
WEIGHTS = placeholder("w", (6, 6), DType.FLOAT32)
PLACES = placeholder("p", (N * 4,), DType.INT64)
UNKNOWN = placeholder("u", (N, 6), DType.FLOAT32)
KNOWN: dict[Tensor, Rows] = {
    X: frozenset({RowAxis(0, 4)}),
    WEIGHTS: SAME,
    PLACES: frozenset({RowAxis(0, 4)}),
    UNKNOWN: None,
}
FOUR, ONE = frozenset({RowAxis(0, 4)}), frozenset({RowAxis(0)})


def pieces(extent: int) -> Tensor:
    return reduce(ReduceOp.SUM, (N, 6), (extent,), lambda i, j, k: X[i * 4 + k, j])


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (compute((N * 4, 6), lambda i, j: X[i, j] + WEIGHTS[j, 0]), FOUR),
        (compute((N * 4, 6), lambda i, j: X[i, 5 - j]), FOUR),
        (compute((N * 2, 6), lambda i, j: X[i * 2 + 1, j]), frozenset({RowAxis(0, 2)})),
        (compute((6, N * 4), lambda j, i: X[i, j]), frozenset({RowAxis(1, 4)})),
        (pieces(4), ONE),
        (pieces(5), None),  # the first piece of the next row
        (compute((N * 4, 6), lambda i, j: X[i + 1, j]), None),
        (compute((N * 4, 6), lambda i, j: X[N * 4 - 1 - i, j]), None),
        (compute((N * 4, 6), lambda i, j: X[PLACES[i], j]), None),
        (compute((N * 4, 6), lambda i, j: X[i, PLACES[i]]), FOUR),
        (compute((N * 4, 6), lambda i, j: WEIGHTS[PLACES[i], j]), FOUR),
        (compute((N, 6), lambda i, j: X[0, j] + X[i * 4, j]), None),
        (compute((N, 6), lambda i, j: WEIGHTS[i, j]), None),
        (compute((N, 6), lambda i, j: WEIGHTS[0, j]), ONE),
        (compute((N, 6), lambda i, j: X[i * 4, j] * cast(i, DType.FLOAT32)), None),
        (compute((N, 6), lambda i, j: select(j < S, X[i * 4, j], WEIGHTS[0, j])), ONE),
        (compute((N, 6), lambda i, j: select(i < N, X[i * 4, j], WEIGHTS[0, j])), None),
        (compute((N, 6), lambda i, j: UNKNOWN[i, j]), None),
        (compute((N, N), lambda i, j: X[i * 4, 0]), None),
        (compute((6,), lambda j: WEIGHTS[0, j]), SAME),
        (compute((6,), lambda j: X[0, j]), None),
        (compute((6,), lambda j: WEIGHTS[0, j] * cast(S, DType.FLOAT32)), SAME),
        (compute((6,), lambda j: WEIGHTS[0, j] * cast(N, DType.FLOAT32)), None),
        (reduce(ReduceOp.SUM, (6,), (N,), lambda j, k: WEIGHTS[0, j]), None),  # as often as there are rows
        (compute((symbol("found"), 6), lambda i, j: WEIGHTS[0, j]), None),  # of a size that data decides
        (placeholder("algorithm", (N, 6), DType.FLOAT32), None),
    ],
)
def test_rows(tensor: Tensor, expected: Rows) -> None:
    assert rows_of(tensor, KNOWN, BATCH) == expected


def test_axes_that_may_count_rows() -> None:
    assert list(BATCH.axes((6, N * 4))) == [RowAxis(1, 4)]
    assert list(BATCH.axes((N * S, 3))) == [RowAxis(0, S)]
    assert list(BATCH.axes((N + 1, 3))) == []
    assert list(BATCH.axes((N * N, 3))) == []
    assert list(BATCH.axes((N // 2, 3))) == []
    assert list(BATCH.axes((N, N))) == []
    assert list(BATCH.axes((N * symbol("found"), 3))) == []
