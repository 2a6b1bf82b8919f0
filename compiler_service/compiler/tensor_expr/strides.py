"""Strides: where the elements of a tensor lie that is part of a larger one.

The strides of a tensor count elements, one number per axis. A tensor without gaps has those of :func:`row_major`; a slice of a
larger tensor keeps the strides of that one. ``None`` stands for no gaps wherever strides are optional.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared_ir.expr import lift
from shared_ir.expr.dim import Dim, as_dim, product
from shared_ir.expr.simplify import simplify

Strides = tuple[Dim, ...]
"""Elements from one index of an axis to the next, for each axis."""


def row_major(shape: Sequence[Dim]) -> Strides:
    """The strides of a tensor without gaps."""
    return tuple(product(shape[axis:]) for axis in range(1, len(shape) + 1))


def padded(shape: Sequence[Dim], padding: int) -> Strides:
    """The strides of a tensor with ``padding`` elements of nobody's after each row of its last axis."""
    *outer, last = shape
    return row_major((*outer, last + padding))


def with_gaps(shape: Sequence[Dim], strides: Strides | None) -> Strides | None:
    """``strides``, or ``None`` where a tensor of this shape has no gaps; axes of extent 1 do not count."""
    if strides is None:
        return None
    apart = any(d != 1 and s != own for d, s, own in zip(shape, strides, row_major(shape), strict=True))
    return strides if apart else None


def merges(shape: Sequence[Dim], strides: Strides | None, axis: int) -> bool:
    """Whether axes ``axis`` and ``axis + 1`` are one axis in memory."""
    return strides is None or strides[axis] == product((shape[axis + 1], strides[axis + 1]))


def span(shape: Sequence[Dim], strides: Strides | None) -> Dim:
    """Elements of memory from the first element of a tensor to its last, both included."""
    if strides is None:
        return product(shape)
    last = sum(((lift(d) - 1) * lift(s) for d, s in zip(shape, strides, strict=True)), start=lift(0))
    return as_dim(simplify(last + 1))


def reshaped(shape: Sequence[Dim], strides: Strides, new: Sequence[Dim]) -> Strides | None:
    """The strides of the same elements, in the same order, under the shape ``new``; ``None`` where there are none.

    Both shapes are cut into the shortest runs of axes with equal products; a run that is walked as one axis may be cut anew in
    any way, any other must keep its extents.
    """
    found: list[Dim] = []
    old = [(d, s) for d, s in zip(shape, strides, strict=True) if d != 1]
    wanted = [d for d in new if d != 1]
    while old or wanted:
        run, made = _run(old, wanted)
        if run == 0:
            return None
        if [d for d, _ in old[:run]] == wanted[:made]:
            found += [s for _, s in old[:run]]
        elif all(merges([d for d, _ in old], tuple(s for _, s in old), axis) for axis in range(run - 1)):
            found += [product((s, old[run - 1][1])) for s in row_major(wanted[:made])]
        else:
            return None
        old, wanted = old[run:], wanted[made:]
    rest = iter(found)
    return tuple(1 if d == 1 else next(rest) for d in new)


def _run(old: Sequence[tuple[Dim, Dim]], wanted: Sequence[Dim]) -> tuple[int, int]:
    """How many leading axes of both shapes have the same number of elements, as few as possible; (0, 0) if none are known to."""
    products = {product(wanted[:made]): made for made in range(len(wanted), 0, -1)}
    for run in range(1, len(old) + 1):
        made = products.get(product([d for d, _ in old[:run]]))
        if made is not None:
            return run, made
    return 0, 0


__all__ = ["Strides", "merges", "padded", "reshaped", "row_major", "span", "with_gaps"]
