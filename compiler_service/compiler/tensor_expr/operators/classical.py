"""What operators of ai.onnx.ml are made of: tables, kernels of support vector machines, forests, transforms of scores."""

from __future__ import annotations

import math

from compiler_service.compiler.tensor_expr.broadcast import elementwise, widen
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.operators.reduction import reduced
from compiler_service.compiler.tensor_expr.refusal import unsupported_attribute
from compiler_service.compiler.tensor_expr.scalar import absolute, clamped, exp, is_nan, log, sqrt
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, identity_of, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, equal, lift, logical_and, logical_or, select

_AGGREGATES = {"SUM": ReduceOp.SUM, "AVERAGE": ReduceOp.SUM, "MIN": ReduceOp.MIN, "MAX": ReduceOp.MAX}


def lookup(x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """``values[i]`` where ``x`` equals ``keys[i]``, of several the last; the last of ``values`` where it equals none."""

    def hit(*index: Expr) -> Expr:
        *own, i = index
        element, key = x[tuple(own)], cast(keys[i], x.dtype)
        same = equal(element, key)
        if x.dtype.is_float:
            same = logical_or(same, logical_and(is_nan(element), is_nan(key)))
        return select(same, i, -1)

    number = reduce(ReduceOp.MAX, x.shape, [keys.shape[0]], hit, name="key")

    def body(*index: Expr) -> Expr:
        i = number[index]
        return values[select(i < 0, lift(values.shape[0]) - 1, i)]

    return compute(x.shape, body, name="lookup")


def gaussian_kernel(x: Tensor, supports: Tensor, *, gamma: float) -> Tensor:
    """``exp(-gamma * |x[n] - supports[s]|^2)`` as ``[n, s]``."""

    def term(n: Expr, s: Expr, k: Expr) -> Expr:
        difference = widen(x[n, k]) - widen(supports[s, k])
        return difference * difference

    distance = reduce(ReduceOp.SUM, (x.shape[0], supports.shape[0]), [x.shape[1]], term, name="distance")
    return elementwise("gaussian", lambda d: exp(d * -gamma), distance)


def softmax_zero(x: Tensor) -> Tensor:
    """Softmax over the rows, in which scores of 0 count as 0; rows of zeros become 0.5."""
    largest = reduced(ReduceOp.MAX, x, (1,), "max")
    powers = elementwise("powers", lambda v, m: select(absolute(v) > 1e-7, exp(v - m), v * exp(-m)), x, largest)
    total = reduced(ReduceOp.SUM, powers, (1,), "sum")
    return elementwise("softmax_zero", lambda p, s: select(equal(s, 0), 0.5, p / s), powers, total)


def probit(x: Tensor) -> Tensor:
    """The inverse of the normal distribution function, by Winitzki's approximation of the inverse error function."""

    def body(v: Expr) -> Expr:
        centred = v * 2 - 1
        logarithm = log((1 - centred) * (1 + centred))
        first = logarithm * 0.5 + 2 / (math.pi * 0.147)
        root = sqrt(sqrt(first * first - logarithm / 0.147) - first) * 1.41421356
        return select(centred < 0, -root, root)

    return elementwise("probit", body, x)


def tree_scores(leaves: Tensor, weights: Tensor, *, aggregate: str = "SUM") -> Tensor:
    """``[n, targets]``: over all trees, the weights ``[nodes, targets]`` of the leaves; 0 for a target that none of them has one for."""
    if aggregate not in _AGGREGATES:
        raise unsupported_attribute("aggregate_function", ", ".join(_AGGREGATES), aggregate)
    op = _AGGREGATES[aggregate]

    def term(n: Expr, target: Expr, tree: Expr) -> Expr:
        return weights[clamped(cast(leaves[n, tree], DType.INT64), weights.shape[0]), target]

    total = reduce(op, (leaves.shape[0], weights.shape[1]), [leaves.shape[1]], term, name="tree_scores")
    if aggregate in ("MIN", "MAX"):
        neutral = neutral_weight(aggregate)
        return elementwise("known", lambda v: select(equal(v, neutral), lift(0, v.dtype), v), total)
    if aggregate == "SUM":
        return total
    count = lift(leaves.shape[1])
    return elementwise("average", lambda v: v / cast(count, v.dtype), total)


def neutral_weight(aggregate: str) -> float:
    """What a leaf without weight for a target contributes."""
    return float(identity_of(_AGGREGATES.get(aggregate, ReduceOp.SUM), DType.FLOAT32))


OPERATORS = (
    Operator("ingot.Lookup", lookup),
    Operator("ingot.GaussianKernel", gaussian_kernel),
    Operator("ingot.SoftmaxZero", softmax_zero),
    Operator("ingot.Probit", probit),
    Operator("ingot.TreeScores", tree_scores),
)
