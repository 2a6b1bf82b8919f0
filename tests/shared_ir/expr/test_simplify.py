"""The simplifier keeps the value of every expression and knows the normal forms it promises."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shared_ir.expr import Binary, BinaryOp, Const, Expr, Var, to_text
from shared_ir.expr.dim import parse_dim
from shared_ir.expr.simplify import Simplifier, simplify
from tests.shared_ir.expr.expressions import NAMES, assignments, dim_expressions, expressions, value_of


def _defined_value(expr: Expr, values: Mapping[str, int]) -> int | bool:
    try:
        return value_of(expr, values)
    except ZeroDivisionError:
        assume(False)
        raise


@given(expressions(raw=True), assignments)
def test_simplify_keeps_the_value(expr: Expr, values: Mapping[str, int]) -> None:
    wanted = _defined_value(expr, values)
    assert value_of(simplify(expr), values) == wanted


@pytest.mark.slow
@given(expressions(raw=True), st.data())
def test_simplify_keeps_the_value_inside_ranges(expr: Expr, data: st.DataObject) -> None:
    bounds = st.tuples(st.integers(-20, 20), st.integers(0, 15)).map(lambda p: (p[0], p[0] + p[1]))
    ranges = {name: data.draw(bounds, label=name) for name in NAMES}
    values = {name: data.draw(st.integers(*ranges[name]), label=name) for name in NAMES}
    wanted = _defined_value(expr, values)
    assert value_of(simplify(expr, ranges), values) == wanted


@given(expressions(raw=True), assignments)
def test_interval_holds_the_value(expr: Expr, values: Mapping[str, int]) -> None:
    wanted = _defined_value(expr, values)
    low, high = Simplifier({}).interval(expr)
    assert low is None or low <= wanted
    assert high is None or wanted <= high


@given(dim_expressions())
def test_simplify_is_idempotent(expr: Expr) -> None:
    once = simplify(expr)
    assert simplify(once) == once


@given(dim_expressions(), dim_expressions())
def test_sums_do_not_depend_on_order(a: Expr, b: Expr) -> None:
    assert simplify(Binary(BinaryOp.ADD, a, b)) == simplify(Binary(BinaryOp.ADD, b, a))
    assert simplify(Binary(BinaryOp.SUB, Binary(BinaryOp.ADD, a, b), b)) == simplify(a)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("w + w - 2*w", "0"),
        ("(w * 4 + 3) // 4", "w"),
        ("(w * 4 + 3) % 4", "3"),
        ("w // 2 // 3", "w // 6"),
        ("(w + 1) // 2 - (1 + w) // 2", "0"),
        ("max(w, 0)", "w"),
        ("min(w, w + 3)", "w"),
        ("batch * (h * w) - h * batch * w", "0"),
        ("(h * w) // w", "h"),
        ("(2 * w + 2) // (w + 1)", "2"),
        ("w * 64 * h // 64", "h * w"),
        ("(w - 1 + 1) // 1", "w"),
    ],
)
def test_normal_forms(text: str, normal: str) -> None:
    found = parse_dim(text)
    assert (str(found) if isinstance(found, int) else to_text(found)) == normal


def test_ranges_decide_comparisons() -> None:
    i = Var("i")
    ranges = {"i": (0, 7)}
    assert simplify(i < 8, ranges) == simplify(Const(1) < 2)
    assert to_text(simplify(i < 7, ranges)) == "i < 7"
    assert simplify(i // 8, ranges) == Const(0)
    assert simplify(i % 8, ranges) == i
