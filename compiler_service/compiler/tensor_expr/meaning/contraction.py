"""Sums of products as matrix products: what makes the evaluator fit for convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from compiler_service.compiler.tensor_expr.meaning.rounding import Array

_BLOCK_DEPTH, _BLOCK_COLUMNS = 256, 512
"""Of the right factor; so many float64 stay in a second cache."""


def product_in_order(a: Array, b: Array) -> Array:
    """``a @ b`` of matrices or stacks of them, summed in float64 and in an order that their shapes alone decide.

    ``numpy.matmul`` takes the kernel of its BLAS for the processor at hand, and each sums in an order of its own; the loops of
    ``einsum`` are compiled once for all processors of an architecture.
    """
    dtype = np.result_type(a, b)
    a, b = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
    (*_, depth), columns = a.shape, b.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    result = np.zeros((*batch, a.shape[-2], columns))
    with np.errstate(all="ignore"):
        for left in range(0, columns, _BLOCK_COLUMNS):
            for top in range(0, depth, _BLOCK_DEPTH):
                block = np.ascontiguousarray(b[..., top : top + _BLOCK_DEPTH, left : left + _BLOCK_COLUMNS])
                part = np.einsum("...mk,...kn->...mn", a[..., top : top + _BLOCK_DEPTH], block)
                result[..., left : left + _BLOCK_COLUMNS] += part
        return result.astype(dtype, copy=False)


def contract(
    a: Array, b: Array, extents: tuple[int, ...], kept: int, product: Callable[[Array, Array], Array] = np.matmul
) -> Array:
    """``sum(a * b)`` over all but the first ``kept`` axes, by ``product`` of matrices.

    Both factors have ``len(extents)`` axes, of the full extent or of extent 1 where the factor does not vary (a scalar
    never does). The result has ``kept`` axes, of extent 1 where neither factor varies.
    """
    a, b = (x.reshape((1,) * (len(extents) - x.ndim) + x.shape) for x in (a, b))
    full = [n != 1 for n in extents]
    of_a = [v and a.shape[i] != 1 for i, v in enumerate(full)]
    of_b = [v and b.shape[i] != 1 for i, v in enumerate(full)]
    outer, inner = range(kept), range(kept, len(extents))
    repeated = math.prod(extents[i] for i in inner if not of_a[i] and not of_b[i])
    a = a.sum(axis=tuple(i for i in inner if not of_b[i]), keepdims=True, dtype=a.dtype)
    b = b.sum(axis=tuple(i for i in inner if not of_a[i]), keepdims=True, dtype=b.dtype)
    batch = [i for i in outer if of_a[i] and of_b[i]]
    rows = [i for i in outer if of_a[i] and not of_b[i]]
    columns = [i for i in outer if of_b[i] and not of_a[i]]
    summed = [i for i in inner if of_a[i] and of_b[i]]

    def size(axes: Iterable[int]) -> int:
        return math.prod(extents[i] for i in axes)

    def matrix(x: Array, *groups: list[int]) -> Array:
        order = [i for group in groups for i in group]
        rest = [i for i in range(len(extents)) if i not in order]
        return x.transpose(*order, *rest).reshape([size(group) for group in groups])

    found = product(matrix(a, batch, rows, summed), matrix(b, batch, summed, columns))
    order = [*batch, *rows, *columns]
    rest = [i for i in outer if i not in order]
    found = found.reshape([extents[i] for i in order] + [1] * len(rest))
    found = found.transpose(np.argsort([*order, *rest]))
    return np.asarray(found * np.asarray(repeated, found.dtype))
