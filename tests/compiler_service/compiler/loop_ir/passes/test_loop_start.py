"""Reductions in straight code start from their first operand."""

from __future__ import annotations

import pytest

from compiler_service.compiler.loop_ir.ir import (
    Block,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferScope,
    Function,
    Ramp,
    Statement,
    Store,
)
from compiler_service.compiler.loop_ir.passes.start import start
from compiler_service.compiler.loop_ir.text import print_function
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Var

F32 = DType.FLOAT32
X = Buffer("x", F32, (64,))
OUT = Buffer("out", F32, (64,))
ACC = Buffer("acc", F32, (32,), BufferScope.STACK)
INFINITY = Const(float("-inf"), F32)


def part(at: int) -> Expr:
    return Ramp(Const(at), Const(1), 16)


def identity(at: int, value: Expr = INFINITY) -> Store:
    return Store(ACC, (part(at),), Broadcast(value, 16))


def step(at: int, source: int, op: BinaryOp = BinaryOp.MAX) -> Store:
    here = BufferLoad(ACC, (part(at),))
    return Store(ACC, (part(at),), Binary(op, here, BufferLoad(X, (part(source),))))


def write(at: int) -> Store:
    return Store(OUT, (part(at),), BufferLoad(ACC, (part(at),)))


def lines(*statements: Statement) -> list[str]:
    function = Function("f", (X, OUT), (), Var("t"), 1, Block(statements))
    return [line.strip() for line in print_function(start(function)).splitlines()[2:]]


def test_the_first_operand_takes_the_place_of_the_identity() -> None:
    found = lines(identity(0), identity(16), step(0, 0), step(16, 16), step(0, 32), write(0))
    assert found == [
        "acc[0:16] = x[0:16]",
        "acc[16:32] = x[16:32]",
        "acc[0:16] = max(acc[0:16], x[32:48])",
        "out[0:16] = acc[0:16]",
    ]


@pytest.mark.parametrize(
    "statements",
    [
        (identity(0, Const(0.0, F32)), step(0, 0)),  # another number than the identity
        (identity(0), write(0), step(0, 0)),  # read before
        (identity(0), identity(8), step(0, 0)),  # written again in part
        (identity(0), step(8, 0), step(0, 0)),
    ],
)
def test_what_is_used_otherwise_stays(statements: tuple[Statement, ...]) -> None:
    function = Function("f", (X, OUT), (), Var("t"), 1, Block(statements))
    assert start(function) is function


def test_sums_start_from_their_first_term() -> None:
    assert len(lines(identity(0, Const(0.0, F32)), step(0, 0, BinaryOp.ADD))) == 1
