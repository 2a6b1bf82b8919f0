"""Which kernels are sums of products, and of what."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.schedule.model.analysis import bound_axes, depends, is_free, steps_along
from compiler_service.compiler.tensor_expr.tensor import Load, ReduceOp, Tensor, axis_var
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, Select, Var, walk

_SCALING = (Binary, Cast, Load, Const, Select, Var)
_PRODUCTS = (BinaryOp.MUL, BinaryOp.DOT4, BinaryOp.SIGNED_DOT4)


@dataclass(frozen=True)
class Contraction:
    """``stage[.., m, n] = sum over k of data[.., m, k] * weight[k, n]``.

    Attributes:
        rows: axis of the row tile, or None for a vector times a matrix.
        groups: columns of one group when ``data`` depends on ``n // groups``, else 0.
        window: axis before ``rows`` of more rows for the same weights (image rows, along which a window may slide too), or None; what
            stands between them chooses other weights.
    """

    stage: KernelStage
    data: Load
    weight: Load
    columns: str
    rows: str | None
    groups: int
    window: str | None


def match_contraction(stage: KernelStage, constants: frozenset[Tensor] = frozenset()) -> Contraction | None:
    """The operands and axes of ``stage`` if it is a sum of products with a columns axis that the data does not depend on.

    ``constants``: that the weight may be computed from too, see :func:`_scaled`.
    """
    if stage.reduction is None or stage.reduction.op is not ReduceOp.SUM or not stage.compute.axes:
        return None
    product = stage.body
    if not (isinstance(product, Binary) and product.op in _PRODUCTS):
        return None
    sides = [_load(product.lhs), _load(product.rhs)]
    if sides[1] is None:
        sides[1] = _scaled(product.rhs, stage, constants)
    columns = stage.compute.axes[-1]
    for data, weight in (sides, sides[::-1]):
        if data is None or weight is None or columns_index(weight, columns.name) is None:
            continue
        groups = _groups(data, columns.name)
        if groups is not None:
            rows, window = _rows(stage, data, weight)
            return Contraction(stage, data, weight, columns.name, rows, groups, window)
    return None


def columns_index(weight: Load, columns: str) -> int | None:
    """Which index of ``weight`` runs along the columns, from wherever it starts; None where several do, or not one by one."""
    found = [i for i, index in enumerate(weight.indices) if depends(index, columns)]
    return found[0] if len(found) == 1 and steps_along(weight.indices[found[0]], columns) else None


def _load(expr: Expr) -> Load | None:
    while isinstance(expr, Cast):
        expr = expr.x
    return expr if isinstance(expr, Load) else None


def _scaled(expr: Expr, stage: KernelStage, constants: frozenset[Tensor]) -> Load | None:
    """The weight in ``(weight[.., k, n] - zero_point[.., n]) * scale[.., n]``: of all that is read along the sum the largest."""
    assert stage.reduction is not None
    if any(not isinstance(e, _SCALING) for e in _arithmetic(expr)):
        return None
    summed = [a.name for a in stage.reduction.axes]
    loads = [e for e in dict.fromkeys(_arithmetic(expr)) if isinstance(e, Load)]
    if not all(e.tensor in constants for e in loads):
        return None
    found = [e for e in loads if any(depends(i, name) for i in e.indices for name in summed)]
    return max(found, key=lambda e: math.prod(d for d in e.tensor.shape if isinstance(d, int)), default=None)


def _arithmetic(expr: Expr) -> Iterator[Expr]:
    """The nodes of ``expr`` down to what is loaded."""
    yield expr
    for child in () if isinstance(expr, Load) else expr.children():
        yield from _arithmetic(child)


def _groups(data: Load, columns: str) -> int | None:
    """0 when ``data`` does not depend on the columns, g when it does so only through ``columns // g``, else None."""
    found: set[int] = set()
    for index in data.indices:
        nodes = list(_occurrences(index))
        total = sum(1 for e in nodes if e == axis_var(columns))
        grouped = [
            e for e in nodes if isinstance(e, Binary) and e.op is BinaryOp.FLOOR_DIV and e.lhs == axis_var(columns)
        ]
        if len(grouped) != total or not all(isinstance(getattr(e.rhs, "value", None), int) for e in grouped):
            return None
        found |= {int(getattr(e.rhs, "value", 0)) for e in grouped}
    return None if len(found) > 1 else found.pop() if found else 0


def _occurrences(expr: Expr) -> Iterator[Expr]:
    """Every node, as often as it occurs."""
    yield expr
    for child in expr.children():
        yield from _occurrences(child)


def multiplies_channels(match: Contraction, width: int) -> bool:
    """Whether a group is one channel of the data and fewer columns than a vector of ``width``: a depthwise window does better."""
    assert match.stage.reduction is not None
    *_, last = match.data.indices
    summed = any(depends(last, a.name) for a in match.stage.reduction.axes)
    return 0 < match.groups < width and width % match.groups == 0 and depends(last, match.columns) and not summed


def _rows(stage: KernelStage, data: Load, weight: Load) -> tuple[str | None, str | None]:
    """(row axis, window axis)"""
    spatial = [a.name for a in stage.compute.axes[:-1]]
    used = [
        n
        for n in spatial
        if any(depends(i, n) for i in data.indices) and not any(depends(i, n) for i in weight.indices)
    ]
    return used[-1] if used else None, used[-2] if len(used) > 1 else None


def local_data(state: ScheduleState, reduction: KernelStage) -> KernelStage | None:
    """The computed stage that the reduction reads as data (padding, a prologue), if any; of a sum of unknown length none is kept, since
    all of that would be."""
    match = match_contraction(reduction)
    if match is None:
        return None
    source = state.stage_of(match.data.tensor)
    while source is not None and is_free(source):  # read where it comes from
        (load,) = (e for e in (source.body,) if isinstance(e, Load))
        source = state.stage_of(load.tensor)
    if source is None or source.reduction is not None or reduction.reduction is None:
        return None
    return source if _is_of_known_length(reduction) else None


def _is_of_known_length(stage: KernelStage) -> bool:
    return stage.reduction is not None and all(isinstance(a.extent, int) for a in stage.reduction.axes)


def transposed_weight(
    state: ScheduleState, reduction: KernelStage, inlined: KernelStage, constants: frozenset[Tensor]
) -> KernelStage | None:
    """The stage that moves the weight into place, when reading through it (as ``inlined`` does) is not along the columns; of a sum of
    unknown length none is kept."""
    before, after = match_contraction(reduction), match_contraction(inlined, constants)
    if before is None or after is None or not _is_of_known_length(reduction):
        return None
    source = state.stage_of(before.weight.tensor)
    if source is None or not is_free(source) or depends(after.weight.indices[-1], after.columns):
        return None
    return source


def same_axes(state: ScheduleState, reduction: KernelStage) -> bool:
    """Whether the output reads the reduction at its own index."""
    output = state.output
    own = tuple(a.var for a in output.compute.axes)
    reads = [e for e in walk(output.body) if isinstance(e, Load) and e.tensor is reduction.tensor]
    return bool(reads) and all(ld.indices == own for ld in reads) and len(bound_axes(state, output)) == len(own)
