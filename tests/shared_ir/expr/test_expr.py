"""Scalar expressions: construction, folding, equality, rewriting."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import assume, given

from shared_ir.dtype import DType
from shared_ir.expr import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    Select,
    Unary,
    UnaryOp,
    Var,
    binary,
    cast,
    ceil_div,
    equal,
    lift,
    logical_and,
    logical_or,
    select,
    substitute,
    to_text,
    transform,
    variables,
    walk,
)
from tests.shared_ir.expr.expressions import assignments, expressions, value_of


@given(expressions(raw=True), assignments)
def test_folding_while_building_keeps_the_value(expr: Expr, values: Mapping[str, int]) -> None:
    try:
        wanted = value_of(expr, values)
    except ZeroDivisionError:
        assume(False)
    rebuilt = transform(expr, lambda e: e.with_children(e.children()))
    assert value_of(rebuilt, values) == wanted


@given(expressions(), assignments)
def test_substituting_values_gives_the_value(expr: Expr, values: Mapping[str, int]) -> None:
    try:
        wanted = value_of(expr, values)
    except ZeroDivisionError:
        assume(False)
    assert substitute(expr, {Var(k): Const(v) for k, v in values.items()}) == Const(wanted)


@given(expressions(), expressions())
def test_equal_expressions_have_equal_hashes(a: Expr, b: Expr) -> None:
    copy = transform(a, lambda e: type(e)(*(getattr(e, f) for f in e.__dataclass_fields__)))
    assert copy == a
    assert hash(copy) == hash(a)
    assert (a == b) == (repr(a) == repr(b))


def test_constants_compare_by_bits_and_type() -> None:
    nan = Const(float("nan"), DType.FLOAT32)
    assert nan == Const(float("nan"), DType.FLOAT32)
    assert Const(0.0, DType.FLOAT32) != Const(-0.0, DType.FLOAT32)
    assert Const(1) != Const(1, DType.INT32)
    assert Const(True, DType.BOOL) != Const(1)


def test_floats_are_not_folded() -> None:
    x = Var("x", DType.FLOAT32)
    assert isinstance(x * 0, Binary)
    assert isinstance(x + 0, Binary)
    assert (x + 1).dtype is DType.FLOAT32
    assert (x < 1).dtype is DType.BOOL


def test_mixed_types_are_refused() -> None:
    with pytest.raises(TypeError, match="operands are int64 and float32"):
        binary(BinaryOp.ADD, Var("i"), Var("x", DType.FLOAT32))


def test_a_symbolic_truth_value_is_refused() -> None:
    with pytest.raises(TypeError, match="not known at compile time"):
        bool(Var("n") < 3)


def test_logic_folds_known_operands() -> None:
    p = Var("n") < 3
    true, false = Const(True, DType.BOOL), Const(False, DType.BOOL)
    assert logical_and(true, p) is p
    assert logical_and(p, false) == false
    assert logical_or(false, p) is p
    assert logical_or(p, true) == true
    assert select(true, 1, 2) == Const(1)
    assert select(p, 5, 5) == Const(5)
    assert isinstance(select(p, 1, 2), Select)


def test_division_by_zero_is_not_folded() -> None:
    assert isinstance(binary(BinaryOp.FLOOR_DIV, 1, Const(0)), Binary)
    assert isinstance(binary(BinaryOp.FLOOR_MOD, 1, Const(0)), Binary)


def test_casts_and_lifting() -> None:
    i = Var("i")
    assert cast(i, DType.INT64) is i
    assert cast(i, DType.FLOAT32).dtype is DType.FLOAT32
    assert lift(True, DType.BOOL) == Const(True, DType.BOOL)
    assert lift(3, DType.FLOAT32) == Const(3.0, DType.FLOAT32)
    assert value_of(ceil_div(Const(7), 2), {}) == 4


def test_walk_and_variables() -> None:
    i, j = Var("i"), Var("j")
    expr = (i + j) * i
    assert variables(expr) == {i, j}
    assert [e for e in walk(expr) if isinstance(e, Var)].count(i) >= 1


def test_text_is_python_with_as_few_parentheses_as_needed() -> None:
    i, x = Var("i"), Var("x", DType.FLOAT32)
    assert to_text((i + 1) * 2 - (i - (i - 1))) == "(i + 1) * 2 - (i - (i - 1))"
    assert to_text(Unary(UnaryOp.EXP, x) / (x + 1)) == "exp(x) / (x + 1.0)"
    assert to_text(select(equal(i, 0), i, i // 2)) == "select(i == 0, i, i // 2)"
