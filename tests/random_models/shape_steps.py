"""Steps whose operands are arithmetic on the shapes of other values, as exporters write it for dynamic sizes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.random_models.model_maker import Entry, Maker
from tests.random_models.steps import Step

_FAR = np.iinfo(np.int64).max


def _data(make: Maker, least_rank: int = 1) -> Entry | None:
    return make.pick(lambda v: v.kind == "float" and v.rank >= least_rank and v.array.size > 0)


def extent(make: Maker, x: Entry, axis: int) -> Entry | None:
    """``x.shape[axis]`` as a vector of one element, in one of the ways that exporters ask for it."""
    way = make.choose(["part", "gather", "scalar", "slice"])
    if way == "part":
        return make.add("Shape", x.name, start=axis, end=axis + 1, exact=True)
    shape = make.add("Shape", x.name, exact=True)
    if shape is None:
        return None
    if way == "gather":
        return make.add("Gather", shape.name, make.constant([axis]), axis=0, exact=True)
    if way == "slice":
        bounds = (make.constant([axis]), make.constant([axis + 1]))
        return make.add("Slice", shape.name, *bounds, make.constant([0]), exact=True)
    scalar = make.add("Gather", shape.name, make.constant(np.array(axis)), exact=True)
    return None if scalar is None else make.add("Unsqueeze", scalar.name, make.constant([0]), exact=True)


def size(make: Maker) -> Entry | None:
    """An extent of some value, or a number computed from it."""
    x = _data(make)
    found = None if x is None else extent(make, x, make.integer(0, x.rank - 1))
    for _ in range(make.integer(0, 2)):
        if found is None:
            return None
        found = _computed(make, found)
    return found


def _computed(make: Maker, n: Entry) -> Entry | None:
    op = make.choose(["Div", "Sub", "Mul", "Add", "Mod", "Max", "Min", "rounded", "chosen"])
    number = make.constant([make.choose([1, 2, 3])])
    if op == "rounded":  # as interpolation by a factor computes it
        real = make.add("Cast", n.name, to=TensorProto.FLOAT, exact=True)
        scaled = (
            None if real is None else make.add("Mul", real.name, make.constant(np.array([0.5], np.float32)), exact=True)
        )
        floor = None if scaled is None else make.add(make.choose(["Floor", "Ceil"]), scaled.name, exact=True)
        return None if floor is None else make.add("Cast", floor.name, to=TensorProto.INT64, exact=True)
    if op == "chosen":
        small = make.add("Less", n.name, make.constant([make.integer(1, 6)]), exact=True)
        return None if small is None else make.add("Where", small.name, n.name, number, exact=True)
    return make.add(op, n.name, number, exact=True)


def _joined(make: Maker, *parts: Entry | int) -> Entry | None:
    names = [p.name if isinstance(p, Entry) else make.constant([p]) for p in parts]
    return make.add("Concat", *names, axis=0, exact=True)


def _scalar(make: Maker, n: Entry) -> Entry | None:
    return make.add("Squeeze", n.name, *([make.constant([0])] * make.integer(0, 1)), exact=True)


def _counted(make: Maker, n: Entry) -> Entry | None:
    """0, 1, ... below ``n``."""
    end = _scalar(make, n)
    zero, one = make.constant(np.array(0)), make.constant(np.array(1))
    return None if end is None else make.add("Range", zero, end.name, one, exact=True)


def reshape(make: Maker) -> Entry | None:
    """Windows: an axis in two, beside extents that are copied and one that is what is left."""
    x = _data(make)
    if x is None:
        return None
    axis, width = make.integer(0, x.rank - 1), make.choose([1, 2, 3])
    parts: list[Entry | int] = []
    for i in range(x.rank):
        own = extent(make, x, i)
        if own is None:
            return None
        if i != axis:
            parts.append(own)
            continue
        count = make.add("Div", own.name, make.constant([width]), exact=True)
        if count is None:
            return None
        parts += [count, width]
    if make.flag():
        parts[make.integer(0, len(parts) - 1)] = -1
    target = _joined(make, *parts)
    return None if target is None else make.add("Reshape", x.name, target.name, exact=x.exact)


def shortened(make: Maker) -> Entry | None:
    """Whole windows of an axis, the rest cut off."""
    x = _data(make)
    if x is None:
        return None
    axis, width = make.integer(0, x.rank - 1), make.constant([make.choose([2, 3])])
    own = extent(make, x, axis)
    count = None if own is None else make.add("Div", own.name, width, exact=True)
    whole = None if count is None else make.add("Mul", count.name, width, exact=True)
    if whole is None:
        return None
    return make.add("Slice", x.name, make.constant([0]), whole.name, make.constant([axis]), exact=x.exact)


def cut(make: Maker) -> Entry | None:
    x, n = _data(make), size(make)
    if x is None or n is None:
        return None
    axes = make.constant([make.integer(0, x.rank - 1)])
    steps = [make.constant([make.choose([1, 2])])] if make.flag() else []
    if make.flag():
        return make.add("Slice", x.name, n.name, make.constant([_FAR]), axes, *steps, exact=x.exact)
    if make.flag():
        back = make.add("Neg", n.name, exact=True)
        return (
            None
            if back is None
            else make.add("Slice", x.name, make.constant([0]), back.name, axes, *steps, exact=x.exact)
        )
    return make.add("Slice", x.name, make.constant([0]), n.name, axes, *steps, exact=x.exact)


def surrounded(make: Maker) -> Entry | None:
    x, n = _data(make), size(make)
    if x is None or n is None or n.array[0] > 8:
        return None
    mode = make.choose(["constant", "edge", "reflect"])
    if mode == "reflect" and min(x.shape) <= n.array[0]:
        return None
    place = make.integer(0, 2 * x.rank - 1)
    pads = _joined(make, *(n if i == place else 0 for i in range(2 * x.rank)))
    return None if pads is None else make.add("Pad", x.name, pads.name, mode=mode, exact=x.exact)


def repeated(make: Maker) -> Entry | None:
    """Each element of an axis several times: a new axis, expanded and merged."""
    x, n = _data(make), size(make)
    if x is None or n is None or not 0 < n.array[0] < 6:
        return None
    axis = make.integer(0, x.rank - 1)
    apart = make.add("Unsqueeze", x.name, make.constant([axis + 1]), exact=x.exact)
    own = [extent(make, x, i) for i in range(x.rank)]
    if apart is None or any(o is None for o in own):
        return None
    dims = [o for o in own if o is not None]
    wide = _joined(make, *dims[: axis + 1], n, *dims[axis + 1 :])
    merged = _joined(make, *dims[:axis], -1, *dims[axis + 1 :])
    if wide is None or merged is None:
        return None
    full = make.add("Expand", apart.name, wide.name, exact=x.exact)
    return None if full is None else make.add("Reshape", full.name, merged.name, exact=x.exact)


def tiled(make: Maker) -> Entry | None:
    x, n = _data(make), size(make)
    if x is None or n is None or not 0 < n.array[0] < 6:
        return None
    counts = _joined(make, *([1] * (x.rank - 1)), n)
    return None if counts is None else make.add("Tile", x.name, counts.name, exact=x.exact)


def filled(make: Maker) -> Entry | None:
    n, m = size(make), size(make)
    if n is None or m is None or n.array[0] < 1 or m.array[0] < 1:
        return None
    shape = _joined(make, n, m)
    made = None if shape is None else make.add("ConstantOfShape", shape.name, exact=True)
    return None if made is None else make.add(make.choose(["Cos", "Exp", "Identity"]), made.name, exact=False)


def positions(make: Maker) -> Entry | None:
    """What is added along an axis: its own numbers."""
    x = _data(make)
    own = None if x is None else extent(make, x, x.rank - 1)
    counted = None if own is None else _counted(make, own)
    real = None if counted is None else make.add("Cast", counted.name, to=_number(x), exact=True)
    return (
        None if real is None or x is None else make.add(make.choose(["Add", "Mul"]), x.name, real.name, exact=x.exact)
    )


def _number(x: Entry | None) -> int:
    return int(TensorProto.DOUBLE if x is not None and x.array.dtype == np.float64 else TensorProto.FLOAT)


def picked(make: Maker) -> Entry | None:
    """Every element of an axis backwards, or modulo a size."""
    x = _data(make)
    if x is None:
        return None
    axis = make.integer(0, x.rank - 1)
    own = extent(make, x, axis)
    counted = None if own is None else _counted(make, own)
    if counted is None or own is None:
        return None
    if make.flag():
        last = make.add("Sub", own.name, make.constant([1]), exact=True)
        index = None if last is None else make.add("Sub", last.name, counted.name, exact=True)
    else:
        n = size(make)
        if n is None or not 0 < n.array[0] <= x.shape[axis]:
            return None
        index = make.add("Mod", counted.name, n.name, exact=True)
    return None if index is None else make.add("Gather", x.name, index.name, axis=axis, exact=x.exact)


def reversed_(make: Maker) -> Entry | None:
    """A whole sequence backwards, by lengths of its own shape."""
    x = _data(make, 2)
    if x is None:
        return None
    time = make.integer(0, 1)
    length, batch = extent(make, x, time), extent(make, x, 1 - time)
    if length is None or batch is None:
        return None
    scalar = _scalar(make, length) if make.flag() else length
    lengths = None if scalar is None else make.add("Expand", scalar.name, batch.name, exact=True)
    if lengths is None:
        return None
    return make.add("ReverseSequence", x.name, lengths.name, time_axis=time, batch_axis=1 - time, exact=x.exact)


def halves(make: Maker) -> Entry | None:
    x = _data(make)
    if x is None:
        return None
    axis = make.integer(0, x.rank - 1)
    own = extent(make, x, axis)
    first = None if own is None else make.add("Div", own.name, make.constant([2]), exact=True)
    rest = None if first is None or own is None else make.add("Sub", own.name, first.name, exact=True)
    sizes = None if first is None or rest is None else _joined(make, first, rest)
    return None if sizes is None else make.add("Split", x.name, sizes.name, outputs=2, axis=axis, exact=x.exact)


def largest(make: Maker) -> Entry | None:
    x, n = _data(make), size(make)
    if (
        x is None
        or n is None
        or not x.exact
        or not 0 < n.array[0] <= x.shape[-1]
        or len(np.unique(x.array)) < x.array.size
    ):
        return None
    return make.add("TopK", x.name, n.name, outputs=2, exact=True)


def resized(make: Maker) -> Entry | None:
    x = make.pick(lambda v: v.array.dtype == np.float32 and v.rank in (3, 4) and v.array.size > 0)
    n = size(make)
    if x is None or n is None or not 0 < n.array[0] < 12:
        return None
    own = [extent(make, x, i) for i in range(x.rank - 1)]
    if any(o is None for o in own):
        return None
    sizes = _joined(make, *(o for o in own if o is not None), n)
    if sizes is None:
        return None
    return make.add("Resize", x.name, "", "", sizes.name, coordinate_transformation_mode="asymmetric", mode="linear")


def masked(make: Maker) -> Entry | None:
    """What lies behind the diagonal of a square of positions, or of a rectangle, is filled."""
    x = _data(make, 2)
    if x is None:
        return None
    rows, columns = extent(make, x, x.rank - 2), extent(make, x, x.rank - 1)
    counted = [None if n is None else _counted(make, n) for n in (rows, columns)]
    if counted[0] is None or counted[1] is None:
        return None
    column = make.add("Unsqueeze", counted[0].name, make.constant([1]), exact=True)
    mask = None if column is None else make.add("LessOrEqual", counted[1].name, column.name, exact=True)
    low = make.constant(np.array(-4, x.array.dtype))
    return None if mask is None else make.add("Where", mask.name, x.name, low, exact=x.exact)


def product(make: Maker) -> Entry | None:
    x = _data(make, 2)
    if x is None or x.rank < 2:
        return None
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    other = make.add("Transpose", x.name, perm=order, exact=x.exact)
    return None if other is None else make.add("MatMul", x.name, other.name)


def reduced(make: Maker) -> Entry | None:
    x = _data(make, 2)
    if x is None:
        return None
    axes = make.constant([make.integer(0, x.rank - 1)])
    return make.add(make.choose(["ReduceMean", "ReduceMax"]), x.name, axes, keepdims=make.integer(0, 1))


def normal(make: Maker) -> Entry | None:
    x = _data(make)
    return None if x is None else make.add("Softmax", x.name, axis=make.choose([-1, 0]))


def scaled(make: Maker) -> Entry | None:
    x = _data(make)
    return None if x is None else make.add(make.choose(["Sigmoid", "Tanh", "Neg", "Abs"]), x.name)


def numbered(make: Maker) -> Entry | None:
    """A size itself as data."""
    x, n = _data(make), size(make)
    real = None if n is None else make.add("Cast", n.name, to=_number(x), exact=True)
    return None if real is None or x is None else make.add(make.choose(["Add", "Mul", "Sub"]), x.name, real.name)


SHAPE_STEPS: tuple[Step, ...] = (
    reshape,
    shortened,
    cut,
    surrounded,
    repeated,
    tiled,
    filled,
    positions,
    picked,
    reversed_,
    halves,
    largest,
    resized,
    masked,
    product,
    reduced,
    normal,
    scaled,
    numbered,
)
