"""Weights of 2, 4 or 8 bits in blocks with a scale each: products with them, and rows of tables of them."""

from __future__ import annotations

import numpy as np

from compiler_service.compiler.frontend.adapters.chain import Chain
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim

Nodes = tuple[SourceNode, ...]

_BITS = (2, 4, 8)


def matmul_nbits(node: SourceNode, operands: Operands) -> Nodes:
    """Weights ``[n, blocks, block * bits / 8]``, the lower bits of a byte first: unpacked, scaled by blocks, multiplied.

    Inputs: A, B, scales ``[n * blocks]``, zero points (packed as B, or of the type of A), g_idx ``[k]`` (the block whose scale and
    zero point a row of the weights has), bias.
    """
    chain = Chain(node, operands)
    get = chain.attribute
    columns, rows, block, bits = get("N"), get("K"), get("block_size"), get("bits")
    _, packed, scales, zeros, order = (node.input(i) for i in range(5))
    _check_bits(chain)
    if 0 in operands.shape(packed):
        zero = operands.like("zero", 0.0, node.inputs[0])
        return _multiplied(chain, chain.add("Expand", zero, operands.int64s("shape", (rows, columns))))
    blocks = -(-rows // block)
    codes = _unpacked(chain, packed, (columns, blocks * block), bits)
    codes = _first(chain, codes, rows, blocks * block)
    factor = chain.add("Reshape", scales, operands.int64s("shape", (columns, blocks)))
    centre = _centre(chain, blocks)
    if order:
        return _in_groups(chain, _turned(chain, codes), _turned(chain, factor), centre)
    if zeros and operands.dtype(zeros) is not DType.UINT8:
        return _with_float_zeros(chain, codes, factor, zeros)
    wide = chain.add("Cast", _turned(chain, factor), to=DType.FLOAT32)
    weight = chain.add("DequantizeLinear", _turned(chain, codes), wide, centre, axis=0, block_size=block)
    return _multiplied(chain, weight)


def _check_bits(chain: Chain) -> None:
    if chain.attribute("bits") not in _BITS:
        raise chain.operands.unsupported("bits", "2, 4 or 8", str(chain.attribute("bits")))


def _centre(chain: Chain, blocks: int) -> str:
    """The zero points: one for all, or ``[blocks, n]`` as codes or in float."""
    operands, zeros = chain.operands, chain.node.input(3)
    columns, bits = chain.attribute("N"), chain.attribute("bits")
    if not zeros:
        return operands.constant("centre", np.array(1 << (bits - 1), np.uint8))
    if operands.dtype(zeros) is not DType.UINT8:
        return _turned(chain, chain.add("Reshape", zeros, operands.int64s("shape", (columns, blocks))))
    count = -(-blocks * bits // 8) * (8 // bits)
    return _turned(chain, _first(chain, _unpacked(chain, zeros, (columns, count), bits), blocks, count))


def _in_groups(chain: Chain, codes: str, factor: str, centre: str) -> Nodes:
    """:func:`matmul_nbits` where every row of the weights says whose scale and zero point it has."""
    operands, rows = chain.operands, chain.attribute("K")
    ends = (operands.int64s(name, (number,)) for name, number in (("first", 0), ("count", rows), ("axis", 0)))
    groups = chain.add("Slice", chain.node.input(4), *ends)
    wide, zero = (chain.add("Cast", v, to=DType.FLOAT32) for v in (factor, centre))
    scale = chain.add("Gather", wide, groups, axis=0)
    zero = chain.add("Gather", zero, groups, axis=0) if chain.node.input(3) else zero
    centred = chain.add("Sub", chain.add("Cast", codes, to=DType.FLOAT32), zero)
    return _multiplied(chain, chain.add("Mul", centred, scale))


def _with_float_zeros(chain: Chain, codes: str, factor: str, zeros: str) -> Nodes:
    """:func:`matmul_nbits` with zero points that are no codes themselves: for each block ``code * scale - zero * scale``."""
    operands, get = chain.operands, chain.attribute
    columns, rows, block = get("N"), get("K"), get("block_size")
    blocks = -(-rows // block)
    wide = chain.add("Cast", factor, to=DType.FLOAT32)
    shape = operands.int64s("shape", (columns, blocks))
    least = chain.add("Mul", chain.add("Cast", chain.add("Reshape", zeros, shape), to=DType.FLOAT32), wide)
    each = chain.add("Reshape", least, operands.int64s("each", (columns, blocks, 1)))
    spread = chain.add("Expand", each, operands.int64s("spread", (columns, blocks, block)))
    spread = chain.add("Reshape", spread, operands.int64s("table", (columns, blocks * block)))
    scaled = chain.add("DequantizeLinear", _turned(chain, codes), _turned(chain, wide), axis=0, block_size=block)
    return _multiplied(chain, chain.add("Sub", scaled, _turned(chain, _first(chain, spread, rows, blocks * block))))


def _multiplied(chain: Chain, weight: str) -> Nodes:
    """The product of the first input and ``weight``, and the bias, which is the sixth."""
    x, bias = chain.node.input(0), chain.node.input(5)
    dtype = chain.operands.dtype(x)
    result = chain.add("MatMul", x, weight if dtype is DType.FLOAT32 else chain.add("Cast", weight, to=dtype))
    chain.as_output(chain.add("Add", result, bias) if bias else result)
    return tuple(chain.nodes)


def _turned(chain: Chain, x: str) -> str:
    return chain.add("Transpose", x, perm=(1, 0))


def _first(chain: Chain, x: str, count: int, extent: int) -> str:
    """The first ``count`` of the ``extent`` columns of ``x``."""
    if count == extent:
        return x
    ends = (chain.operands.int64s(name, (number,)) for name, number in (("first", 0), ("count", count), ("axis", 1)))
    return chain.add("Slice", x, *ends)


def _unpacked(chain: Chain, packed: str, shape: tuple[int, ...], bits: int) -> str:
    """Codes of ``bits`` in bytes, as uint8 in ``shape``."""
    operands = chain.operands
    if bits == 8:
        return chain.add("Reshape", packed, operands.int64s("shape", shape))
    flat = chain.add("Reshape", packed, operands.int64s("column", (-1, 1)))
    return chain.add("Reshape", _spread(chain, flat, bits), operands.int64s("shape", shape))


def _spread(chain: Chain, packed: str, bits: int) -> str:
    """The codes of each byte of the one column, side by side; the lower bits come first."""
    many = chain.operands.constant("codes", np.array(1 << bits, np.uint8))
    columns, rest = [], packed
    for left in range(8 // bits - 1, 0, -1):
        columns.append(chain.add("Mod", rest, many))
        rest = chain.add("Div", rest, many)
        if left == 1:
            columns.append(rest)
    return chain.add("Concat", *columns, axis=1)


def gather_block_quantized(node: SourceNode, operands: Operands) -> Nodes:
    """Elements of a table along ``gather_axis``, dequantized in blocks along ``quantize_axis``; 0 for what is outside of it.

    Inputs: data (4 bits each, or bytes of which each holds neighbours along the last axis), indices, scales, zero points.
    """
    chain = Chain(node, operands)
    data, indices, scales, zeros = (node.input(i) for i in range(4))
    rank, picked = operands.rank(data), operands.rank(indices)
    gathered, blocked = (chain.attribute(f"{kind}_axis") % rank for kind in ("gather", "quantize"))
    is_packed = operands.dtype(data) is DType.UINT8
    _check_table(chain, is_packed, gathered == 0 and blocked == rank - 1 > 0)
    extent = chain.add("Squeeze", chain.add("Shape", data, start=gathered, end=gathered + 1))  # indices may be a scalar
    places = chain.add("Cast", indices, to=DType.INT64)
    within = chain.add(
        "And", chain.add("Less", places, extent), chain.add("GreaterOrEqual", places, chain.add("Neg", extent))
    )
    places = chain.add("Where", within, places, operands.constant("start", np.array(0, np.int64)))
    parts = [data, scales, zeros] if zeros else [data, scales]
    if gathered == blocked:
        found = chain.add("Gather", _dequantized(chain, parts, blocked, is_packed), places, axis=gathered)
    else:
        parts = [chain.add("Gather", x, places, axis=gathered) for x in parts]
        found = _dequantized(chain, parts, blocked + (picked - 1 if gathered < blocked else 0), is_packed)
    behind = tuple(range(picked, picked + rank - 1 - gathered))
    within = chain.add("Unsqueeze", within, operands.int64s("behind", behind)) if behind else within
    chain.as_output(chain.add("Where", within, found, operands.like("zero", 0.0, scales)))
    return tuple(chain.nodes)


def _check_table(chain: Chain, is_packed: bool, is_in_rows: bool) -> None:
    operands, block = chain.operands, chain.attribute("block_size")
    if operands.dtype(chain.node.inputs[0]) not in (DType.UINT8, DType.UINT4, DType.INT4):
        raise operands.unsupported("data", "uint8, uint4 or int4", str(operands.dtype(chain.node.inputs[0])))
    if is_packed:
        _check_bits(chain)
    if is_packed and not is_in_rows:
        axes = tuple(chain.attribute(f"{kind}_axis") for kind in ("gather", "quantize"))
        raise operands.unsupported(
            "quantize_axis", "bytes gathered along the first axis, in blocks of the last", str(axes)
        )
    if block < 1:
        raise operands.unsupported("block_size", "at least 1", str(block))


def _dequantized(chain: Chain, parts: list[str], axis: int, is_packed: bool) -> str:
    """``(data - zero) * scale`` of data, scales and, perhaps, zero points whose blocks lie along ``axis``."""
    operands, bits = chain.operands, chain.attribute("bits")
    data, scales, *zeros = parts
    if is_packed:
        width = operands.shape(chain.node.inputs[2])[-1]
        data = _along_last(chain, data, chain.node.inputs[0], bits)
        zeros = [_along_last(chain, z, chain.node.inputs[3], bits, width) for z in zeros]
        zeros = zeros or [operands.constant("centre", np.array(1 << (bits - 1), np.uint8))]
    return chain.add("DequantizeLinear", data, scales, *zeros, axis=axis, block_size=chain.attribute("block_size"))


def _along_last(chain: Chain, x: str, like: str, bits: int, width: Dim | None = None) -> str:
    """Codes of ``bits`` that are packed along the last axis, as wide as that of ``like``; the first ``width`` of them."""
    operands, per = chain.operands, 8 // bits
    extent = operands.shape(like)[-1]
    if not isinstance(extent, int) or not isinstance(width, int | None):
        raise operands.unsupported("data", "rows of a static width", str(extent))
    if per > 1:
        rows = chain.add("Shape", x, end=-1)
        flat = _spread(chain, chain.add("Reshape", x, operands.int64s("column", (-1, 1))), bits)
        x = chain.add("Reshape", flat, chain.add("Concat", rows, operands.int64s("width", (extent * per,)), axis=0))
    if width is None or width == extent * per:
        return x
    return chain.add(
        "Slice", x, *(operands.int64s(name, (n,)) for name, n in (("first", 0), ("width", width), ("last", -1)))
    )
