"""TfIdfVectorizer through compiled code, compared with ONNX Runtime: onnx.reference takes weights by column."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from shared_ir.errors import ErrorCode, IngotError
from tests.cases import every
from tests.conformance.compiled import check_against_onnx_runtime, one_node, run_compiled

X = np.array([[1, 2, 1, 2, 2, 3], [3, 3, 2, 1, 9, 1]])
SINGLE: dict[str, Any] = {"pool_int64s": [1, 2, 3], "ngram_counts": [0]}
PAIRS: dict[str, Any] = {"pool_int64s": [1, 2, 3, 1, 2, 2, 1], "ngram_counts": [0, 3]}
MODES = ("TF", "IDF", "TFIDF")


def vectorizer(mode: str, pool: dict[str, Any], columns: list[int], weights: list[float]) -> onnx.ModelProto:
    least, most = (1, len(pool["ngram_counts"])) if len(columns) % 2 else (2, 2)
    lengths = {"min_gram_length": least, "max_gram_length": most, "max_skip_count": most - 1}
    given: dict[str, Any] = {**pool, **lengths, "ngram_indexes": columns, **({"weights": weights} if weights else {})}
    return one_node("TfIdfVectorizer", {"x": X}, mode=mode, **given)


CASES = [
    (SINGLE, [2, 0, 1], [0.5, 1.0, 2.0]),
    (SINGLE, [0, 1, 3], [0.5, 1.0, 2.0]),
    (SINGLE, [1, 1, 0], [0.5, 1.0, 2.0]),
    (SINGLE, [1, 1, 0], [0.5, 0.5, 2.0]),
    (SINGLE, [2, 0, 1], []),
    (PAIRS, [4, 2, 0, 1, 3], [0.5, 1.0, 2.0, 4.0, 8.0]),
    (PAIRS, [0, 2, 1, 2, 1], [0.5, 1.0, 2.0, 4.0, 8.0]),
    (PAIRS, [0, 0, 0, 0, 0], [0.5, 1.0, 2.0, 4.0, 8.0]),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("pool", "columns", "weights"), every(CASES, quick=CASES[::3]))
def test_weights_belong_to_the_grams_of_the_pool(
    pool: dict[str, Any], columns: list[int], weights: list[float], mode: str
) -> None:
    check_against_onnx_runtime(vectorizer(mode, pool, columns, weights), {"x": X})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_any_pool(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = list({(int(a), int(b)) for a, b in rng.integers(1, 4, (3, 2))})
    pool = [1, 2, 3, *(n for pair in pairs for n in pair)]
    count = 3 + len(pairs)
    columns, weights = rng.integers(0, count, count).tolist(), (rng.integers(-8, 9, count) / 4).tolist()
    least = int(rng.integers(1, 3))
    model = one_node(
        "TfIdfVectorizer",
        {"x": X},
        mode=MODES[seed % 3],
        pool_int64s=pool,
        ngram_counts=[0, 3],
        ngram_indexes=columns,
        weights=weights,
        min_gram_length=least,
        max_gram_length=int(rng.integers(least, 3)),
        max_skip_count=int(rng.integers(0, 3)),
    )
    check_against_onnx_runtime(model, {"x": rng.integers(1, 5, (2, 6))})


@pytest.mark.parametrize("mode", ["IDF", "TFIDF"])
def test_strings_have_weights_of_their_own(mode: str) -> None:
    given: dict[str, Any] = {
        "pool_strings": ["a", "b", "a", "b"],
        "ngram_counts": [0, 2],
        "ngram_indexes": [1, 1, 0],
        "weights": [0.5, 2.0, 3.0],
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": 0,
    }
    x = np.array([["a", "b", "b"]], object)
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], mode=mode, **given)
    text = helper.make_tensor_value_info("x", onnx.TensorProto.STRING, ["n", 3])
    graph = helper.make_graph([node], "g", [text], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    check_against_onnx_runtime(model, {"x": x})


@pytest.mark.parametrize("weights", [[1.0, 2.0], [1.0, 2.0, 3.0, 4.0]])
def test_weights_that_are_not_as_many_as_the_grams(weights: list[float]) -> None:
    with pytest.raises(IngotError) as caught:
        run_compiled(vectorizer("TF", SINGLE, [0, 1, 3], weights), {"x": X})
    assert caught.value.code is ErrorCode.UNSUPPORTED_ATTRIBUTE
    assert caught.value.field == "weights"
