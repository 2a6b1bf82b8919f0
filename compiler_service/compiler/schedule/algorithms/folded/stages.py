"""Products of few columns, several steps of the sum side by side in the lanes of a vector.

Where ``n`` columns fill no whole number of vectors, the lanes that are left take other steps of the same sums::

    folded[.., n * f + j] = sum over k of data[.., k * f + j] * laid[k, n * f + j],   j < f
    y[.., n]              = sum over j of folded[.., n * f + j]

A vector of data repeats ``f`` neighbouring elements, which one broadcast brings. Only the second sum, which is outside of the first,
moves values between lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.schedule.algorithms.product import Product
from compiler_service.compiler.schedule.language.algorithm import Transform
from compiler_service.compiler.tensor_expr.tensor import Compute, ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.expr import Expr
from shared_ir.expr.dim import Dim


@dataclass(frozen=True)
class FoldedStages:
    """``weight`` is ``[k, n * f + j]``, a function of the constant weights (see :class:`Laid`)."""

    weight: Tensor
    folded: Tensor
    output: Tensor


def folded_stages(product: Product, parts: int) -> FoldedStages:
    """The tensors that stand for ``product`` with ``parts`` steps side by side, producers first."""
    op, name = product.tensor.op, product.tensor.name
    assert isinstance(op, Compute)
    assert op.reduction is not None
    *outer, columns = op.axes
    (depth,) = op.reduction.axes
    shape = (product.depth // parts, product.columns * parts)
    weight = placeholder(f"{product.weight.tensor.name}.laid", shape, product.weight.dtype)

    def body(*index: Expr) -> Expr:
        *at, q, k = index
        return product.element(at, k * parts + q % parts) * weight[(k, q)]

    folded = reduce(
        ReduceOp.SUM,
        [*(a.extent for a in outer), shape[1]],
        [shape[0]],
        body,
        name=f"{name}.folded",
        axes=[*(a.name for a in outer), "q"],
        reduced=[depth.name],
    )

    def sum_of_parts(*index: Expr) -> Expr:
        *at, n = index
        total: Expr = folded[(*at, n * parts)]
        for j in range(1, parts):
            total = total + folded[(*at, n * parts + j)]
        return total

    output = compute(product.tensor.shape, sum_of_parts, name=name, axes=[*(a.name for a in outer), columns.name])
    return FoldedStages(weight, folded, output)


@dataclass(frozen=True)
class Laid(Transform):
    """A matrix of weights, whose axis ``columns`` is ``n`` and whose other one is ``k``, as ``[k // f, n * f + k % f]`` for ``f`` =
    ``parts``."""

    parts: int
    columns: int

    def shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        columns, depth = shape[self.columns], shape[1 - self.columns]
        assert isinstance(columns, int)
        assert isinstance(depth, int)
        return (depth // self.parts, columns * self.parts)

    def apply(self, array: np.ndarray) -> np.ndarray:
        by_column = array if self.columns == 0 else array.T
        columns, depth = by_column.shape
        steps = by_column.reshape(columns, depth // self.parts, self.parts)
        return np.ascontiguousarray(steps.transpose(1, 0, 2).reshape(depth // self.parts, columns * self.parts))
