"""Operators that read or write by index, and those whose size depends on data."""

from __future__ import annotations

import numpy as np

from tests.oracle.builder import RUNS, Axis, Builder, Shape, extents_of, fixed
from tests.oracle.families.along_axes import drawn_axis
from tests.oracle.families.table import drawn_opset, drawn_type, family

_MOVED = ("float32", "int64", "float64", "float16", "int32", "uint8", "bool")


def _indices(b: Builder, shape: Shape, bounds: tuple[int, ...], name: bool = True) -> str:
    """Indices below the bound of each run, a part of them counted from the end."""
    kind = b.draw.choose((np.int64, np.int32)) if name else np.int64
    numbers, low = b.draw.numbers(), b.draw.flag()
    arrays = [
        numbers.integers(-bounds[r] if low else 0, max(bounds[r], 1), extents_of(shape, r)).astype(kind)
        for r in range(RUNS)
    ]
    if all(a.is_static for a in shape) and bounds[0] <= min(bounds) and b.draw.flag():
        return b.constant(arrays[0])
    return b.given(arrays, shape)


@family("Gather")
def gather(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op, among=_MOVED)
    shape = b.shape(1, least=1)
    axis = drawn_axis(b, len(shape))
    where = _indices(b, b.shape(0, 3), shape[axis].extents)
    b.out(b.node(op, b.either(shape, dtype), where, axis=axis))


@family("GatherElements")
def gather_elements(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op, among=_MOVED)
    shape = b.shape(1, least=1)
    axis = drawn_axis(b, len(shape))
    at = axis % len(shape)
    where = tuple(b.axis(0, 7) if i == at else a for i, a in enumerate(shape))
    b.out(b.node(op, b.either(shape, dtype), _indices(b, where, shape[at].extents), axis=axis))


@family("GatherND")
def gather_nd(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op, among=_MOVED)
    shape = b.shape(1, 4, least=1)
    batch = b.draw.integer(0, len(shape) - 1)
    depth = b.draw.integer(1, len(shape) - batch)
    lead = (*shape[:batch], *b.shape(0 if batch else 1, 2))
    numbers = b.draw.numbers()
    arrays = []
    for r in range(RUNS):
        parts = [
            numbers.integers(-a.extents[r], a.extents[r], extents_of(lead, r)) for a in shape[batch : batch + depth]
        ]
        arrays.append(np.stack(parts, -1).astype(np.int64))
    b.out(b.node(op, b.input(shape, dtype), b.given(arrays, (*lead, *fixed(depth))), batch_dims=batch or None))


@family("ScatterElements")
def scatter_elements(b: Builder, op: str) -> None:
    drawn_opset(b, 21, 18)
    reduction = b.draw.choose((None, "none", "add", "mul", "max", "min"))
    dtype = drawn_type(b, op, among=("float32", "int64", "float64", "int32"))
    shape = b.shape(1, least=1)
    axis = drawn_axis(b, len(shape))
    at = axis % len(shape)
    part = tuple(
        Axis(b.fresh("k"), tuple(b.draw.integer(1, e) for e in a.extents)) if i == at else a
        for i, a in enumerate(shape)
    )
    numbers = b.draw.numbers()
    arrays = []
    for r in range(RUNS):
        sizes = extents_of(part, r)
        rows = numbers.permutation(shape[at].extents[r])[: sizes[at]]
        if reduction not in (None, "none"):
            rows = numbers.integers(0, shape[at].extents[r], sizes[at])
        view = rows.reshape([-1 if i == at else 1 for i in range(len(sizes))])
        arrays.append(np.broadcast_to(view, sizes).astype(np.int64).copy())
    x, updates = b.input(shape, dtype, "tame", low=-2, high=2), b.input(part, dtype, "tame", low=-2, high=2)
    b.out(b.node(op, x, b.given(arrays, part), updates, axis=axis, reduction=reduction))


@family("ScatterND")
def scatter_nd(b: Builder, op: str) -> None:
    drawn_opset(b, 21, 18)
    reduction = b.draw.choose((None, "none", "add", "mul", "max", "min"))
    dtype = drawn_type(b, op, among=("float32", "int64", "float64", "int32"))
    shape = b.shape(1, least=1)
    depth = b.draw.integer(1, len(shape))
    rows = b.axis(0, 5) if reduction not in (None, "none") else fixed(1)[0]
    numbers = b.draw.numbers()
    arrays = [
        np.stack([numbers.integers(-a.extents[r], a.extents[r], rows.extents[r]) for a in shape[:depth]], -1)
        for r in range(RUNS)
    ]
    updates = b.input((rows, *shape[depth:]), dtype, "tame", low=-2, high=2)
    x = b.input(shape, dtype, "tame", low=-2, high=2)
    b.out(b.node(op, x, b.given(arrays, (rows, *fixed(depth))), updates, reduction=reduction))


@family("Compress")
def compress(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op, among=_MOVED)
    shape = b.shape(1)
    x = b.input(shape, dtype)
    if b.draw.rarely(3):
        b.out(b.node(op, x, b.input((b.axis(0, 3),), np.bool_)))
        return
    axis = drawn_axis(b, len(shape))
    b.out(b.node(op, x, b.input((shape[axis],), np.bool_), axis=axis))


@family("NonZero")
def non_zero(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op, among=("bool", "float32", "int64", "int32", "uint8"))
    b.out(b.node(op, b.input(b.shape(1), dtype, "tame", low=-1, high=1)))


@family("Unique")
def unique(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op, among=("float32", "int64", "int32", "float64"))
    shape = b.shape(1, 3, least=1)
    axis = drawn_axis(b, len(shape)) if b.draw.rarely(3) else None
    names = b.multi(
        op,
        [b.input(shape, dtype, "tame", low=-2, high=2)],
        b.draw.choose((1, 4)),
        axis=axis,
        sorted=b.draw.choose((None, 1, 0)),
    )
    b.out(*names)


@family("TensorScatter")
def tensor_scatter(b: Builder, op: str) -> None:
    b.opset = 24
    batch, heads, width = b.axis(1, 3), b.axis(1, 3), b.axis(1, 5)
    rows, new = b.draw.integer(4, 8), b.draw.integer(1, 3)
    past, update = (batch, heads, *fixed(rows), width), (batch, heads, *fixed(new), width)
    mode = b.draw.choose((None, "linear", "circular"))
    most = rows if mode == "circular" else rows - new + 1
    numbers = b.draw.numbers()
    starts = b.given([numbers.integers(0, most, batch.extents[r]) for r in range(RUNS)], (batch,))
    b.out(b.node(op, b.input(past), b.input(update), starts, mode=mode))


@family("NonMaxSuppression")
def suppression(b: Builder, op: str) -> None:
    """Boxes with scores that are all different."""
    batch, boxes, classes = b.axis(1, 3), b.axis(1, 7), b.axis(1, 3)
    numbers = b.draw.numbers()
    corners, scores = [], []
    for r in range(RUNS):
        low = numbers.uniform(0, 4, (batch.extents[r], boxes.extents[r], 2))
        corners.append(np.concatenate([low, low + numbers.uniform(0.5, 3, low.shape)], -1).astype(np.float32))
        size = (batch.extents[r], classes.extents[r], boxes.extents[r])
        scores.append((numbers.permutation(int(np.prod(size))).reshape(size) / 64).astype(np.float32))
    most = b.parameter([np.array([b.draw.integer(0, 5)])] * RUNS)
    overlap = b.constant(np.array([b.draw.choose((0.5, 0.25, 0.0, 1.0))], np.float32))
    least = b.constant(np.array([b.draw.choose((0.0, 0.3))], np.float32))
    names = [b.given(corners, (batch, boxes, *fixed(4))), b.given(scores, (batch, classes, boxes))]
    more = b.draw.choose(((most, overlap, least), (most, overlap), (most,)))
    b.out(b.node(op, *names, *more, center_point_box=b.draw.choose((None, 0, 1))))
