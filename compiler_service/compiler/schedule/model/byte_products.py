"""Sums of products of bytes, and the words that four of them make: what instructions like VPDPBUSD and SDOT take.

A word is four bytes that follow each other along the axis that is summed, the first of them lowest; zeros fill the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce as fold

from compiler_service.compiler.tensor_expr.tensor import Axis, Compute, Load, ReduceOp, Tensor
from shared_ir.dtype import DType
from shared_ir.expr import BinaryOp, Cast, Expr, Var, binary, cast, lift, select, substitute, variables
from shared_ir.expr.dim import Dim
from shared_ir.expr.operations import DOT4_OF

BYTES_OF_WORD = 4
"""Bytes of a word: a dot product multiplies so many at once."""
_BITS_OF_BYTE = 8
"""Bits of a byte."""
BYTE_MASK = 0xFF
"""The lowest byte of a word."""


@dataclass(frozen=True)
class ByteProduct:
    """``tensor[..] = sum over .., k of data[.., k, ..] * weight[.., k, ..]`` in int32: uint8 or int8 by int8.

    Attributes:
        depth: the axis k, of a known extent.
        place, position: which index of ``data`` and of ``weight`` is k; no other depends on it.
    """

    tensor: Tensor
    data: Load
    weight: Load
    depth: Axis
    place: int
    position: int


def match_byte_product(tensor: Tensor, body: Expr) -> ByteProduct | None:
    """``tensor``, the sum of ``body``, as a product of bytes, or None."""
    op = tensor.op
    if not isinstance(op, Compute) or op.reduction is None or op.reduction.op is not ReduceOp.SUM:
        return None
    factors = [_byte(f) for f in body.children()]
    if tensor.dtype is not DType.INT32 or len(factors) != 2 or body != binary(BinaryOp.MUL, *body.children()):
        return None
    for data, weight in (factors, factors[::-1]):
        if data is None or weight is None or data.dtype not in DOT4_OF or weight.dtype is not DType.INT8:
            continue
        for depth in reversed(op.reduction.axes):
            place, position = _place(data, depth), _place(weight, depth)
            if place is not None and position is not None and isinstance(depth.extent, int):
                return ByteProduct(tensor, data, weight, depth, place, position)
    return None


def _byte(factor: Expr) -> Load | None:
    """The load that ``factor`` widens to int32."""
    return factor.x if isinstance(factor, Cast) and factor.type is DType.INT32 and isinstance(factor.x, Load) else None


def _place(load: Load, axis: Axis) -> int | None:
    """Which index of ``load`` is ``axis``, over the whole extent of the tensor, if no other depends on it."""
    found = [i for i, index in enumerate(load.indices) if axis.var in variables(index)]
    if len(found) != 1 or load.indices[found[0]] != axis.var or load.tensor.shape[found[0]] != axis.extent:
        return None
    return found[0]


def words_in(expr: Expr, byte: Var, extent: Dim) -> Expr:
    """The word of ``expr``, a byte at the place ``byte`` below ``extent``, at that place among words."""
    parts = []
    for i in range(BYTES_OF_WORD):
        at = byte * BYTES_OF_WORD + i
        one = binary(BinaryOp.AND, cast(substitute(expr, {byte: at}), DType.INT32), lift(BYTE_MASK, DType.INT32))
        if not (isinstance(extent, int) and extent % BYTES_OF_WORD == 0):
            one = select(at < extent, one, lift(0, DType.INT32))
        parts.append(binary(BinaryOp.SHL, one, lift(_BITS_OF_BYTE * i, DType.INT32)) if i else one)
    return fold(lambda a, b: binary(BinaryOp.OR, a, b), parts)
