"""Operands that must not hold just any number: positions, which lie within an axis, and divisors, which are not 0.

For each there is a proof that it does not (:mod:`index_ranges`); or what sizes must be for that is known, and is a condition of
the run; or the run counts the elements that are wrong, and ends with INVALID_ARGUMENT where there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from types import MappingProxyType

from compiler_service.compiler.frontend.importing.index_ranges import IndexRange, IndexRanges, is_at_least
from compiler_service.compiler.frontend.requirements.defining import Nodes
from compiler_service.compiler.frontend.requirements.normalising import REDUCTIONS
from compiler_service.compiler.frontend.requirements.padded_axes import padded
from compiler_service.compiler.tensor_expr.assumptions import Assumption
from compiler_service.compiler.tensor_expr.refusal import mismatch
from shared_ir.dtype import DType
from shared_ir.expr import Expr, lift, maximum
from shared_ir.expr.dim import Dim, as_dim, dim_text, dims_text, product
from shared_ir.graph.ir import Attribute, Value

_Check = Callable[[Nodes, Sequence["Value | None"], Mapping[str, Attribute]], None]


def check_operands(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """Nodes that check the operands of the node that is being imported."""
    check = _CHECKS.get(nodes.source.qualified)
    if check is not None:
        check(nodes, inputs, attributes)


# -- divisors


def _divisor(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    divisor, ranges = inputs[1], nodes.context.ranges
    if divisor is None or not divisor.dtype.is_integer or _is_never_zero(divisor, ranges):
        return
    elements = ranges.known.get(divisor)
    if elements is not None and elements.size == 1 and is_at_least(as_dim(elements.item()), 0):
        nodes.state(Assumption(as_dim(elements.item()), 1, lower=True), f"integers are divided by '{divisor.name}'")
        return
    count = nodes.node("ingot.CountZeros", divisor)
    nodes.require(count, f"integers are divided by 0, elements of '{divisor.name}' that are 0")


def _is_never_zero(value: Value, ranges: IndexRanges) -> bool:
    elements = ranges.known.get(value)
    if elements is not None:
        found = [ranges.element(e) for e in elements.reshape(-1).tolist()]
        return all(r is not None and _is_not_zero(r) for r in found)
    array = ranges.arrays.get(value)
    if array is not None:
        return bool((array != 0).all())
    every = ranges.of(value)
    return every is not None and _is_not_zero(every)


def _is_not_zero(found: IndexRange) -> bool:
    return is_at_least(found.least, 1) or is_at_least(-1, found.most)


# -- positions


def _along_axis(indices: int) -> _Check:
    def check(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
        data = inputs[0]
        extent = _extent_along(data, attributes.get("axis", 0))
        if data is not None and extent is not None:
            _positions(nodes, inputs[indices], (extent,), data)

    return check


def _extent_along(data: Value | None, axis: Attribute) -> Dim | None:
    """The extent of an axis that there is."""
    if data is None or not isinstance(axis, int) or not -data.type.rank <= axis < data.type.rank:
        return None
    return data.shape[axis]


def _along_first(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """The last axis of the indices holds positions along axes of the data."""
    data, indices, first = inputs[0], inputs[1], attributes.get("batch_dims", 0)
    depth = indices.shape[-1] if indices is not None else None
    if data is not None and isinstance(depth, int) and isinstance(first, int):
        _positions(nodes, indices, data.shape[first : first + depth], data)


def _regions(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """The first column of the second operand holds positions in the batch, as floats."""
    data, rois = inputs[:2]
    if data is not None and rois is not None:
        column = nodes.node("Gather", rois, nodes.scalar(0), axis=1)
        message = f"images beyond the batch of '{data.name}' of extent {dim_text(data.shape[0])}"
        within(nodes, nodes.cast(column, DType.INT64), as_dim(lift(data.shape[0]) - 1), message)


def _images(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """The third operand holds positions in the batch, which are not counted from its end."""
    data, indices = inputs[0], inputs[2]
    if data is not None and indices is not None:
        message = f"images beyond the batch of '{data.name}' of extent {dim_text(data.shape[0])}"
        within(nodes, indices, as_dim(lift(data.shape[0]) - 1), message)


def _positions(nodes: Nodes, indices: Value | None, extents: Sequence[Dim], data: Value) -> None:
    if indices is None or not extents:
        return
    _require_integers(nodes, indices)
    if _are_within(indices, extents, nodes.context.ranges):
        return
    axes = "an axis" if len(extents) == 1 else "axes"
    message = f"positions beyond {axes} of '{data.name}' of extent {dims_text(extents)}"
    conditions = _conditions(indices, extents, nodes.context.ranges)
    if conditions is not None:
        for condition in conditions:
            nodes.state(condition, message)
        return
    nodes.require(nodes.node("ingot.CountOutside", nodes.cast(indices, DType.INT64), extents=tuple(extents)), message)


def _conditions(indices: Value, extents: Sequence[Dim], ranges: IndexRanges) -> list[Assumption] | None:
    """What extents must be for all positions to lie within, where the outermost positions are known."""
    columns = _columns(indices, len(extents), ranges)
    if not all(column is not None and column.is_reached for column in columns):
        return None
    found = []
    for column, extent in zip(columns, extents, strict=True):
        assert column is not None
        if not is_at_least(extent, as_dim(lift(column.most) + 1)):
            found.append(Assumption(extent, as_dim(lift(column.most) + 1), lower=True))
        if not is_at_least(column.least, 0) and not is_at_least(lift(column.least) + extent, 0):
            found.append(Assumption(as_dim(lift(column.least) + extent), 0, lower=True))
    return found


def _are_within(indices: Value, extents: Sequence[Dim], ranges: IndexRanges) -> bool:
    if 0 in indices.shape:
        return True
    columns = _columns(indices, len(extents), ranges)
    return all(_is_within(column, extent) for column, extent in zip(columns, extents, strict=True))


def _columns(indices: Value, count: int, ranges: IndexRanges) -> list[IndexRange | None]:
    """The range of the positions along each axis."""
    array = ranges.arrays.get(indices)
    if count == 1 or array is None:
        return [ranges.of(indices)] * count
    flat = array.reshape(-1, count)
    return [IndexRange(int(low), int(high), True) for low, high in zip(flat.min(0), flat.max(0), strict=True)]


def _is_within(found: IndexRange | None, extent: Dim) -> bool:
    if found is None:
        return False
    is_natural = is_at_least(found.least, 0) or is_at_least(lift(found.least) + extent, 0)
    return is_natural and is_at_least(lift(extent) - 1, found.most)


# -- axes


def _axes(more: bool = False, leave: bool = False) -> _Check:
    """The second operand holds numbers of axes of the first, or, with ``more``, of a result that has one more for each; none twice, with
    ``leave`` or without ``keepdims``, where each is one that the result lacks."""

    def check(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
        data, axes = inputs[0], inputs[1] if len(inputs) > 1 else None
        elements = nodes.elements(axes)
        if data is None or axes is None or elements is None:
            return
        rank = data.type.rank + (len(elements) if more else 0)
        for element in elements:
            message = f"axes that are not within -{rank} and {rank - 1}"
            if isinstance(element, Expr) and not is_at_least(rank - 1, element):
                nodes.state(Assumption(rank - 1, element, lower=True), message)
            if isinstance(element, Expr) and not is_at_least(element, -rank):
                nodes.state(Assumption(element, -rank, lower=True), message)
        apart = more or leave or not attributes.get("keepdims", 1)
        numbers = [e for e in elements if e is not None] if apart else []
        for one, other in combinations(numbers, 2):
            distance = as_dim((lift(one) - other) * (lift(one) - other))
            if isinstance(distance, Expr):
                nodes.state(Assumption(distance, 1, lower=True), "an axis is given twice")

    return check


# -- lengths and first positions, which are not counted from the end


def _lengths(operand: int, axis: Callable[[Mapping[str, Attribute]], int]) -> _Check:
    """The operand holds lengths of parts of an axis of the first."""

    def check(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
        data, lengths = inputs[0], inputs[operand] if len(inputs) > operand else None
        if data is not None and lengths is not None:
            extent = data.shape[axis(attributes)]
            message = f"lengths of '{lengths.name}' that are not within 0 and {dim_text(extent)}"
            within(nodes, lengths, extent, message)

    return check


def _steps_axis(attributes: Mapping[str, Attribute]) -> int:
    return 1 if attributes.get("layout", 0) else 0


def _time_axis(attributes: Mapping[str, Attribute]) -> int:
    axis = attributes.get("time_axis", 0)
    return axis if axis in (0, 1) and isinstance(axis, int) else 0


def _written(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """An update lies within the cache from where it is written on; going round, it is no longer than that."""
    cache, update = inputs[:2]
    first = inputs[2] if len(inputs) > 2 else None
    axis = attributes.get("axis", -2)
    if cache is None or update is None or not isinstance(axis, int):
        return
    last = as_dim(lift(cache.shape[axis]) - update.shape[axis])
    message = f"an update of extent {dim_text(update.shape[axis])} does not fit into {dim_text(cache.shape[axis])}"
    if first is not None and attributes.get("mode", "linear") == "linear":
        within(nodes, first, last, message)
    elif not is_at_least(last, 0):
        nodes.state(Assumption(last, 0, lower=True), message)


def _pictured(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """Pixels have a width where the corners of an image are those of its outermost pixels: there are some along each axis."""
    for extent in (nodes.elements(inputs[1]) or ())[2:]:
        if extent is not None and not attributes.get("align_corners") and not is_at_least(extent, 1):
            nodes.state(Assumption(extent, 1, lower=True), "an image without pixels")


def _blocks(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """The second axis of Col2Im holds whole blocks, one for each channel."""
    x, block = inputs[0], nodes.elements(inputs[2])
    if x is None or block is None:
        return
    size = product([d for d in block if d is not None])
    whole = as_dim(lift(x.shape[1]) // maximum(size, 1) * size)
    if whole != x.shape[1]:
        message = f"an axis of '{x.name}' does not hold whole blocks of {dim_text(size)} elements"
        nodes.state(Assumption(x.shape[1], whole), message)
    if not is_at_least(x.shape[1], 1):
        nodes.state(Assumption(x.shape[1], 1, lower=True), f"'{x.name}' has no channels")


def _unpooled(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """The indices are row-major positions in what the windows come from. A size that is given is no smaller, and pads do not count
    beside it."""
    x, indices = inputs[:2]
    kernel = _integers(attributes, "kernel_shape")
    if x is None or indices is None or not kernel:
        return
    rank = len(kernel)
    steps = _integers(attributes, "strides") or (1,) * rank
    cut = _integers(attributes, "pads") or (0,) * (2 * rank)
    rows = zip(x.shape[2:], kernel, steps, cut[:rank], cut[rank:], strict=True)
    whole = [(lift(d) - 1) * s + (k - low - high) for d, k, s, low, high in rows]
    if any(inputs[2:]):
        for given, least in zip((nodes.elements(inputs[2]) or ())[2:], map(as_dim, whole), strict=False):
            if given is not None and not is_at_least(lift(given) - least, 0):
                nodes.state(Assumption(as_dim(lift(given) - least), 0, lower=True), "less than the windows come from")
        whole = [lift(extent) + low + high for extent, low, high in zip(whole, cut[:rank], cut[rank:], strict=True)]
    size = product([*x.shape[:2], *map(as_dim, whole)])
    within(
        nodes,
        indices,
        as_dim(lift(size) - 1),
        f"positions of '{indices.name}' beyond the {dim_text(size)} of what the windows come from",
    )


def _transposed(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """What is asked for of ConvTranspose is at most as much as the windows and the steps behind the last of them make."""
    x, w = inputs[:2]
    wanted = _integers(attributes, "output_shape")
    if x is None or w is None or not wanted:
        return
    rank = len(wanted)
    steps = _integers(attributes, "strides") or (1,) * rank
    apart = _integers(attributes, "dilations") or (1,) * rank
    rows = zip(x.shape[-rank:], w.shape[-rank:], steps, apart, wanted, strict=True)
    for extent, kernel, step, dilation, size in rows:
        most = as_dim(lift(extent) * step + (lift(kernel) - 1) * dilation)
        if not is_at_least(most, size):
            message = f"an output of extent {size} that the windows do not make of '{x.name}'"
            nodes.state(Assumption(most, size, lower=True), message)


def _integers(attributes: Mapping[str, Attribute], name: str) -> tuple[int, ...]:
    found = attributes.get(name)
    return tuple(n for n in found if isinstance(n, int)) if isinstance(found, tuple) else ()


def within(nodes: Nodes, operand: Value, most: Dim, message: str) -> None:
    """The run ends with ``message`` unless all elements of ``operand`` are within 0 and ``most``."""
    _require_integers(nodes, operand)
    found = nodes.context.ranges.of(operand)
    if found is not None and is_at_least(found.least, 0) and is_at_least(most, found.most):
        return
    extent = as_dim(lift(most) + 1)
    count = nodes.node("ingot.CountOutside", nodes.cast(operand, DType.INT64), extents=(extent,), natural=1)
    nodes.require(count, message)


def _require_integers(nodes: Nodes, operand: Value) -> None:
    """Floats have elements that are no positions, and that no count of those outside would find.

    Raises:
        IngotError: TYPE_MISMATCH.
    """
    if not operand.dtype.is_integer:
        source, received = nodes.source, operand.dtype.value
        raise replace(
            mismatch(f"positions of {source.op} are no integers", "an integer type", received), tensor=operand.name
        )


def _misfit(nodes: Nodes, number: Value, most: Dim) -> Value:
    """``number``, or 0 where it is within 0 and ``most``: what the message of a run that ends then names."""
    outside = nodes.node(
        "Or", nodes.node("Less", number, nodes.integers(0)), nodes.node("Less", nodes.dims([most]), number)
    )
    return nodes.node("Where", outside, number, nodes.integers(0))


def taken(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """The second operand says how many elements of an axis of the first are taken."""
    data, count = inputs[0], inputs[1] if len(inputs) > 1 else None
    extent = _extent_along(data, attributes.get("axis", -1))
    if data is None or count is None or extent is None:
        return
    known = nodes.elements(count)
    message = f"more elements than there are along an axis of '{data.name}', or less than none"
    taken = known[0] if known is not None and len(known) == 1 else None
    if taken is None or not is_at_least(taken, 0):
        if count.shape != (1,):
            count = nodes.of_shape(count, (1,)) if count.type.rank == 1 else nodes.vector(count)
        found = nodes.context.ranges.of(count)
        if found is None or not (is_at_least(found.least, 0) and is_at_least(extent, found.most)):
            nodes.require(_misfit(nodes, nodes.vector(count), extent), f"{message}, where 0 is one that fits")
    elif not is_at_least(extent, taken):
        nodes.state(Assumption(extent, taken, lower=True), message)


_CHECKS: Mapping[str, _Check] = MappingProxyType(
    {
        **{f"Reduce{kind}": _axes() for kind in REDUCTIONS},
        **dict.fromkeys(("CumSum", "CumProd"), _axes()),
        "AffineGrid": _pictured,
        "Col2Im": _blocks,
        "ConvTranspose": _transposed,
        "Squeeze": _axes(leave=True),
        "Unsqueeze": _axes(more=True),
        "Div": _divisor,
        "Mod": _divisor,
        "Gather": _along_axis(1),
        "GatherElements": _along_axis(1),
        "ScatterElements": _along_axis(1),
        "GatherND": _along_first,
        "GRU": _lengths(4, _steps_axis),
        "LSTM": _lengths(4, _steps_axis),
        "MaxRoiPool": _regions,
        "MaxUnpool": _unpooled,
        "Pad": padded,
        "RNN": _lengths(4, _steps_axis),
        "ReverseSequence": _lengths(1, _time_axis),
        "RoiAlign": _images,
        "ScatterND": _along_first,
        "TensorScatter": _written,
    }
)
