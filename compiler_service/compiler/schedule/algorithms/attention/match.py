"""Which kernels are attention: a product, softmax over its columns, and a product with the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler_service.compiler.schedule.language.state import KernelStage, ScheduleState
from compiler_service.compiler.schedule.model.analysis import depends, reductions
from compiler_service.compiler.tensor_expr.tensor import Axis, Load, Placeholder, ReduceOp, Tensor, axis_var, loads
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Expr, Select, Unary, UnaryOp, equal, select, substitute

_MAXIMA = (ReduceOp.MAX_NUMBER, ReduceOp.MAX)
"""Reductions that find the largest score: of a softmax, and of one that an exporter wrote out."""


@dataclass(frozen=True)
class Attention:
    """``mixed[.., m, n] = sum over j of softmax over j of score(raw[.., m, j]) * value[.., j, n]``
    with ``raw[.., m, j] = sum over k of query[.., m, k] * key[.., j, k]``.

    Every expression is over the axes of ``mixed`` and ``depth``.

    Attributes:
        mixed: the stage of the second product.
        outer: axes that choose a head.
        rows: axis m, or None where there is one query.
        columns, keys, depth: axes n, j and k.
        query, key, value: what is multiplied.
        raw: the tensor of the first product, which ``score`` reads once.
        score: what the softmax is taken of: ``raw``, scaled and masked.
        safe: whether a row whose sum of powers is NaN has weights of 0.
    """

    mixed: KernelStage
    outer: tuple[Axis, ...]
    rows: Axis | None
    columns: Axis
    keys: Axis
    depth: Axis
    query: Load
    key: Load
    value: Load
    raw: Tensor
    score: Expr
    safe: bool


def match_attention(state: ScheduleState) -> Attention | None:
    """The attention that ``state``, with everything inlined but reductions and the output, computes, or None."""
    found = reductions(state)
    operators = [s.reduction.op for s in found if s.reduction is not None]
    if operators not in [[ReduceOp.SUM, largest, ReduceOp.SUM, ReduceOp.SUM] for largest in _MAXIMA]:
        return None
    scores, largest, total, mixed = found
    if any(s.tensor.dtype is not DType.FLOAT32 for s in found) or any(len(_reduced(s)) != 1 for s in found):
        return None
    factors = _factors(mixed, total)
    if factors is None:
        return None
    weight, value = factors
    powers, sum_load = weight.powers, weight.total
    (keys,) = _reduced(mixed)
    expected = _placed(total, total.body, sum_load, keys)
    if powers is not expected or not _is_plain(value):
        return None
    score = _score(powers, largest, keys)
    return None if score is None else _assembled(mixed, scores, score, value, weight.safe)


@dataclass(frozen=True)
class _Weight:
    """``powers * (1 / total)``, where ``safe`` 0 if ``total`` is NaN."""

    powers: Expr
    total: Load
    safe: bool


def _factors(mixed: KernelStage, total: KernelStage) -> tuple[_Weight, Load] | None:
    """The two factors of what ``mixed`` adds up: weight and value."""
    for factor, value in _sides(mixed.body):
        weight = _weight(factor, total.tensor)
        if weight is not None and isinstance(value, Load):
            return weight, value
    return None


def _weight(factor: Expr, total: Tensor) -> _Weight | None:
    guarded = factor if isinstance(factor, Select) else None
    for powers, inverse in _sides(factor if guarded is None else guarded.then):
        read = inverse.x if isinstance(inverse, Unary) and inverse.op is UnaryOp.RECIPROCAL else None
        if not isinstance(read, Load) or read.tensor is not total:
            continue
        if guarded is None or guarded is select(equal(read, read), guarded.then, 0.0):
            return _Weight(powers, read, guarded is not None)
    return None


def _sides(product: Expr) -> tuple[tuple[Expr, Expr], ...]:
    if not (isinstance(product, Binary) and product.op is BinaryOp.MUL):
        return ()
    return (product.lhs, product.rhs), (product.rhs, product.lhs)


def _score(powers: Expr, largest: KernelStage, keys: Axis) -> Expr | None:
    """``s`` where ``powers`` is ``exp(s - largest of s)``."""
    difference = powers.x if isinstance(powers, Unary) and powers.op is UnaryOp.EXP else None
    if not (isinstance(difference, Binary) and difference.op is BinaryOp.SUB):
        return None
    score, shift = difference.lhs, difference.rhs
    if not isinstance(shift, Load) or shift.tensor is not largest.tensor:
        return None
    return score if score is _placed(largest, largest.body, shift, keys) else None


def _assembled(mixed: KernelStage, scores: KernelStage, score: Expr, value: Load, safe: bool) -> Attention | None:
    """The parts by what they are for; None where the first product is not one of a row by a key."""
    reads = dict.fromkeys(ld for ld in loads(score) if ld.tensor is scores.tensor)
    columns, (keys,), (own,) = mixed.compute.axes[-1], _reduced(mixed), _reduced(scores)
    depth = Axis(f"{own.name}.depth", own.extent)  # both products may have named theirs alike
    if len(reads) != 1:
        return None
    (read,) = reads
    outside = [ld for ld in loads(score) if ld.tensor is not scores.tensor]
    product = _placed(scores, scores.body, read, depth)
    for query, key in _sides(product):
        if not isinstance(query, Load) or not isinstance(key, Load) or _reads(query, keys) or not _reads(key, keys):
            continue
        rows = _rows(mixed.compute.axes[:-1], query, key, value)
        ours = not any(_reads(ld, columns) for ld in (query, key, *outside)) and _reads(value, columns)
        plain = all(_is_plain(ld) for ld in (query, key, *outside))
        if ours and plain and all(isinstance(a.extent, int) for a in (columns, depth)):
            outer = tuple(a for a in mixed.compute.axes[:-1] if a is not rows)
            return Attention(mixed, outer, rows, columns, keys, depth, query, key, value, scores.tensor, score, safe)
    return None


def _rows(axes: Sequence[Axis], query: Load, key: Load, value: Load) -> Axis | None:
    """The last axis that only the query depends on."""
    own = [a for a in axes if _reads(query, a) and not _reads(key, a) and not _reads(value, a)]
    return own[-1] if own else None


def _reads(load: Load, axis: Axis) -> bool:
    return any(depends(i, axis.name) for i in load.indices)


def _is_plain(load: Load) -> bool:
    """An element of an argument."""
    return isinstance(load.tensor.op, Placeholder)


def _placed(stage: KernelStage, body: Expr, read: Load, reduced: Axis) -> Expr:
    """``body`` of ``stage`` where ``read`` reads it, its reduction running along ``reduced``."""
    places = {a.var: i for a, i in zip(stage.compute.axes, read.indices, strict=True)}
    (own,) = _reduced(stage)
    return substitute(body, {**places, axis_var(own.name): reduced.var})


def _reduced(stage: KernelStage) -> tuple[Axis, ...]:
    assert stage.reduction is not None
    return stage.reduction.axes
