"""Operators that pick and place elements: slices, joins, padding, repetition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from compiler_service.compiler.tensor_expr.axes import normal_axes, normal_axis, replaced
from compiler_service.compiler.tensor_expr.broadcast import (
    Pairs,
    broadcast_load,
    broadcast_pairs,
    broadcast_shape,
    common_dim,
    must_equal,
)
from compiler_service.compiler.tensor_expr.extents import inhabited
from compiler_service.compiler.tensor_expr.meaning.known import known_dims, known_ints
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.operators.chosen_axes import ChosenAxes
from compiler_service.compiler.tensor_expr.refusal import mismatch, too_large, unsupported_attribute
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute
from shared_ir.dtype import DType
from shared_ir.expr import (
    Const,
    Expr,
    cast,
    ceil_div,
    lift,
    logical_and,
    maximum,
    minimum,
    select,
)
from shared_ir.expr.dim import Dim, as_dim
from shared_ir.expr.simplify import simplify, unbounded

_LONGEST_AXIS = 1 << 48
"""Axes of more elements have none: addresses are shorter."""
_LONGEST_STEP = 1 << 62
"""Steps that are longer lead as far, and would overflow when they are rounded up to."""

_TO_THE_END = frozenset({2**31 - 1, 2**31})
"""Exporters write these of any axis for "to the end", as they write the largest number there is."""


def expand(x: Tensor, shape: Tensor) -> Tensor:
    wanted = known_dims(shape, "shape")
    full = broadcast_shape(x.shape, wanted)
    pairs = broadcast_pairs(full, x.shape, wanted)
    return compute(full, lambda *index: broadcast_load(x, index, full), name="expand", assumes=pairs)


def tile(x: Tensor, repeats: Tensor) -> Tensor:
    counts = known_dims(repeats, "repeats")

    def body(*index: Expr) -> Expr:
        return x[tuple(i if n == 1 else i % lift(d) for i, n, d in zip(index, counts, x.shape, strict=True))]

    return compute([d * n for d, n in zip(x.shape, counts, strict=True)], body, name="tile")


def concat(*tensors: Tensor, axis: int) -> Tensor:
    axis = normal_axis(axis, tensors[0].rank)
    offsets = _offsets([t.shape[axis] for t in tensors])
    shape = [common_dim(t.shape[a] for t in tensors) if a != axis else offsets[-1] for a in range(tensors[0].rank)]

    def body(*index: Expr) -> Expr:
        def between(first: int, last: int) -> Expr:
            if last - first == 1:
                return tensors[first][replaced(index, axis, index[axis] - offsets[first])]
            middle = (first + last) // 2
            return select(index[axis] < offsets[middle], between(first, middle), between(middle, last))

        return between(0, len(tensors))

    pairs = [
        (d, s) for t in tensors for a, (d, s) in enumerate(zip(t.shape, shape, strict=True)) if a != axis and d != s
    ]
    return compute(shape, body, name="concat", assumes=pairs)


_MOST_OFFSET_TERMS = 1 << 18
"""Parts of a Concat, times the terms of their sum: each part starts at a sum of the extents before it."""


def _offsets(extents: Sequence[Dim]) -> list[Dim]:
    """Where each part starts, and where the last one ends.

    Raises:
        IngotError: LIMIT_EXCEEDED, sums of so many symbols that they take too long.
    """
    terms = len(dict.fromkeys(d for d in extents if not isinstance(d, int)))
    if terms * len(extents) > _MOST_OFFSET_TERMS:
        message = "a symbolic dim is too complicated"
        raise too_large(message, f"extents of which {_MOST_OFFSET_TERMS // len(extents)} differ", str(terms))
    found: list[Dim] = [0]
    for extent in extents:
        found.append(as_dim(found[-1] + extent))
    return found


_MOST_PARTS = 1 << 14


def split(
    x: Tensor, sizes: Tensor | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Tensor, ...]:
    """Without sizes, ``num_outputs`` equal parts, the last ones smaller when they do not come out even."""
    axis = normal_axis(axis, x.rank)
    extent = x.shape[axis]
    assumes: Sequence[tuple[Dim, Dim]] = ()
    if sizes is not None:
        parts = known_dims(sizes, "split")
        offsets = [as_dim(sum(parts[:part], lift(0))) for part in range(len(parts) + 1)]
        assumes = [] if offsets[-1] == extent else [(extent, offsets[-1])]
    elif num_outputs is not None:
        if not 1 <= num_outputs <= _MOST_PARTS:
            raise unsupported_attribute("num_outputs", f"a number from 1 to {_MOST_PARTS}", str(num_outputs))
        parts = _equal_parts(extent, num_outputs)
        offsets = [as_dim(lift(parts[0]) * i) for i in range(num_outputs)]
    else:
        raise unsupported_attribute("num_outputs", "a number, or the input split", "neither")

    def window(offset: Dim, size: Dim) -> Tensor:
        shape = replaced(x.shape, axis, size)
        return compute(
            shape, lambda *i: x[replaced(i, axis, i[axis] + offset)], name="split", assumes=assumes, partial=True
        )

    return tuple(window(offset, size) for offset, size in zip(offsets, parts, strict=False))


def _equal_parts(extent: Dim, count: int) -> tuple[Dim, ...]:
    """``count`` parts of ``ceil(extent / count)``, as long as there are elements."""
    part = as_dim(ceil_div(extent, count))
    last = as_dim(extent - lift(part) * (count - 1))
    low, _ = unbounded().interval(lift(last))
    if count <= 2 or (low is not None and low >= 0):
        return (*(part,) * (count - 1), last)
    left = (extent - lift(part) * i for i in range(1, count))
    return (part, *(as_dim(maximum(minimum(each, part), 0)) for each in left))


def slice_(x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None) -> Tensor:
    """Numpy slicing; bounds may depend on dims, steps are numbers."""
    first, last = known_dims(starts, "starts"), known_dims(ends, "ends")
    chosen = tuple(range(len(first))) if axes is None else normal_axes(known_ints(axes, "axes"), x.rank)
    strides = (1,) * len(first) if steps is None else known_ints(steps, "steps")
    lengths = [len(part) for part in (first, last, chosen, strides)]
    if len(set(lengths)) > 1:
        raise mismatch(
            "the lists of a slice differ in length", "starts, ends, axes and steps of one length", f"{lengths}"
        )
    shape, begin, stride = list(x.shape), [lift(0)] * x.rank, [1] * x.rank
    for axis, start, end, step in zip(chosen, first, last, strides, strict=True):
        begin[axis], shape[axis] = _slice_range(
            x.shape[axis], start, end, max(-_LONGEST_STEP, min(step, _LONGEST_STEP))
        )
        stride[axis] = stride_within(x.shape[axis], step)

    def body(*index: Expr) -> Expr:
        return x[tuple(b + i * s for b, i, s in zip(begin, index, stride, strict=True))]

    return compute(shape, body, name="slice", partial=True)


def stride_within(extent: Dim, step: int) -> int:
    """``step``, or 0 where it leads past an axis of ``extent`` from wherever: a number that is multiplied by positions."""
    return step if abs(step) < (extent if isinstance(extent, int) else _LONGEST_AXIS) else 0


def _slice_range(extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Expr, Dim]:
    """First element and number of elements."""
    if step == 0:
        raise unsupported_attribute("steps", "anything but 0", "0")
    if step < 0:
        first = minimum(_bound(start, extent, -1), extent - 1)
        count = ceil_div(first - _bound(end, extent, -1), -step)
        return simplify(first), as_dim(maximum(count, 0))
    if _is_negative(start) and _is_past(end, extent):  # the last -start elements
        length = minimum(extent, 0 - lift(start))
        return simplify(lift(extent) - length), as_dim(ceil_div(length, step))
    first = _bound(start, extent, 0)  # past the end it does not matter where nothing is read from
    limit = _bound(end, extent, 0)
    limit = limit if _is_negative(end) is True else minimum(limit, extent)
    count = ceil_div(limit - first, step)
    return simplify(first), as_dim(maximum(count, 0))


def _bound(value: Dim, extent: Dim, least: int) -> Expr:
    """A bound of a slice, counted from the end when negative, at least ``least``."""
    if _is_past(value, extent):
        return lift(extent)
    if isinstance(value, int) and _is_past(-value, extent):
        return lift(least)
    negative, from_end = _is_negative(value), maximum(lift(value) + extent, least)
    if negative is None:
        return select(lift(value) < 0, from_end, value)
    return from_end if negative else lift(value)


def _is_past(bound: Dim, extent: Dim) -> bool:
    """Whether ``bound`` lies behind the end of an axis of ``extent``, in whatever run."""
    if not isinstance(bound, int):
        return False
    return bound > extent if isinstance(extent, int) else bound >= _LONGEST_AXIS or bound in _TO_THE_END


def _is_negative(value: Dim) -> bool | None:
    """None where it depends on the sizes of the run."""
    verdict = simplify(lift(value) < 0)
    return bool(verdict.value) if isinstance(verdict, Const) else None


def pad(
    x: Tensor, pads: Tensor, constant_value: Tensor | None = None, axes: Tensor | None = None, *, mode: str = "constant"
) -> Tensor:
    """Negative pads crop."""
    if mode not in ("constant", *_BORDERS):
        raise unsupported_attribute("mode", f"constant, {', '.join(_BORDERS)}", mode)
    numbers = ChosenAxes(x.rank, tuple(range(x.rank))) if axes is None else ChosenAxes.of(axes, "axes", x.rank)
    widths = known_dims(pads, "pads")
    count = len(numbers.axes)
    if len(widths) != 2 * count:
        raise mismatch("pads does not fit the axes", f"{2 * count} numbers", str(len(widths)))
    before, after = (numbers.values_of(part, 0) for part in (widths[:count], widths[count:]))
    if mode == "constant":
        fill = lift(0, x.dtype) if constant_value is None else constant_value[(0,) * constant_value.rank]
        return padded(x, before, after, fill)

    def source(i: Expr, low: Dim, high: Dim, extent: Dim) -> Expr:
        """Where element ``i`` comes from: most are within, where nothing but the condition is asked for."""
        own = i - low
        conditions = _within(own, low, high, extent)
        if not conditions:
            return i
        return select(reduce(logical_and, conditions), own, _bordered(mode, own, extent, low, high))

    def body(*index: Expr) -> Expr:
        return x[tuple(map(source, index, before, after, x.shape))]

    shape = [low + d + high for low, d, high in zip(before, x.shape, after, strict=True)]
    return compute(shape, body, name="pad", assumes=_of_something(x, before, after, shape))


def pad_at(
    x: Tensor, lows: Tensor, sizes: Tensor, constant_value: Tensor | None = None, *, mode: str = "constant"
) -> Tensor:
    """``x`` padded to ``sizes``, ``lows`` elements before each axis: cut off there where they are negative."""
    if mode not in ("constant", *_BORDERS):
        raise unsupported_attribute("mode", f"constant, {', '.join(_BORDERS)}", mode)
    before, shape = known_dims(lows, "lows"), known_dims(sizes, "sizes")
    highs = [as_dim(lift(size) - low - d) for size, low, d in zip(shape, before, x.shape, strict=True)]

    def body(*index: Expr) -> Expr:
        own = [i - low for i, low in zip(index, before, strict=True)]
        rows = zip(own, x.shape, before, shape, strict=True)
        conditions = [[i >= 0, i < d] if low != 0 or size != d else [] for i, d, low, size in rows]
        if mode != "constant":
            beyond = [_bordered(mode, *row) for row in zip(own, x.shape, before, highs, strict=True)]
            places = zip(own, beyond, conditions, strict=True)
            return x[tuple(select(reduce(logical_and, c), i, o) if c else i for i, o, c in places)]
        fill = lift(0, x.dtype) if constant_value is None else constant_value[(0,) * constant_value.rank]
        asked = [c for each in conditions for c in each]
        return select(reduce(logical_and, asked), x[tuple(own)], fill) if asked else x[tuple(own)]

    return compute(
        shape, body, name="pad", assumes=[] if mode == "constant" else _of_something(x, before, highs, shape)
    )


def _of_something(x: Tensor, before: Sequence[Dim], after: Sequence[Dim], shape: Sequence[Dim]) -> Pairs:
    """That there are elements to repeat along each axis that changes, of those that are not cut off."""
    rows = zip(x.shape, before, after, shape, strict=True)
    return must_equal(*(inhabited(kept(d, low, high)[1], full) for d, low, high, full in rows if low != 0 or high != 0))


def kept(extent: Dim, low: Dim, high: Dim) -> tuple[Dim, Dim]:
    """The first element that negative widths leave of an axis, and how many they leave."""
    first = as_dim(maximum(0 - lift(low), 0))
    return first, as_dim(lift(extent) - first - maximum(0 - lift(high), 0))


def padded(x: Tensor, before: Sequence[Dim], after: Sequence[Dim], fill: Expr, axes: Sequence[str] = ()) -> Tensor:
    """``x`` surrounded by ``fill``."""

    def body(*index: Expr) -> Expr:
        source = [i - low for i, low in zip(index, before, strict=True)]
        conditions = []
        for i, low, high, extent in zip(source, before, after, x.shape, strict=True):
            conditions += _within(i, low, high, extent)
        inside: Expr = lift(True, DType.BOOL)
        for condition in conditions:
            inside = logical_and(inside, condition)
        return select(inside, x[tuple(source)], fill)

    shape = [low + d + high for low, d, high in zip(before, x.shape, after, strict=True)]
    return compute(shape, body, name="pad", axes=axes)


def _within(i: Expr, low: Dim, high: Dim, extent: Dim) -> list[Expr]:
    """What is asked of element ``i`` of ``extent`` for it not to lie in the padding: nothing at an end that has none."""
    return [*([i >= 0] if low != 0 else []), *([i < extent] if high != 0 else [])]


def _bordered(mode: str, i: Expr, extent: Dim, low: Dim, high: Dim) -> Expr:
    """The element of an axis that stands at ``i`` in its padding; what negative widths cut off is no part of the axis."""
    first, left = kept(extent, low, high)
    return _BORDERS[mode](i - first, left) + first


def _reflect(i: Expr, extent: Dim) -> Expr:
    """Mirrored at the first and the last element, as often as it takes."""
    period = maximum((lift(extent) - 1) * 2, 1)
    from_first = i % period
    return minimum(from_first, period - from_first)


_BORDERS: dict[str, Callable[[Expr, Dim], Expr]] = {
    "edge": lambda i, extent: minimum(maximum(i, 0), lift(extent) - 1),
    "reflect": _reflect,
    "wrap": lambda i, extent: i % lift(extent),
}


def trilu(x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    """The triangle on and above (``upper``) or below the diagonal ``k``; zeros elsewhere."""

    def body(*index: Expr) -> Expr:
        row, column = index[-2:]
        diagonal = lift(0) if k is None else k[(0,) * k.rank]
        kept = column - row >= diagonal if upper else column - row <= diagonal  # row + diagonal may overflow
        return select(kept, x[index], lift(0, x.dtype))

    return compute(x.shape, body, name="trilu")


def reverse_sequence(x: Tensor, sequence_lens: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """The first ``sequence_lens[b]`` elements of each sequence backwards, the rest as they are."""

    def body(*index: Expr) -> Expr:
        time = index[time_axis]
        length = minimum(cast(sequence_lens[index[batch_axis]], DType.INT64), x.shape[time_axis])
        return x[replaced(index, time_axis, select(time < length, length - 1 - time, time))]

    pairs = must_equal((sequence_lens.shape[0], x.shape[batch_axis]))
    return compute(x.shape, body, name="reverse_sequence", assumes=pairs)


def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    shape = broadcast_shape(condition.shape, x.shape, y.shape)

    def body(*index: Expr) -> Expr:
        chosen, then, otherwise = (broadcast_load(t, index, shape) for t in (condition, x, y))
        return select(chosen, then, otherwise)

    pairs = broadcast_pairs(shape, condition.shape, x.shape, y.shape)
    return compute(shape, body, name="where", assumes=pairs)


OPERATORS = (
    Operator("Expand", expand),
    Operator("Tile", tile),
    Operator("Concat", concat),
    Operator("Split", split),
    Operator("Slice", slice_),
    Operator("Pad", pad),
    Operator("ingot.PadAt", pad_at),
    Operator("Trilu", trilu),
    Operator("ReverseSequence", reverse_sequence),
    Operator("Where", where),
)
