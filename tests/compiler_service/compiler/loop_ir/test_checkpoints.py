"""Where loop functions look whether their run is to end."""

from __future__ import annotations

import pytest

from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.loop_ir.algorithms.checkpoints import with_checkpoints
from compiler_service.compiler.loop_ir.algorithms.table import algorithm_function
from compiler_service.compiler.loop_ir.ir import (
    Block,
    Buffer,
    Checkpoint,
    For,
    ForKind,
    Function,
    Statement,
    Store,
    walk_statements,
)
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.tensor_expr.tensor import placeholder
from shared_ir.dtype import DType
from shared_ir.expr import Const, Expr, Var
from shared_ir.expr.dim import symbol

N = Var("n")
Y = Buffer("y", DType.INT64, (N,))


def loop(name: str, extent: Expr, body: Statement) -> For:
    return For(Var(name), extent, ForKind.SERIAL, body)


def writes(index: str) -> Statement:
    return Store(Y, (Var(index),), Const(0))


def count(statement: Statement) -> int:
    return sum(isinstance(s, Checkpoint) for s in walk_statements(statement))


def test_the_outermost_of_long_loops_within_each_other_looks() -> None:
    body = with_checkpoints(Block((loop("i", N, loop("j", N, loop("k", N, writes("k")))), loop("l", N, writes("l")))))
    assert isinstance(body, Block)
    nest, single = body.statements
    assert (count(body), count(single)) == (1, 0)
    assert isinstance(nest, For)
    assert isinstance(nest.body, Block)
    assert isinstance(nest.body.statements[-1], Checkpoint)


@pytest.mark.parametrize("inner", [Const(8), Const(1024)])
def test_loops_of_few_steps_do_not(inner: Expr) -> None:
    assert count(with_checkpoints(loop("i", N, loop("j", inner, writes("j"))))) == 0
    assert count(with_checkpoints(loop("i", inner, loop("j", N, writes("j"))))) == 0


def sorting() -> Function:
    n = symbol("d0")
    x, out = placeholder("x", (n,), DType.FLOAT32), placeholder("y", (2, n), DType.INT64)
    return algorithm_function("ingot.Sorted", "sorted", [x], out, 1, {"largest": 1})


def test_the_passes_keep_them() -> None:
    function = sorting()
    assert count(function.body) > 0
    flat = passes.run(function, verifies=True)
    assert count(flat.body) > 0
    assert "checkpoint" in print_function(flat)
