"""Chains of operations side by side: the order of instructions, and what is left alone."""

from __future__ import annotations

from compiler_service.compiler.codegen.emit.lockstep import by_depth, side_by_side
from compiler_service.compiler.codegen.llvm.builder import Lines
from compiler_service.compiler.loop_ir.ir import Buffer, BufferLoad, Store
from shared_ir.dtype import DType
from shared_ir.expr import Const, Expr, Unary, UnaryOp

X, Y = (Buffer(name, DType.FLOAT32, (64,)) for name in "xy")


def store(at: int, value: Expr) -> Store:
    return Store(Y, (Const(at),), value)


def chain(buffer: Buffer, at: int) -> Expr:
    return Unary(UnaryOp.EXP, BufferLoad(buffer, (Const(at),)) - 1.0)


def test_operations_of_one_depth_stand_together() -> None:
    lines: Lines = [
        "  %a = load float, ptr %x",
        "  %b = fsub float %a, %m",
        "  store float %b, ptr %y",
        "  %c = load float, ptr %x1",
        "  %d = fsub float %c, %m",
        "  store float %d, ptr %y1",
    ]
    assert by_depth(lines) == [lines[i] for i in (0, 3, 1, 4, 2, 5)]


def test_blocks_and_places_are_left_alone() -> None:
    with_label: Lines = ["  %a = fadd float %x, %x", "loop1:", "  %b = fadd float %y, %y"]
    with_place: Lines = ["  %a = fadd float %x, %x", "  %b = fadd float %a, %a", [], "  %c = fadd float %y, %y"]
    for lines in (with_label, with_place):
        assert by_depth(lines) is lines


def test_chains_come_in_groups() -> None:
    plain = store(9, BufferLoad(X, (Const(9),)))
    chains = [store(i, chain(X, i)) for i in range(5)]
    groups = list(side_by_side([plain, *chains, plain], 4))
    assert groups == [(plain,), tuple(chains[:4]), (chains[4],), (plain,)]


def test_a_chain_that_reads_what_is_written_stays_in_place() -> None:
    chains = [store(i, chain(Y, i)) for i in range(3)]
    assert list(side_by_side(chains, 4)) == [(c,) for c in chains]
