"""Constant arguments, made ready at compile time: the other side of the steps ``winograd`` and ``pack``."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from compiler_service.compiler.schedule.algorithms.byte_dots.stages import WORD, Words
from compiler_service.compiler.schedule.algorithms.diagonals.stages import Turned
from compiler_service.compiler.schedule.algorithms.folded.stages import Laid
from compiler_service.compiler.schedule.algorithms.strassen.stages import QuarterSums
from compiler_service.compiler.schedule.algorithms.winograd.filtering import filtering
from compiler_service.compiler.schedule.language.steps import (
    Diagonals,
    DotBytes,
    Fold,
    Pack,
    Schedule,
    Strassen,
    Winograd,
    WithWeights,
)
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.expr import ceil_div, lift
from shared_ir.expr.dim import Dim, as_dim


@dataclass(frozen=True)
class LinearTransform:
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
            result = np.moveaxis(np.tensordot(matrix, result, axes=(1, axis)), 0, axis)
        return np.ascontiguousarray(result.astype(array.dtype)).reshape(
            *self._points(), result.shape[len(self.axes)], -1
        )


Transform: TypeAlias = LinearTransform | Turned | Words | Laid | QuarterSums


@dataclass(frozen=True)
class Preparation:
    """What is done to a constant argument: transformed first, then laid out by ``order`` (see :class:`Pack`)."""

    transform: Transform | None = None
    order: tuple[tuple[int, int, int], ...] | None = None

    def shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Shape of the argument as the kernel reads it."""
        if self.transform is not None:
            shape = self.transform.shape(shape)
        return shape if self.order is None else _packed_shape(shape, self.order)

    def itemsize(self, itemsize: int) -> int:
        """Bytes of an element as the kernel reads it, of elements of ``itemsize`` bytes."""
        return itemsize * WORD if isinstance(self.transform, Words) else itemsize

    def apply(self, array: np.ndarray, tensor: Tensor) -> np.ndarray:
        """``array`` (any shape with the elements of ``tensor``) as the kernel reads it."""
        if self.transform is None and self.order is None:
            return array
        array = array.reshape(tuple(int(str(d)) for d in tensor.shape))
        if self.transform is not None:
            array = self.transform.apply(array)
        return array if self.order is None else _packed(array, self.order)


def preparation_of(schedule: Schedule, name: str, tensor: Tensor) -> Preparation:
    """What ``schedule`` does to the argument ``tensor``, called ``name`` in its steps."""
    algorithm = next((s for s in schedule if isinstance(s, WithWeights) and s.weight == name), None)
    pack = next((s for s in schedule if isinstance(s, Pack) and s.tensor == name), None)
    return Preparation(
        None if algorithm is None else weight_transform(algorithm, tensor), None if pack is None else pack.order
    )


def weight_transform(step: WithWeights, weight: Tensor) -> Transform | None:
    """The transform of the weights ``[oc, c, kh, kw]``, or of a matrix, by ``step``; None where the kernel does it."""
    if isinstance(step, Winograd) and step.chunk:
        return None
    if isinstance(step, DotBytes):
        return Words(step.axis)
    if isinstance(step, Fold):
        return Laid(step.parts, step.columns)
    if isinstance(step, Strassen):
        return QuarterSums(step.columns, step.block)
    if isinstance(step, Diagonals):
        group = weight.shape[1]
        assert isinstance(group, int)
        return Turned(group)
    *kept, kh, kw = step.axes
    window = tuple(axis for axis in (kh, kw) if axis >= 0)
    kernel = weight.shape[window[0]]
    assert isinstance(kernel, int)
    f = filtering(step.tile, kernel, step.stride)
    return LinearTransform(window, tuple(kept), tuple(tuple(float(x) for x in row) for row in f.weight), f.parts)


def packed_shape(tensor: Tensor, pack: Pack) -> tuple[Dim, ...]:
    """Shape of the packed form of ``tensor``."""
    return _packed_shape(tensor.shape, pack.order)


def _packed_shape(shape: tuple[Dim, ...], order: tuple[tuple[int, int, int], ...]) -> tuple[Dim, ...]:
    return tuple(m or as_dim(ceil_div(shape[a], d)) for a, d, m in order)


def _packed(array: np.ndarray, order: tuple[tuple[int, int, int], ...]) -> np.ndarray:
    """``array`` in ``order``, padded with zeros.

    ``packed[p0, p1, ...] = array[index]`` where each entry ``(axis, divisor, modulus)`` of ``order`` takes one digit of
    ``index[axis]``: the digits of an axis, largest divisor first, make up all of it.
    """
    digits = {axis: sorted((e for e in order if e[0] == axis), key=lambda e: -e[1]) for axis in range(array.ndim)}
    padding = [(0, -extent % digits[axis][0][1]) for axis, extent in enumerate(array.shape)]
    if any(after for _, after in padding):
        array = np.pad(array, padding)
    split = [m or extent // d for axis, extent in enumerate(array.shape) for _, d, m in digits[axis]]
    places = [entry for axis in range(array.ndim) for entry in digits[axis]]
    return np.ascontiguousarray(array.reshape(split).transpose([places.index(entry) for entry in order]))
