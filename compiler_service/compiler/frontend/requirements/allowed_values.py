"""Values that operators rule out of their operands: steps of 0, lengths of nothing, thresholds beyond 1, numbers that are none.

Asked of nodes as the model has them: what takes their place, an older form, a handler or several nodes, would compute something
with any value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isinf
from types import MappingProxyType

from compiler_service.compiler.frontend.importing.index_ranges import is_at_least
from compiler_service.compiler.frontend.requirements.defining import Nodes
from compiler_service.compiler.frontend.requirements.operand_checks import taken, within
from compiler_service.compiler.tensor_expr.assumptions import Assumption
from shared_ir.dtype import DType
from shared_ir.expr import Expr
from shared_ir.expr.dim import Dim, dim_text
from shared_ir.graph.ir import Attribute, Value

_Inputs = Sequence["Value | None"]
_Check = Callable[[Nodes, _Inputs, Mapping[str, Attribute]], None]


@dataclass(frozen=True)
class Allowed:
    """What every element of an operand must be; ``text`` says it of those that are not. No element is NaN."""

    text: str
    least: float = -inf
    most: float = inf
    below: float = inf
    zero: bool = True
    is_finite: bool = False

    def holds(self, number: float) -> bool:
        in_range = self.least <= number <= self.most and (self.zero or number != 0)
        in_range = in_range and (self.below == inf or number < self.below)
        return in_range and not (self.is_finite and isinf(number))

    def is_certain(self, element: Dim) -> bool:
        """Whether it holds of ``element`` whatever the sizes of the run are."""
        if not isinstance(element, Expr):
            return self.holds(element)
        is_above = self.lowest is None or is_at_least(element, self.lowest)
        return is_above and self.below == inf and (self.most == inf or is_at_least(int(self.most), element))

    @property
    def lowest(self) -> int | None:
        """What a size is at least, which is never negative."""
        if not self.zero:
            return 1
        return None if self.least == -inf else int(self.least)


_NOT_ZERO = Allowed("that are 0", zero=False)
_POSITIVE = Allowed("that are not at least 1", least=1)
_FRACTION = Allowed("that are not within 0 and 1", least=0, most=1)
_SHARE = Allowed("that are not from 0 to below 1", least=0, below=1)
_NATURAL = Allowed("that are negative", least=0)
_FINITE = Allowed("that are infinite or no number", is_finite=True)

ALLOWED: Mapping[str, Mapping[int, Allowed]] = MappingProxyType(
    {
        "DFT": {1: _POSITIVE},
        "MaxRoiPool": {1: _FINITE},
        "MelWeightMatrix": {2: _POSITIVE, 3: _FINITE, 4: _FINITE},
        "NonMaxSuppression": {3: _FRACTION},
        "OneHot": {1: _FINITE},
        "Range": {0: _FINITE, 1: _FINITE, 2: _NOT_ZERO},
        "Reshape": {1: Allowed("that are below -1", least=-1)},
        "RoiAlign": {1: _FINITE},
        "RotaryEmbedding": {3: _NATURAL},
        "STFT": {1: _POSITIVE, 3: _POSITIVE},
        "Slice": {4: _NOT_ZERO},
        "ai.onnx.ml.ArrayFeatureExtractor": {1: _NATURAL},
        "com.microsoft.EmbedLayerNormalization": {0: _NATURAL, 1: _NATURAL, 8: _NATURAL},
        "com.microsoft.RotaryEmbedding": {1: _NATURAL},
    }
)
"""By operator and number of the operand."""


def check_values(nodes: Nodes, inputs: _Inputs, attributes: Mapping[str, Attribute]) -> None:
    """Nodes that check the operands of ``nodes.source``, a node in whatever form the model has it."""
    for index, allowed in ALLOWED.get(nodes.source.qualified, {}).items():
        operand = inputs[index] if index < len(inputs) else None
        if operand is not None:
            _check(nodes, operand, allowed)
    check = _CHECKS.get(nodes.source.qualified)
    if check is not None:
        check(nodes, inputs, attributes)


def is_checked(op: str) -> bool:
    return op in ALLOWED or op in _CHECKS


def _check(nodes: Nodes, operand: Value, allowed: Allowed, name: str = "") -> None:
    """``name``: of the operand that ``operand`` was computed from."""
    if allowed.is_finite and operand.dtype.is_integer:
        return
    message = f"elements of '{name or operand.name}' {allowed.text}"
    elements = nodes.context.known.get(operand)
    doubtful = [] if elements is None else [e for e in elements.reshape(-1).tolist() if not allowed.is_certain(e)]
    lowest = allowed.lowest
    if elements is None and _is_known_range(nodes, operand, allowed):
        return
    if (
        elements is None
        or (doubtful and lowest is None)
        or not all(isinstance(e, Expr) and is_at_least(e, 0) for e in doubtful)
    ):
        nodes.require(_count(nodes, operand, allowed), message)
        return
    for element in doubtful:
        nodes.state(Assumption(element, lowest or 0, lower=True), message)


def _is_known_range(nodes: Nodes, operand: Value, allowed: Allowed) -> bool:
    found = nodes.context.ranges.of(operand)
    if found is None:
        return False
    if not allowed.zero:
        return is_at_least(found.least, 1) or is_at_least(-1, found.most)
    return allowed.is_certain(found.least) and allowed.is_certain(found.most)


def _count(nodes: Nodes, operand: Value, allowed: Allowed) -> Value:
    """int64 [1]: how many elements are not allowed; nothing is less or more than what is no number."""
    if operand.dtype is DType.BFLOAT16:  # numpy has no constants of it, and float32 holds every number of it
        operand = nodes.node("Cast", operand, to=DType.FLOAT32)
    wrong = [nodes.node("IsNaN", operand)] if operand.dtype.is_float else []
    if allowed.is_finite:
        wrong.append(nodes.node("IsInf", operand))
    if allowed.least > -inf:
        wrong.append(nodes.node("Less", operand, nodes.scalar(allowed.least, operand.dtype)))
    if allowed.most < inf:
        wrong.append(nodes.node("Greater", operand, nodes.scalar(allowed.most, operand.dtype)))
    if allowed.below < inf:
        wrong.append(nodes.node("GreaterOrEqual", operand, nodes.scalar(allowed.below, operand.dtype)))
    if not allowed.zero:
        wrong.append(nodes.node("Equal", operand, nodes.scalar(0, operand.dtype)))
    found = wrong[0]
    for other in wrong[1:]:
        found = nodes.node("Or", found, other)
    return nodes.node("ReduceSum", nodes.vector(nodes.node("Cast", found, to=DType.INT64)), keepdims=1)


# -- what hangs on other operands


def _framed(nodes: Nodes, inputs: _Inputs, attributes: Mapping[str, Attribute]) -> None:
    """A frame of STFT, which is as long as it is said to be or as its window, is no longer than the signal."""
    signal, _, window, length = (*inputs, *(None,) * 4)[:4]
    if signal is None or signal.type.rank < 2:
        return
    extent, message = signal.shape[1], f"a frame is longer than the {dim_text(signal.shape[1])} of '{signal.name}'"
    if length is not None:
        within(nodes, nodes.vector(length), extent, message)
    elif window is not None and not is_at_least(extent, window.shape[0]):
        nodes.state(Assumption(extent, window.shape[0], lower=True), message)


def _reshaped(nodes: Nodes, inputs: _Inputs, attributes: Mapping[str, Attribute]) -> None:
    """-1 stands for a size divided by the other extents, so none of those is 0."""
    x, shape = (*inputs, None)[:2]
    elements = None if shape is None else nodes.elements(shape)
    if x is None or elements is None or -1 not in elements:
        return
    copies = not attributes.get("allowzero", 0)
    for axis, element in enumerate(elements):
        extent = x.shape[axis] if element == 0 and copies and axis < x.type.rank else element
        if extent is not None and extent != -1 and not is_at_least(extent, 1):
            divided = f"what -1 stands for is a size divided by {dim_text(extent)}"
            if isinstance(extent, int):
                nodes.require(nodes.integers(1), divided)
            else:
                nodes.state(Assumption(extent, 1, lower=True), divided)


def _dropped(nodes: Nodes, inputs: _Inputs, attributes: Mapping[str, Attribute]) -> None:
    """The share of elements that training drops, where the run trains: what remains is divided by the rest."""
    _, ratio, training = (*inputs, *(None,) * 3)[:3]
    if ratio is None or training is None or nodes.context.known.scalar(training) is False:
        return
    _check(nodes, nodes.node("Where", training, ratio, nodes.scalar(0.0, ratio.dtype)), _SHARE, ratio.name)


def _wrapped(nodes: Nodes, inputs: _Inputs, attributes: Mapping[str, Attribute]) -> None:
    """Going round, positions may be beyond the end, but not before the start."""
    first = inputs[2] if len(inputs) > 2 else None
    if first is not None and attributes.get("mode", "linear") == "circular":
        _check(nodes, first, _NATURAL)


def _attended(nodes: Nodes, inputs: _Inputs, attributes: Mapping[str, Attribute]) -> None:
    """How much of each sequence of a cache is no padding: at most all of it."""
    key, lengths = (*inputs, *(None,) * 7)[1:7:5]
    if key is None or lengths is None or key.type.rank not in (3, 4):
        return
    extent = key.shape[-2]
    within(nodes, lengths, extent, f"lengths of '{lengths.name}' that are not within 0 and {dim_text(extent)}")


def _padded_along(nodes: Nodes, inputs: _Inputs, attributes: Mapping[str, Attribute]) -> None:
    """Axes of the run are axes of what is padded."""
    x, axes = (*inputs, *(None,) * 4)[:4:3]
    if x is not None and axes is not None and nodes.elements(axes) is None:
        _require_axes(nodes, axes, x.type.rank, x.type.rank)


def _sliced(nodes: Nodes, inputs: _Inputs, attributes: Mapping[str, Attribute]) -> None:
    """Axes of the run are axes of what is sliced; those that are known are looked at by the definition."""
    x, _, _, axes = (*inputs, *(None,) * 4)[:4]
    if x is not None and axes is not None and nodes.elements(axes) is None:
        _require_axes(nodes, axes, x.type.rank, x.type.rank)


def _transformed(nodes: Nodes, inputs: _Inputs, attributes: Mapping[str, Attribute]) -> None:
    """DFT goes along any axis but the last, which holds the parts of a number."""
    x, _, axis = (*inputs, *(None,) * 3)[:3]
    if x is None or x.type.rank < 2:
        return
    rank, given = x.type.rank, attributes.get("axis", 1) if nodes.source.opset < 20 else -2
    known = nodes.elements(axis) if axis is not None else (given,)
    if axis is not None and known is None:
        _require_axes(nodes, axis, rank, rank - 1)
        return
    (number,) = known or (None,)
    if not isinstance(number, int) or not -rank <= number < rank or number % rank == rank - 1:
        nodes.require(nodes.integers(1), f"axis {number}, which is none of signals with {rank} axes")


def _require_axes(nodes: Nodes, axes: Value, rank: int, count: int) -> None:
    """The first ``count`` of ``rank`` axes, which may be counted from the end."""
    vector = nodes.vector(axes)
    from_end = nodes.node("Add", vector, nodes.integers(rank))
    vector = nodes.node("Where", nodes.node("Less", vector, nodes.integers(0)), from_end, vector)
    within(nodes, vector, count - 1, f"elements of '{axes.name}' that are none of {count} axes")


_CHECKS: Mapping[str, _Check] = MappingProxyType(
    {
        "Attention": _attended,
        "DFT": _transformed,
        "Dropout": _dropped,
        "Pad": _padded_along,
        "Reshape": _reshaped,
        "STFT": _framed,
        "Slice": _sliced,
        "TensorScatter": _wrapped,
        "TopK": taken,
    }
)
