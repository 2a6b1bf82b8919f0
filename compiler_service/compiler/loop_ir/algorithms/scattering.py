"""Loop functions that write at positions given by data: a copy, then one update after the other. The last of several wins."""

from __future__ import annotations

from collections.abc import Sequence

from compiler_service.compiler.loop_ir.algorithms.compact import Index, elements, let, load, nest, unravel
from compiler_service.compiler.loop_ir.ir import Block, Buffer, If, Statement, Store
from compiler_service.compiler.tensor_expr.broadcast import widen
from compiler_service.compiler.tensor_expr.operators.scattering import REDUCTIONS
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Var, cast, lift, logical_and, select
from shared_ir.expr.dim import Dim, product


def scatter_elements(
    data: Buffer, indices: Buffer, updates: Buffer, out: Buffer, task: Var, axis: int, reduction: str
) -> tuple[Dim, Statement]:
    """``out[.., indices[.., k, ..], ..] = updates[.., k, ..]``: one task per place before ``axis``."""
    before, extent = out.shape[:axis], lift(out.shape[axis])
    own = unravel(task, before)

    def update(number: Index) -> Statement:
        at = (*own, *number)

        def write(position: Var) -> Statement:
            target = (*own, position, *number[1:])
            return If(_is_inside(position, extent), _update(out, target, load(updates, *at), reduction))

        return let("position", _position(indices, at, extent), write)

    written = nest("update", indices.shape[axis:], update)
    for i, room, all_of in zip(own, indices.shape[:axis], before, strict=True):
        written = written if room == all_of else If(i < lift(room), written)
    return product(before), Block((_copy(data, out, own), written))


def scatter_slices(
    data: Buffer, indices: Buffer, updates: Buffer, out: Buffer, reduction: str
) -> tuple[Dim, Statement]:
    """``out[indices[.., 0], indices[.., 1], ..] = updates[..]``, slices of the axes that are left."""
    depth = indices.shape[-1]
    assert isinstance(depth, int)

    def update(number: Index) -> Statement:
        def at(position: Index) -> Statement:
            if len(position) < depth:
                extent = lift(out.shape[len(position)])
                found = _position(indices, (*number, lift(len(position))), extent)
                return let(f"position{len(position)}", found, lambda p: at((*position, p)))
            inside = [_is_inside(p, lift(extent)) for p, extent in zip(position, out.shape, strict=False)]
            return _guarded(inside, elements(out.shape[depth:], lambda rest: slice_at(number, position, rest)))

        return at(())

    def slice_at(number: Index, position: Index, rest: Index) -> Statement:
        return _update(out, (*position, *rest), load(updates, *number, *rest), reduction)

    return 1, Block((_copy(data, out, ()), nest("update", indices.shape[:-1], update)))


def _update(out: Buffer, at: Index, new: Expr, reduction: str) -> Statement:
    if reduction != "none":
        _, combine = REDUCTIONS[reduction]
        new = cast(combine(widen(load(out, *at)), widen(new)), out.dtype)
    return Store(out, at, new)


def _copy(data: Buffer, out: Buffer, own: Index) -> Statement:
    return elements(out.shape[len(own) :], lambda rest: Store(out, (*own, *rest), load(data, *own, *rest)))


def _position(indices: Buffer, at: Index, extent: Expr) -> Expr:
    i = cast(load(indices, *at), DType.INT64)
    return select(i < 0, i + extent, i)


def _is_inside(position: Expr, extent: Expr) -> Expr:
    return logical_and(position >= 0, position < extent)


def _guarded(conditions: Sequence[Expr], statement: Statement) -> Statement:
    for condition in reversed(conditions):
        statement = If(condition, statement)
    return statement
