"""Operators of com.microsoft on 8-bit integers against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compiler_service.compiler.microsoft.foreign import RNG, Array, check, floats, model_of
from tests.conformance.compiled import run_compiled, run_onnx_runtime

pytestmark = pytest.mark.slow


def bytes_(*shape: int, dtype: type = np.uint8) -> Array:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def scale(value: float) -> Array:
    return np.array(value, np.float32)


def zero(value: int, dtype: type = np.uint8) -> Array:
    return np.array(value, dtype)


A = [bytes_(3, 4, 6, 6), scale(0.02), zero(120)]
SAME = [bytes_(3, 4, 6, 6), scale(0.03), zero(100)]
OUT = [scale(0.04), zero(128)]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("QLinearAdd", [*A, *SAME, *OUT], {}),
        ("QLinearMul", [*A, *SAME, *OUT], {}),
        ("QLinearAdd", [*A, bytes_(6), scale(0.01), zero(7), *OUT], {}),
        ("QLinearSigmoid", [*A, scale(1 / 256), zero(0)], {}),
        ("QLinearLeakyRelu", [*A, *OUT], {"alpha": 0.3}),
        ("QLinearGlobalAveragePool", [*A, *OUT], {"channels_last": 0}),
        ("QLinearGlobalAveragePool", [*A, *OUT], {"channels_last": 1}),
        ("QLinearAveragePool", [*A, *OUT], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("QLinearSoftmax", [*A, scale(1 / 256), zero(0)], {"axis": -1, "opset": 13}),
        ("QLinearConcat", [*OUT, *A, *SAME], {"axis": 1}),
        ("QLinearWhere", [RNG.integers(0, 2, (3, 4, 6, 6)).astype(bool), *A, *SAME, *OUT], {}),
    ],
)
def test_elements(op: str, inputs: list[Array], attributes: dict[str, Any]) -> None:
    """One step apart where ONNX Runtime rounds in fixed point."""
    start = 3 if op == "QLinearWhere" else 1
    constants = [i for i, x in enumerate(inputs) if x.ndim == 0 and i >= min(start, 1)]
    constants = [0, *constants] if op == "QLinearConcat" else constants
    check(op, inputs, steps=1, constants=sorted(set(constants)), **attributes)


@pytest.mark.parametrize("signed", [np.int8, np.uint8])
def test_products(signed: type) -> None:
    a, b = bytes_(5, 12), bytes_(12, 7, dtype=signed)
    zeros = [zero(130), zero(3, signed)]
    check("MatMulIntegerToFloat", [a, b, scale(0.02), scale(0.01), *zeros, floats(7)], constants=[1])
    check("DynamicQuantizeMatMul", [floats(5, 12), b, scale(0.01), zeros[1], floats(7)], constants=[1])


@pytest.mark.parametrize("flags", [{}, {"transB": 1}, {"transA": 1, "alpha": 0.5}])
def test_gemm(flags: dict[str, Any]) -> None:
    a = bytes_(12, 5) if flags.get("transA") else bytes_(5, 12)
    b = bytes_(7, 12, dtype=np.int8) if flags.get("transB") else bytes_(12, 7, dtype=np.int8)
    inputs = [a, scale(0.02), zero(130), b, scale(0.01), zero(0, np.int8), RNG.integers(-900, 900, 7).astype(np.int32)]
    held = [1, 2, 3, 4, 5, 6]
    check("QGemm", inputs, constants=held, **flags)
    check("QGemm", [*inputs, scale(0.05), zero(100)], constants=[*held, 7, 8], steps=1, **flags)


def test_quantize_linear_of_the_domain() -> None:
    check("QuantizeLinear", [floats(4, 5), scale(0.02), zero(100)], steps=1)
    check("DequantizeLinear", [bytes_(4, 5), scale(0.02), zero(100)])


@pytest.mark.parametrize("mask", [None, np.array([[1] * 5, [1, 1, 1, 0, 0]], np.int32)])
def test_attention(mask: Array | None) -> None:
    weights = bytes_(16, 48, dtype=np.int8)
    inputs = [bytes_(2, 5, 16), weights, floats(48), scale(0.02), scale(0.01), mask, zero(127), zero(0, np.int8)]
    check("QAttention", inputs, constants=[1, 2, 3, 4, 6, 7], num_heads=4, atol=1e-4)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_lstm_is_within_the_precision_of_its_activations(direction: str) -> None:
    """ONNX Runtime quantizes the activations too, so results differ by their steps."""
    count = 2 if direction == "bidirectional" else 1
    weights = [bytes_(count, 6, 32, dtype=np.int8), bytes_(count, 8, 32, dtype=np.int8)]
    rates = np.full(count, 0.004, np.float32)
    zeros = np.zeros(count, np.int8)
    inputs = [
        floats(5, 2, 6),
        *weights,
        floats(count, 64, scale=0.1),
        None,
        None,
        None,
        None,
        rates,
        zeros,
        rates,
        zeros,
    ]
    model, feeds = model_of(
        "DynamicQuantizeLSTM", inputs, 3, constants=[1, 2, 3, 8, 9, 10, 11], hidden_size=8, direction=direction
    )
    for found, expected in zip(run_compiled(model, feeds), run_onnx_runtime(model, feeds), strict=True):
        np.testing.assert_allclose(found, expected, atol=0.02)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [64, 40])
@pytest.mark.parametrize("has_zeros", [True, False])
def test_matmul_of_blocks(bits: int, rows: int, has_zeros: bool) -> None:
    columns, block = 6, 32
    blocks = -(-rows // block)
    zeros = bytes_(columns, -(-blocks * bits // 8)) if has_zeros else None
    inputs = [floats(3, rows), bytes_(columns, blocks, block * bits // 8), floats(columns * blocks, scale=0.1), zeros]
    held = [1, 2, 3] if has_zeros else [1, 2]
    check(
        "MatMulNBits",
        inputs if has_zeros else inputs[:3],
        constants=held,
        atol=1e-3,
        K=rows,
        N=columns,
        bits=bits,
        block_size=block,
    )


@pytest.mark.parametrize(("bits", "kind"), [(4, "none"), (4, "codes"), (4, "floats"), (8, "none"), (8, "codes")])
def test_large_matmul_of_blocks(bits: int, kind: str) -> None:
    """Weights that stay bytes, with zero points that are codes, floats, or left out."""
    rows, columns, block = 256, 320, 32
    blocks = rows // block
    zeros = {"codes": bytes_(columns, blocks * bits // 8), "floats": floats(columns, blocks) + 8, "none": None}[kind]
    inputs = [floats(3, rows), bytes_(columns, blocks, block * bits // 8), floats(columns * blocks, scale=0.1), zeros]
    check(
        "MatMulNBits",
        inputs if zeros is not None else inputs[:3],
        constants=[1, 2, 3] if zeros is not None else [1, 2],
        atol=1e-3,
        K=rows,
        N=columns,
        bits=bits,
        block_size=block,
    )
