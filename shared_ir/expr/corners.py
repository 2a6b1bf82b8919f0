"""The least and the greatest of an expression over loops, where both are found at corners of what is walked.

What grows, or falls, with each variable of a loop is extreme where every variable is at one of its ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shared_ir.expr import Binary, BinaryOp, Const, Expr, Var, lift, substitute, variables
from shared_ir.expr.dim import Dim, as_dim
from shared_ir.expr.simplify import unbounded


class Corners(NamedTuple):
    least: Dim
    most: Dim


def corners(index: Expr, axes: Mapping[Var, Dim]) -> Corners | None:
    """Of an expression over ``axes``, which run up to their extents, and over sizes; ``None`` where it neither grows nor falls with one
    of the axes."""
    grows: dict[Var, bool] = {}
    if not _is_monotone(index, axes, grows, up=True):
        return None
    ends = {var: lift(extent) - 1 for var, extent in axes.items()}
    lowest = {var: lift(0) if up else ends[var] for var, up in grows.items()}
    highest = {var: ends[var] if up else lift(0) for var, up in grows.items()}
    return Corners(as_dim(substitute(index, lowest)), as_dim(substitute(index, highest)))


def _is_monotone(expr: Expr, axes: Mapping[Var, Dim], grows: dict[Var, bool], *, up: bool) -> bool:
    """Whether ``expr`` grows (not ``up``: falls) with each axis or falls with it, as noted in ``grows``."""
    if isinstance(expr, Var) and expr in axes:
        return grows.setdefault(expr, up) is up
    if not any(v in axes for v in variables(expr)):
        return True
    match expr:
        case Binary(op=BinaryOp.ADD, lhs=lhs, rhs=rhs):
            return _is_monotone(lhs, axes, grows, up=up) and _is_monotone(rhs, axes, grows, up=up)
        case Binary(op=BinaryOp.SUB, lhs=lhs, rhs=rhs):
            return _is_monotone(lhs, axes, grows, up=up) and _is_monotone(rhs, axes, grows, up=not up)
        case Binary(op=BinaryOp.MUL, lhs=lhs, rhs=rhs):
            factor, part = (rhs, lhs) if _is_size(rhs, axes) else (lhs, rhs)
            return _is_size(factor, axes) and _is_monotone(part, axes, grows, up=up)
        case Binary(op=BinaryOp.FLOOR_DIV, lhs=lhs, rhs=rhs):
            return _is_size(rhs, axes) and _is_monotone(lhs, axes, grows, up=up)
    return False


def _is_size(expr: Expr, axes: Mapping[Var, Dim]) -> bool:
    """Whether ``expr`` is the same everywhere, and not negative."""
    if isinstance(expr, Const):
        return int(expr.value) >= 0
    if any(v in axes for v in variables(expr)):
        return False
    low, _ = unbounded().interval(expr)
    return low is not None and low >= 0
