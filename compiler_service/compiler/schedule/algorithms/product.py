"""The product of rows with a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler_service.compiler.schedule.algorithms.matching import factors
from compiler_service.compiler.schedule.language.state import KernelStage
from compiler_service.compiler.tensor_expr.tensor import (
    Compute,
    Load,
    ReduceOp,
    Tensor,
)
from shared_ir.expr import Expr, substitute, variables


@dataclass(frozen=True)
class Product:
    """``tensor[.., n] = sum over k of data[.., k] * weight``, the weight a matrix.

    Attributes:
        weight_columns: which index of the weight is ``n``; the other one is ``k``.
        columns, depth: extents of ``n`` and ``k``.
    """

    tensor: Tensor
    data: Load
    weight: Load
    weight_columns: int
    columns: int
    depth: int

    def element(self, at: Sequence[Expr], k: Expr) -> Load:
        """``data[.., k]`` where the axes of ``tensor`` but the last are ``at``."""
        assert isinstance(self.tensor.op, Compute)
        places = dict(zip([a.var for a in self.tensor.op.axes[:-1]], at, strict=True))
        return self.data.tensor[(*(substitute(i, places) for i in self.data.indices[:-1]), k)]


def match_product(tensor: Tensor, data: Load, weight: Load) -> Product | None:
    """``tensor``, the sum of products of the two loads, as a product with a matrix of known size, or None."""
    op = tensor.op
    if not isinstance(op, Compute) or op.reduction is None or op.reduction.op is not ReduceOp.SUM or not op.axes:
        return None
    n, k = op.axes[-1], op.reduction.axes[0]
    if len(op.reduction.axes) != 1 or not isinstance(n.extent, int) or not isinstance(k.extent, int):
        return None
    if set(weight.indices) != {n.var, k.var} or not data.indices or data.indices[-1] != k.var:
        return None
    if any(variables(i) & {n.var, k.var} for i in data.indices[:-1]):
        return None
    return Product(tensor, data, weight, weight.indices.index(n.var), n.extent, k.extent)


def product_of(stage: KernelStage) -> Product | None:
    """``stage`` as the product of rows with a matrix, or None."""
    return next((p for pair in factors(stage) if (p := match_product(stage.tensor, *pair)) is not None), None)


def product_by(stage: KernelStage, weight: Tensor, columns: int) -> Product | None:
    """``stage`` as the product by ``weight``, whose axis ``columns`` counts the columns."""
    product = product_of(stage)
    fits = product is not None and product.weight.tensor is weight and product.weight_columns == columns
    return product if fits else None
