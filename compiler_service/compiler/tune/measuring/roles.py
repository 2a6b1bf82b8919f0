"""What a definition does with its arguments, as far as trials depend on it."""

from __future__ import annotations

from collections.abc import Iterable

from compiler_service.compiler.tensor_expr.tensor import Compute, Placeholder, ReduceOp, Tensor, loads, topological
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Expr, Unary, UnaryOp, walk

_UNROUNDED = frozenset(
    {
        *(UnaryOp.NEG, UnaryOp.ABS, UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND, UnaryOp.TRUNC),
        *(BinaryOp.MIN, BinaryOp.MAX, BinaryOp.MAX_NUMBER),
    }
)
"""Operators of floats whose results are the same however they are computed."""
_ROUNDED_REDUCTIONS = frozenset({ReduceOp.SUM, ReduceOp.PROD})


def positions(results: Iterable[Tensor]) -> frozenset[Tensor]:
    """Arguments of which elements are read, or positions computed: they must be inside of what they are used in."""
    tensors = {t for result in results for t in topological(result)}
    bodies = [t.op.body for t in tensors if isinstance(t.op, Compute)]
    inside = {
        inner.tensor
        for body in bodies
        for load in loads(body)
        for index in load.indices
        for inner in loads(index)
    }  # fmt: skip
    return frozenset(t for one in inside for t in topological(one) if isinstance(t.op, Placeholder))


def is_exact(result: Tensor) -> bool:
    """Whether it is of integers, or of truth values, and no float is rounded on the way to it: then it is the same in whatever order it is
    computed."""
    whole = result.dtype.is_integer or result.dtype is DType.BOOL
    return whole and not any(_rounds(t) for t in topological(result))


def _rounds(tensor: Tensor) -> bool:
    if not isinstance(tensor.op, Compute):
        return False
    reduction = tensor.op.reduction
    if (
        reduction is not None
        and _is_float(tensor.dtype)
        and reduction.op in _ROUNDED_REDUCTIONS
        and not reduction.exact
    ):
        return True
    return any(map(_is_rounded, walk(tensor.op.body)))


def _is_rounded(node: Expr) -> bool:
    return isinstance(node, Unary | Binary) and _is_float(node.dtype) and node.op not in _UNROUNDED


def _is_float(dtype: DType) -> bool:
    return not dtype.is_integer and dtype not in (DType.BOOL, DType.STRING)
