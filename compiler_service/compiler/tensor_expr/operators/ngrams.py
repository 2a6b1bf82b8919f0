"""Counting n-grams of integers or strings."""

from __future__ import annotations

from collections.abc import Sequence

from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, equal, lift, logical_and, logical_or, maximum, minimum, select
from shared_ir.expr.dim import Dim, static


def ngram_counts(
    x: Tensor, ngrams: Tensor, sizes: Tensor, weights: Tensor | None = None, *, max_skip_count: int
) -> Tensor:
    """float32: how often the n-grams of each column occur in each row of ``x``.

    The elements of an occurrence stand 1 to ``max_skip_count + 1`` apart; a single element counts once.

    Args:
        ngrams: int64 ``[columns, n-grams, longest]``, or strings where ``x`` holds strings.
        sizes: int64 ``[columns, n-grams]``: elements of each, 0 where there is none.
        weights: float32 ``[columns, n-grams]``: what an occurrence counts, in place of 1.
    """

    def counted(*index: Expr) -> Expr:
        *_, column, gram, _, _ = index
        one = lift(1.0, DType.FLOAT32) if weights is None else weights[column, gram]
        return select(_occurs(x, ngrams, sizes, index), one, lift(0.0, DType.FLOAT32))

    return reduce(ReduceOp.SUM, *_walk(x, ngrams, max_skip_count), counted, name="ngram_counts")


def last_ngrams(x: Tensor, ngrams: Tensor, sizes: Tensor, *, max_skip_count: int) -> Tensor:
    """int64: which n-gram of each column occurs last in each row of ``x``, plus multiples of how many a column has; -1 for none.

    They are looked for with small distances first, then by where they start, short ones first, as ONNX Runtime does.
    """
    count, longest = lift(ngrams.shape[1]), lift(ngrams.shape[2])

    def found(*index: Expr) -> Expr:
        *_, column, gram, skip, start = index
        size = sizes[column, gram]
        turn = skip * lift(x.shape[-1]) + start
        return select(_occurs(x, ngrams, sizes, index), (turn * (longest + 1) + size) * count + gram, lift(-1))

    return reduce(ReduceOp.MAX, *_walk(x, ngrams, max_skip_count), found, name="last_ngrams")


def ngram_weights(last: Tensor, weights: Tensor) -> Tensor:
    """float32: the weights of the n-grams that :func:`last_ngrams` found, 0 where there is none."""
    count = lift(weights.shape[1])

    def weight(*index: Expr) -> Expr:
        found = last[index]
        return select(found < 0, lift(0.0, DType.FLOAT32), weights[index[-1], maximum(found, lift(0)) % count])

    return compute(last.shape, weight, name="ngram_weights")


def _walk(x: Tensor, ngrams: Tensor, max_skip_count: int) -> tuple[Sequence[Dim], Sequence[Dim]]:
    """Extents of the result, and of what is reduced: n-grams of a column, distances, starts."""
    if not isinstance(ngrams.shape[2], int) or x.rank not in (1, 2):
        raise mismatch("TfIdfVectorizer takes one or two axes", "1 or 2", str(x.rank))
    return (*x.shape[:-1], ngrams.shape[0]), [ngrams.shape[1], max_skip_count + 1, x.shape[-1]]


def _occurs(x: Tensor, ngrams: Tensor, sizes: Tensor, index: Sequence[Expr]) -> Expr:
    """Whether an n-gram stands in a row of ``x`` from a start on, at a distance."""
    *row, column, gram, skip, start = index
    length, longest = x.shape[-1], static(ngrams.shape[2])
    size, distance = sizes[(column, gram)], skip + 1
    last = start + (size - 1) * distance
    found = logical_and(size > 0, last < lift(length))
    found = logical_and(found, logical_or(size > 1, equal(skip, 0)))
    for i in range(longest):
        at = minimum(start + distance * i, lift(length) - 1)
        element = x[(*row, at)]
        same = equal(element if x.dtype is DType.STRING else cast(element, DType.INT64), ngrams[column, gram, lift(i)])
        found = logical_and(found, logical_or(size <= i, same))
    return found


OPERATORS = (
    Operator("ingot.NgramCounts", ngram_counts),
    Operator("ingot.LastNgrams", last_ngrams),
    Operator("ingot.NgramWeights", ngram_weights),
)
