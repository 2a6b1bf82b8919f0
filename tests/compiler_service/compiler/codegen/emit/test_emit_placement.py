"""Where instructions are written: index arithmetic as far out as it is known, loads of what was just stored not at all."""

from __future__ import annotations

from compiler_service.compiler.codegen.emit.kernel import emit_kernel
from compiler_service.compiler.loop_ir.ir import (
    Block,
    Buffer,
    BufferLoad,
    For,
    ForKind,
    Function,
    If,
    Ramp,
    Statement,
    Store,
)
from shared_ir.dtype import DType
from shared_ir.expr import BinaryOp, Const, Expr, Var, binary
from shared_ir.machine.target import parse_target

TARGET = parse_target("x86-64-v3")
T, K, J, N = Var("t"), Var("k"), Var("j"), Var("n")
X, Y = (Buffer(name, DType.FLOAT32, (N,)) for name in "xy")


def at(base: Expr, lanes: int = 8) -> Expr:
    return Ramp(base, Const(1), lanes)


def copy(to: Expr, source: Expr) -> Store:
    return Store(Y, (at(to),), BufferLoad(X, (at(source),)))


def serial(var: Var, extent: int, body: Statement) -> For:
    return For(var, Const(extent), ForKind.SERIAL, body)


def body_of(statement: Statement) -> list[str]:
    """The lines of the kernel proper."""
    text = emit_kernel(Function("kernel", (X, Y), (N,), T, 4, statement), TARGET, "kernel")
    return text[text.index(".body(ptr noalias") :].splitlines()


def where(lines: list[str], word: str) -> list[int]:
    return [i for i, line in enumerate(lines) if word in line]


def test_arithmetic_runs_in_the_outermost_block_that_knows_its_variables() -> None:
    lines = body_of(serial(K, 5, serial(J, 7, copy(J * 8, N * 640 + T * 80 + K * 16 + J * 8))))
    (task,) = [i for i in where(lines, "task") if lines[i].endswith(":")]
    assert where(lines, "mul i64 %symbol0, 640")[0] < task
    (of_task,), (of_outer,) = where(lines, ", 80"), where(lines, ", 16")
    loops = [i for i in where(lines, "loop") if lines[i].endswith(":")]
    assert task < of_task < loops[0] < of_outer < loops[1]


def test_accesses_of_a_tile_differ_by_constants_from_one_pointer() -> None:
    tile = Block(tuple(copy(K * 32 + i * 8, N * K * 64 + i * 8 + 4) for i in range(4)))
    lines = body_of(serial(K, 5, tile))
    assert len(where(lines, " mul ")) == 3  # n * k, * 64 and k * 32
    assert not where(lines, " add i64 %v")
    assert {line.rsplit(" ", 1)[1] for line in lines if "getelementptr" in line} >= {
        "4",
        "12",
        "20",
        "28",
        "8",
        "16",
        "24",
    }


def test_branches_with_loops_keep_their_arithmetic() -> None:
    rare = If(N < 3, serial(K, 5, copy(K * 8, N * 24 + K * 8)))
    lines = body_of(rare)
    assert where(lines, "mul i64 %symbol0, 24")[0] > where(lines, "br i1")[1]


def test_small_branches_share_arithmetic() -> None:
    branches = Block(tuple(If(K + i < N, copy(K * 8 + i * 8, N * K * 24 + i * 8)) for i in range(4)))
    lines = body_of(serial(K, 5, branches))
    assert len(where(lines, ", 24")) == 1


def test_slow_or_conditional_arithmetic_stays_in_its_branch() -> None:
    quotient = binary(BinaryOp.FLOOR_DIV, K * 8, N)
    lines = body_of(serial(K, 5, If(K < N, copy(K * 8, quotient))))
    assert where(lines, "udiv")[0] > where(lines, "br i1")[1]


def test_what_was_stored_is_not_loaded() -> None:
    first, second = at(K * 16), at(K * 16 + 8)
    stores = (
        Store(Y, (first,), BufferLoad(X, (first,))),
        Store(Y, (second,), BufferLoad(X, (second,))),
        Store(Y, (first,), BufferLoad(Y, (first,)) * BufferLoad(Y, (second,))),
    )
    assert len(where(body_of(serial(K, 5, Block(stores))), " load ")) == 2


def test_what_a_store_may_have_changed_is_loaded() -> None:
    first, other = at(K * 16), at(K * 16 + 4)
    stores = (
        Store(Y, (first,), BufferLoad(X, (first,))),
        Store(Y, (other,), BufferLoad(X, (other,))),
        Store(Y, (first,), BufferLoad(Y, (first,)) * BufferLoad(X, (first,))),
    )
    assert len(where(body_of(serial(K, 5, Block(stores))), " load ")) == 3
