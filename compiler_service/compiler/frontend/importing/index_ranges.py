"""Between which numbers the elements of integer tensors lie, as far as the operators that made them tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from compiler_service.compiler.frontend.importing.inference import KnownValues
from compiler_service.compiler.tensor_expr.meaning.known import expression_size
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Var, lift, maximum, minimum
from shared_ir.expr.dim import Dim, as_dim
from shared_ir.expr.simplify import Simplifier
from shared_ir.graph.ir import Value

_MOST_NODES_OF_BOUND = 32
"""Nodes of a bound; longer ones decide nothing."""


class IndexRange(NamedTuple):
    """Inclusive bounds."""

    least: Dim
    most: Dim
    is_reached: bool = False
    """Whether some element is ``least`` and some is ``most``, where there are elements."""


def is_at_least(dim: Dim, bound: Dim) -> bool:
    """Whether ``dim >= bound`` whatever the symbols are."""
    low, _ = Simplifier({}).interval(lift(as_dim(lift(dim) - bound)))
    return low is not None and low >= 0


@dataclass
class IndexRanges:
    """What is known of the integers of one import.

    Attributes:
        known: elements that are known one by one.
        arrays: every constant.
        counters: the numbers of iterations, and how many there are at most.
    """

    known: KnownValues
    arrays: dict[Value, np.ndarray] = field(default_factory=dict)
    counters: dict[Var, Dim] = field(default_factory=dict)
    _ranges: dict[Value, IndexRange] = field(default_factory=dict)

    def of(self, value: Value | None) -> IndexRange | None:
        """The bounds of the elements of ``value``."""
        if value is None or not (value.dtype.is_integer or value.dtype is DType.BOOL):
            return None
        elements = self.known.get(value)
        if elements is not None:
            return self._among(elements.reshape(-1).tolist())
        array = self.arrays.get(value)
        if array is not None:
            return IndexRange(int(array.min()), int(array.max()), True) if array.size else IndexRange(0, 0)
        found = self._ranges.get(value)
        if found is None and value.dtype.bits <= 16:
            found = IndexRange(0, 1) if value.dtype is DType.BOOL else IndexRange(*value.dtype.limits)
        return found

    def learn(
        self,
        op: str,
        attributes: Mapping[str, Any],
        inputs: Sequence[Value | None],
        outputs: Sequence[Value | None],
    ) -> None:
        """What a node tells of its results."""
        rule = _RULES.get(op)
        result = next(iter(outputs), None)
        if rule is None or result is None or not result.dtype.is_integer:
            return
        found = rule(self, attributes, inputs)
        if found is not None and _holds(result.dtype, found) and _is_short(found.least) and _is_short(found.most):
            self._ranges[result] = found

    def _among(self, elements: Sequence[object]) -> IndexRange | None:
        ranges = [self.element(e) for e in elements if isinstance(e, int | Expr)]
        return _union(ranges) if ranges and len(ranges) == len(elements) else None

    def element(self, element: Dim) -> IndexRange | None:
        """The bounds of one known element."""
        if not _is_short(element):
            return None
        trips = self.counters.get(element) if isinstance(element, Var) else None
        return IndexRange(element, element, True) if trips is None else IndexRange(0, as_dim(lift(trips) - 1))


def _holds(dtype: DType, found: IndexRange) -> bool:
    """Whether ``dtype`` holds every number of the range; what it does not hold wraps. Extents fit 32 bits."""
    least, most = dtype.limits
    ends = (found.least, found.most)
    return all(least <= end <= most if isinstance(end, int) else dtype.bits >= 32 for end in ends)


def _is_short(bound: Dim) -> bool:
    return isinstance(bound, int) or expression_size(bound, _MOST_NODES_OF_BOUND) <= _MOST_NODES_OF_BOUND


def _union(ranges: Sequence[IndexRange | None]) -> IndexRange | None:
    known = [r for r in ranges if r is not None]
    if not known or len(known) < len(ranges):
        return None
    least, most, is_reached = known[0]
    for low, high, reached in known[1:]:
        least, most = as_dim(minimum(lift(least), low)), as_dim(maximum(lift(most), high))
        is_reached = is_reached and reached
    return IndexRange(least, most, is_reached)


_Rule = Callable[[IndexRanges, Mapping[str, Any], Sequence["Value | None"]], "IndexRange | None"]


def _moved(ranges: IndexRanges, attributes: Mapping[str, Any], inputs: Sequence[Value | None]) -> IndexRange | None:
    return ranges.of(inputs[0])


def _chosen(ranges: IndexRanges, attributes: Mapping[str, Any], inputs: Sequence[Value | None]) -> IndexRange | None:
    return _loosely(ranges.of(inputs[0]))


def _any(ranges: IndexRanges, attributes: Mapping[str, Any], inputs: Sequence[Value | None]) -> IndexRange | None:
    return _loosely(_union([ranges.of(v) for v in inputs]))


def _either(ranges: IndexRanges, attributes: Mapping[str, Any], inputs: Sequence[Value | None]) -> IndexRange | None:
    return _loosely(_union([ranges.of(v) for v in inputs[1:]]))


def _loosely(found: IndexRange | None) -> IndexRange | None:
    return None if found is None else found._replace(is_reached=False)


def _position(ranges: IndexRanges, attributes: Mapping[str, Any], inputs: Sequence[Value | None]) -> IndexRange | None:
    x, axis = inputs[0], int(attributes.get("axis", 0))
    return None if x is None or not x.shape else IndexRange(0, as_dim(lift(x.shape[axis]) - 1))


def _last_position(
    ranges: IndexRanges, attributes: Mapping[str, Any], inputs: Sequence[Value | None]
) -> IndexRange | None:
    return _position(ranges, {"axis": -1}, inputs)


def _sum(ranges: IndexRanges, attributes: Mapping[str, Any], inputs: Sequence[Value | None]) -> IndexRange | None:
    a, b = (ranges.of(v) for v in inputs)
    if a is None or b is None:
        return None
    is_shifted = a.is_reached and b.is_reached and (a.least == a.most or b.least == b.most)
    return _wide(inputs[0], IndexRange(as_dim(lift(a.least) + b.least), as_dim(lift(a.most) + b.most), is_shifted))


def _difference(
    ranges: IndexRanges, attributes: Mapping[str, Any], inputs: Sequence[Value | None]
) -> IndexRange | None:
    a, b = (ranges.of(v) for v in inputs)
    if a is None or b is None:
        return None
    return _wide(inputs[0], IndexRange(as_dim(lift(a.least) - b.most), as_dim(lift(a.most) - b.least)))


def _product(ranges: IndexRanges, attributes: Mapping[str, Any], inputs: Sequence[Value | None]) -> IndexRange | None:
    a, b = (ranges.of(v) for v in inputs)
    if a is None or b is None or not (is_at_least(a.least, 0) and is_at_least(b.least, 0)):
        return None
    return _wide(inputs[0], IndexRange(as_dim(lift(a.least) * b.least), as_dim(lift(a.most) * b.most)))


def _remainder(ranges: IndexRanges, attributes: Mapping[str, Any], inputs: Sequence[Value | None]) -> IndexRange | None:
    divisor = ranges.of(inputs[1])
    if divisor is None or attributes.get("fmod") or not is_at_least(divisor.least, 1):
        return None
    return IndexRange(0, as_dim(lift(divisor.most) - 1))


def _clipped(ranges: IndexRanges, attributes: Mapping[str, Any], inputs: Sequence[Value | None]) -> IndexRange | None:
    if len(inputs) < 3:
        return None
    low, high = (ranges.of(v) for v in inputs[1:3])
    return (
        None
        if low is None or high is None or not is_at_least(high.least, low.most)
        else IndexRange(low.least, high.most)
    )


def _counted(ranges: IndexRanges, attributes: Mapping[str, Any], inputs: Sequence[Value | None]) -> IndexRange | None:
    start, limit, step = (ranges.of(v) for v in inputs)
    if start is None or limit is None or step is None or not is_at_least(step.least, 1):
        return None
    is_reached = step.least == step.most == 1 and start.is_reached and limit.is_reached
    return IndexRange(start.least, as_dim(lift(limit.most) - 1), is_reached)


def _wide(value: Value | None, range: IndexRange) -> IndexRange | None:
    """Sums of narrow integers wrap."""
    return range if value is not None and value.dtype is DType.INT64 else None


_MOVES = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Tile", "Cast")
_CHOICES = ("Slice", "Gather", "GatherElements", "GatherND")
_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        **dict.fromkeys(_MOVES, _moved),
        **dict.fromkeys(_CHOICES, _chosen),
        **dict.fromkeys(("Concat", "Max", "Min"), _any),
        **dict.fromkeys(("ArgMax", "ArgMin", "ingot.RankedPositions"), _position),
        **dict.fromkeys(("ingot.Best", "ingot.Sorted", "ingot.Positions"), _last_position),
        "Add": _sum,
        "Sub": _difference,
        "Where": _either,
        "Mul": _product,
        "Mod": _remainder,
        "Clip": _clipped,
        "Range": _counted,
    }
)
