"""Operators on 8-bit integers with their scales: products in integers, everything else between dequantizing and quantizing."""

from __future__ import annotations

import numpy as np

from compiler_service.compiler.frontend.adapters.chain import Chain
from compiler_service.compiler.frontend.adapters.microsoft.attention import self_attention, static
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode
from shared_ir.dtype import DType

Nodes = tuple[SourceNode, ...]


def linear(node: SourceNode, operands: Operands) -> Nodes:
    """QuantizeLinear and DequantizeLinear, whose standard forms contain these."""
    return (node.with_(domain=""),)


def floats(chain: Chain, first: int) -> str:
    """Inputs ``first``, scale, zero point as floats."""
    x, scale, zero = (chain.node.input(first + i) for i in range(3))
    return chain.add("DequantizeLinear", x, scale, *((zero,) if zero else ()))


def quantized(chain: Chain, x: str, first: int, like: str = "") -> str:
    """``x`` in the scale and zero point that are the inputs from ``first`` on."""
    scale, zero = chain.node.input(first), chain.node.input(first + 1)
    if zero:
        return chain.add("QuantizeLinear", x, scale, zero)
    dtype = chain.operands.dtype(like or chain.node.inputs[0])
    return chain.add("QuantizeLinear", x, scale, chain.operands.constant("zero", np.zeros((), dtype.numpy)))


def binary(node: SourceNode, operands: Operands) -> Nodes:
    """QLinearAdd, QLinearMul: inputs A, scale, zero point, B, scale, zero point, scale and zero point of C."""
    chain = Chain(node, operands)
    op = node.op.removeprefix("QLinear")
    chain.as_output(quantized(chain, chain.add(op, floats(chain, 0), floats(chain, 3)), 6))
    return tuple(chain.nodes)


def unary(node: SourceNode, operands: Operands) -> Nodes:
    """QLinearSigmoid, QLinearLeakyRelu, pools and means: inputs X, scale, zero point, scale and zero point of Y."""
    chain = Chain(node, operands)
    op = node.op.removeprefix("QLinear")
    kept = node.without("channels_last")
    x = floats(chain, 0)
    turned = bool(chain.attribute("channels_last"))
    rank = operands.rank(node.inputs[0])
    if turned:
        x = chain.add("Transpose", x, perm=(0, rank - 1, *range(1, rank - 1)))
    if op.startswith("Reduce"):
        axes = kept.pop("axes", ())
        inputs = (x, operands.int64s("axes", axes)) if axes else (x,)
        result = chain.add(op, *inputs, **kept)
    else:
        result = chain.add(op, x, **kept)
    if turned:
        result = chain.add("Transpose", result, perm=(0, *range(2, rank), 1))
    chain.as_output(quantized(chain, result, 3))
    return tuple(chain.nodes)


_FIRST_OPSET_BY_AXIS = 13
"""From this opset on Softmax is one along an axis; before, the input was seen as 2-D from the axis on."""


def softmax(node: SourceNode, operands: Operands) -> Nodes:
    """QLinearSoftmax: ``opset`` tells which form."""
    chain = Chain(node, operands)
    rank, axis = operands.rank(node.inputs[0]), chain.attribute("axis")
    x = floats(chain, 0)
    if chain.attribute("opset") >= _FIRST_OPSET_BY_AXIS or axis % rank == rank - 1:
        found = chain.add("Softmax", x, axis=axis)
    else:
        flat = chain.add("Softmax", chain.add("Flatten", x, axis=axis % rank), axis=-1)
        found = chain.add("Reshape", flat, chain.add("Shape", node.inputs[0]), allowzero=1)
    chain.as_output(quantized(chain, found, 3))
    return tuple(chain.nodes)


def concat(node: SourceNode, operands: Operands) -> Nodes:
    """Inputs: scale and zero point of Y, then X, scale, zero point of each."""
    chain = Chain(node, operands)
    parts = [floats(chain, index) for index in range(2, len(node.inputs), 3)]
    joined = chain.add("Concat", *parts, axis=chain.attribute("axis"))
    chain.as_output(quantized(chain, joined, 0, like=node.inputs[2]))
    return tuple(chain.nodes)


def where(node: SourceNode, operands: Operands) -> Nodes:
    """Inputs: condition, X, scale, zero point, Y, scale, zero point, scale and zero point of Z."""
    chain = Chain(node, operands)
    chosen = chain.add("Where", node.inputs[0], floats(chain, 1), floats(chain, 4))
    chain.as_output(quantized(chain, chosen, 7, like=node.inputs[1]))
    return tuple(chain.nodes)


def convolution(node: SourceNode, operands: Operands) -> Nodes:
    """QLinearConv, which ``channels_last`` tells from the standard one."""
    chain = Chain(node, operands)
    x, *rest = node.inputs
    rank = operands.rank(x)
    if not chain.attribute("channels_last"):
        return (node.with_(domain="", attributes=node.without("channels_last")),)
    first = chain.add("Transpose", x, perm=(0, rank - 1, *range(1, rank - 1)))
    result = chain.add("QLinearConv", first, *rest, **node.without("channels_last"))
    chain.as_output(chain.add("Transpose", result, perm=(0, *range(2, rank), 1)))
    return tuple(chain.nodes)


def _zeros(*names: str) -> tuple[str, ...]:
    """Zero points for MatMulInteger, absent ones at the end left out."""
    found = list(names)
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def _product(chain: Chain, a: str, b: str, zeros: tuple[str, ...], scales: tuple[str, ...], bias: str) -> str:
    """``(a - zero) @ (b - zero) * scale_a * scale_b + bias`` in float, the product in integers."""
    total = chain.add("Cast", chain.add("MatMulInteger", a, b, *zeros), to=DType.FLOAT32)
    scale = chain.add("Mul", *scales) if len(scales) == 2 else scales[0]
    total = chain.add("Mul", total, scale)
    return chain.add("Add", total, bias) if bias else total


def matmul_integer_to_float(node: SourceNode, operands: Operands) -> Nodes:
    """Inputs: A, B, scale of A, scale of B, zero points of A and B, bias."""
    chain = Chain(node, operands)
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (node.input(i) for i in range(7))
    chain.as_output(_product(chain, a, b, _zeros(a_zero, b_zero), (a_scale, b_scale), bias))
    return tuple(chain.nodes)


def dynamic_quantize_matmul(node: SourceNode, operands: Operands) -> Nodes:
    """Inputs: A in float, B, its scale, its zero point, bias."""
    chain = Chain(node, operands)
    a, b, scale, zero, bias = (node.input(i) for i in range(5))
    a, a_scale, a_zero = chain.add_many("DynamicQuantizeLinear", (a,), 3)
    chain.as_output(_product(chain, a, b, _zeros(a_zero, zero), (a_scale, scale), bias))
    return tuple(chain.nodes)


def gemm(node: SourceNode, operands: Operands) -> Nodes:
    """QGemm: inputs A, scale, zero point, B, scale, zero point, C in int32, scale and zero point of Y (float without)."""
    chain = Chain(node, operands)
    a, b = node.inputs[0], node.inputs[3]
    a = chain.add("Transpose", a, perm=(1, 0)) if chain.attribute("transA") else a
    b = chain.add("Transpose", b, perm=(1, 0)) if chain.attribute("transB") else b
    total = chain.add("MatMulInteger", a, b, *_zeros(node.input(2), node.input(5)))
    total = chain.add("Add", total, node.input(6)) if node.input(6) else total
    scale = chain.add(
        "Mul", chain.add("Mul", node.inputs[1], node.inputs[4]), chain.constant("alpha", chain.attribute("alpha"))
    )
    result = chain.add("Mul", chain.add("Cast", total, to=DType.FLOAT32), scale)
    chain.as_output(quantized(chain, result, 7) if node.input(7) else result)
    return tuple(chain.nodes)


def lstm(node: SourceNode, operands: Operands) -> Nodes:
    """DynamicQuantizeLSTM: weights ``[d, features, 4h]`` are dequantized, activations keep their precision.

    Inputs: X, W, R, B, sequence lengths, h, c, P, scale and zero point of W, scale and zero point of R.
    """
    chain = Chain(node, operands)
    inputs = [node.input(i) for i in range(8)]
    for index, first in ((1, 8), (2, 10)):
        zero = chain.add("Cast", node.input(first + 1), to=DType.FLOAT32)
        centred = chain.add(
            "Sub", chain.add("Cast", inputs[index], to=DType.FLOAT32), _by_direction(chain, zero, first + 1)
        )
        wide = chain.add("Mul", centred, _by_direction(chain, node.input(first), first))
        inputs[index] = chain.add("Transpose", wide, perm=(0, 2, 1))
    while not inputs[-1]:
        inputs.pop()
    results = chain.add_many("LSTM", inputs, 3, **node.attributes)
    for index, result in enumerate(results):
        chain.as_output(result, index)
    return tuple(chain.nodes)


def _by_direction(chain: Chain, name: str, index: int) -> str:
    """``[d]`` or ``[d, 4h]`` so that it broadcasts to ``[d, features, 4h]``."""
    rank = chain.operands.rank(chain.node.input(index))
    return chain.add("Unsqueeze", name, chain.operands.int64s("axes", (1, 2) if rank == 1 else (1,)))


def attention(node: SourceNode, operands: Operands) -> Nodes:
    """QAttention: inputs input, weights, bias, their scales, mask, their zero points, past."""
    chain = Chain(node, operands)
    x, weights, bias, x_scale, w_scale, mask, x_zero, w_zero, past = (node.input(i) for i in range(9))
    projected = _product(chain, x, weights, _zeros(x_zero, w_zero), (x_scale, w_scale), bias)
    self_attention(chain, projected, static(operands, weights, 1), bias, (mask, past, ""))
    return tuple(chain.nodes)
