"""Where padding is a part of an image worth a question."""

from __future__ import annotations

import math

from compiler_service.compiler.schedule.language.interior import padded_part
from compiler_service.compiler.schedule.language.state import KernelStage
from compiler_service.compiler.schedule.language.steps import SkipPadding
from compiler_service.compiler.schedule.model.analysis import depends
from compiler_service.compiler.schedule.rules.contraction.match import Contraction
from compiler_service.compiler.tensor_expr.tensor import Axis, axis_var
from shared_ir.expr import Expr, substitute
from shared_ir.expr.dim import as_dim
from shared_ir.expr.simplify import Simplifier

_LEAST_PADDED_SHARE = 0.05
"""Smallest share of an axis that must be padding for the loops over the window to ask whether a tile stands in padding alone: for
less, asking in each turn of a loop costs more than it saves."""


def skipped_padding(match: Contraction, padded: KernelStage, height: int) -> list[SkipPadding]:
    """Turns of the loops over a window that would read padding alone are left out, where it is a part of the image worth a
    question: with a dilation as large as half of the image two thirds of all products. A register tile has ``height`` rows."""
    if match.data.tensor is not padded.tensor or match.stage.reduction is None:
        return []
    if not match.stage.adds_products_of(padded.tensor):
        return []
    return [
        SkipPadding(match.stage.name, tap.name, padded.name, axis.name)
        for axis, index in zip(padded.compute.axes, match.data.indices, strict=True)
        for tap in match.stage.reduction.axes[:-1]
        if depends(index, tap.name) and _meets_padding(match, padded, axis, index, height)
    ]


def _meets_padding(match: Contraction, padded: KernelStage, axis: Axis, index: Expr, height: int) -> bool:
    """Whether padding before or after the data along ``axis`` is as long as what a register tile reads of it."""
    part = padded_part(padded, axis.name, Simplifier({}))
    if part is None or not isinstance(axis.extent, int):
        return False
    low, high = (as_dim(end) for end in part)
    if not (isinstance(low, int) and isinstance(high, int)):
        return False
    padding = axis.extent - (high - low)
    return max(low, axis.extent - high) > _reach(match, index, height) and padding >= _LEAST_PADDED_SHARE * axis.extent


def _reach(match: Contraction, index: Expr, height: int) -> float:
    """From the first to the last row of a register tile along what ``index`` counts."""
    if match.rows is None:
        return 0
    row = axis_var(match.rows)
    distance = as_dim(substitute(index, {row: row + (height - 1)}) - index)
    return abs(distance) if isinstance(distance, int) else math.inf
