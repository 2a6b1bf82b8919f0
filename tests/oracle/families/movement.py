"""Operators that move elements and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracle.builder import RUNS, Axis, Builder, Shape, extents_of, fixed
from tests.oracle.families.along_axes import drawn_axes, drawn_axis
from tests.oracle.families.table import drawn_opset, drawn_type, family

_FAR = np.iinfo(np.int64).max
_MOVED = ("float32", "int64", "float64", "float16", "int32", "uint8", "int8", "bool")


def _value(b: Builder, op: str, shape: Shape, index: int = 0) -> tuple[str, np.dtype]:
    dtype = drawn_type(b, op, index, among=_MOVED)
    return b.input(shape, dtype), dtype


@family("Transpose")
def transpose(b: Builder, op: str) -> None:
    shape = b.shape(0, 5)
    x, _ = _value(b, op, shape)
    b.out(b.node(op, x, perm=None if not shape or b.draw.rarely() else b.draw.order(len(shape))))


@family("Reshape")
def reshape(b: Builder, op: str) -> None:
    """To merged axes, split ones, -1 and 0 in the places that have them."""
    shape = b.shape(1)
    x, _ = _value(b, op, shape)
    target: list[list[int]] = [list(extents_of(shape, r)) for r in range(RUNS)]
    for _ in range(b.draw.integer(0, 2)):
        place = b.draw.integer(0, len(target[0]))
        if b.draw.flag() and 0 < place < len(target[0]):
            for t in target:
                t[place - 1 : place + 1] = [t[place - 1] * t[place]]
        else:
            for t in target:
                t.insert(place, 1)
    known = all(all(t) for t in target)
    _written_shorter(b, shape, target, known)
    b.out(b.node(op, x, b.parameter(target), allowzero=None if known else 1))


def _written_shorter(b: Builder, shape: Shape, target: list[list[int]], known: bool) -> None:
    """An extent of the ``target`` becomes -1, those that are copied 0."""
    if target[0] and known and b.draw.flag():
        place = b.draw.integer(0, len(target[0]) - 1)
        for t in target:
            t[place] = -1
    if b.draw.rarely() and known:
        for r, t in enumerate(target):
            for i, axis in enumerate(shape[: len(t)]):
                if t[i] == axis.extents[r] and target[0][i] in (0, shape[i].extents[0]) and i < len(target[0]):
                    t[i] = 0 if all(u[i] in (0, shape[i].extents[k]) for k, u in enumerate(target)) else t[i]


@family("Flatten")
def flatten(b: Builder, op: str) -> None:
    shape = b.shape()
    x, _ = _value(b, op, shape)
    b.out(b.node(op, x, axis=b.draw.integer(-len(shape), len(shape))))


@family("Squeeze")
def squeeze(b: Builder, op: str) -> None:
    shape = list(b.shape(0, 3))
    ones = []
    for _ in range(b.draw.integer(1, 2)):
        place = b.draw.integer(0, len(shape))
        named = b.draw.flag()
        shape.insert(place, Axis(b.fresh("u") if named else None, (1,) * RUNS))
    ones = [i for i, a in enumerate(shape) if a.extents == (1,) * RUNS]
    x, _ = _value(b, op, tuple(shape))
    all_static = all(a.is_static for a in shape)
    if all_static and b.draw.rarely():
        b.out(b.node(op, x))
        return
    chosen = b.draw.some(ones, 1)
    signed = [i - (len(shape) if b.draw.rarely() else 0) for i in chosen]
    b.out(b.node(op, x, b.constant(signed)))


@family("Unsqueeze")
def unsqueeze(b: Builder, op: str) -> None:
    shape = b.shape(0, 3)
    x, _ = _value(b, op, shape)
    count = b.draw.integer(1, 2)
    rank = len(shape) + count
    places = b.draw.order(rank)[:count]
    b.out(b.node(op, x, b.constant([p - (rank if b.draw.rarely() else 0) for p in places])))


@family("Expand")
def expand(b: Builder, op: str) -> None:
    """To a shape that is told, or computed from another input."""
    shape = b.shape()
    narrow = b.broadcast(shape)
    x, _ = _value(b, op, narrow)
    if b.draw.flag():
        other = b.input(shape)
        b.out(b.node(op, x, b.node("Shape", other)))
        b.out(b.node("Relu", other))
        return
    asked = [list(extents_of(shape, r)) for r in range(RUNS)]
    for i in range(len(shape)):
        behind = len(shape) - i
        if behind <= len(narrow) and narrow[-behind].extents == shape[i].extents and b.draw.rarely(3):
            for a in asked:
                a[i] = 1
    b.out(b.node(op, x, b.parameter(asked)))


@family("Tile")
def tile(b: Builder, op: str) -> None:
    shape = b.shape(0, 4, most=8)
    x, _ = _value(b, op, shape)
    b.out(b.node(op, x, b.parameter([[b.draw.choose((1, 2, 3, 0)) for _ in shape] for _ in range(RUNS)])))


@family("Concat")
def concat(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op, among=_MOVED)
    shape = b.shape(1)
    axis = drawn_axis(b, len(shape))
    at = axis % len(shape)
    names: list[str] = []
    for _ in range(b.draw.integer(1, 4)):
        if names and b.draw.rarely(5):
            names.append(b.draw.choose(names))
            continue
        part = tuple(b.axis() if i == at else b.renamed(a) if b.draw.rarely(6) else a for i, a in enumerate(shape))
        names.append(b.either(part, dtype))
    b.out(b.node(op, *names, axis=axis))


@family("Split")
def split(b: Builder, op: str) -> None:
    parts = b.draw.integer(1, 4)
    shape = list(b.shape(1))
    axis = drawn_axis(b, len(shape))
    at = axis % len(shape)
    if b.draw.flag():
        sizes = [[b.draw.integer(0, 5) for _ in range(parts)] for _ in range(RUNS)]
        named = b.draw.flag()
        if not named:
            sizes = [sizes[0]] * RUNS
        shape[at] = Axis(b.fresh("s") if named else None, tuple(sum(s) for s in sizes))
        x, _ = _value(b, op, tuple(shape))
        b.out(*b.multi(op, [x, b.parameter(sizes)], parts, axis=axis))
        return
    x, _ = _value(b, op, tuple(shape))
    b.out(*b.multi(op, [x], parts, axis=axis, num_outputs=parts))


@family("Slice")
def slice_(b: Builder, op: str) -> None:
    shape = b.shape(1)
    x, _ = _value(b, op, shape)
    axes = drawn_axes(b, len(shape), 1)
    rows: list[list[list[int]]] = []
    alike = b.draw.flag()
    steps = [b.draw.choose((1, 1, 2, 3, -1, -2)) for _ in axes]
    for r in range(RUNS):
        if r and alike:
            rows.append(rows[0])
            continue
        begins, ends = [], []
        for step in steps:
            begins.append(b.draw.choose((0, 1, -1, -2, 3, -_FAR, _FAR, -100)))
            ends.append(b.draw.choose((_FAR, 4, -1, 2, -3, 0, -_FAR, 1)))
            if step < 0 and b.draw.flag():
                begins[-1], ends[-1] = b.draw.choose(((-1, -_FAR), (_FAR, 0), (-1, -3), (3, -100)))
        rows.append([begins, ends])
    given = [b.parameter([row[i] for row in rows]) for i in range(2)]
    more = [b.constant(axes), b.constant(steps)] if not b.draw.rarely() or len(axes) != len(shape) else []
    b.out(b.node(op, x, *given, *more))


@family("Pad")
def pad(b: Builder, op: str) -> None:
    drawn_opset(b, 21, 19, 18)
    mode = b.draw.choose(("constant", "constant", "edge", "reflect", "wrap" if b.opset >= 19 else "edge"))
    shape = b.shape(1, least=2 if mode != "constant" else 0, most=7)
    x, dtype = _value(b, op, shape)
    axes = drawn_axes(b, len(shape), 1) if b.draw.rarely(3) else None
    count = len(shape if axes is None else axes)
    low, high = (-2, 3) if mode == "constant" else (0 if mode == "wrap" else -1, 1)
    pads = [[b.draw.choose((0, *range(low, high + 1))) for _ in range(2 * count)]] * RUNS
    if b.draw.rarely():
        pads = [pads[0], [b.draw.integer(0, 1) for _ in range(2 * count)]]
    names = [x, b.parameter(pads)]
    if mode == "constant" and b.draw.flag():
        names.append(b.either((), dtype))
    if axes is not None:
        names += [""] * (3 - len(names)) + [b.constant(axes)]
    b.out(b.node(op, *names, mode=mode))


@family("DepthToSpace", "SpaceToDepth")
def depth(b: Builder, op: str) -> None:
    size = b.draw.choose((2, 1, 3))
    deep = op == "DepthToSpace"
    channels = b.axis(0, 4 * size * size, size * size if deep else 1)
    spatial = [b.axis(0, 12, 1 if deep else size) for _ in range(2)]
    x, _ = _value(b, op, (b.axis(0, 3), channels, *spatial))
    mode = b.draw.choose((None, "DCR", "CRD")) if deep else None
    b.out(b.node(op, x, blocksize=size, mode=mode))


@family("Trilu")
def trilu(b: Builder, op: str) -> None:
    x, _ = _value(b, op, b.shape(2))
    names = [x] if b.draw.flag() else [x, b.parameter([np.array(b.draw.integer(-4, 4))] * RUNS)]
    b.out(b.node(op, *names, upper=b.draw.choose((None, 0, 1))))


@family("ReverseSequence")
def reverse_sequence(b: Builder, op: str) -> None:
    batch_axis = b.draw.choose((1, 0))
    shape = b.shape(2, least=1)
    x, _ = _value(b, op, shape)
    batch, time = shape[batch_axis], shape[1 - batch_axis]
    lengths = [
        np.array([b.draw.integer(1, time.extents[r]) for _ in range(batch.extents[r])], np.int64) for r in range(RUNS)
    ]
    b.out(b.node(op, x, b.given(lengths, (batch,)), batch_axis=batch_axis, time_axis=1 - batch_axis))


@family("CenterCropPad")
def center(b: Builder, op: str) -> None:
    shape = b.shape(1, 3, least=1)
    x = b.input(shape, np.float32)
    axes = drawn_axes(b, len(shape), 1) if b.draw.flag() else None
    count = len(shape if axes is None else axes)
    wanted = [[b.draw.integer(1, 9) for _ in range(count)]] * RUNS
    b.out(b.node(op, x, b.parameter(wanted), axes=axes))


@family("Shape", "Size")
def shape_(b: Builder, op: str) -> None:
    shape = b.shape()
    x, _ = _value(b, op, shape)
    bounds: dict[str, Any] = {}
    if op == "Shape":
        bounds = {k: b.draw.integer(-5, 5) for k in b.draw.some(("start", "end"))}
    b.out(b.node(op, x, **bounds))


@family("EyeLike")
def eye(b: Builder, op: str) -> None:
    x, _ = _value(b, op, b.shape(2, 2))
    dtype = b.draw.choose((None, 1, 7, 11, 6))
    b.out(b.node(op, x, k=b.draw.choose((None, 0, 1, -1, 3, -20)), dtype=dtype))


@family("ConstantOfShape")
def constant_of_shape(b: Builder, op: str) -> None:
    from onnx import numpy_helper

    shape = b.shape(0, 4, most=7)
    dtype = np.dtype(b.draw.choose(("float32", "int64", "bool", "float16", "uint8")))
    value = None if b.draw.rarely() else numpy_helper.from_array(np.array([b.draw.integer(0, 3)]).astype(dtype))
    b.out(b.node(op, b.parameter([list(extents_of(shape, r)) for r in range(RUNS)]), value=value))


@family("Range")
def range_(b: Builder, op: str) -> None:
    dtype = np.dtype(b.draw.choose(("int64", "float32", "int32", "float64", "int16")))
    runs = []
    for _ in range(RUNS):
        step = b.draw.choose((1, 2, -1, -3, 5)) / (4 if dtype.kind == "f" else 1)
        begin = b.draw.integer(-5, 5)
        runs.append((begin, begin + step * b.draw.integer(-1, 9), step))
    names = [b.parameter([np.array(run[i]) for run in runs], dtype) for i in range(3)]
    b.out(b.node(op, *names))


@family("OneHot")
def one_hot(b: Builder, op: str) -> None:
    kind = np.dtype(b.draw.choose(("int64", "int32", "float32", "uint8")))
    value = np.dtype(b.draw.choose(("float32", "int64", "int32")))
    depth_ = b.draw.integer(1, 6)
    low = 0 if kind.kind == "u" else -depth_ - 1
    shape = b.shape(0, 3)
    x = b.given(
        [np.round(b.draw.numbers().integers(low, depth_ + 2, extents_of(shape, r))).astype(kind) for r in range(RUNS)],
        shape,
    )
    deep = b.parameter(
        [np.array(depth_ if b.draw.flag() else [depth_])] * RUNS, b.draw.choose((np.int64, np.int32, np.float32))
    )
    axis = None if b.draw.flag() else b.draw.integer(-len(shape) - 1, len(shape))
    b.out(b.node(op, x, deep, b.either(fixed(2), value, "tame"), axis=axis))
