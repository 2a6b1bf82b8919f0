"""Gaussian elimination with partial pivoting, one matrix per task."""

from __future__ import annotations

from compiler_service.compiler.loop_ir.algorithms.compact import CompactCell, let, load, loop, unravel, with_cell
from compiler_service.compiler.loop_ir.ir import Allocate, Block, Buffer, BufferScope, If, Statement, Store
from compiler_service.compiler.tensor_expr.scalar import absolute
from shared_ir.expr import Expr, Unary, UnaryOp, Var, cast, lift, logical_and, logical_or, not_equal
from shared_ir.expr.dim import Dim, as_dim, product


def determinant(x: Buffer, out: Buffer, task: Var) -> tuple[Dim, Statement]:
    """The determinant of each of the matrices ``x`` [..., n, n], n static: the product of the pivots, negated for each exchange."""
    size = x.shape[-1]
    index = unravel(task, out.shape)
    work = Buffer("work", x.dtype.arithmetic, (size, size), BufferScope.SCRATCH)

    def copied(i: Var) -> Statement:
        return loop("j", size, lambda j: Store(work, (i, j), cast(load(x, *index, i, j), work.dtype)))

    def reduced(total: CompactCell) -> Statement:
        steps = loop("k", size, lambda k: with_cell("pivot", k, lambda pivot: _step(work, k, pivot, total)))
        return Block((steps, Store(out, index, cast(total.value, out.dtype))))

    body = Block((loop("i", size, copied), with_cell("total", lift(1.0, work.dtype), reduced)))
    return as_dim(product(out.shape)), Allocate(work, body)


def _step(work: Buffer, k: Var, pivot: CompactCell, total: CompactCell) -> Statement:
    """Column ``k`` is cleared below its largest element, which is multiplied to ``total``; NaN counts as the largest."""
    size = work.shape[0]

    def larger(row: Var) -> Statement:
        element = load(work, row, k)
        found = logical_or(absolute(element) > absolute(load(work, pivot.value, k)), Unary(UnaryOp.IS_NAN, element))
        return If(logical_and(row > k, found), pivot.set(row))

    def exchanged(column: Var) -> Statement:
        above, below = load(work, k, column), load(work, pivot.value, column)
        return let(
            "kept", below, lambda e: Block((Store(work, (pivot.value, column), above), Store(work, (k, column), e)))
        )

    def cleared(row: Var) -> Statement:
        factor = load(work, row, k) / load(work, k, k)
        return If(row > k, let("factor", factor, lambda f: loop("m", size, lambda m: subtracted(row, m, f))))

    def subtracted(row: Var, column: Var, factor: Expr) -> Statement:
        return Store(work, (row, column), load(work, row, column) - factor * load(work, k, column))

    exchange = Block((loop("c", size, exchanged), total.set(-total.value)))
    return Block(
        (
            loop("r", size, larger),
            If(not_equal(pivot.value, k), exchange),
            total.set(total.value * load(work, k, k)),
            If(not_equal(load(work, k, k), 0.0), loop("e", size, cleared)),
        )
    )
