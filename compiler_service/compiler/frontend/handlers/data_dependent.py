"""Operators whose result has a size that depends on data: a count first, which becomes a symbol, then the elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from compiler_service.compiler.frontend.importing.handler import Handler, Importer
from compiler_service.compiler.frontend.importing.index_ranges import is_at_least
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.scope import Frame, GraphDraft, Special
from compiler_service.compiler.frontend.requirements.defining import Nodes
from compiler_service.compiler.tensor_expr.axes import normal_axis
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim, as_dim, product
from shared_ir.graph.ir import Value

Expansion: TypeAlias = Callable[[Nodes, Sequence[Value | None]], Sequence[Value | None]]

_BEYOND_MEMORY = 1 << 62
"""Elements that no machine holds."""


def expanded(expansion: Expansion) -> Handler:
    """The handler that puts the nodes of ``expansion`` in place of a node."""

    def handle(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
        if importer.has_unknown_inputs(node, frame):
            importer.bind_unknown(node, frame)
            return
        given = importer.operands(node, frame)
        operands = (*given, *(None,) * (5 - len(given)))
        results = expansion(Nodes(node, draft, importer.context), operands)
        for name, value in zip(node.outputs, results, strict=False):
            if name and value is not None:
                frame.bindings[name] = value

    return handle


def _required(value: Value | None) -> Value:
    if value is None:
        raise IngotError(ErrorCode.INVALID_MODEL, "a required input is absent", remedy="Export the model again.")
    return value


# -- where something is true


def _true_positions(nodes: Nodes, mask: Value, label: str) -> tuple[Value, Dim]:
    """Positions of the true elements of a vector of bool, and how many they are."""
    count = nodes.node("ReduceSum", nodes.node("Cast", mask, to=DType.INT64), keepdims=1)
    (number,) = nodes.define(count, f"{nodes.source.outputs[0]}_{label}")
    return nodes.node("ingot.Positions", mask, count=number), number


def _flat(nodes: Nodes, x: Value) -> Value:
    return nodes.node("Reshape", x, nodes.dims([product(x.shape)]), allowzero=1)


def non_zero(nodes: Nodes, operands: Sequence[Value | None]) -> Sequence[Value | None]:
    """Of constants the positions are known, and of what is filled with one number all are: so PyTorch's exporter counts the rows
    that an assignment goes to."""
    x, result = _required(operands[0]), nodes.source.outputs[0]
    shape = x.shape or (1,)
    array = nodes.draft.constants.get(x)
    if array is not None:
        positions = np.stack(np.nonzero(np.atleast_1d(array))).astype(np.int64)
        return [nodes.node("Identity", nodes.constant(positions, "positions"), output=result)]
    if _is_filled(nodes, x):
        number = nodes.node("Squeeze", nodes.dims([product(shape)]))
        every = nodes.node("Range", nodes.scalar(0), number, nodes.scalar(1))
        return [_places(nodes, every, shape)]
    mask = _flat(nodes, x if x.dtype is DType.BOOL else nodes.node("Cast", x, to=DType.BOOL))
    found, _ = _true_positions(nodes, mask, "count")
    return [_places(nodes, found, shape)]


def _is_filled(nodes: Nodes, x: Value) -> bool:
    """Whether ``x`` is one number other than 0 throughout."""
    maker = next((n for n in reversed(nodes.draft.nodes) if x in n.results), None)
    return maker is not None and maker.op == "ConstantOfShape" and maker.attributes.get("value", 0) != 0


def _places(nodes: Nodes, found: Value, shape: Sequence[Dim]) -> Value:
    """The rows of ``NonZero``: indices along each axis of ``shape`` of the elements ``found``, a vector."""
    if len(shape) == 1:
        return nodes.node("Unsqueeze", found, nodes.integers(0), output=nodes.source.outputs[0])
    column = [len(shape), 1]
    strides = nodes.node(
        "Reshape", nodes.dims([product(shape[i + 1 :]) for i in range(len(shape))]), nodes.integers(*column)
    )
    extents = nodes.node("Reshape", nodes.dims(shape), nodes.integers(*column))
    row = nodes.node("Unsqueeze", found, nodes.integers(0))
    return nodes.node("Mod", nodes.node("Div", row, strides), extents, output=nodes.source.outputs[0])


def compress(nodes: Nodes, operands: Sequence[Value | None]) -> Sequence[Value | None]:
    x, condition = _required(operands[0]), _required(operands[1])
    axis = nodes.source.attributes.get("axis")
    if axis is None:
        x, axis = _flat(nodes, x), 0
    axis = normal_axis(int(axis), x.type.rank)
    found, _ = _true_positions(nodes, _within(nodes, condition, x.shape[axis]), "count")
    return [nodes.node("Gather", x, found, axis=axis, output=nodes.source.outputs[0])]


def _within(nodes: Nodes, condition: Value, extent: Dim) -> Value:
    """The vector ``condition``, false from ``extent`` on: what is longer than the axis says nothing of it."""
    (length,) = condition.shape
    if length == extent or (isinstance(length, int) and isinstance(extent, int) and length < extent):
        return condition
    last, end = (nodes.node("Squeeze", nodes.dims([d])) for d in (length, extent))
    positions = nodes.node("Range", nodes.scalar(0), last, nodes.scalar(1))
    return nodes.node("And", condition, nodes.node("Less", positions, end))


# -- Range


def range_(nodes: Nodes, operands: Sequence[Value | None]) -> Sequence[Value | None]:
    """``start + i * delta`` for the integers ``i`` below a count that the run defines."""
    start, limit, delta = (_required(v) for v in operands[:3])
    dtype = start.dtype
    wide = DType.INT64 if dtype.is_integer else DType.FLOAT64
    first, last, step = (nodes.node("Cast", v, to=wide) for v in (start, limit, delta))
    if dtype.is_integer:
        count = _whole_count(nodes, first, last, step)
    else:
        distance = nodes.node("Sub", last, first)
        count = nodes.node("Cast", nodes.node("Ceil", nodes.node("Div", distance, step)), to=DType.INT64)
    count = nodes.node("Max", nodes.vector(count), nodes.integers(0))
    (number,) = nodes.define(count, f"{nodes.source.outputs[0]}_count")
    number_scalar = nodes.node("Squeeze", nodes.dims([number]))
    ordinal = nodes.node("Range", nodes.scalar(0), number_scalar, nodes.scalar(1))
    exact = wide if dtype.is_integer or dtype is DType.FLOAT64 else DType.FLOAT32
    begin, each = (nodes.node("Cast", v, to=exact) for v in (start, delta))
    value = nodes.node("Add", begin, nodes.node("Mul", nodes.node("Cast", ordinal, to=exact), each))
    return [nodes.node("Cast", value, to=dtype, output=nodes.source.outputs[0])]


def _whole_count(nodes: Nodes, first: Value, last: Value, step: Value) -> Value:
    """How many numbers there are from ``first`` to before ``last``, scalars of int64: distances and steps are uint64, which holds each of
    them. What is more than any memory holds is as many as it does not."""
    forward = nodes.node("Less", nodes.scalar(0), step)
    there, back = nodes.node("Sub", last, first), nodes.node("Sub", first, last)
    distance = nodes.node("Cast", nodes.node("Where", forward, there, back), to=DType.UINT64)
    length = nodes.node("Cast", nodes.node("Where", forward, step, nodes.node("Neg", step)), to=DType.UINT64)
    moves = nodes.node("Where", forward, nodes.node("Less", first, last), nodes.node("Less", last, first))
    one = nodes.scalar(1, DType.UINT64)
    steps = nodes.node("Add", nodes.node("Div", nodes.node("Sub", distance, one), length), one)
    held = nodes.node("Min", steps, nodes.scalar(_BEYOND_MEMORY, DType.UINT64))
    return nodes.node("Where", moves, nodes.node("Cast", held, to=DType.INT64), nodes.scalar(0))


def _range_handler(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    known = importer.context.known
    bindings = [frame.lookup(n) for n in node.inputs]
    if all(isinstance(b, Value) and known.get(b) is not None for b in bindings):
        importer.operator(node, frame, draft)
    else:
        expanded(range_)(node, frame, draft, importer)


# -- Slice


def slice_(nodes: Nodes, operands: Sequence[Value | None]) -> Sequence[Value | None]:
    """Slice whose axes or steps only the run knows: each axis is gathered from a start, a step and a count of the run."""
    x, starts, ends = (_required(v) for v in operands[:3])
    rank, width = x.type.rank, starts.shape[0]
    zero, one = nodes.integers(0), nodes.integers(1)
    assert isinstance(width, int)
    axes = nodes.integers(*range(width)) if operands[3] is None else nodes.vector(operands[3])
    steps = nodes.integers(*(1,) * width) if operands[4] is None else nodes.vector(operands[4])
    axes = nodes.node("Where", nodes.node("Less", axes, zero), nodes.node("Add", axes, nodes.integers(rank)), axes)
    column = nodes.node("Unsqueeze", nodes.integers(*range(rank)), one)
    chosen = nodes.node("Cast", nodes.node("Equal", column, axes), to=DType.INT64)
    untouched = nodes.node("Sub", one, nodes.node("ReduceSum", chosen, one, keepdims=0))
    extents = nodes.dims(x.shape)

    def per_axis(given: Value, default: Value) -> Value:
        own = nodes.node("ReduceSum", nodes.node("Mul", chosen, nodes.vector(given)), one, keepdims=0)
        return nodes.node("Add", own, nodes.node("Mul", untouched, default))

    # A step as long as its axis takes one element, and so does a longer one, whose products would wrap.
    longest = nodes.node("Max", extents, one)
    step = nodes.node("Max", nodes.node("Min", per_axis(steps, one), longest), nodes.node("Neg", longest))
    forward = nodes.node("Less", zero, step)
    least = nodes.node("Where", forward, zero, nodes.integers(-1))
    most = nodes.node("Where", forward, extents, nodes.node("Sub", extents, one))

    def bound(given: Value, default: Value, floor: Value) -> Value:
        raw = per_axis(given, default)
        counted = nodes.node("Where", nodes.node("Less", raw, zero), nodes.node("Add", raw, extents), raw)
        return nodes.node("Min", nodes.node("Max", counted, floor), most)

    first, last = bound(starts, zero, zero), bound(ends, extents, least)
    distance = nodes.node("Where", forward, nodes.node("Sub", last, first), nodes.node("Sub", first, last))
    stride = nodes.node("Max", nodes.node("Abs", step), one)
    rounded = nodes.node("Sub", nodes.node("Add", distance, stride), one)
    count = nodes.node("Max", nodes.node("Div", rounded, stride), zero)
    counts = nodes.define(count, f"{nodes.source.outputs[0]}_extent")
    for axis, number in enumerate(counts):
        place = nodes.node("Range", nodes.scalar(0), nodes.node("Squeeze", nodes.dims([number])), nodes.scalar(1))
        moved = nodes.node("Mul", place, nodes.node("Gather", step, nodes.integers(axis)))
        index = nodes.node("Add", moved, nodes.node("Gather", first, nodes.integers(axis)))
        x = nodes.node("Gather", x, index, axis=axis, output=nodes.source.outputs[0])
    return [x]


def _slice_handler(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    """The plain operator, unless it would read axes, steps, or bounds of a walk backwards that only the run knows."""
    known = importer.context.known
    bindings = [frame.lookup(n) for n in node.inputs]
    if not all(isinstance(b, Value) for b in bindings if b is not Special.ABSENT):
        importer.operator(node, frame, draft)
        return
    elements = [known.get(b) if isinstance(b, Value) else None for b in bindings]
    open_axes = any(isinstance(b, Value) and e is None for b, e in zip(bindings[3:], elements[3:], strict=True))
    steps = elements[4] if len(elements) > 4 else None
    backward = steps is not None and any(isinstance(s, int) and s < 0 for s in steps.reshape(-1).tolist())
    open_bounds = any(e is None for e in elements[1:3])
    starts = bindings[1]
    fits = isinstance(starts, Value) and starts.type.rank == 1 and isinstance(starts.shape[0], int)
    if fits and (open_axes or (backward and open_bounds)):
        expanded(slice_)(node, frame, draft, importer)
    else:
        importer.operator(node, frame, draft)


# -- NonMaxSuppression


def non_max_suppression(nodes: Nodes, operands: Sequence[Value | None]) -> Sequence[Value | None]:
    boxes, scores = _required(operands[0]), _required(operands[1])
    limit = nodes.scalar(0) if operands[2] is None else operands[2]
    overlap = nodes.scalar(0.0, DType.FLOAT32) if operands[3] is None else operands[3]
    least = nodes.scalar(float("-inf"), DType.FLOAT32) if operands[4] is None else operands[4]
    classes, count = scores.shape[1:]
    order = _sorted_positions(nodes, scores, largest=True)
    centered = int(nodes.source.attributes.get("center_point_box", 0))
    kept = nodes.node("ingot.Suppressed", boxes, scores, order, limit, overlap, least, centered=centered)
    flat = _flat(nodes, kept)
    found, _ = _true_positions(nodes, nodes.node("Not", nodes.node("Less", flat, nodes.integers(0))), "count")
    box = nodes.node("Gather", flat, found)
    row = nodes.node("Div", found, nodes.dims([count]))
    columns = [nodes.node("Div", row, nodes.dims([classes])), nodes.node("Mod", row, nodes.dims([classes])), box]
    columns = [nodes.node("Unsqueeze", c, nodes.integers(1)) for c in columns]
    return [nodes.node("Concat", *columns, axis=1, output=nodes.source.outputs[0])]


def _sorted_positions(nodes: Nodes, x: Value, *, largest: bool) -> Value:
    """int64: positions along the last axis in sorted order; of equal elements the earlier comes first."""
    found = nodes.node("ingot.Sorted", x, largest=int(largest))
    return nodes.node("Gather", found, nodes.scalar(0), axis=x.type.rank - 1)


# -- Unique


def unique(nodes: Nodes, operands: Sequence[Value | None]) -> Sequence[Value | None]:
    """Equal elements (slices, along an axis) stand together once sorted: the first of each run is what is unique."""
    x = _required(operands[0])
    axis = nodes.source.attributes.get("axis")
    if axis is None:
        x, axis = _flat(nodes, x), 0
    axis = int(axis) % x.type.rank
    count = x.shape[axis]
    slices = x if x.type.rank == 1 else _slices(nodes, x, axis)
    order = _sorted_positions(nodes, x, largest=False) if x.type.rank == 1 else _slice_order(nodes, slices)
    starts = _run_starts(nodes, nodes.node("Gather", slices, order, axis=0))
    firsts, number = _true_positions(nodes, starts, "count")
    run = nodes.node("CumSum", nodes.node("Cast", starts, to=DType.INT64), nodes.scalar(0))
    indices = nodes.node("Gather", order, firsts)
    inverse = nodes.node(
        "Gather", nodes.node("Sub", run, nodes.scalar(1)), _sorted_positions(nodes, order, largest=False)
    )
    counts = nodes.node("Sub", _after_each(nodes, firsts, number, count), firsts)
    if not int(nodes.source.attributes.get("sorted", 1)):
        appearance = _sorted_positions(nodes, indices, largest=False)
        indices, counts = nodes.node("Gather", indices, appearance), nodes.node("Gather", counts, appearance)
        inverse = nodes.node("Gather", _sorted_positions(nodes, appearance, largest=False), inverse)
    return [nodes.node("Gather", x, indices, axis=axis, output=nodes.source.outputs[0]), indices, inverse, counts]


def _after_each(nodes: Nodes, firsts: Value, number: Dim, count: Dim) -> Value:
    """Where the run after each run begins."""
    all_but_first = nodes.node("Concat", firsts, nodes.dims([count]), axis=0)
    place = nodes.node(
        "Range", nodes.scalar(1), nodes.node("Squeeze", nodes.dims([as_dim(number + 1)])), nodes.scalar(1)
    )
    return nodes.node("Gather", all_but_first, place)


def _run_starts(nodes: Nodes, ordered: Value) -> Value:
    """bool vector: whether an element or row of ``ordered`` differs from the one before it; the first does."""
    count = ordered.shape[0]
    place = nodes.node("Range", nodes.scalar(0), nodes.node("Squeeze", nodes.dims([count])), nodes.scalar(1))
    before = nodes.node("Max", nodes.node("Sub", place, nodes.scalar(1)), nodes.scalar(0))
    differs = nodes.node("Not", nodes.node("Equal", ordered, nodes.node("Gather", ordered, before, axis=0)))
    if ordered.type.rank > 1:
        some = nodes.node("ReduceMax", nodes.node("Cast", differs, to=DType.INT32), nodes.integers(1), keepdims=0)
        differs = nodes.node("Cast", some, to=DType.BOOL)
    return nodes.node("Or", differs, nodes.node("Equal", place, nodes.scalar(0)))


def _slices(nodes: Nodes, x: Value, axis: int) -> Value:
    """The slices along ``axis`` as rows of a matrix that has a column: where there may be none, they all begin with a 0."""
    order = [axis, *(i for i in range(x.type.rank) if i != axis)]
    count, width = x.shape[axis], product(x.shape[i] for i in order[1:])
    rows = nodes.node("Reshape", nodes.node("Transpose", x, perm=tuple(order)), nodes.dims([count, width]), allowzero=1)
    if is_at_least(width, 1):
        return rows
    zeros = nodes.node("Expand", nodes.constant(np.zeros((1, 1), x.dtype.numpy)), nodes.dims([count, 1]))
    return nodes.node("Concat", zeros, rows, axis=1)


def _slice_order(nodes: Nodes, rows: Value) -> Value:
    """int64: ``rows`` in lexicographic order, equal ones as they stand."""
    ranks = nodes.node("ingot.RowRanks", rows, nodes.node("ingot.FirstDifference", rows))
    return nodes.node("ingot.RankedPositions", ranks, nodes.dims([rows.shape[0]]), axis=0)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "NonZero": expanded(non_zero),
        "Compress": expanded(compress),
        "Range": _range_handler,
        "Slice": _slice_handler,
        "NonMaxSuppression": expanded(non_max_suppression),
        "Unique": expanded(unique),
    }
)
