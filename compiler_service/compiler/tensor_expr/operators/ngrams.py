"""Counting n-grams of integers or strings."""

from __future__ import annotations

from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, equal, lift, logical_and, logical_or, minimum, select


def ngram_counts(x: Tensor, ngrams: Tensor, sizes: Tensor, *, max_skip_count: int) -> Tensor:
    """float32: how often the n-grams of each column occur in each row of ``x``.

    The elements of an occurrence stand 1 to ``max_skip_count + 1`` apart; a single element counts once.

    Args:
        ngrams: int64 ``[columns, n-grams, longest]``, or strings where ``x`` holds strings.
        sizes: int64 ``[columns, n-grams]``: elements of each, 0 where there is none.
    """
    longest = ngrams.shape[2]
    if not isinstance(longest, int) or x.rank not in (1, 2):
        raise mismatch("TfIdfVectorizer takes one or two axes", "1 or 2", str(x.rank))
    length = x.shape[-1]

    def body(*index: Expr) -> Expr:
        *row, column, gram, skip, start = index
        size, distance = sizes[(column, gram)], skip + 1
        last = start + (size - 1) * distance
        found = logical_and(size > 0, last < lift(length))
        found = logical_and(found, logical_or(size > 1, equal(skip, 0)))
        for i in range(longest):
            at = minimum(start + distance * i, lift(length) - 1)
            element = x[(*row, at)]
            same = equal(
                element if x.dtype is DType.STRING else cast(element, DType.INT64), ngrams[column, gram, lift(i)]
            )
            found = logical_and(found, logical_or(size <= i, same))
        return select(found, lift(1.0, DType.FLOAT32), lift(0.0, DType.FLOAT32))

    over = [ngrams.shape[1], max_skip_count + 1, length]
    return reduce(ReduceOp.SUM, (*x.shape[:-1], ngrams.shape[0]), over, body, name="ngram_counts")


OPERATORS = (Operator("ingot.NgramCounts", ngram_counts),)
