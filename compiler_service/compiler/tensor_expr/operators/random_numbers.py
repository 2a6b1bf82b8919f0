"""Random numbers as functions of a seed and a position, so that every element is computed by itself, in any order.

The generator is SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): its output number ``i``
is a hash of ``seed + i * gamma``.
"""

from __future__ import annotations

from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.scalar import bit_and, bit_xor, shift_right
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute
from shared_ir.dtype import DType
from shared_ir.expr import Expr, cast, lift
from shared_ir.expr.dim import Dim

_GAMMA = 0x9E3779B97F4A7C15
_STREAM = 0xD1342543DE82EF95
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_MASK = 0xFFFFFFFFFFFFFFFF
_BITS = {DType.FLOAT32: 24, DType.FLOAT64: 53}
"""Digits of a float: so many bits of the hash make one number."""


def uniform(*, dims: tuple[Dim, ...], seed: int, streams: tuple[Dim, ...] = (), dtype: DType = DType.FLOAT32) -> Tensor:
    """Numbers from 0 (included) to 1 (excluded), of shape ``dims``.

    Args:
        seed: 64 bits; equal seeds give equal numbers.
        streams: numbers of iterations; other ones give other numbers.
        dtype: float32 or float64.
    """
    bits = _BITS[dtype]

    def body(*index: Expr) -> Expr:
        place = lift(0)
        for extent, i in zip(dims, index, strict=True):
            place = place * extent + i
        state = _wrapped(cast(place, DType.UINT64) * _number(_GAMMA) + _number(seed & _MASK))
        for stream in streams:
            state = _hash(_wrapped(state + cast(lift(stream), DType.UINT64) * _number(_STREAM)))
        digits = shift_right(_hash(state), _number(64 - bits))
        return cast(cast(digits, DType.INT64), dtype) * 2.0**-bits

    return compute(dims, body, name="uniform")


def _number(value: int) -> Expr:
    return lift(value, DType.UINT64)


def _wrapped(x: Expr) -> Expr:
    """Modulo 2 ** 64, also where Python computes it."""
    return bit_and(x, _number(_MASK))


def _hash(z: Expr) -> Expr:
    z = _wrapped(bit_xor(z, shift_right(z, _number(30))) * _number(_FIRST))
    z = _wrapped(bit_xor(z, shift_right(z, _number(27))) * _number(_SECOND))
    return bit_xor(z, shift_right(z, _number(31)))


OPERATORS = (Operator("ingot.Uniform", uniform),)
