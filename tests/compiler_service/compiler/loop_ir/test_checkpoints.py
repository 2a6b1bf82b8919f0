"""Where kernels look whether their run is to end."""

from __future__ import annotations

import pytest

from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.loop_ir.algorithms.table import algorithm_function
from compiler_service.compiler.loop_ir.ir import (
    Block,
    Buffer,
    BufferLoad,
    Checkpoint,
    For,
    ForKind,
    Function,
    If,
    Let,
    Statement,
    Store,
    walk_statements,
)
from compiler_service.compiler.loop_ir.passes.checkpoints import with_checkpoints
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.tensor_expr.tensor import placeholder
from shared_ir.dtype import DType
from shared_ir.expr import Const, Expr, Var, cast, minimum
from shared_ir.expr.dim import symbol

N = Var("n")
TASK = Var("task")
Y = Buffer("y", DType.INT64, (N,))


def loop(name: str, extent: Expr, body: Statement) -> For:
    return For(Var(name), extent, ForKind.SERIAL, body)


def writes(index: str) -> Statement:
    return Store(Y, (Var(index),), Const(0))


def work(operations: int) -> Statement:
    """A statement that takes at least so many."""
    return Block(tuple(writes("task") for _ in range(operations)))


def looking(body: Statement) -> Statement:
    return with_checkpoints(Function("f", (Y,), (N,), TASK, 1, body)).body


def looks(body: Statement) -> list[str]:
    """The loops that look each round, ``task`` among them."""
    found = looking(body)
    named = [("task", found)] + [(s.var.name, s.body) for s in walk_statements(found) if isinstance(s, For)]
    return [name for name, own in named if isinstance(own, Block) and isinstance(own.statements[-1], Checkpoint)]


def test_loops_of_unknown_work_look_down_to_the_innermost_which_stays_as_it_is() -> None:
    assert looks(loop("i", N, loop("j", N, loop("k", N, writes("k"))))) == ["task", "i", "j"]


def test_a_loop_that_ends_with_its_memory_does_not_look() -> None:
    assert looks(loop("i", N, writes("i"))) == ["task"]
    assert looks(loop("i", N // 8, work(8))) == ["task"]


def test_memory_that_is_gone_through_often_is_looked_between() -> None:
    assert looks(loop("i", Const(100_000), loop("j", N, writes("j")))) == ["task", "i"]


def test_long_rounds_are_looked_between() -> None:
    assert looks(loop("i", N, work(3000))) == ["task", "i"]


@pytest.mark.parametrize(("rounds", "found"), [(10, []), (100_000, ["task", "i"])])
def test_known_work_is_looked_into_where_it_is_long(rounds: int, found: list[str]) -> None:
    assert looks(loop("i", Const(rounds), loop("j", Const(3000), writes("j")))) == found


def test_what_is_known_of_variables_bounds_the_work() -> None:
    tiles = loop("i", Const(4), loop("j", minimum(N - Var("i") * 8, Const(8)), writes("j")))
    assert looks(tiles) == []
    chosen = Let(Var("l"), minimum(N, Const(5)), loop("i", Var("l") * 2, writes("i")))
    assert looks(chosen) == []


def test_short_rounds_that_no_memory_ends_are_looked_into_now_and_then() -> None:
    trips = cast(BufferLoad(Y, (Const(0),)), DType.INT64)
    for extent in (Const(1 << 31), trips):
        (inner,) = (s for s in walk_statements(looking(loop("i", extent, writes("task")))) if isinstance(s, For))
        assert isinstance(inner.body, Block)
        *_, last = inner.body.statements
        assert isinstance(last, If)
        assert isinstance(last.then, Checkpoint)


def test_no_loop_looks_twice() -> None:
    once = with_checkpoints(Function("f", (Y,), (N,), TASK, 1, loop("i", N, loop("j", N, writes("j")))))
    assert print_function(with_checkpoints(once)) == print_function(once)


def test_loop_functions_look_as_well() -> None:
    n = symbol("d0")
    x, out = placeholder("x", (n,), DType.FLOAT32), placeholder("y", (2, n), DType.INT64)
    flat = passes.run(algorithm_function("ingot.Sorted", "sorted", [x], out, 1, {"largest": 1}), verifies=True)
    assert any(isinstance(s, Checkpoint) for s in walk_statements(flat.body))
