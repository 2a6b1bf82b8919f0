"""Operands that must not hold just any number: positions, which lie within an axis, and divisors, which are not 0.

For each there is a proof that it does not (:mod:`index_ranges`); or what sizes must be for that is known, and is a condition of
the run; or the run counts the elements that are wrong, and ends with INVALID_ARGUMENT where there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from compiler_service.frontend.conditions import append_check
from compiler_service.frontend.defining import Nodes
from compiler_service.frontend.index_ranges import IndexRanges, Range, is_at_least
from compiler_service.tensor_expr.assumptions import Assumption
from shared_ir.dim import Dim, as_dim, dims_text
from shared_ir.dtype import DType
from shared_ir.expr import lift
from shared_ir.graph import DEFINE_OP, Attribute, Value

_Check = Callable[[Nodes, Sequence["Value | None"], Mapping[str, Attribute]], None]


def check_operands(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """Nodes that check the operands of the node that is being imported."""
    check = _CHECKS.get(nodes.source.qualified)
    if check is not None:
        check(nodes, inputs, attributes)


def _require(nodes: Nodes, count: Value, message: str) -> None:
    """The run ends with ``message`` unless the one element of ``count`` is 0."""
    label = f"{nodes.source.title}_wrong"
    symbols = (nodes.context.symbols.fresh(label),)
    text = f"node '{nodes.source.title}' ({nodes.source.op}): {message}"
    nodes.node(DEFINE_OP, count, name=f"{label}_checked", symbols=symbols, expected=0, message=text)


def _state(nodes: Nodes, condition: Assumption, message: str) -> None:
    """The run ends with ``message`` unless ``condition`` holds of its sizes."""
    text = f"node '{nodes.source.title}' ({nodes.source.op}): {message}: {condition}"
    append_check(nodes.builder, condition, text, nodes.source)


# -- divisors


def _divisor(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    divisor, ranges = inputs[1], nodes.context.ranges
    if divisor is None or not divisor.dtype.is_integer or _is_never_zero(divisor, ranges):
        return
    elements = ranges.known.get(divisor)
    if elements is not None and elements.size == 1 and is_at_least(as_dim(elements.item()), 0):
        _state(nodes, Assumption(as_dim(elements.item()), 1, lower=True), f"integers are divided by '{divisor.name}'")
        return
    count = nodes.node("ingot.CountZeros", divisor)
    _require(nodes, count, f"integers are divided by 0, elements of '{divisor.name}' that are 0")


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


def _is_not_zero(found: Range) -> bool:
    return is_at_least(found.least, 1) or is_at_least(-1, found.most)


# -- positions


def _along_axis(indices: int) -> _Check:
    def check(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
        data, axis = inputs[0], attributes.get("axis", 0)
        if data is not None and isinstance(axis, int) and -len(data.shape) <= axis < len(data.shape):
            _positions(nodes, inputs[indices], (data.shape[axis],), data)

    return check


def _along_first(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """The last axis of the indices holds positions along axes of the data."""
    data, indices, first = inputs[0], inputs[1], attributes.get("batch_dims", 0)
    depth = indices.shape[-1] if indices is not None else None
    if data is not None and isinstance(depth, int) and isinstance(first, int):
        _positions(nodes, indices, data.shape[first : first + depth], data)


def _images(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """The third operand holds positions in the batch."""
    data, indices = inputs[0], inputs[2]
    if data is not None:
        _positions(nodes, indices, data.shape[:1], data)


def _positions(nodes: Nodes, indices: Value | None, extents: Sequence[Dim], data: Value) -> None:
    if (
        indices is None
        or not indices.dtype.is_integer
        or not extents
        or _are_within(indices, extents, nodes.context.ranges)
    ):
        return
    axes = "an axis" if len(extents) == 1 else "axes"
    message = f"positions beyond {axes} of '{data.name}' of extent {dims_text(extents)}"
    conditions = _conditions(indices, extents, nodes.context.ranges)
    if conditions is not None:
        for condition in conditions:
            _state(nodes, condition, message)
        return
    if indices.dtype is not DType.INT64:
        indices = nodes.node("Cast", indices, to=DType.INT64)
    count = nodes.node("ingot.CountOutside", indices, extents=tuple(extents))
    _require(nodes, count, message)


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


def _columns(indices: Value, count: int, ranges: IndexRanges) -> list[Range | None]:
    """The range of the positions along each axis."""
    array = ranges.arrays.get(indices)
    if count == 1 or array is None:
        return [ranges.of(indices)] * count
    flat = array.reshape(-1, count)
    return [Range(int(low), int(high), True) for low, high in zip(flat.min(0), flat.max(0), strict=True)]


def _is_within(found: Range | None, extent: Dim) -> bool:
    if found is None:
        return False
    is_natural = is_at_least(found.least, 0) or is_at_least(lift(found.least) + extent, 0)
    return is_natural and is_at_least(lift(extent) - 1, found.most)


_CHECKS: Mapping[str, _Check] = MappingProxyType(
    {
        "Div": _divisor,
        "Mod": _divisor,
        "Gather": _along_axis(1),
        "GatherElements": _along_axis(1),
        "ScatterElements": _along_axis(1),
        "GatherND": _along_first,
        "RoiAlign": _images,
        "ScatterND": _along_first,
    }
)
