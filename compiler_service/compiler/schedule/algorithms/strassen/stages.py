"""Products of matrices by Strassen's algorithm: seven products of halves in place of eight.

``Y = X W`` with the rows of ``X`` and the columns of ``W`` cut in two as neighbours: rows by pairs, columns by pairs of ``block`` of
them, and the steps of the sums into a first and a second half::

    P[p]  = (sum over i, j of X_MATRIX[p][i, j] * X[i, j]) (sum over i, j of W_MATRIX[p][i, j] * W[i, j]),   p < 7
    Y[i, j] = sum over p of Y_MATRIX[i, j][p] * P[p]

(Strassen, "Gaussian elimination is not optimal", Numerische Mathematik 13, 1969.) The sums of the weights are formed at compile time,
those of the data and of the products cost as much as a few steps of the products. Winograd's form has three additions less and
larger errors (Higham, "Accuracy and Stability of Numerical Algorithms", 23.2.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from compiler_service.compiler.schedule.algorithms.combination import Matrix, combination
from compiler_service.compiler.schedule.algorithms.product import Product
from compiler_service.compiler.schedule.language.algorithm import Transform
from compiler_service.compiler.tensor_expr.tensor import Compute, ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.expr import Expr, ceil_div, lift, minimum
from shared_ir.expr.dim import Dim, as_dim

PRODUCTS = 7
"""Number of products in place of eight."""


def _matrix(*rows: tuple[int, ...]) -> Matrix:
    return tuple(tuple(map(Fraction, row)) for row in rows)


X_MATRIX = _matrix((1, 0, 0, 1), (0, 0, 1, 1), (1, 0, 0, 0), (0, 0, 0, 1), (1, 1, 0, 0), (-1, 0, 1, 0), (0, 1, 0, -1))
"""For each product, the signs of the quarters (0, 0), (0, 1), (1, 0), (1, 1) of the data that are its first factor."""
W_MATRIX = _matrix((1, 0, 0, 1), (1, 0, 0, 0), (0, 1, 0, -1), (-1, 0, 1, 0), (0, 0, 0, 1), (1, 1, 0, 0), (0, 0, 1, 1))
"""For each product, the signs of the quarters of the weights that are its second factor."""
Y_MATRIX = _matrix((1, 0, 0, 1, -1, 0, 1), (0, 0, 1, 0, 1, 0, 0), (0, 1, 0, 1, 0, 0, 0), (1, -1, 1, 0, 0, 1, 0))
"""For each quarter of the result, the signs of the products that it is the sum of."""

_UNIT_ROUNDOFF = 2.0**-24
"""Largest relative error of one rounding to float32."""
_SAMPLES = 16
"""Number of rows, and of columns, that errors are measured on."""


@dataclass(frozen=True)
class StrassenStages:
    """The tensors that stand for a product, producers first; ``t`` counts pairs of rows.

    Attributes:
        weight: the argument, sums of quarters of the weights ``[p, n, k]`` of half the columns and steps.
        sums: those of the data ``[outer.., p, t, k]``; the last row stands for the one behind it where their number is odd.
        accumulated: ``[outer.., p, t, n]``, sums over half of the steps.
        product: the same, in memory.
        output: what the product computes.
    """

    weight: Tensor
    sums: Tensor
    accumulated: Tensor
    product: Tensor
    output: Tensor


def strassen_stages(product: Product, block: int) -> StrassenStages:
    """``product``, of an even number of steps and of blocks of columns, by one step of the recursion."""
    op, name = product.tensor.op, product.tensor.name
    assert isinstance(op, Compute)
    *outer, rows, _ = op.axes
    shape, names = tuple(a.extent for a in outer), tuple(f"outer{i}" for i in range(len(outer)))
    pairs, depth, half = as_dim(ceil_div(lift(rows.extent), 2)), product.depth // 2, product.columns // 2
    weight = placeholder(f"{product.weight.tensor.name}.sums", (PRODUCTS, half, depth), product.weight.dtype)

    def sums_body(*i: Expr) -> Expr:
        *at, p, t, k = i
        last = lift(rows.extent) - 1
        places = (t * 2, minimum(t * 2 + 1, last) if rows.extent != as_dim(lift(pairs) * 2) else t * 2 + 1)
        quarters = [product.element((*at, row), k + j * depth) for row in places for j in range(2)]
        return combination(X_MATRIX, p, quarters)

    sums = compute((*shape, PRODUCTS, pairs, depth), sums_body, name=f"{name}.sums", axes=(*names, "p", "t", "k"))
    accumulated = reduce(
        ReduceOp.SUM,
        (*shape, PRODUCTS, pairs, half),
        (depth,),
        lambda *i: sums[(*i[:-2], i[-1])] * weight[(i[-4], i[-2], i[-1])],
        name=f"{name}.accumulated",
        axes=(*names, "p", "t", "n"),
        reduced=("k",),
    )
    made = compute(
        (*shape, PRODUCTS, pairs, half),
        lambda *i: accumulated[i],
        name=f"{name}.product",
        axes=(*names, "p", "t", "n"),
    )

    def output_body(*i: Expr) -> Expr:
        *at, m, n = i
        terms = [made[(*at, p, m // 2, n // (2 * block) * block + n % block)] for p in range(PRODUCTS)]
        return combination(Y_MATRIX, m % 2 * 2 + n // block % 2, terms)

    output = compute(product.tensor.shape, output_body, name=name, axes=[a.name for a in op.axes])
    return StrassenStages(weight, sums, accumulated, made, output)


@dataclass(frozen=True)
class QuarterSums(Transform):
    """A matrix of weights, whose axis ``columns`` is ``n`` and whose other one is ``k``, as sums of its quarters ``[p, n, k]``;
    ``block`` columns are neighbours in them."""

    columns: int
    block: int

    def shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        columns, depth = shape[self.columns], shape[1 - self.columns]
        assert isinstance(columns, int)
        assert isinstance(depth, int)
        return (PRODUCTS, columns // 2, depth // 2)

    def apply(self, array: np.ndarray) -> np.ndarray:
        """Each sum is rounded once, to the dtype of ``array``."""
        by_column = array if self.columns == 0 else array.T
        columns, depth = (extent // 2 for extent in by_column.shape)
        pairs = by_column.reshape(-1, 2, self.block, 2 * depth)
        quarters = [pairs[:, j, :, i : i + depth] for i in (0, depth) for j in (0, 1)]
        result = np.empty((PRODUCTS, *quarters[0].shape), array.dtype)
        for row, found in zip(W_MATRIX, result, strict=True):
            first, *others = [(int(c), q) for c, q in zip(row, quarters, strict=True) if c]
            np.multiply(first[1], first[0], out=found)
            for c, quarter in others:
                np.add(found, quarter, out=found) if c > 0 else np.subtract(found, quarter, out=found)
        return result.reshape(PRODUCTS, columns, depth)


# -- rounding errors


def error_bound(depth: int) -> float:
    """Largest error of an output in float32 over ``depth`` steps, relative to ``max|data| * sum|weight|`` over the pair of
    columns of the weights of which a result is one.

    Each element passes ``steps`` roundings on its way (Higham, 3.1): one for each of the sums of quarters, ``depth / 2`` in the
    product, three in the sum of the products. Terms are enlarged by the product of the absolute matrices.
    """
    data, weight, result = (np.abs(np.array(m, np.float64)) for m in (X_MATRIX, W_MATRIX, Y_MATRIX))
    growth = np.einsum("op,p,pw->ow", result, data.sum(axis=1), weight).max()
    steps = 2 + depth // 2 + 3
    return float(growth * steps * _UNIT_ROUNDOFF / (1 - steps * _UNIT_ROUNDOFF))


def measured_error(depth: int) -> float:
    """Error of a few rows and columns of normally distributed data and weights in float32, relative to the largest output."""
    random = np.random.default_rng(0)
    data = random.standard_normal((_SAMPLES, depth)).astype(np.float32)
    weight = random.standard_normal((_SAMPLES, depth)).astype(np.float32)

    def by_quarters(dtype: type[np.floating[Any]]) -> np.ndarray:
        rows, half = data.astype(dtype).reshape(_SAMPLES // 2, 2, 2, depth // 2), weight.astype(dtype)
        sums = np.einsum("px,txk->ptk", np.array(X_MATRIX, dtype), rows.reshape(_SAMPLES // 2, 4, depth // 2))
        own = QuarterSums(0, _SAMPLES // 2).apply(half)
        products = np.einsum("ptk,pnk->ptn", sums, own)
        return np.asarray(np.einsum("op,ptn->otn", np.array(Y_MATRIX, dtype), products))

    wanted = by_quarters(np.float64)
    return float(np.abs(by_quarters(np.float32) - wanted).max() / np.abs(wanted).max())
