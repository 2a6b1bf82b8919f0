"""Grouped convolutions by the diagonals of their matrices: the lanes of a vector multiply channels where they lie.

A tap of a group of ``g`` channels is a matrix of g x g. Its diagonal ``r`` (cyclic) takes channel ``i`` to output
``(i - r) mod g``, so that a product of vectors does one diagonal for as many groups as a vector holds::

    diagonals[.., r, i] = sum over k.. of data[.. + k.., i] * turned[r, i, k..]
    y[.., oc]           = sum over r of diagonals[.., r, first(oc) + (oc + r) mod g]

where ``first(oc) = oc - oc mod g``. Only the second sum, which is outside of the window, moves values between lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.schedule.language.algorithm import Transform
from compiler_service.compiler.tensor_expr.tensor import (
    Axis,
    Compute,
    Load,
    ReduceOp,
    Tensor,
    compute,
    placeholder,
    reduce,
)
from shared_ir.expr import Expr, substitute, variables
from shared_ir.expr.dim import Dim
from shared_ir.expr.simplify import simplify


@dataclass(frozen=True)
class GroupedConvolution:
    """``tensor[.., oc] = sum over k.., ic of data[.., first(oc) + ic] * weight[oc, ic, k..]``, as many channels as outputs.

    Attributes:
        group: channels of a group.
        taps: the reduced axes but that of the channels.
    """

    tensor: Tensor
    data: Load
    weight: Load
    group: int
    taps: tuple[Axis, ...]


def match_groups(tensor: Tensor, data: Load, weight: Load) -> GroupedConvolution | None:
    """``tensor``, the sum of products of the two loads, as a grouped convolution with constant taps, or None."""
    op = tensor.op
    if not isinstance(op, Compute) or op.reduction is None or op.reduction.op is not ReduceOp.SUM:
        return None
    reduced = op.reduction.axes
    if len(weight.indices) < 2 or len(weight.indices) != len(reduced) + 1 or not op.axes or not data.indices:
        return None
    oc, ic = op.axes[-1], next((a for a in reduced if a.var == weight.indices[1]), None)
    if ic is None or weight.indices[0] != oc.var or not isinstance(ic.extent, int):
        return None
    taps = tuple(a for a in reduced if a is not ic)
    if {a.var for a in taps} != set(weight.indices[2:]) or any(not isinstance(a.extent, int) for a in taps):
        return None
    *outer, last = data.indices
    if simplify(last) != simplify(_first(oc.var, ic.extent) + ic.var) or not isinstance(oc.extent, int):
        return None
    if any(variables(i) & {oc.var, ic.var} for i in outer) or oc.extent % ic.extent or ic.extent == 1:
        return None
    return GroupedConvolution(tensor, data, weight, ic.extent, taps)


def _first(oc: Expr, group: int) -> Expr:
    return oc // group * group


@dataclass(frozen=True)
class DiagonalStages:
    """``weight`` is ``[r, i, k..]``, a function of the constant weights (see :class:`Turned`)."""

    weight: Tensor
    diagonals: Tensor
    output: Tensor


def diagonal_stages(conv: GroupedConvolution) -> DiagonalStages:
    """The tensors that stand for ``conv``, producers first."""
    op, name, group = conv.tensor.op, conv.tensor.name, conv.group
    assert isinstance(op, Compute)
    *outer, channels = op.axes
    weight = placeholder(
        f"{conv.weight.tensor.name}.turned", turned_shape(conv.weight.tensor.shape, group), conv.weight.dtype
    )
    diagonals = _diagonals(conv, weight, outer, channels)

    def sum_of_diagonals(*index: Expr) -> Expr:
        *at, oc = index
        terms = [diagonals[(*at, r, _first(oc, group) + (oc + r) % group)] for r in range(group)]
        return _balanced(terms)

    output = compute(conv.tensor.shape, sum_of_diagonals, name=name, axes=[a.name for a in op.axes])
    return DiagonalStages(weight, diagonals, output)


def _diagonals(conv: GroupedConvolution, weight: Tensor, outer: Sequence[Axis], channels: Axis) -> Tensor:
    own = [a.var for a in (*outer, *conv.taps)]

    def body(*index: Expr) -> Expr:
        *at, r, i = index[: len(outer) + 2]
        places = dict(zip(own, [*at, *index[len(outer) + 2 :]], strict=False))
        read, taps = (
            [substitute(x, places) for x in some] for some in (conv.data.indices[:-1], conv.weight.indices[2:])
        )
        return conv.data.tensor[(*read, i)] * weight[(r, i, *taps)]

    return reduce(
        ReduceOp.SUM,
        [*(a.extent for a in outer), conv.group, channels.extent],
        [a.extent for a in conv.taps] or [1],
        body,
        name=f"{conv.tensor.name}.diagonals",
        axes=[*(a.name for a in outer), "r", "i"],
        reduced=[a.name for a in conv.taps] or ["k"],
    )


def _balanced(terms: Sequence[Expr]) -> Expr:
    """The sum of ``terms`` in a tree of the least depth."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return _balanced(terms[:half]) + _balanced(terms[half:])


def turned_shape(shape: Sequence[Dim], group: int) -> tuple[Dim, ...]:
    """Shape of the turned form of weights ``[oc, ic, k..]``."""
    return (group, shape[0], *shape[2:])


@dataclass(frozen=True)
class Turned(Transform):
    """Weights ``[oc, ic, k..]`` of groups of ``group`` by the diagonals: ``[r, i, k..] = w[first(i) + (i - r) mod g, i mod g, k..]``."""

    group: int

    def shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return turned_shape(shape, self.group)

    def apply(self, array: np.ndarray) -> np.ndarray:
        channel = np.arange(array.shape[0])
        first, place = channel - channel % self.group, channel % self.group
        turns = [array[first + (place - r) % self.group, place] for r in range(self.group)]
        return np.ascontiguousarray(np.stack(turns))
