"""Constant arguments, made ready at compile time: the other side of the steps of algorithms and of ``pack``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.schedule.language.algorithm import AlgorithmStep, Transform
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.steps import Pack
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.expr import ceil_div
from shared_ir.expr.dim import Dim, as_dim, static


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
        return itemsize if self.transform is None else self.transform.itemsize(itemsize)

    def apply(self, array: np.ndarray, tensor: Tensor) -> np.ndarray:
        """``array`` (any shape with the elements of ``tensor``) as the kernel reads it."""
        if self.transform is None and self.order is None:
            return array
        array = array.reshape(tuple(map(static, tensor.shape)))
        if self.transform is not None:
            array = self.transform.apply(array)
        return array if self.order is None else _packed(array, self.order)


def preparation_of(schedule: Schedule, name: str, tensor: Tensor) -> Preparation:
    """What ``schedule`` does to the argument ``tensor``, called ``name`` in its steps."""
    algorithm = next((s for s in schedule if isinstance(s, AlgorithmStep) and s.weight == name), None)
    pack = next((s for s in schedule if isinstance(s, Pack) and s.tensor == name), None)
    transform = None if algorithm is None else algorithm.transform(tensor)
    return Preparation(transform, None if pack is None else pack.order)


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
