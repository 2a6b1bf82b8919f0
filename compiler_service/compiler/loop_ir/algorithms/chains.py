"""Loop functions whose elements continue those before them along an axis: sums and products of all before."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_service.compiler.loop_ir.algorithms.compact import (
    CompactCell,
    Index,
    elements,
    load,
    loop,
    nest,
    unravel,
    with_cell,
)
from compiler_service.compiler.loop_ir.ir import Block, Buffer, If, Statement, Store
from compiler_service.compiler.tensor_expr.broadcast import widen
from shared_ir.expr import Expr, Var, cast, lift
from shared_ir.expr.dim import Dim, as_dim, product


@dataclass(frozen=True)
class LoopChain:
    """What ``CumSum`` and ``CumProd`` do along ``axis``."""

    axis: int
    is_product: bool
    reverse: bool
    exclusive: bool

    def join(self, total: Expr, element: Expr) -> Expr:
        return total * element if self.is_product else total + element


def cumulate(x: Buffer, out: Buffer, task: Var, chain: LoopChain) -> tuple[Dim, Statement]:
    """One task per place before the axis. Narrow floats are joined as float32 and rounded where they are written."""
    before, after = out.shape[: chain.axis], out.shape[chain.axis + 1 :]
    own = unravel(task, before)
    if after and x.dtype.arithmetic is x.dtype:
        return product(before), _planes(x, out, own, chain)
    return product(before), nest("place", after, lambda place: _line(x, out, own, place, chain))


def _line(x: Buffer, out: Buffer, own: Index, place: Index, chain: LoopChain) -> Statement:
    extent = out.shape[chain.axis]

    def follow(total: CompactCell) -> Statement:
        def step(i: Var) -> Statement:
            at = (*own, lift(extent) - 1 - i if chain.reverse else i, *place)
            grow = total.set(chain.join(total.value, widen(load(x, *at))))
            write = Store(out, at, cast(total.value, out.dtype))
            return Block((write, grow) if chain.exclusive else (grow, write))

        return loop("i", extent, step)

    return with_cell("total", lift(int(chain.is_product), x.dtype.arithmetic), follow)


def _planes(x: Buffer, out: Buffer, own: Index, chain: LoopChain) -> Statement:
    """All that lies behind one place of the axis together, in vectors."""
    extent, after = out.shape[chain.axis], out.shape[chain.axis + 1 :]

    def at(i: Expr, place: Index) -> Index:
        return (*own, lift(extent) - 1 - i if chain.reverse else i, *place)

    def start(place: Index) -> Statement:
        first = lift(int(chain.is_product), x.dtype) if chain.exclusive else load(x, *at(lift(0), place))
        return Store(out, at(lift(0), place), first)

    def step(i: Var) -> Statement:
        def follow(place: Index) -> Statement:
            element = load(x, *at(i if chain.exclusive else i + 1, place))
            return Store(out, at(i + 1, place), chain.join(load(out, *at(i, place)), element))

        return elements(after, follow)

    planes = Block((elements(after, start), loop("i", as_dim(lift(extent) - 1), step)))
    return planes if isinstance(extent, int) and extent else If(lift(extent) > 0, planes)
