"""How element types look in LLVM: in registers, in memory, and as constants.

Floats of 16 bits and less are held in registers as the ``float`` of the same value and in memory as patterns of 16 or 8
bits; integers of 2 and 4 bits as ``i8`` of the same value, one to a byte. bool is ``i1`` in registers and one byte in memory.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

import numpy as np

from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError

REGISTER: Mapping[DType, str] = {
    DType.BOOL: "i1",
    DType.INT8: "i8",
    DType.INT16: "i16",
    DType.INT32: "i32",
    DType.INT64: "i64",
    DType.UINT8: "i8",
    DType.UINT16: "i16",
    DType.UINT32: "i32",
    DType.UINT64: "i64",
    DType.FLOAT64: "double",
    **{t: "float" for t in DType if t.arithmetic is DType.FLOAT32},
    **{t: "i8" for t in DType if t.is_integer and t.bits < 8},
}
NARROW_FLOATS = frozenset(t for t in DType if t.arithmetic is not t)
"""Floats that registers hold as the ``float`` that they are computed in."""
SUB_BYTE_INTEGERS = frozenset(t for t in DType if t.is_integer and t.bits < 8)
STACK: Mapping[DType, str] = {**REGISTER, DType.BOOL: "i8"}
"""In stack buffers, which become registers, narrow floats are kept as ``float``."""
MEMORY: Mapping[DType, str] = {**STACK, **{t: "i16" if t.bits == 16 else "i8" for t in NARROW_FLOATS}}

SUFFIX: Mapping[str, str] = {
    **{f"i{n}": f"i{n}" for n in (1, 8, 16, 32, 64)},
    "half": "f16",
    "float": "f32",
    "double": "f64",
}
"""Element type -> its name in intrinsics: ``llvm.sqrt.v4f32``."""


def vector(element: str, lanes: int) -> str:
    """``<4 x float>``; scalars are plain."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def suffix(element: str, lanes: int) -> str:
    """``v4f32``"""
    return SUFFIX[element] if lanes == 1 else f"v{lanes}{SUFFIX[element]}"


def register_type(dtype: DType, lanes: int) -> str:
    """Type of a value of ``dtype`` in registers.

    Raises:
        IngotError: UNSUPPORTED_DTYPE, kernels cannot compute with this type.
    """
    element = REGISTER.get(dtype)
    if element is None:
        raise unsupported(dtype)
    return element if lanes == 1 else f"<{lanes} x {element}>"


def unsupported(dtype: DType) -> IngotError:
    return IngotError(
        ErrorCode.UNSUPPORTED_DTYPE,
        f"no code is generated for values of type {dtype}",
        expected=", ".join(REGISTER),
        received=dtype.value,
        remedy="Convert the tensor to one of these types in the model.",
    )


def float_bits(value: float, element: str) -> str:
    """A literal of LLVM: the bits of the double that equals ``value`` rounded to ``element``."""
    if element == "float":
        value = _as_float32(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _as_float32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _rounded(value: float, dtype: DType) -> float:
    """``value`` rounded to a narrow float."""
    with np.errstate(over="ignore"):
        return float(np.asarray(value, np.float64).astype(storage_dtype(dtype)).item())


def constant(value: float, dtype: DType) -> str:
    """The literal for one element of ``dtype`` (in its register type)."""
    match dtype:
        case DType.BOOL:
            return "true" if value else "false"
        case DType.FLOAT32 | DType.FLOAT64:
            return float_bits(float(value), REGISTER[dtype])
        case _ if dtype in NARROW_FLOATS:
            return float_bits(_rounded(float(value), dtype), "float")
    bits = dtype.bits
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def splat(literal: str, element: str, lanes: int) -> str:
    """A literal as an operand of ``lanes`` lanes."""
    return literal if lanes == 1 else f"splat ({element} {literal})"
