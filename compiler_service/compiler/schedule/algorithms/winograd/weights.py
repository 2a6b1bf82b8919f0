"""What minimal filtering does to weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from compiler_service.compiler.schedule.language.algorithm import Transform
from compiler_service.compiler.tensor_expr.meaning.contraction import product_in_order
from shared_ir.expr import lift
from shared_ir.expr.dim import Dim, as_dim


@dataclass(frozen=True)
class LinearTransform(Transform):
    """``matrix`` applied along each of ``axes``, which come first in the result; the others follow in the order ``kept``, those
    after the first of them as one axis.

    With G of shape [n, r]: ``U[p, q, oc, c] = sum over a, b of G[p, a] * G[q, b] * w[oc, c, a, b]`` for axes (2, 3). Rows of
    several ``parts`` of one axis become an axis of their own: ``U[p, s, oc, c]``.
    """

    axes: tuple[int, ...]
    kept: tuple[int, ...]
    matrix: tuple[tuple[float, ...], ...]
    parts: int = 1

    def shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        first, *merged = (lift(shape[a]) for a in self.kept)
        return (*self._points(), as_dim(first), as_dim(prod(merged, start=lift(1))))

    def _points(self) -> tuple[int, ...]:
        rows = len(self.matrix)
        return (rows,) * len(self.axes) if self.parts == 1 else (rows // self.parts, self.parts)

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The transformed array, computed in float64 and rounded once to the dtype of ``array``."""
        matrix = np.array(self.matrix, np.float64)
        result = array.astype(np.float64).transpose(*self.axes, *self.kept)
        for axis in range(len(self.axes)):
            by_axis = np.moveaxis(result, axis, 0)
            done = product_in_order(matrix, by_axis.reshape(len(by_axis), -1))
            result = np.moveaxis(done.reshape(-1, *by_axis.shape[1:]), 0, axis)
        return np.ascontiguousarray(result.astype(array.dtype)).reshape(
            *self._points(), result.shape[len(self.axes)], -1
        )
