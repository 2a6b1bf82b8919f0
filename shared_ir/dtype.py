"""Element types of tensors."""

from __future__ import annotations

import enum

import numpy as np


class DType(enum.StrEnum):
    """Element types of ONNX tensors; the value is the name used in every text and JSON form."""

    __hash__ = str.__hash__

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FLOAT8E4M3FN = "float8e4m3fn"
    FLOAT8E4M3FNUZ = "float8e4m3fnuz"
    FLOAT8E5M2 = "float8e5m2"
    FLOAT8E5M2FNUZ = "float8e5m2fnuz"
    FLOAT8E8M0 = "float8e8m0"
    FLOAT4E2M1 = "float4e2m1"
    INT4 = "int4"
    UINT4 = "uint4"
    INT2 = "int2"
    UINT2 = "uint2"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"
    STRING = "string"

    @property
    def is_float(self) -> bool:
        """Whether it is a type of floats, of any width."""
        return self.value.startswith(("float", "bfloat"))

    @property
    def is_integer(self) -> bool:
        """Whether it is a type of integers, of any width; bool is none."""
        return self.value.startswith(("int", "uint"))

    @property
    def is_signed(self) -> bool:
        """Whether it holds numbers below 0."""
        return not self.value.startswith("uint") and self is not DType.BOOL

    @property
    def bits(self) -> int:
        """Bits of one element; 0 for strings. ``bool`` is stored in 8 bits."""
        return _BITS[self]

    @property
    def arithmetic(self) -> DType:
        """The type that values of this one are computed in, and rounded from: float32 for narrower floats, else the type itself."""
        return DType.FLOAT32 if self.is_float and self.bits < 32 else self

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest of an integer type."""
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.is_signed else (0, (1 << self.bits) - 1)

    @property
    def itemsize(self) -> int:
        """Bytes of one *unpacked* element (sub-byte types take one byte each outside packed storage)."""
        return max(1, self.bits // 8)

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype that holds one element.

        Raises:
            TypeError: numpy itself has no such type (bfloat16, float8, 4-bit types).
        """
        if self is DType.STRING:
            return np.dtype(object)
        if self.value not in _NUMPY_NAMES:
            raise TypeError(f"numpy has no dtype {self.value}")
        return np.dtype(self.value)

    @classmethod
    def of(cls, array: np.ndarray) -> DType:
        """The element type of an array; object and unicode arrays are strings."""
        return cls.STRING if array.dtype.kind in "OUS" else cls(_ARRAY_NAMES.get(array.dtype.name, array.dtype.name))


HALVES = (DType.FLOAT16, DType.BFLOAT16)
"""Floats of 16 bits."""
_BITS = {
    **{t: 8 for t in DType if t.value in ("bool", "int8", "uint8") or t.value.startswith("float8")},
    **{t: 4 for t in DType if t.value in ("int4", "uint4", "float4e2m1")},
    **{t: 2 for t in DType if t.value in ("int2", "uint2")},
    **{t: 16 for t in DType if t.value in ("int16", "uint16", "float16", "bfloat16")},
    **{t: 32 for t in DType if t.value in ("int32", "uint32", "float32")},
    **{t: 64 for t in DType if t.value in ("int64", "uint64", "float64", "complex64")},
    DType.COMPLEX128: 128,
    DType.STRING: 0,
}
_ARRAY_NAMES = {
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1",
}
"""Names that ml_dtypes gives to its numpy dtypes, where they are not the ONNX names."""
_NUMPY_NAMES = frozenset(
    t.value
    for t in DType
    if t is not DType.STRING and not t.value.startswith(("bfloat", "float8", "float4")) and t.bits >= 8
)


_DTYPE_NAMES = (
    "float32 uint8 int8 uint16 int16 int32 int64 string bool float16 float64 uint32 uint64 complex64 complex128 "
    "bfloat16 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz uint4 int4 float4e2m1 float8e8m0 uint2 int2"
)
ONNX_DTYPES = {DType(name): number for number, name in enumerate(_DTYPE_NAMES.split(), start=1)}
"""onnx.TensorProto.DataType of each element type."""
