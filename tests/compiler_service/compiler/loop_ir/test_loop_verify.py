"""What the verifier refuses, and in which words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
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
    Statement,
    Store,
    VectorReduce,
    VectorVar,
)
from compiler_service.compiler.loop_ir.verify import verify
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, placeholder
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Const, Select, Unary, UnaryOp, Var
from tests.compiler_service.compiler.loop_ir.loop_programs import (
    convolution,
    guarded_scale,
    load,
    padded_copy,
    register_tiled_matmul,
    row_sums,
    slice_copy,
    store,
)

T, J, N = Var("t"), Var("i"), Var("n")
X, Y = Buffer("x", DType.FLOAT32, (8, 8)), Buffer("y", DType.FLOAT32, (8, 8))
LANES = Ramp(Const(0), Const(1), 4)
ONE = Const(1.0, DType.FLOAT32)
HALF = Const(0.5, DType.FLOAT64)
INT32 = Const(1, DType.INT32)
TRUE = Const(True, DType.BOOL)
STACK = Buffer("local", DType.FLOAT32, (N,), BufferScope.STACK)


def function(body: Statement) -> Function:
    return Function("kernel", (X, Y), (N,), T, N, body)


@pytest.mark.parametrize(
    "program",
    [guarded_scale, register_tiled_matmul, convolution, padded_copy, row_sums, slice_copy],
    ids=lambda p: p.__name__,
)
def test_lowered_programs_are_well_formed(program: Callable[[], Function]) -> None:
    verify(program())


@pytest.mark.parametrize(
    ("body", "where", "message"),
    [
        (store(Y, [T, J], ONE), "y[t, i] = 1.0", "i is not defined"),
        (store(Y, [T], ONE), "y[t] = 1.0", "number of indices of y; expected 2, received 1"),
        (store(Y, [T, T], HALF), "y[t, t] = 0.5f64", "dtype of the stored value; expected float32, received float64"),
        (store(Y, [T, INT32], ONE), "y[t, 1i32] = 1.0", "dtype of an index of y; expected int64, received int32"),
        (store(STACK, [T], ONE), "local[t] = 1.0", "store to local, which is not in scope"),
        (store(Y, [T, T], load(STACK, T)), "y[t, t] = local[t]", "load of local, which is not in scope"),
        (
            Allocate(STACK, store(STACK, [T], ONE)),
            "stack local: float32[n]",
            "shape of the stack buffer local; expected constant extents, received symbolic ones",
        ),
        (
            Allocate(Y, store(Y, [T, T], ONE)),
            "argument y: float32[8, 8]",
            "y is allocated; expected scope scratch or stack, received argument",
        ),
        (
            For(J, N, ForKind.UNROLLED, store(Y, [T, J], ONE)),
            "for i in 0..n unrolled:",
            "extent of the unrolled loop i; expected a constant, received n",
        ),
        (
            For(T, Const(2), ForKind.SERIAL, store(Y, [T, T], ONE)),
            "for t in 0..2:",
            "t is bound again inside its own scope",
        ),
        (
            For(Var("i", DType.INT32), Const(2), ForKind.SERIAL, store(Y, [T, T], ONE)),
            "for i in 0..2:",
            "loop variable i; expected a scalar int64, received int32",
        ),
        (If(T, store(Y, [T, T], ONE)), "if t:", "dtype of the condition; expected bool, received int64"),
        (
            Let(Var("f", DType.FLOAT32), HALF, store(Y, [T, T], ONE)),
            "let f = 0.5f64",
            "dtype of the value of f; expected float32, received float64",
        ),
        (
            Let(VectorVar("f", DType.FLOAT32, 4), ONE, store(Y, [T, T], ONE)),
            "let f = 1.0",
            "lanes of the value of f; expected 4, received 1",
        ),
        (
            store(Y, [T, LANES], ONE),
            "y[t, 0:4] = 1.0",
            "lanes of the stored value; expected 4, received 1",
        ),
        (
            store(Y, [Ramp(Const(0), Const(1), 2), LANES], ONE),
            "y[0:2, 0:4] = 1.0",
            "lanes of the indices of y; expected equal counts, received [2, 4]",
        ),
        (
            Store(Y, (T, LANES), Broadcast(ONE, 4), TRUE),
            "y[t, 0:4, mask=true] = splat(1.0, 4)",
            "lanes of the mask of y; expected 4, received 1",
        ),
        (
            Store(Y, (T, T), ONE, T),
            "y[t, t, mask=t] = 1.0",
            "dtype of the mask of y; expected bool, received int64",
        ),
        (
            store(Y, [T, LANES], Binary(BinaryOp.ADD, BufferLoad(X, (T, LANES)), ONE)),
            "y[t, 0:4] = x[t, 0:4] + 1.0",
            "lanes of the operands of x[t, 0:4] + 1.0; expected 4, received [1]",
        ),
        (
            store(Y, [T, T], Binary(BinaryOp.ADD, ONE, HALF)),
            "y[t, t] = 1.0 + 0.5f64",
            "operands of add in 1.0 + 0.5f64; expected float32, received float64",
        ),
        (
            store(Y, [T, T], Binary(BinaryOp.FLOOR_DIV, ONE, ONE)),
            "y[t, t] = 1.0 // 1.0",
            "operands of floor_div in 1.0 // 1.0; expected integers, received float32",
        ),
        (
            store(Y, [T, Binary(BinaryOp.DIV, T, T)], ONE),
            "y[t, t / t] = 1.0",
            "operands of div in t / t; expected floats, received int64",
        ),
        (
            If(Unary(UnaryOp.NOT, T), store(Y, [T, T], ONE)),
            "if not(t):",
            "operand of not in not(t); expected bool for not alone, received int64",
        ),
        (
            store(Y, [T, T], Select(TRUE, ONE, HALF)),
            "y[t, t] = select(true, 1.0, 0.5f64)",
            "branches of select(true, 1.0, 0.5f64); expected float32, received float64",
        ),
        (
            store(Y, [T, T], VectorReduce(ReduceOp.SUM, ONE)),
            "y[t, t] = reduce.sum(1.0)",
            "operand of reduce.sum(1.0); expected a vector, received a scalar",
        ),
        (
            store(Y, [T, Ramp(LANES, Const(1), 4)], Broadcast(ONE, 4)),
            "y[t, ramp(0, 1, 4):+4] = splat(1.0, 4)",
            "operands of ramp(ramp(0, 1, 4), 1, 4); expected scalars, received vectors",
        ),
        (
            store(Y, [T, T], placeholder("p", (8,), DType.FLOAT32)[T]),
            "y[t, t] = Load(t)",
            "Load does not belong in loop IR",
        ),
    ],
)
def test_refusals(body: Statement, where: str, message: str) -> None:
    with pytest.raises(IngotError) as caught:
        verify(function(body))
    error = caught.value
    assert error.code is ErrorCode.COMPILER_FAULT
    assert (error.node, error.field) == ("kernel", where)
    problem, _, difference = message.partition("; ")
    place = f"at node 'kernel', field {where!r}"
    assert str(error) == "; ".join(filter(None, [f"malformed loop function: {problem}", place, difference])) + "."


def test_a_scalar_condition_may_choose_between_vectors() -> None:
    vector = BufferLoad(X, (T, LANES))
    verify(function(store(Y, [T, LANES], Select(T < N, vector, Broadcast(ONE, 4)))))


def test_a_name_may_be_bound_again_once_its_scope_has_ended() -> None:
    loop = For(J, Const(8), ForKind.SERIAL, store(Y, [T, J], ONE))
    verify(function(If(T < 1, loop, loop)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (store(Y, [T, T], ONE), "number of indices of y in a flat function"),
        (For(J, Const(8), ForKind.VECTORIZED, store(Y, [T, J], ONE)), "loop kind in a flat function"),
        (For(J, Const(8), ForKind.UNROLLED, store(Y, [T, J], ONE)), "loop kind in a flat function"),
    ],
)
def test_flat_functions_have_one_index_and_serial_loops(body: Statement, message: str) -> None:
    verify(function(body))
    with pytest.raises(IngotError, match=message):
        verify(function(body), flat=True)


def test_arguments_are_argument_buffers_over_known_symbols() -> None:
    nothing = store(Y, [T, T], ONE)
    local = Buffer("local", DType.FLOAT32, (8,), BufferScope.STACK)
    with pytest.raises(IngotError, match="argument local has scope stack"):
        verify(Function("kernel", (local,), (N,), T, N, nothing))
    wide = Buffer("wide", DType.FLOAT32, (8, 8), strides=(8,))
    with pytest.raises(IngotError, match="number of strides of wide"):
        verify(Function("kernel", (wide, Y), (N,), T, N, nothing))
    gaps = Buffer("gaps", DType.FLOAT32, (2, 2), BufferScope.STACK, strides=(4, 1))
    with pytest.raises(IngotError, match="the stack buffer gaps has strides"):
        verify(function(Allocate(gaps, nothing)))
    with pytest.raises(IngotError, match="argument y is listed twice"):
        verify(Function("kernel", (Y, Y), (N,), T, N, nothing))
    with pytest.raises(IngotError, match="n is not defined"):
        verify(Function("kernel", (Y,), (), T, N, nothing))
