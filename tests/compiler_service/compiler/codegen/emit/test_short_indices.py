"""Indices in int32 are those in int64, whatever they are computed from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compiler_service.compiler.codegen.emit.short_indices import shortened
from shared_ir.dtype import DType
from shared_ir.expr import BinaryOp, Cast, Const, Expr, Var, binary, cast, select

I64 = st.integers(-(1 << 62), (1 << 62) - 1)


def low(value: int) -> int:
    """``value`` modulo 2^32, as int32."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def value_of(expr: Expr, values: dict[str, int]) -> int:
    """With wrapping arithmetic of the type of each node."""
    match expr:
        case Const(value=value):
            return int(value)
        case Var(name=name):
            return values[name]
        case Cast(type=dtype, x=x):
            return low(value_of(x, values)) if dtype is DType.INT32 else value_of(x, values)
    a, b = (value_of(child, values) for child in expr.children()[-2:])
    op = getattr(expr, "op", None)
    result = a + b if op is BinaryOp.ADD else a - b if op is BinaryOp.SUB else a * b if op is BinaryOp.MUL else a
    return low(result) if expr.dtype is DType.INT32 else result


@given(I64, I64, I64)
def test_sums_and_products_wrap_to_the_same(a: int, b: int, c: int) -> None:
    x, y = Var("x"), Var("y")
    index = (x * y - x) * Const(c) + y
    short = shortened(index)
    assert short.dtype is DType.INT32
    assert value_of(short, {"x": a, "y": b}) == low((a * b - a) * c + b)


def test_what_was_widened_is_taken_as_it_is() -> None:
    narrow = Var("n", DType.INT32)
    assert shortened(cast(narrow, DType.INT64)) is narrow


def test_quotients_are_computed_in_full() -> None:
    quotient = binary(BinaryOp.FLOOR_DIV, Var("x"), 3)
    assert shortened(quotient) == Cast(DType.INT32, quotient)


def test_both_sides_of_a_selection_are_shortened() -> None:
    condition = Var("c", DType.BOOL)
    assert shortened(select(condition, Const(1 << 33), Const(7))) == select(
        condition, Const(0, DType.INT32), Const(7, DType.INT32)
    )
