"""Sums of products as matrix products: what makes the evaluator fit for convolutions."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from compiler_service.compiler.tensor_expr.meaning.scalar_semantics import Array


def contract(a: Array, b: Array, extents: tuple[int, ...], kept: int) -> Array:
    """``sum(a * b)`` over all but the first ``kept`` axes.

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

    product = np.matmul(matrix(a, batch, rows, summed), matrix(b, batch, summed, columns))
    order = [*batch, *rows, *columns]
    rest = [i for i in outer if i not in order]
    product = product.reshape([extents[i] for i in order] + [1] * len(rest))
    product = product.transpose(np.argsort([*order, *rest]))
    return np.asarray(product * np.asarray(repeated, product.dtype))
