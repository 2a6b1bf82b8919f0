"""Activations, products and normalisations of com.microsoft against ONNX Runtime."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.compiler_service.compiler.microsoft.foreign import RNG, Array, check, floats, model_of
from tests.conformance.compiled import run_compiled

pytestmark = pytest.mark.slow

X, SKIP, BIAS = floats(2, 5, 16), floats(2, 5, 16), floats(16)
GAMMA, BETA = floats(16), floats(16)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Gelu", [X], {}),
        ("FastGelu", [X], {}),
        ("FastGelu", [X, BIAS], {}),
        ("BiasGelu", [X, BIAS], {}),
        ("QuickGelu", [X], {"alpha": 1.5}),
        ("QuickGelu", [X], {}),
        ("FusedMatMul", [floats(3, 4, 5), floats(3, 5, 6)], {"alpha": 0.5}),
        ("FusedMatMul", [floats(3, 5, 4), floats(3, 6, 5)], {"transA": 1, "transB": 1}),
        ("FusedMatMul", [floats(4, 3, 5), floats(3, 5, 6)], {"transBatchA": 1}),
        (
            "FusedMatMul",
            [floats(5, 3, 4), floats(6, 3, 5)],
            {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1},
        ),
        ("TransposeMatMul", [floats(3, 5, 4), floats(3, 5, 6)], {"transA": 1, "alpha": 2.0}),
        ("FusedGemm", [floats(4, 5), floats(6, 5), floats(6)], {"transB": 1, "activation": "Relu", "alpha": 0.5}),
        ("FusedGemm", [floats(4, 5), floats(5, 6)], {"activation": "LeakyRelu", "activation_alpha": 0.2}),
        ("FusedConv", [floats(1, 3, 8, 8), floats(4, 3, 3, 3)], {"activation": "Relu", "pads": [1, 1, 1, 1]}),
        (
            "FusedConv",
            [floats(1, 3, 8, 8), floats(4, 3, 3, 3), floats(4)],
            {"activation": "Clip", "activation_params": [0.0, 1.0]},
        ),
        (
            "FusedConv",
            [floats(1, 4, 8, 8), floats(4, 1, 3, 3), floats(4)],
            {"activation": "HardSigmoid", "activation_params": [0.3, 0.4], "group": 4},
        ),
        ("FusedConv", [floats(1, 3, 8, 8), floats(4, 3, 3, 3), floats(4), floats(1, 4, 6, 6)], {"activation": "Relu"}),
        ("SkipLayerNormalization", [X, SKIP, GAMMA], {}),
        ("SkipLayerNormalization", [X, SKIP, GAMMA, BETA, BIAS], {"epsilon": 1e-5}),
        ("SkipSimplifiedLayerNormalization", [X, SKIP, GAMMA], {"epsilon": 1e-5}),
        ("SkipSimplifiedLayerNormalization", [X, SKIP, GAMMA, BIAS], {"epsilon": 1e-5}),
    ],
)
def test_matches_onnx_runtime(op: str, inputs: list[Array], attributes: dict[str, Any]) -> None:
    check(op, inputs, **attributes)


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_sum_before_normalisation_is_an_output(op: str) -> None:
    check(op, [X, SKIP, GAMMA], outputs=(True, False, False, True), epsilon=1e-6)


@pytest.mark.parametrize(
    ("op", "outputs"),
    [
        ("SkipLayerNormalization", (True, True, True, True)),
        ("SkipSimplifiedLayerNormalization", (True, False, True, True)),
    ],
)
def test_statistics_of_the_rows(op: str, outputs: tuple[bool, ...]) -> None:
    check(op, [X, SKIP, GAMMA], outputs=outputs, epsilon=1e-3)
    if op == "SkipSimplifiedLayerNormalization":
        check("SimplifiedLayerNormalization", [X, GAMMA], outputs=2, domain="", standard=13, epsilon=1e-3)


@pytest.mark.parametrize("axis", [-1, 2])
def test_simplified_layer_normalization_in_the_standard_domain(axis: int) -> None:
    check("SimplifiedLayerNormalization", [X, GAMMA], domain="", standard=13, axis=axis, epsilon=1e-5)


def test_layer_normalization_in_an_opset_before_it() -> None:
    check("LayerNormalization", [X, GAMMA, BETA], domain="", standard=13, axis=-1)


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("mask", [True, False])
def test_embed_layer_normalization(segments: bool, mask: bool) -> None:
    ids = RNG.integers(0, 30, (2, 7)).astype(np.int32)
    kept = np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32) if mask else None
    kinds = RNG.integers(0, 2, (2, 7)).astype(np.int32) if segments else None
    tables = [floats(30, 16), floats(12, 16), floats(2, 16) if segments else None]
    check(
        "EmbedLayerNormalization",
        [ids, kinds, *tables, GAMMA, BETA, *([kept] if mask else [])],
        outputs=2,
        constants=[2, 3, *([4] if segments else []), 5, 6],
        epsilon=1e-6,
    )


def test_bias_split_gelu_is_its_definition() -> None:
    model, feeds = model_of("BiasSplitGelu", [X, BIAS])
    left, right = np.split((X + BIAS).astype(np.float64), 2, axis=-1)
    gate = np.array([0.5 * r * (1 + math.erf(r / math.sqrt(2))) for r in right.reshape(-1)]).reshape(right.shape)
    np.testing.assert_allclose(run_compiled(model, feeds)[0], left * gate, rtol=1e-4, atol=1e-5)
