"""Parallel branches that add up are one convolution: what networks that are trained with more branches than they need unfold to.

::

    Conv3x3(x) + Conv1x1(x) + x * c + s    ->    Conv3x3(x)    with the weights of all, the scale in the middle of the window

A smaller kernel, a scale per channel and x itself are taken up by a convolution whose window covers theirs, so that it has no more
to do than before; weights are added in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute, ints_attribute, text_attribute
from compiler_service.compiler.graph_passes.rewriting.operands import is_float, with_constant
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from shared_ir.dtype import DType
from shared_ir.graph.ir import Attribute, Node, Value
from shared_ir.types import TensorType

_MOST_TERMS = 64

_KNOWN = frozenset({"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"})


@dataclass(frozen=True)
class _Window:
    """Where a convolution reads: ``output * stride + tap * dilation - pad`` along each axis."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    def place_of(self, other: _Window, own: Sequence[int], taps: Sequence[int]) -> tuple[int, ...] | None:
        """The tap at which the window ``other`` of ``taps`` begins in this one of ``own`` taps, if it lies inside."""
        if self.strides != other.strides:
            return None
        found = []
        for i, (size, count) in enumerate(zip(own, taps, strict=True)):
            first, rest = divmod(self.pads[i] - other.pads[i], self.dilations[i])
            aligned = count == 1 or self.dilations[i] == other.dilations[i]
            if rest or first < 0 or first + count > size or not aligned:
                return None
            found.append(first)
        return tuple(found)


@dataclass(frozen=True, eq=False)
class _Branch:
    """``sum over taps, channels of a group of x * weight``, plus ``bias`` per output channel.

    ``is_scale``: one weight per channel and no window, ``[C, 1, 1..]``. Arrays are float64.
    """

    x: Value
    window: _Window
    group: int
    weight: np.ndarray
    bias: np.ndarray | None
    is_scale: bool

    def taking(self, other: _Branch) -> _Branch | None:
        """This convolution with ``other`` added to its weights; None where the window or the groups do not allow it."""
        if other.x is not self.x or (other.group != self.group and not other.is_scale) or self.is_scale:
            return None
        begin = self.window.place_of(other.window, self.weight.shape[2:], other.weight.shape[2:])
        added = self._scale(other.weight) if other.is_scale else other.weight
        if begin is None or added is None or added.shape[:2] != self.weight.shape[:2]:
            return None
        weight = self.weight.copy()
        inside = tuple(slice(b, b + n) for b, n in zip(begin, added.shape[2:], strict=True))
        weight[(slice(None), slice(None), *inside)] += added
        biases = [b for b in (self.bias, other.bias) if b is not None]
        return replace(self, weight=weight, bias=np.sum(biases, axis=0) if biases else None)

    def _scale(self, factors: np.ndarray) -> np.ndarray | None:
        """``factors`` as the weights ``[C, C / group, 1..]`` of this convolution's groups."""
        outputs, depth = self.weight.shape[:2]
        if outputs != depth * self.group or outputs != factors.shape[0]:
            return None
        made = np.zeros((outputs, depth, *factors.shape[2:]))
        channel = np.arange(outputs)
        made[channel, channel % depth] = factors[:, 0]
        return made


def _added(node: Node, site: Site) -> Replacement:
    """a + b, where branches of both convolve the same values"""
    result = node.results[0]
    if not is_float(result):
        return None
    terms = _terms(node, site)
    if not any(site.producer(value, "Conv") for value, _ in terms):
        return None
    branches = [_branch(value, sign, result.type, site) for value, sign in terms]
    order = sorted((i for i, b in enumerate(branches) if b is not None), key=lambda i: -_size(branches[i]))
    for i in order:
        total, taken = _gathered(i, order, branches)
        if taken:
            rest = [term for j, term in enumerate(terms) if j != i and j not in taken]
            return _sum(site, _convolution(total, terms[i][0], result, site), rest)
    return None


def _gathered(i: int, order: Sequence[int], branches: Sequence[_Branch | None]) -> tuple[_Branch, set[int]]:
    """Branch ``i`` with all others that it takes, and which these are."""
    total = branches[i]
    assert total is not None
    taken: set[int] = set()
    for j in order:
        other = branches[j]
        more = None if j == i or other is None else total.taking(other)
        if more is not None:
            total, taken = more, taken | {j}
    return total, taken


def _terms(node: Node, site: Site) -> list[tuple[Value, float]]:
    """The terms of a sum with their signs, through nested sums of the same type that nothing else reads. A sum of more than
    ``_MOST_TERMS`` has sums among its terms: each of a long row of additions would look at all those before it otherwise."""
    terms: list[tuple[Value, float]] = []
    pending = _operands(node, 1.0)
    while pending:
        value, sign = pending.pop()
        inner = site.producer(value, "Add", "Sub")
        nested = inner is not None and site.only_user(value) and value.type == node.results[0].type
        if inner is not None and nested and len(terms) + len(pending) < _MOST_TERMS:
            pending += _operands(inner, sign)
        else:
            terms.append((value, sign))
    return terms


def _operands(node: Node, sign: float) -> list[tuple[Value, float]]:
    """The signed operands of an addition or subtraction, the last one first."""
    first, second = node.operands
    return [(second, -sign if node.op == "Sub" else sign), (first, sign)]


def _branch(value: Value, sign: float, wanted: TensorType, site: Site) -> _Branch | None:
    """``sign * value`` as a branch of the type ``wanted``."""
    if value.type != wanted or site.array(value) is not None or wanted.rank < 3:
        return None
    node = site.producer(value, "Conv", "Mul")
    if node is not None and node.op == "Conv" and site.only_user(value):
        return _convolved(node, sign, site)
    channels = wanted.shape[1]
    if not isinstance(channels, int):
        return None
    found = (
        None
        if node is None or node.op == "Conv" or not site.only_user(value)
        else with_constant(node, site, exact=True)
    )
    x, factor = found if found is not None else (value, np.ones(1))
    factors = _per_channel(factor, wanted.rank, channels)
    if factors is None or x.type != wanted:
        x, factors = value, np.ones(channels)
    axes = wanted.rank - 2
    window = _Window((1,) * axes, (1,) * axes, (0,) * axes)
    return _Branch(x, window, channels, sign * factors.reshape(channels, *(1,) * (axes + 1)), None, True)


def _per_channel(factor: np.ndarray, rank: int, channels: int) -> np.ndarray | None:
    shape = (1,) * (rank - factor.ndim) + factor.shape
    if len(shape) != rank or any(n != 1 for axis, n in enumerate(shape) if axis != 1):
        return None
    return np.broadcast_to(factor.reshape(-1), (channels,))


def _convolved(node: Node, sign: float, site: Site) -> _Branch | None:
    weight = site.exact(node.inputs[1])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    numbers = site.exact(bias)
    if weight is None or (bias is not None and numbers is None) or not node.attributes.keys() <= _KNOWN:
        return None
    if text_attribute(node, "auto_pad", "NOTSET") != "NOTSET" or node.operands[1].dtype not in (
        DType.FLOAT32,
        DType.FLOAT64,
    ):
        return None
    axes = weight.ndim - 2
    ones = (1,) * axes
    pads = ints_attribute(node, "pads", (0,) * (2 * axes))[:axes]
    window = _Window(ints_attribute(node, "strides", ones), ints_attribute(node, "dilations", ones), pads)
    own = None if numbers is None else sign * numbers
    return _Branch(node.operands[0], window, int_attribute(node, "group", 1), sign * weight, own, False)


def _size(branch: _Branch | None) -> int:
    return 0 if branch is None or branch.is_scale else branch.weight.size


def _convolution(total: _Branch, base: Value, result: Value, site: Site) -> Value:
    """``total`` in place of the convolution that computes ``base``."""
    node = site.producer(base, "Conv")
    assert node is not None  # scales take nothing
    inputs = [total.x, site.rounded(total.weight, result.dtype, "weight")]
    if total.bias is not None:
        inputs.append(site.rounded(total.bias, result.dtype, "bias"))
    attributes: dict[str, Attribute] = dict(node.attributes)
    return site.write("Conv", inputs, attributes, title=node.name)


def _sum(site: Site, total: Value, rest: Sequence[tuple[Value, float]]) -> Value:
    for value, sign in rest:
        total = site.node("Add" if sign > 0 else "Sub", total, value)
    return total


BRANCH_RULES: tuple[RewriteRule, ...] = (rule("Add Sub", _added),)
