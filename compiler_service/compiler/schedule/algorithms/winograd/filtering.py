"""The matrices of Winograd's minimal filtering, and its rounding errors.

F(m x m, r x r) computes tiles of m x m outputs from tiles of n x n inputs, n = m + r - 1, with n * n products in place of
m * m * r * r (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015)::

    y = AT [(G w GT) * (BT d B)] A

The matrices follow from n - 1 distinct points and infinity (Toom-Cook). The points 0, 1, -1, 1/2, -2 keep the rounding error of
F(4x4, 3x3) about 5 times smaller than 0, +-1, +-2 (Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd
Convolution for Deep Neural Networks", 2020). Along one axis alone, F(m, r) takes n products in place of m * r, and its errors are
about the square root of those of F(m x m, r x r): there 2 and -1/2 may join the points.

A window along one axis that is too long for the points is cut in parts of as many taps as a tile has outputs, F(m, m) each. What
part s reads of tile t is what part 0 reads of tile t + s, so data is transformed once, and products of all parts are summed before
they are transformed back: F(4, 11) has three times 7 products for 4 outputs in place of 44.

With a stride, the elements that a tap reads are one of its residues: each phase of the data, with the taps that read it, is a
convolution of stride 1, and their sum is the result. F(m, 3) of stride 2 has m + 1 products for two taps of the even elements and m
for that of the odd ones, in place of 3 m; its matrices are those of both phases side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import prod
from typing import Any

import numpy as np

from compiler_service.compiler.schedule.algorithms.combination import Matrix

_POINTS = (*map(Fraction, (0, 1, -1)), Fraction(1, 2), Fraction(-2), Fraction(2), Fraction(-1, 2))
"""Points at which polynomials are evaluated, in the order in which they are taken."""
_MOST_POINTS = {1: 7, 2: 5}
"""Largest number of points that are used, by the number of axes that are filtered, where nobody asks for more."""
_SAMPLES = 16
"""Number of tiles, and of output channels, that errors are measured on."""
_UNIT_ROUNDOFF = 2.0**-24
"""Largest relative error of one rounding to float32."""


@dataclass(frozen=True)
class Filtering:
    """F(tile, kernel) of ``stride`` along one axis. The last point adds to the last output alone.

    Attributes:
        output: AT, ``tile`` x ``size``.
        weight: G, ``size`` x ``kernel``; ``size * parts`` x ``kernel``, for each point the rows of all parts.
        data: BT, ``size`` x ``size``.
        parts: of the window, ``tile`` taps each where there are several.
    """

    tile: int
    kernel: int
    stride: int
    output: Matrix
    weight: Matrix
    data: Matrix
    parts: int = 1

    @property
    def size(self) -> int:
        """Products, and elements of the data, for a tile of outputs and a part of the window."""
        return len(self.data)

    @property
    def reach(self) -> int:
        """Taps of the window, those that fill its last part up included."""
        return self.kernel if self.parts == 1 else self.parts * self.tile

    def with_plain_weights(self) -> Filtering:
        """The same with the denominators of G in BT: its rows start with 1, fewer multiplications transform weights."""
        scales = [next(c for c in row if c) for row in self.weight]
        weight = tuple(tuple(c / scale for c in row) for row, scale in zip(self.weight, scales, strict=True))
        data = tuple(tuple(c * scale for c in row) for row, scale in zip(self.data, scales, strict=True))
        return replace(self, weight=weight, data=data)


def is_known(tile: int, kernel: int, stride: int = 1, axes: int = 2, *, asked: bool = False) -> bool:
    """Whether :func:`filtering` along so many ``axes`` has points enough: more would make errors grow.

    What is ``asked`` for may have all points along both axes: F(6x6, 3x3) has 5 times the error of F(4x4, 3x3) over its points, and
    1.7 times that of F(4x4, 3x3) over 0, +-1, +-2.
    """
    most = len(_POINTS) if asked else _MOST_POINTS[axes]
    in_parts = axes == 1 and stride == 1 and kernel > tile >= 2 and 2 * tile - 2 <= most
    return kernel >= stride and (in_parts or tile + -(-kernel // stride) - 2 <= most)


@cache
def filtering(tile: int, kernel: int, stride: int = 1) -> Filtering:
    """The matrices of F(tile, kernel) over the first points of 0, 1, -1, 1/2, -2, 2, -1/2, and infinity."""
    if kernel < stride:
        raise ValueError(f"a stride of {stride} passes over data between windows of {kernel}")
    if stride == 1 and kernel > tile > 1 and tile + kernel - 2 > len(_POINTS):
        return _in_parts(tile, kernel)
    size = (tile - 1) * stride + kernel
    phases = [_dense(tile, len(range(phase, kernel, stride))) for phase in range(stride)]
    output = tuple(tuple(c for p in phases for c in p.output[i]) for i in range(tile))
    weight = tuple(_spread(row, n, stride, kernel) for n, p in enumerate(phases) for row in p.weight)
    data = tuple(_spread(row, n, stride, size) for n, p in enumerate(phases) for row in p.data)
    return Filtering(tile, kernel, stride, output, weight, data)


def _in_parts(tile: int, kernel: int) -> Filtering:
    part = _dense(tile, tile)
    count = -(-kernel // tile)
    places = range(0, count * tile, tile)
    weight = tuple(_spread(row, at, 1, count * tile)[:kernel] for row in part.weight for at in places)
    return Filtering(tile, kernel, 1, part.output, weight, part.data, count)


def _spread(row: Sequence[Fraction], first: int, step: int, extent: int) -> tuple[Fraction, ...]:
    """``row`` at every ``step``-th of ``extent`` places from ``first``, zeros between."""
    found = [Fraction(0)] * extent
    found[first : first + step * len(row) : step] = row
    return tuple(found)


def _dense(tile: int, kernel: int) -> Filtering:
    """F(tile, kernel) of stride 1."""
    if kernel == 1:
        unit = tuple(tuple(Fraction(i == j) for j in range(tile)) for i in range(tile))
        return Filtering(tile, 1, 1, unit, ((Fraction(1),),) * tile, unit)
    size = tile + kernel - 1
    points = _POINTS[: size - 1]
    if len(points) != size - 1 or tile < 2:
        raise ValueError(f"F({tile}, {kernel}) needs {size - 1} points, {len(_POINTS)} are known")
    output = tuple((*(p**i for p in points), Fraction(i == tile - 1)) for i in range(tile))
    scales = [prod((p - q for q in points if q != p), start=Fraction(1)) for p in points]
    weight = tuple(tuple(p**k / scale for k in range(kernel)) for p, scale in zip(points, scales, strict=True))
    last = tuple(Fraction(k == kernel - 1) for k in range(kernel))
    data = tuple((*_polynomial([q for q in points if q != p]), Fraction(0)) for p in points)
    return Filtering(tile, kernel, 1, output, (*weight, last), (*data, _polynomial(points)))


def _polynomial(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Coefficients of ``prod(x - root)``, lowest power first."""
    found = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *found]
        found = [s - root * c for s, c in zip(shifted, [*found, Fraction(0)], strict=True)]
    return tuple(found)


PLAIN = filtering(1, 1)
"""The filtering of an axis along which nothing is filtered: each element is a tile of its own."""


# -- rounding errors


def _of_one_part(tile: int, kernel: int, stride: int, channels: int) -> tuple[Filtering, int]:
    """Filtering by one part of the window, and over how many channels: those of other parts are as good as further ones."""
    f = filtering(tile, kernel, stride)
    return (f, channels) if f.parts == 1 else (filtering(tile, tile), channels * f.parts)


def error_bound(
    tile: int, kernel: int, channels: int, stride: int = 1, axes: int = 2, *, transforms_weights: bool = False
) -> float:
    """Largest error of an output in float32, relative to ``max|data| * sum|weight|`` over the ``channels * kernel**axes`` weights
    of an output channel. It holds for all data and weights, and is seldom approached.

    Each element passes ``steps`` roundings on its way (Higham, "Accuracy and Stability of Numerical Algorithms", 3.1), more where
    the kernel itself transforms the weights; the transforms enlarge its terms by the product of the absolute matrices.
    """
    f, channels = _of_one_part(tile, kernel, stride, channels)
    output, weight, data = (np.abs(np.array(m, np.float64)) for m in (f.output, f.weight, f.data))
    growth = np.einsum("ip,pa,p->ia", output, weight, data.sum(axis=1)).max() ** axes
    steps = axes * (f.size + f.size) + channels + (axes * f.kernel if transforms_weights else 2)
    return float(growth * steps * _UNIT_ROUNDOFF / (1 - steps * _UNIT_ROUNDOFF))


def measured_error(
    tile: int, kernel: int, channels: int, stride: int = 1, axes: int = 2, *, transforms_weights: bool = False
) -> float:
    """Error of a few tiles of normally distributed data and weights in float32, relative to the largest output."""
    f, channels = _of_one_part(tile, kernel, stride, channels)
    f = f.with_plain_weights() if transforms_weights else f
    other = f if axes > 1 else PLAIN
    random = np.random.default_rng(0)
    data = random.standard_normal((_SAMPLES, channels, f.size, other.size)).astype(np.float32)
    weight = random.standard_normal((_SAMPLES, channels, f.kernel, other.kernel)).astype(np.float32)

    def both(left: Matrix, array: np.ndarray, right: Matrix, dtype: type[np.floating[Any]]) -> np.ndarray:
        return _product(_product(np.array(left, dtype), array.astype(dtype)), np.array(right, dtype).T)

    def filtered(dtype: type[np.floating[Any]]) -> np.ndarray:
        own = both(f.weight, weight, other.weight, dtype if transforms_weights else np.float64).astype(dtype)
        moved = both(f.data, data, other.data, dtype)
        product = _product(moved.transpose(2, 3, 0, 1), own.transpose(2, 3, 1, 0))  # [p, q, tile, channel]
        return both(f.output, product.transpose(2, 3, 0, 1), other.output, dtype)

    wanted = filtered(np.float64)
    return float(np.abs(filtered(np.float32) - wanted).max() / np.abs(wanted).max())


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a @ b``, summed in the same order on every machine."""
    return np.asarray(np.einsum("...mk,...kn->...mn", a, b))
