"""Positions are extreme at the corners of what is walked, and what is read there must exist."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_service.compiler.tensor_expr.assumptions import requirements
from compiler_service.compiler.tensor_expr.tensor import compute, placeholder
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Var, equal, lift, select, substitute
from shared_ir.expr.corners import corners
from shared_ir.expr.dim import Dim, evaluate, symbol

ROW, COLUMN = Var("$i"), Var("$j")
N = symbol("n")
leaves = st.one_of(st.sampled_from([ROW, COLUMN, lift(N)]), st.integers(0, 5).map(lift))


def extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, st.integers(0, 4)).map(lambda p: p[0] * p[1]),
        st.tuples(inner, st.integers(1, 4)).map(lambda p: p[0] // p[1]),
    )


@settings(max_examples=300, deadline=None)
@given(st.recursive(leaves, extend, max_leaves=6), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3))
def test_the_extremes_are_those_of_all_positions(index: Expr, rows: int, columns: int, n: int) -> None:
    found = corners(index, {ROW: rows, COLUMN: columns})
    if found is None:
        return
    at = [evaluate(index, {"$i": i, "$j": j, "n": n}) for i, j in itertools.product(range(rows), range(columns))]
    assert evaluate(found.least, {"n": n}) == min(at)
    assert evaluate(found.most, {"n": n}) == max(at)


def test_what_turns_back_has_no_corners() -> None:
    assert corners(ROW - ROW // 2, {ROW: 4}) is None
    assert corners(ROW % 3, {ROW: 4}) is None


def stated(x: Dim, extent: Dim, index: Expr) -> list[str]:
    data = placeholder("x", (x,), DType.FLOAT32)
    read = compute((extent,), lambda i: data[substitute(index, {ROW: i})])
    return [str(a) for a in requirements([read])]


@pytest.mark.parametrize(
    ("x", "extent", "index", "expected"),
    [
        (symbol("d"), 4, ROW * 2 + 1, ["d must be at least 8"]),
        (symbol("d"), 4, ROW - 1, ["d must be at least 3", "-1 must be at least 0"]),
        (symbol("d"), symbol("d"), lift(symbol("d")) - 1 - ROW, []),
        (symbol("d"), N, ROW // 2, ["d must be at least (n + 1) // 2"]),
        (symbol("d"), symbol("d"), select(equal(ROW, 3), lift(0), ROW), []),
        (symbol("d"), 2, lift(1), ["d must be at least 2"]),
        (symbol("d"), 0, lift(1), []),
    ],
)
def test_what_is_read_must_exist(x: Dim, extent: Dim, index: Expr, expected: list[str]) -> None:
    assert stated(x, extent, index) == expected
