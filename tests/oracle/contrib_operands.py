"""Models of one operator of com.microsoft each, with feeds that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.oracle.case import Array

_DOMAIN = "com.microsoft"


def _f(*shape: int) -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def _i(*shape: int, most: int = 1) -> Array:
    return (np.arange(int(np.prod(shape))) % most).astype(np.int32).reshape(shape)


def _u(*shape: int) -> Array:
    return np.random.default_rng(7).integers(0, 255, shape).astype(np.uint8)


_SCALE, _ZERO = np.full(1, 0.1, np.float32), np.full(1, 3, np.uint8)
_X, _BIAS = _f(2, 3, 8), _f(8)

CASES: tuple[tuple[str, int, Mapping[str, Any], tuple[Array | None, ...]], ...] = (
    ("Attention", 1, {"num_heads": 2}, (_X, _f(8, 24), _f(24), _i(2, 3, most=2) | 1)),
    ("BiasAdd", 1, {}, (_X, _BIAS, _X)),
    ("BiasGelu", 1, {}, (_X, _BIAS)),
    ("BiasSplitGelu", 1, {}, (_X, _BIAS)),
    ("DynamicQuantizeMatMul", 1, {}, (_f(3, 8), _u(8, 4), np.full(4, 0.1, np.float32), _u(4), _f(4))),
    (
        "EmbedLayerNormalization",
        2,
        {},
        (_i(2, 3, most=5), _i(2, 3, most=2), _f(5, 8), _f(6, 8), _f(2, 8), _BIAS, _BIAS, _i(2, 3, most=2) | 1),
    ),
    ("FastGelu", 1, {}, (_X, _BIAS)),
    ("FusedMatMul", 1, {"transB": 1}, (_f(2, 3, 4), _f(2, 5, 4))),
    (
        "GroupQueryAttention",
        3,
        {"num_heads": 4, "kv_num_heads": 2},
        (
            _f(2, 1, 32),
            _f(2, 1, 16),
            _f(2, 1, 16),
            _f(2, 2, 6, 8),
            _f(2, 2, 6, 8),
            np.full(2, 5, np.int32),
            np.full(1, 6, np.int32),
        ),
    ),
    ("MatMulIntegerToFloat", 1, {}, (_u(3, 8), _u(8, 4), _SCALE, np.full(4, 0.1, np.float32), _ZERO, _u(4), _f(4))),
    ("MultiHeadAttention", 1, {"num_heads": 2}, (_X, _f(2, 5, 8), _f(2, 5, 8), _f(24), _i(2, 5, most=2) | 1)),
    (
        "MultiHeadAttention",
        3,
        {"num_heads": 2},
        (_X, _f(2, 5, 8), _f(2, 5, 8), None, None, _f(1, 2, 3, 11), _f(2, 2, 6, 4), _f(2, 2, 6, 4)),
    ),
    ("QLinearAdd", 1, {}, (_u(3, 4), _SCALE, _ZERO, _u(3, 4), _SCALE, _ZERO, _SCALE, _ZERO)),
    ("QLinearGlobalAveragePool", 1, {}, (_u(1, 3, 4, 4), _SCALE, _ZERO, _SCALE, _ZERO)),
    ("QLinearSigmoid", 1, {}, (_u(3, 4), _SCALE, _ZERO, _SCALE, _ZERO)),
    ("QuickGelu", 1, {}, (_X,)),
    ("RotaryEmbedding", 1, {}, (_f(2, 2, 3, 8), np.zeros((2, 3), np.int64), _f(9, 4), _f(9, 4))),
    ("RotaryEmbedding", 1, {}, (_f(2, 2, 3, 8), np.zeros(1, np.int64), _f(9, 4), _f(9, 4))),
    ("SkipLayerNormalization", 1, {}, (_X, _X, _BIAS, _BIAS, _BIAS)),
    ("SkipSimplifiedLayerNormalization", 1, {}, (_X, _X, _BIAS, _BIAS)),
    ("SimplifiedLayerNormalization", 1, {}, (_X, _BIAS)),
)
"""Operator, number of outputs that are asked for, attributes and operands, of which some are absent."""


WIDE = ("Attention", "GroupQueryAttention", "MultiHeadAttention")
"""Operators whose number of features must be known."""


def contrib_models() -> Iterator[tuple[str, onnx.ModelProto, dict[str, Array]]]:
    """Name, model and feeds; the extents of the inputs are left for others to name."""
    for number, (op, outputs, attributes, operands) in enumerate(CASES):
        feeds = {f"x{i}": array for i, array in enumerate(operands) if array is not None}
        names = ["" if array is None else f"x{i}" for i, array in enumerate(operands)]
        domain = "" if op == "SimplifiedLayerNormalization" else _DOMAIN
        results = [f"y{i}" for i in range(outputs)]
        node = helper.make_node(op, names, results, domain=domain, **attributes)
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ]
        wanted = [onnx.ValueInfoProto(name=r) for r in results]
        graph = helper.make_graph([node], "main", inputs, wanted)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(_DOMAIN, 1)]
        yield f"{op} {number}", helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds
