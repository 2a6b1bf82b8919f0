"""Products with weights of 4 bits that share a scale by blocks of a column: what language models are quantised to."""

from __future__ import annotations

from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch
from compiler_service.compiler.tensor_expr.scalar import bit_and, bit_or, shift_left, shift_right
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, reduce
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, lift, reinterpret

CODES = 8
"""Number of codes of 4 bits in a word."""
_BITS = 4
_STEPS = 1 << _BITS
_MANTISSA = 23
_ONE = 0x3F800000
"""The bits of the float32 1."""


def matmul_nibbles(
    x: Tensor, words: Tensor, scale: Tensor, zero_point: Tensor, sums: Tensor, *, block_size: int
) -> Tensor:
    """``x @ w`` with ``w[k, n] = (code[k, n] - zero_point[b, n]) * scale[b, n]`` and ``b = k // block_size``.

    Put into the upper bits of the mantissa of 1, a code is the float ``1 + code / 16``: no conversion. Hence ::

        sum of x * (code - z) * s  over a block  =  16 * s * (sum of x * (1 + code / 16)  -  (1 + z / 16) * sum of x)

    Args:
        x: float32 ``[.., m, k]``.
        words: uint32 ``[k / 8, n]``; bits ``4 j`` to ``4 j + 3`` of row ``i`` are row ``8 i + j`` of the codes.
        scale: float32 ``[k / block_size, n]``.
        zero_point: int8 like ``scale``, or one number ``[]``.
        sums: of ``x`` over each block, float32 ``[.., m, k / block_size]``.
    """
    if x.rank < 2 or words.rank != 2 or block_size % CODES or words.dtype is not DType.UINT32:
        raise mismatch(
            "MatMulNibbles takes rows and words of codes", "float32[.., m, k] and uint32[k / 8, n]", str(words.dtype)
        )
    *outer, rows, _ = x.shape
    blocks, columns = scale.shape
    names = (*(f"b{axis}" for axis in range(len(outer))), "m")

    def product(*index: Expr) -> Expr:
        *at, block, n, i, j = index
        word = words[block * (block_size // CODES) + i, n]
        return x[(*at, block * block_size + i * CODES + j)] * _one_and_code(word, j)

    shape = (*outer, rows, blocks, columns)
    within = (block_size // CODES, CODES)
    parts = reduce(
        ReduceOp.SUM, shape, within, product, name="block", axes=(*names, "block", "n"), reduced=("word", "code")
    )

    def scaled(*index: Expr) -> Expr:
        *at, n, block = index
        zero = zero_point[(block, n)[: zero_point.rank]]
        above = parts[(*at, block, n)] - (cast(zero, x.dtype) * (1 / _STEPS) + 1) * sums[(*at, block)]
        return above * (scale[block, n] * _STEPS)

    return reduce(
        ReduceOp.SUM, (*outer, rows, columns), (blocks,), scaled, name="matmul", axes=(*names, "n"), reduced=("block",)
    )


def _one_and_code(word: Expr, place: Expr) -> Expr:
    """``1 + code / 16`` of the code at ``place`` of a word."""
    code = shift_left(shift_right(word, cast(place, word.dtype) * _BITS), lift(_MANTISSA - _BITS, word.dtype))
    upper = bit_and(code, lift((_STEPS - 1) << (_MANTISSA - _BITS), word.dtype))
    return reinterpret(bit_or(upper, lift(_ONE, word.dtype)), DType.FLOAT32)


OPERATORS = (Operator("ingot.MatMulNibbles", matmul_nibbles),)
