"""Printed loop programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferScope,
    For,
    ForKind,
    Function,
    If,
    Let,
    Ramp,
    Store,
    VectorReduce,
    VectorVar,
)
from compiler_service.compiler.loop_ir.text import expression_text, print_function, statement_head
from compiler_service.compiler.tensor_expr.tensor import ReduceOp
from shared_ir.dtype import DType
from shared_ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Unary,
    UnaryOp,
    Var,
    lift,
    logical_and,
    logical_or,
    minimum,
    select,
)
from tests.compiler_service.compiler.loop_ir.loop_programs import (
    convolution,
    guarded_scale,
    load,
    loops,
    padded_copy,
    register_tiled_matmul,
    row_sums,
    slice_copy,
    store,
)

Golden = Callable[[str], None]
A, B, C = Var("a"), Var("b"), Var("c")
X = Buffer("x", DType.FLOAT32, (4, 8))


@pytest.mark.parametrize(
    "program",
    [guarded_scale, register_tiled_matmul, convolution, padded_copy, row_sums, slice_copy],
    ids=lambda p: p.__name__,
)
def test_lowered_programs(program: Callable[[], Function], golden: Golden) -> None:
    golden(print_function(program()))


def test_every_statement_and_vector_form(golden: Golden) -> None:
    t, i, mask = Var("t"), Var("i"), VectorVar("mask", DType.BOOL, 4)
    x, y = Buffer("x", DType.FLOAT32, (4, 8)), Buffer("y", DType.FLOAT32, (4, 8))
    local = Buffer("local", DType.INT32, (4,), BufferScope.SCRATCH)
    ramp, strided = Ramp(i * 4, Const(1), 4), Ramp(Const(0), Const(2), 4)
    masked = BufferLoad(x, (t, ramp), mask)
    body = Block(
        (
            Store(local, (Ramp(Const(0), Const(1), 4),), Broadcast(Const(1, DType.INT32), 4)),
            Let(mask, Binary(BinaryOp.LT, ramp, Broadcast(Const(7), 4)), Store(y, (t, ramp), masked, mask)),
            If(
                i < 1,
                store(y, [t, 0], VectorReduce(ReduceOp.MAX, BufferLoad(x, (t, strided)))),
                store(y, [t, 0], Cast(DType.FLOAT32, load(local, i))),
            ),
            For(Var("empty"), Const(0), ForKind.SERIAL, Block(())),
        )
    )
    golden(print_function(Function("forms", (x, y), (), t, 4, Allocate(local, loops(body, (i, 2, ForKind.SERIAL))))))


def test_names_are_made_distinct() -> None:
    """Two buffers called x, three variables called i, a variable called like a buffer, a name that is no identifier."""
    t, i = Var("t"), Var("i")
    first, second = Buffer("x", DType.FLOAT32, (4,)), Buffer("x", DType.FLOAT32, (4,))
    odd = Buffer("conv1/w:0", DType.FLOAT32, (4,), BufferScope.STACK)
    copy = For(i, Const(4), ForKind.SERIAL, store(second, [i], load(first, i)))
    named = Let(Var("x"), t * 2, store(odd, [Var("x")], load(first, t)))
    text = print_function(Function("f", (first, second), (), t, 1, Allocate(odd, Block((copy, copy, named)))))
    assert text == "\n".join(
        [
            "function f(x: float32[4], out x_1: float32[4])",
            "for task t in 0..1:",
            "    stack conv1_w_0: float32[4]",
            "    for i in 0..4:",
            "        x_1[i] = x[i]",
            "    for i_1 in 0..4:",
            "        x_1[i_1] = x[i_1]",
            "    let x_2 = t * 2",
            "    conv1_w_0[x_2] = x[t]",
        ]
    )


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (A + (B + C), "a + (b + c)"),
        ((A + B) + C, "a + b + c"),
        (A - (B - C), "a - (b - c)"),
        ((A + B) * C, "(a + b) * c"),
        (A // (B * C), "a // (b * c)"),
        (Binary(BinaryOp.EQ, A < B, B < C), "(a < b) == (b < c)"),
        (logical_and(logical_or(A < B, B < C), A < C), "(a < b or b < c) and a < c"),
        (Const(1), "1"),
        (Const(1.0, DType.FLOAT32), "1.0"),
        (Const(1, DType.INT32), "1i32"),
        (Const(1, DType.UINT8), "1u8"),
        (Const(1.0, DType.FLOAT64), "1.0f64"),
        (Cast(DType.FLOAT64, Const(1.0, DType.FLOAT32)), "float64(1.0)"),
        (Const(1.0, DType.FLOAT8E4M3FN), "1.0:float8e4m3fn"),
        (Const(True, DType.BOOL), "true"),
        (Const(float("-inf"), DType.FLOAT32), "-inf"),
        (Const(float("nan"), DType.FLOAT64), "nan:float64"),
        (Const(-0.0, DType.FLOAT32), "-0.0"),
        (Unary(UnaryOp.EXP, load(X, A, B)), "exp(x[a, b])"),
        (select(A < B, A, Const(0)), "select(a < b, a, 0)"),
        (BufferLoad(X, (A, Ramp(B, Const(1), 4))), "x[a, b:+4]"),
        (BufferLoad(X, (A, Ramp(Const(2), Const(1), 4))), "x[a, 2:6]"),
        (BufferLoad(X, (A, Ramp(B, C, 4))), "x[a, ramp(b, c, 4)]"),
        (Binary(BinaryOp.ADD, Ramp(B, Const(1), 4), Broadcast(C, 4)), "ramp(b, 1, 4) + splat(c, 4)"),
        (VectorReduce(ReduceOp.SUM, Ramp(B, Const(1), 4)), "reduce.sum(ramp(b, 1, 4))"),
    ],
)
def test_expressions(expr: Expr, text: str) -> None:
    assert expression_text(expr) == text


def test_the_head_of_a_statement_is_its_first_line() -> None:
    inner = store(X, [A, B], Const(0.0, DType.FLOAT32))
    assert statement_head(For(A, Const(4), ForKind.UNROLLED, inner)) == "for a in 0..4 unrolled:"
    assert statement_head(inner) == "x[a, b] = 0.0"


def test_what_nobody_reads_is_left_out_of_messages() -> None:
    shared: Expr = Var("n")
    for _ in range(60):  # 2 to the power of 60 names
        shared = minimum(shared * 2, shared + 1)
    assert expression_text(shared) == "..."
    store = Store(Buffer("y", DType.INT64, (4,)), (lift(0),), shared)
    assert statement_head(store) == "y[0] = ..."
