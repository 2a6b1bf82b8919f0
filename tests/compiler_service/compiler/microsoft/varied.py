"""One call of every operator of com.microsoft that has attributes, and another value for each attribute that is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
RNG = np.random.default_rng(11)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def codes(*shape: int, dtype: type = np.uint8) -> Array:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def number(value: float, dtype: type = np.float32) -> Array:
    return np.array(value, dtype)


@dataclass(frozen=True)
class Variation:
    """Another value of an attribute, with the inputs that it needs."""

    value: Any
    inputs: Mapping[int, Array | None] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    same: str = ""
    """Why the result is that of the call; empty where it must be another."""


@dataclass(frozen=True)
class Call:
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any]
    variations: Mapping[str, Variation]
    constants: Sequence[int] = ()
    outputs: int = 1
    steps: int = 0
    atol: float = 1e-4
    own_kernel: bool = True
    """Whether ONNX Runtime's processor provider has the operator."""


_WIDE_MASK = np.array([[1, 1, 1, 1, 0], [1, 0, 1, 1, 1]], np.int32)
_HEADS = {
    "num_heads": Variation(4),
    "scale": Variation(0.9),
    "mask_filter_value": Variation(-1.0),
    "unidirectional": Variation(1),
}
_IMAGE = {
    "group": Variation(2, {1: floats(4, 2, 3, 3)}),
    "pads": Variation([1, 0, 1, 1]),
    "strides": Variation([2, 1]),
    "dilations": Variation([1, 2]),
    "auto_pad": Variation("SAME_UPPER"),
    "kernel_shape": Variation([3, 3], same="it repeats the shape of the weights"),
}
_ACTIVATED = {
    "activation": Variation("Relu"),
    "activation_params": Variation([0.3], attributes={"activation": "LeakyRelu"}),
}
_TURNED = {
    "alpha": Variation(0.5),
    "transA": Variation(1, {0: floats(6, 3)}),
    "transB": Variation(1, {1: floats(5, 6)}),
}
_POOLED = [codes(2, 3, 6, 7), number(0.02), number(120, np.uint8), number(0.02), number(110, np.uint8)]
_STEP_AND_ZERO: list[Array] = [np.full(1, 0.01, np.float32), np.zeros(1, np.int8)]
_LSTM = {
    "direction": Variation("reverse"),
    "input_forget": Variation(1),
    "clip": Variation(0.2),
    "activations": Variation(["Sigmoid", "Relu", "Tanh"]),
    "activation_alpha": Variation([0.4], attributes={"activations": ["HardSigmoid", "Tanh", "Tanh"]}),
    "activation_beta": Variation(
        [0.1], attributes={"activations": ["HardSigmoid", "Tanh", "Tanh"], "activation_alpha": [0.3]}
    ),
    "hidden_size": Variation(8, same="it repeats the extent of R"),
}
_CONVOLUTION = [
    codes(2, 4, 6, 7),
    number(0.02),
    number(120, np.uint8),
    codes(4, 4, 3, 3),
    number(0.01),
    number(9, np.uint8),
]
_GROUPED = [floats(1, 4, 64), floats(1, 4, 32), floats(1, 4, 32), floats(1, 2, 0, 16), floats(1, 2, 0, 16)]
_GROUPED += [np.array([3], np.int32), np.array(4, np.int32), floats(16, 8), floats(16, 8)]

CALLS: Mapping[str, Call] = {
    "Attention": Call(
        [floats(2, 5, 16), floats(16, 48), floats(48), _WIDE_MASK],
        {"num_heads": 2},
        {**_HEADS, "qkv_hidden_sizes": Variation([16, 16, 12], {1: floats(16, 44), 2: floats(44)})},
        constants=[1, 2],
    ),
    "QAttention": Call(
        [codes(2, 5, 16), codes(16, 48, dtype=np.int8), floats(48), number(0.02), number(0.01), _WIDE_MASK,
         number(120, np.uint8), number(0, np.int8)],
        {"num_heads": 2},
        _HEADS,
        constants=[1, 2, 3, 4, 6, 7],
        atol=1e-3,
    ),
    "MultiHeadAttention": Call(
        [floats(2, 5, 16), floats(2, 5, 16), floats(2, 5, 16), None, _WIDE_MASK], {"num_heads": 2}, _HEADS
    ),
    "GroupQueryAttention": Call(
        _GROUPED,
        {"num_heads": 4, "kv_num_heads": 2},
        {
            "num_heads": Variation(2, {0: floats(1, 4, 32)}),
            "kv_num_heads": Variation(4, {i: floats(1, 4, 64) for i in (1, 2)} | {i: floats(1, 4, 0, 16) for i in (3, 4)}),
            "causal": Variation(0),
            "scale": Variation(0.7),
            "softcap": Variation(1.5),
            "smooth_softmax": Variation(1),
            "local_window_size": Variation(2),
            "do_rotary": Variation(1),
            "rotary_interleaved": Variation(1, attributes={"do_rotary": 1}),
        },
        outputs=3,
    ),
    "RotaryEmbedding": Call(
        [floats(2, 5, 32), np.array([3], np.int64), floats(9, 8), floats(9, 8)],
        {"num_heads": 2, "rotary_embedding_dim": 16},
        {
            "interleaved": Variation(1),
            "num_heads": Variation(1),
            "rotary_embedding_dim": Variation(8, {2: floats(9, 4), 3: floats(9, 4)}),
        },
        constants=[2, 3],
    ),
    "EmbedLayerNormalization": Call(
        [RNG.integers(0, 5, (2, 3)).astype(np.int32), None, floats(5, 8), floats(4, 8), None, floats(8), floats(8)],
        {},
        {"epsilon": Variation(0.4)},
        constants=[2, 3, 5, 6],
        outputs=2,
    ),
    "SimplifiedLayerNormalization": Call(
        [floats(2, 5, 8), floats(8)],
        {},
        {"epsilon": Variation(0.4), "axis": Variation(1, {1: floats(5, 8)})},
        own_kernel=False,
    ),
    "SkipLayerNormalization": Call([floats(2, 5, 8), floats(2, 5, 8), floats(8)], {}, {"epsilon": Variation(0.4)}),
    "SkipSimplifiedLayerNormalization": Call(
        [floats(2, 5, 8), floats(2, 5, 8), floats(8)], {}, {"epsilon": Variation(0.4)}
    ),
    "FusedConv": Call([floats(2, 4, 6, 7), floats(4, 4, 3, 3)], {}, {**_IMAGE, **_ACTIVATED}),
    "NhwcConv": Call([floats(2, 6, 7, 4), floats(4, 4, 3, 3)], {}, _IMAGE, own_kernel=False),
    "NhwcFusedConv": Call([floats(2, 6, 7, 4), floats(4, 4, 3, 3)], {}, {**_IMAGE, **_ACTIVATED}, own_kernel=False),
    "FusedGemm": Call(
        [floats(3, 6), floats(6, 5), floats(5)],
        {"activation": "Tanh"},
        {
            **_TURNED,
            "beta": Variation(2.0),
            "activation": Variation("Relu"),
            "activation_alpha": Variation(0.3, attributes={"activation": "LeakyRelu"}),
            "activation_beta": Variation(0.1, attributes={"activation": "HardSigmoid", "activation_alpha": 0.2}),
            "activation_gamma": Variation(1.5, same="no activation has a third parameter"),
        },
    ),
    "FusedMatMul": Call(
        [floats(3, 3, 6), floats(3, 6, 5)],
        {},
        {
            "alpha": Variation(0.5),
            "transA": Variation(1, {0: floats(3, 6, 3)}),
            "transB": Variation(1, {1: floats(3, 5, 6)}),
            "transBatchA": Variation(1),
            "transBatchB": Variation(1, {1: floats(6, 3, 5)}),
        },
    ),
    "TransposeMatMul": Call([floats(3, 6), floats(6, 5)], {}, _TURNED),
    "QuickGelu": Call([floats(3, 4)], {}, {"alpha": Variation(0.5)}),
    "QuantizeLinear": Call(
        [floats(4, 5), np.array([0.02] * 5, np.float32), np.zeros(5, np.uint8)],
        {"axis": 1},
        {"axis": Variation(0, {1: np.linspace(0.01, 0.1, 4, dtype=np.float32), 2: np.arange(4, dtype=np.uint8)})},
        steps=1,
    ),
    "DequantizeLinear": Call(
        [codes(4, 5), np.array([0.02] * 5, np.float32), np.zeros(5, np.uint8)],
        {"axis": 1},
        {"axis": Variation(0, {1: np.linspace(0.01, 0.1, 4, dtype=np.float32), 2: np.arange(4, dtype=np.uint8)})},
    ),
    "DynamicQuantizeLSTM": Call(
        [floats(5, 2, 6), codes(1, 6, 32, dtype=np.int8), codes(1, 8, 32, dtype=np.int8), floats(1, 64), None, None, None, None,
         *(_STEP_AND_ZERO * 2)],
        {"hidden_size": 8},
        _LSTM,
        constants=[1, 2, 3, 8, 9, 10, 11],
        outputs=3,
        atol=0.05,
    ),
    "MatMulNBits": Call(
        [floats(3, 32), codes(4, 2, 8), floats(4, 2)],
        {"K": 32, "N": 4, "bits": 4, "block_size": 16},
        {
            "K": Variation(30, {0: floats(3, 30)}),
            "N": Variation(2, {1: codes(2, 2, 8), 2: floats(2, 2)}),
            "bits": Variation(2, {1: codes(4, 2, 4)}),
            "block_size": Variation(32, {1: codes(4, 1, 16), 2: floats(4, 1)}),
        },
        constants=[1, 2],
    ),
    "GatherBlockQuantized": Call(
        [codes(20, 16), np.array([[3, 19]]), floats(20, 2)],
        {"bits": 4, "block_size": 16, "gather_axis": 0, "quantize_axis": 1},
        {
            "bits": Variation(2, {2: floats(20, 4)}),
            "block_size": Variation(32, {2: floats(20, 1)}),
            "gather_axis": Variation(-2, same="the same axis, counted from the end"),
            "quantize_axis": Variation(-1, same="the same axis, counted from the end"),
        },
        constants=[0, 2],
    ),
    "QGemm": Call(
        [codes(3, 6), number(0.02), number(120, np.uint8), codes(6, 5), number(0.01), number(9, np.uint8)],
        {},
        {
            "alpha": Variation(0.5),
            "transA": Variation(1, {0: codes(6, 3)}),
            "transB": Variation(1, {3: codes(5, 6)}),
        },
        constants=[1, 2, 3, 4, 5],
    ),
    "QLinearAveragePool": Call(
        _POOLED,
        {"kernel_shape": [3, 2], "pads": [1, 1, 1, 1]},
        {
            "kernel_shape": Variation([2, 2]),
            "pads": Variation([0, 0, 1, 1]),
            "strides": Variation([2, 2]),
            "ceil_mode": Variation(1, attributes={"strides": [3, 3], "pads": [0, 0, 0, 0]}),
            "auto_pad": Variation("SAME_LOWER", attributes={"pads": None}),
            "count_include_pad": Variation(1),
            "channels_last": Variation(1),
        },
        constants=[1, 2, 3, 4],
        steps=1,
    ),
    "QLinearGlobalAveragePool": Call(_POOLED, {}, {"channels_last": Variation(1)}, constants=[1, 2, 3, 4], steps=1),
    "QLinearConv": Call(
        [*_CONVOLUTION, number(0.05), number(128, np.uint8)],
        {},
        {
            **{k: v for k, v in _IMAGE.items() if k != "group"},
            "group": Variation(2, {3: codes(4, 2, 3, 3)}),
            "channels_last": Variation(1, {0: codes(2, 6, 7, 4)}),
        },
        constants=[1, 2, 3, 4, 5, 6, 7],
        steps=1,
    ),
    "QLinearLeakyRelu": Call(_POOLED, {}, {"alpha": Variation(0.6)}, constants=[1, 2, 3, 4], steps=1),
    "QLinearConcat": Call(
        [number(0.04), number(128, np.uint8), *([codes(3, 3), number(0.03), number(100, np.uint8)] * 2)],
        {"axis": 1},
        {"axis": Variation(0)},
        constants=[0, 1, 3, 4, 6, 7],
        steps=1,
    ),
    "QLinearReduceMean": Call(
        _POOLED,
        {"axes": [1], "keepdims": 1},
        {"axes": Variation([2, 3]), "keepdims": Variation(0)},
        constants=[1, 2, 3, 4],
        steps=1,
        own_kernel=False,
    ),
    "QLinearSoftmax": Call(
        [*_POOLED[:3], number(1 / 256), number(0, np.uint8)],
        {"axis": -1, "opset": 13},
        {"axis": Variation(1), "opset": Variation(11, attributes={"axis": 1})},
        constants=[1, 2, 3, 4],
        steps=1,
    ),
}  # fmt: skip

ELSEWHERE = {
    "GroupQueryAttention": {
        "sliding_window_cache", "qk_output", "qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon",
    },
    "Tokenizer": {"mark", "mincharnum", "pad_value", "separators", "tokenexp"},
}  # fmt: skip
"""Attributes whose effect needs a model of its own: test_grouped_attention.py, and the tests of strings."""
