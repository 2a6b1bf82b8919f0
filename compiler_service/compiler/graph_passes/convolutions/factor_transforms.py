"""Long Fourier transforms as several short ones: the sums of a product with the whole matrix grow with the square of the length."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import at_least
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, Site, rewrite, rule
from compiler_service.compiler.tensor_expr.meaning.scalar_semantics import UNARY
from shared_ir.dtype import DType
from shared_ir.expr import UnaryOp
from shared_ir.expr.dim import product
from shared_ir.graph.ir import Graph, Node, Value

_LONGEST_FACTOR = 256
"""Of a step; transforms of longer primes stay one product."""
_PRODUCTS_PER_STEP = 48
"""What another step costs, in products for each element: it writes and reads everything."""
_LANES_OF_VECTOR = 16
"""Columns are taken to be computed so many at a time."""


@dataclass(frozen=True)
class FactorTransforms(Pass):
    """A discrete Fourier transform of ``N = F * M`` elements is one of ``F``, a rotation, and one of ``M`` (Cooley and Tukey, An
    Algorithm for the Machine Calculation of Complex Fourier Series, 1965)::

        n = M a + b, k = c + F d:
        y[c + F d] = sum over b of w(M)^(b d) * ( w(N)^(b c) * sum over a of x[M a + b] * w(F)^(a c) ),   w(n) = exp(-2 pi i / n)

    Each is a product with a small matrix of numbers, for which there is a fast template; the one of ``M`` is factored again while
    that pays.

    Attributes:
        shortest: transform to factor.
    """

    name: ClassVar[str] = "factor-transforms"
    level: ClassVar[int] = 2
    needs: ClassVar[Facts] = frozenset({GraphFact.SHAPES_FOLDED})
    forbids: ClassVar[Facts] = frozenset({GraphFact.GROUPED})

    shortest: int = field(default=48, metadata=at_least(2))

    def run(self, graph: Graph) -> Graph:
        return rewrite(graph, (rule("ingot.Fourier", _turned), rule("ingot.Fourier", self._factored)))

    def _factored(self, node: Node, site: Site) -> Replacement:
        """Along the last axis but that of the parts"""
        transform = _transform(node, site)
        if transform is None or transform.size < self.shortest or transform.axis != node.operands[0].type.rank - 2:
            return None
        factors = best_factors(transform.size)
        return None if len(factors) < 2 else _Steps(site, transform, factors).build(node.operands[0], node.name)


def _turned(node: Node, site: Site) -> Replacement:
    """Fourier(x) along another axis -> Transpose(Fourier(Transpose(x))), so that the results are columns of a product"""
    transform, x = _transform(node, site), node.operands[0]
    last = x.type.rank - 2
    if transform is None or transform.axis == last:
        return None
    order = [*(a for a in range(last + 1) if a != transform.axis), transform.axis, last + 1]
    made = site.producer(node.operands[1], "ingot.FourierMatrix")
    assert made is not None
    moved, axis = site.transpose(x, order), site.integers(last, name="axis")
    matrix = site.write(made.op, (moved, axis, *made.inputs[2:]), made.attributes)
    result = site.write(node.op, (moved, matrix, axis), node.attributes, title=node.name)
    return site.transpose(result, np.argsort(order).tolist())


@dataclass(frozen=True)
class _Transform:
    """What an ``ingot.Fourier`` computes along ``axis``.

    Attributes:
        size: elements of the full transform.
        taken: of the axis; missing ones are zero.
        bins: of the result.
        real_result: only the real part of an inverse whose input is the first half of a conjugate symmetric spectrum.
    """

    axis: int
    size: int
    taken: int
    bins: int
    inverse: bool
    real_result: bool
    dtype: DType


def _transform(node: Node, site: Site) -> _Transform | None:
    x, matrix, _ = node.operands
    made = site.producer(matrix, "ingot.FourierMatrix")
    axis = None if made is None else site.array(made.operands[1])
    sizes = [d for d in matrix.shape if isinstance(d, int)]
    if made is None or axis is None or len(sizes) < 4 or x.dtype not in (DType.FLOAT32, DType.FLOAT64):
        return None
    along = int(axis.reshape(())) % x.type.rank
    inverse, onesided = bool(int_attribute(made, "inverse")), bool(int_attribute(made, "onesided"))
    length = made.operands[2] if len(made.operands) > 2 else None
    known, own = site.array(length), x.shape[along]
    if (length is not None and known is None) or not isinstance(own, int):
        return None
    size = int(known.reshape(())) if known is not None else 2 * (own - 1) if inverse and onesided else own
    return _Transform(along, size, sizes[0], sizes[2], inverse, inverse and onesided, x.dtype)


def best_factors(size: int) -> tuple[int, ...]:
    """The lengths of the steps that make up a transform of ``size``; itself where no others are cheaper."""
    return _cheapest(size, 1)[1] or (size,)


@functools.cache
def _cheapest(left: int, done: int) -> tuple[float, tuple[int, ...]]:
    """Products for each element, and the steps, of what is ``left`` of a transform; infinite where a prime is too long."""
    if left == 1:
        return 0.0, ()
    found: list[tuple[float, tuple[int, ...]]] = [(math.inf, ())]
    for factor in range(2, min(_LONGEST_FACTOR, left) + 1):
        if left % factor == 0:
            columns = (
                done if done > 1 else 2 * factor
            )  # both parts of the first results, then the results of all before
            waste = -(-columns // _LANES_OF_VECTOR) * _LANES_OF_VECTOR / columns
            cost, rest = _cheapest(left // factor, done * factor)
            found.append((2 * factor * waste + _PRODUCTS_PER_STEP + cost, (factor, *rest)))
    return min(found)


class _Steps:
    """Builds the steps. Values between them are ``[z, b, part, c, done]``: ``b`` is yet to be transformed, ``c`` are the results of
    the last step and ``done`` those of all before, which are the columns of the next."""

    def __init__(self, site: Site, transform: _Transform, factors: tuple[int, ...]) -> None:
        self._site, self._transform, self._factors = site, transform, factors

    def build(self, x: Value, name: str) -> Value:
        transform, site, outer = self._transform, self._site, x.shape[:-2]
        value = self._first(self._filled(site.reshape(x, (product(outer), *x.shape[-2:]))), name)
        for number in range(1, len(self._factors)):
            value = self._next(self._rotated(value), number)
        batch, _, parts, *_ = value.shape
        done = math.prod(d for d in value.shape[3:] if isinstance(d, int))
        bins = site.slice(site.reshape(value, (batch, parts, done)), 2, 0, transform.bins)
        return site.reshape(site.transpose(bins, (0, 2, 1)), (*outer, transform.bins, parts))

    def _filled(self, x: Value) -> Value:
        """``[z, size, part]``: elements beyond are left out, missing ones zero; of a half spectrum, all but its own mirror images
        stand for two."""
        transform, site = self._transform, self._site
        x = site.slice(x, 1, 0, transform.taken)
        if transform.real_result:
            n = np.arange(transform.taken)
            counts = np.where((n == 0) | (2 * n == transform.size), 1, 2).astype(transform.dtype.numpy)
            x = site.node("Mul", x, site.constant(counts.reshape(-1, 1), "counts"))
        missing = transform.size - transform.taken
        return site.node("Pad", x, site.integers(0, 0, 0, 0, missing, 0, name="pads")) if missing else x

    def _first(self, x: Value, name: str) -> Value:
        factor, (batch, _, parts) = self._factors[0], x.shape
        left = self._transform.size // factor
        matrix = self._constant(_products(self._turns(factor, factor, factor)).transpose(2, 3, 0, 1)[:, :parts])
        rows = self._site.reshape(x, (batch, factor, left, parts))
        value = self._site.node("Einsum", rows, matrix, equation="zabp,apqc->zbqc", title=name)
        return self._site.reshape(value, (batch, left, 2, factor, 1))

    def _rotated(self, value: Value) -> Value:
        """Each element times ``w(N)^(b c)``."""
        site, (_, left, _, factor, _) = self._site, value.shape
        assert isinstance(left, int)
        assert isinstance(factor, int)
        turns = self._turns(left, factor, left * factor)
        cosine, sine = turns.real[:, None, :, None], np.stack([-turns.imag, turns.imag], axis=1)[..., None]
        swapped = site.node("Concat", site.slice(value, 2, 1, 2), site.slice(value, 2, 0, 1), axis=2)
        straight = site.node("Mul", value, self._constant(cosine))
        return site.node("Add", straight, site.node("Mul", swapped, self._constant(sine)))

    def _next(self, value: Value, number: int) -> Value:
        site, (batch, left, _, *done), factor = self._site, value.shape, self._factors[number]
        columns = math.prod(d for d in done if isinstance(d, int))
        assert isinstance(left, int)
        transform, rest = self._transform, left // factor
        matrix = _products(self._turns(factor, factor, factor))
        if rest == 1:
            scale = transform.size if transform.inverse else 1
            kept = -(-transform.bins // columns)
            matrix = matrix[: 1 if transform.real_result else 2, :kept] / scale
        weights = site.reshape(value, (batch, factor, rest, 2, columns))
        operands = (self._constant(matrix), weights)
        return site.node("Einsum", *operands, equation="efaq,zabqc->zbefc")

    def _turns(self, rows: int, columns: int, whole: int) -> np.ndarray:
        """complex128 ``[rows, columns]``: so many of ``whole`` parts of a turn as row times column; reduced in integers."""
        parts = np.multiply.outer(np.arange(rows), np.arange(columns)) % whole
        angles = (2 if self._transform.inverse else -2) * np.pi * parts / whole
        return np.asarray(UNARY[UnaryOp.COS](angles) + 1j * UNARY[UnaryOp.SIN](angles))

    def _constant(self, numbers: np.ndarray) -> Value:
        return self._site.constant(np.ascontiguousarray(numbers, self._transform.dtype.numpy), "turns")


def _products(turns: np.ndarray) -> np.ndarray:
    """The matrix ``[part of y, c, a, part of x]`` of ``y[c] = sum over a of x[a] * turns[a, c]``."""
    real, imaginary = turns.real.T, turns.imag.T
    return np.stack([np.stack([real, -imaginary], axis=-1), np.stack([imaginary, real], axis=-1)])
