"""Mean and variance over axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler_service.compiler.tensor_expr.axes import replaced
from compiler_service.compiler.tensor_expr.broadcast import elementwise
from compiler_service.compiler.tensor_expr.operators.reduction import mean_of, reduced
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute
from shared_ir.expr import Expr, lift, maximum
from shared_ir.expr.dim import Dim

_SAMPLES = 8
_LEAST_ROW, _LONGEST_ROW = 32 * _SAMPLES, 256 * _SAMPLES
"""Elements of a row that is read once: of fewer the samples take as long as it saves, of more they say too little."""


@dataclass(frozen=True)
class Moments:
    """``mean`` and ``variance`` of a tensor over axes that stay with extent 1, and the tensor without its mean."""

    mean: Tensor
    variance: Tensor
    centred: Tensor


def moments(x: Tensor, axes: Sequence[int]) -> Moments:
    """Moments of floats over ``axes``.

    The variance is the mean of ``(x - mean)^2``: two sums, one after the other. Short rows are read once, for the sums of
    ``d = x - shift`` and of ``d^2``, with ``mean = shift + mean(d)`` and ``variance = mean(d^2) - mean(d)^2`` (Chan, Golub
    and LeVeque, "Algorithms for computing the sample variance", The American Statistician 37, 1983). Their shift is the mean
    of 8 elements of the row: whatever the n elements are, ``(shift - mean)^2 <= (n / 8 - 1) * variance``, so that the
    difference has at most ``n / 8 <= 256`` times the rounding error of its terms.
    """
    over = tuple(axes)
    if len(over) == 1 and _is_read_once(x.shape[over[0]]):
        return _shifted_moments(x, over)
    mean = mean_of(reduced(ReduceOp.SUM, x, over, "sum"), x, over)
    centred = _difference("centred", x, mean)
    variance = mean_of(_square_sum(centred, over), x, over, "variance")
    return Moments(mean, variance, centred)


def _is_read_once(extent: Dim) -> bool:
    return isinstance(extent, int) and _LEAST_ROW <= extent <= _LONGEST_ROW


def _shifted_moments(x: Tensor, over: tuple[int, ...]) -> Moments:
    shift = _shift(x, over[0])
    shifted = _difference("shifted", x, shift)
    away = mean_of(reduced(ReduceOp.SUM, shifted, over, "sum"), x, over, "away")
    square = mean_of(_square_sum(shifted, over), x, over, "mean_square")
    mean = elementwise("mean", lambda d, s: d + s, away, shift)
    variance = elementwise("variance", lambda q, d: maximum(q - d * d, 0), square, away)
    return Moments(mean, variance, _difference("centred", x, mean))


def _difference(name: str, x: Tensor, middle: Tensor) -> Tensor:
    return elementwise(name, lambda v, m: v - m, x, middle)


def _square_sum(x: Tensor, over: Sequence[int]) -> Tensor:
    return reduced(ReduceOp.SUM, x, over, "sum_square", lambda v: v * v)


def _shift(x: Tensor, axis: int) -> Tensor:
    """The mean of some elements, evenly apart along ``axis``."""
    extent = x.shape[axis]
    assert isinstance(extent, int)

    def body(*index: Expr) -> Expr:
        found = [x[replaced(index, axis, lift(i * extent // _SAMPLES))] for i in range(_SAMPLES)]
        return _tree_sum(found) * (1 / _SAMPLES)

    return compute(replaced(x.shape, axis, 1), body, name="shift")


def _tree_sum(terms: Sequence[Expr]) -> Expr:
    """Pairs of ``terms``, then pairs of the pairs: no sum waits for more than three others where there are 8."""
    half = len(terms) // 2
    return terms[0] if len(terms) == 1 else _tree_sum(terms[:half]) + _tree_sum(terms[half:])
