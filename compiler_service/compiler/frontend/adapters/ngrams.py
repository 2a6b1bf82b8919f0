"""TfIdfVectorizer: n-grams of a pool, counted and weighed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.frontend.adapters.chain import Chain
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.tensor_expr.refusal import too_large

Nodes = tuple[SourceNode, ...]
_Gram = tuple[int | str, ...]
_MOST_ELEMENTS = 1 << 27
"""Of the table of n-grams: columns, times the n-grams of one, times the elements of the longest."""


def tf_idf(node: SourceNode, operands: Operands) -> Nodes:
    """Counts of the n-grams of each output column, then weights, which belong to n-grams."""
    chain = Chain(node, operands)
    pool = _Pool.of(chain)
    skips, mode = chain.attribute("max_skip_count"), chain.attribute("mode")
    x, inputs = node.inputs[0], [operands.constant(label, array) for label, array in pool.table().items()]
    weights = pool.of_columns()
    if mode == "TF":
        result = chain.add("ingot.NgramCounts", x, *inputs, max_skip_count=skips)
    elif weights is not None:
        counts = chain.add("ingot.NgramCounts", x, *inputs, max_skip_count=skips)
        factor = chain.add("Sign", counts) if mode == "IDF" else counts
        result = chain.add("Mul", factor, chain.constant("weights", weights))
    else:
        result = _weighed(chain, (x, *inputs), operands.constant("weights", pool.table_of(pool.weights, np.float32)))
    chain.as_output(result)
    return tuple(chain.nodes)


def _weighed(chain: Chain, inputs: Sequence[str], weights: str) -> str:
    """Columns of n-grams with several weights: by IDF the column has that of the n-gram that is found last, as in ONNX Runtime."""
    skips = chain.attribute("max_skip_count")
    if chain.attribute("mode") == "IDF":
        return chain.add("ingot.NgramWeights", chain.add("ingot.LastNgrams", *inputs, max_skip_count=skips), weights)
    return chain.add("ingot.NgramCounts", *inputs, weights, max_skip_count=skips)


@dataclass(frozen=True)
class _Pool:
    """The n-grams of a node, short ones first, with the column and the weight of each.

    Attributes:
        width: columns of the result.
        longest: elements of the longest n-gram that counts.
        dtype: int64, or object for strings.
    """

    grams: Sequence[_Gram]
    columns: Sequence[int]
    weights: Sequence[float]
    width: int
    longest: int
    dtype: type

    @staticmethod
    def of(chain: Chain) -> _Pool:
        """Those whose length is asked for."""
        grams, columns = _ngrams(chain), chain.attribute("ngram_indexes")
        if not columns or len(columns) != len(grams) or min(columns) < 0:
            expected = f"a column for each of {len(grams)} n-grams"
            raise chain.operands.unsupported("ngram_indexes", expected, str(columns))
        weights = chain.attribute("weights") or [1.0] * len(grams)
        if len(weights) != len(grams):
            expected = f"a weight for each of {len(grams)} n-grams"
            raise chain.operands.unsupported("weights", expected, f"{len(weights)} weights")
        least, most = chain.attribute("min_gram_length"), chain.attribute("max_gram_length")
        chosen = [i for i, gram in enumerate(grams) if least <= len(gram) <= most]
        pool = _Pool(
            [grams[i] for i in chosen],
            [columns[i] for i in chosen],
            [weights[i] for i in chosen],
            max(columns) + 1,
            max(1, most),
            object if chain.attribute("pool_strings") else np.int64,
        )
        pool._check()
        return pool

    def _check(self) -> None:
        """
        Raises:
            IngotError: LIMIT_EXCEEDED, a table of more elements than a compilation has memory for.
        """
        deepest = max((k + 1 for _, k in self._places()), default=1)
        elements = self.width * deepest * self.longest
        if elements > _MOST_ELEMENTS:
            raise too_large("a table of n-grams is too large", f"at most {_MOST_ELEMENTS} elements", str(elements))

    def table(self) -> dict[str, np.ndarray]:
        """``[columns, n-grams of a column, longest]``, and the lengths of the n-grams, 0 where there is none."""
        sizes = self.table_of([len(gram) for gram in self.grams], np.int64)
        table = np.full((*sizes.shape, self.longest), "" if self.dtype is object else 0, self.dtype)
        for place, gram in zip(self._places(), self.grams, strict=True):
            table[(*place, slice(len(gram)))] = gram
        return {"ngrams": table, "sizes": sizes}

    def table_of(self, values: Sequence[float], dtype: type) -> np.ndarray:
        """One number of each n-gram, ``[columns, n-grams of a column]``."""
        places = self._places()
        table: np.ndarray = np.zeros((self.width, max((k + 1 for _, k in places), default=1)), dtype)
        for place, value in zip(places, values, strict=True):
            table[place] = value
        return table

    def of_columns(self) -> np.ndarray | None:
        """The weight of each column; None where n-grams of one column have several."""
        weights = np.ones(self.width, np.float32)
        weights[list(self.columns)] = self.weights
        return weights if np.array_equal(weights[list(self.columns)], np.array(self.weights, np.float32)) else None

    def _places(self) -> list[tuple[int, int]]:
        """The column of each n-gram and its number within it."""
        before = dict.fromkeys(self.columns, -1)
        places = []
        for column in self.columns:
            before[column] += 1
            places.append((column, before[column]))
        return places


def _ngrams(chain: Chain) -> list[_Gram]:
    """All n-grams of the pool, the short ones first."""
    pool = chain.attribute("pool_strings") or chain.attribute("pool_int64s") or ()
    starts = chain.attribute("ngram_counts")
    ends = (*starts[1:], len(pool))
    is_whole = all(0 <= a <= b and (b - a) % n == 0 for n, (a, b) in enumerate(zip(starts, ends, strict=False), 1))
    if not starts or not is_whole:
        expected = f"where the n-grams of each length start in a pool of {len(pool)}, in order"
        raise chain.operands.unsupported("ngram_counts", expected, str(starts))
    grams: list[_Gram] = []
    for size, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        grams += [tuple(pool[i : i + size]) for i in range(start, end, size)]
    return grams
