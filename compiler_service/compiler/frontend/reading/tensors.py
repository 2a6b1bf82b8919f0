"""ONNX tensors to numpy arrays, checked before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx

from compiler_service.compiler.frontend.reading.external_data import ExternalData
from compiler_service.compiler.frontend.reading.limits import ImportBudget, exceeded
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.types import TensorType

DTYPES: Mapping[int, DType] = {
    1: DType.FLOAT32, 2: DType.UINT8, 3: DType.INT8, 4: DType.UINT16, 5: DType.INT16, 6: DType.INT32, 7: DType.INT64,
    8: DType.STRING, 9: DType.BOOL, 10: DType.FLOAT16, 11: DType.FLOAT64, 12: DType.UINT32, 13: DType.UINT64,
    14: DType.COMPLEX64, 15: DType.COMPLEX128, 16: DType.BFLOAT16, 17: DType.FLOAT8E4M3FN, 18: DType.FLOAT8E4M3FNUZ,
    19: DType.FLOAT8E5M2, 20: DType.FLOAT8E5M2FNUZ, 21: DType.UINT4, 22: DType.INT4, 23: DType.FLOAT4E2M1,
    24: DType.FLOAT8E8M0, 25: DType.UINT2, 26: DType.INT2,
}  # fmt: skip
"""TensorProto.DataType (onnx.proto) -> element type."""

_INT32_DATA = frozenset(t for t in DType if t.bits and (t.bits <= 16 or t is DType.INT32))
"""Element types that TensorProto keeps in ``int32_data``; floats among them as bit patterns."""


def dtype_of(number: int, where: str) -> DType:
    """The element type with this number in TensorProto.DataType.

    Raises:
        IngotError: UNSUPPORTED_DTYPE naming the tensor.
    """
    if number not in DTYPES:
        names = onnx.TensorProto.DataType
        name = names.Name(number) if number in names.values() else f"number {number}"
        raise IngotError(
            ErrorCode.UNSUPPORTED_DTYPE,
            "the element type is not supported",
            tensor=where,
            expected=", ".join(DTYPES.values()),
            received=name,
            remedy="Convert the tensor to another element type before exporting.",
        )
    return DTYPES[number]


def to_array(tensor: onnx.TensorProto, external: ExternalData, budget: ImportBudget, where: str = "") -> np.ndarray:
    """The elements of ``tensor``, unpacked to one element per byte at least; read-only where they are a view.

    Raises:
        IngotError: INVALID_MODEL, EXTERNAL_DATA, UNSUPPORTED_DTYPE or LIMIT_EXCEEDED naming the tensor.
    """
    where = tensor.name or where
    dtype = dtype_of(tensor.data_type, where)
    shape = tuple(tensor.dims)
    if any(d < 0 for d in shape):
        raise _invalid("a constant tensor has a negative dim", where, "dims >= 0", str(list(shape)))
    budget.spend_tensor(TensorType(dtype, shape), where)
    if tensor.HasField("segment"):
        raise _invalid("segmented tensors are not part of any ONNX release", where, "a whole tensor", "a segment")
    count = math.prod(shape)
    if dtype is DType.STRING:
        return _strings(tensor, count, where).reshape(shape)
    own = external.own(tensor)
    if own is not None:
        return _from_raw(own, dtype, count, where).reshape(shape)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _from_bytes(external.read(tensor, _packed_size(dtype, count)), dtype, count).reshape(shape)
    if tensor.HasField("raw_data"):
        return _from_raw(tensor.raw_data, dtype, count, where).reshape(shape)
    return _from_fields(tensor, dtype, count, where).reshape(shape)


def _packed_size(dtype: DType, count: int) -> int:
    return (count * dtype.bits + 7) // 8


def _from_raw(raw: bytes | memoryview, dtype: DType, count: int, where: str) -> np.ndarray:
    size = _packed_size(dtype, count)
    if len(raw) != size:
        raise _invalid("a constant tensor does not hold as many bytes as its dims say", where, str(size), str(len(raw)))
    return _from_bytes(memoryview(raw), dtype, count)


def _from_bytes(data: memoryview, dtype: DType, count: int) -> np.ndarray:
    if dtype.bits < 8:
        return _unpack(np.frombuffer(data, np.uint8), dtype, count)
    return np.frombuffer(
        data, storage_dtype(dtype).newbyteorder("<") if dtype.value in _ORDERED else storage_dtype(dtype)
    )


_ORDERED = frozenset(
    {
        "int16",
        "int32",
        "int64",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    }
)
"""Element types of several bytes whose order numpy can name."""


def _unpack(packed: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """Elements of 2 or 4 bits, lowest bits first (onnx.proto, TensorProto.raw_data)."""
    bits = dtype.bits
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = ((packed[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count]
    if dtype.is_float:
        return codes.view(storage_dtype(dtype))
    values = codes.astype(np.int8)
    if dtype.is_signed:
        values = np.where(values >= 1 << (bits - 1), values - (1 << bits), values)
    return values.astype(storage_dtype(dtype))


def _from_fields(tensor: onnx.TensorProto, dtype: DType, count: int, where: str) -> np.ndarray:
    if dtype in _INT32_DATA:
        stored = np.array(tensor.int32_data, dtype=np.int32)
        return _from_int32(stored, dtype, count, where)
    if dtype in (DType.FLOAT32, DType.COMPLEX64):
        values = np.array(tensor.float_data, dtype=np.float32)
    elif dtype in (DType.FLOAT64, DType.COMPLEX128):
        values = np.array(tensor.double_data, dtype=np.float64)
    elif dtype is DType.INT64:
        values = np.array(tensor.int64_data, dtype=np.int64)
    else:
        values = np.array(tensor.uint64_data, dtype=np.uint64)
    if dtype in (DType.COMPLEX64, DType.COMPLEX128):
        _check_count(values.size, 2 * count, where)
        return values.view(storage_dtype(dtype))
    _check_count(values.size, count, where)
    return values.astype(storage_dtype(dtype), copy=False)


def _from_int32(stored: np.ndarray, dtype: DType, count: int, where: str) -> np.ndarray:
    if dtype.bits < 8:
        _check_count(stored.size, _packed_size(dtype, count), where)
        return _unpack(stored.astype(np.uint8), dtype, count)
    _check_count(stored.size, count, where)
    if dtype.is_float:
        return stored.astype(np.uint16 if dtype.bits == 16 else np.uint8).view(storage_dtype(dtype))
    return stored.astype(storage_dtype(dtype))


def _strings(tensor: onnx.TensorProto, count: int, where: str) -> np.ndarray:
    _check_count(len(tensor.string_data), count, where)
    array = np.empty(count, dtype=object)
    array[:] = [s.decode("utf-8", "surrogateescape") for s in tensor.string_data]
    return array


def _check_count(found: int, wanted: int, where: str) -> None:
    if found != wanted:
        raise _invalid(
            "a constant tensor does not hold as many elements as its dims say", where, str(wanted), str(found)
        )


def dense(tensor: onnx.SparseTensorProto, external: ExternalData, budget: ImportBudget) -> np.ndarray:
    """A sparse tensor (COO) as a dense array.

    Raises:
        IngotError: as :func:`to_array`; INVALID_MODEL for indices out of range.
    """
    where = tensor.values.name
    values = to_array(tensor.values, external, budget)
    indices = to_array(tensor.indices, external, budget)
    shape = tuple(tensor.dims)
    if any(d < 0 for d in shape):
        raise _invalid("a sparse tensor has a negative dim", where, "dims >= 0", str(list(shape)))
    budget.spend_tensor(TensorType(DType.of(values), shape), where)
    count = math.prod(shape)
    if count > budget.limits.tensor_bytes >> 4:
        raise exceeded("a sparse tensor is too large when dense", "fewer elements", str(list(shape)), tensor=where)
    if indices.dtype != np.int64 or values.ndim != 1 or indices.ndim > 2 or indices.shape[:1] != values.shape:
        raise _invalid("a sparse tensor is malformed", where, "one int64 index per value", f"{list(indices.shape)}")
    if indices.ndim == 2 and indices.shape[1] == len(shape):
        limit = np.array(shape, dtype=np.int64)
        inside = bool(np.all((indices >= 0) & (indices < limit)))
        strides = np.array([math.prod(shape[i + 1 :]) for i in range(len(shape))], dtype=np.int64)
        flat = indices @ strides if inside else indices[:, 0]
    else:
        flat = indices.reshape(-1)
        inside = bool(np.all((flat >= 0) & (flat < count))) and flat.size == values.size
    if not inside:
        raise _invalid("a sparse tensor has an index out of range", where, f"indices within {list(shape)}", "others")
    result = np.zeros(count, values.dtype)
    result[flat] = values
    return result.reshape(shape)


def _invalid(message: str, where: str, expected: str, received: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_MODEL,
        message,
        tensor=where,
        expected=expected,
        received=received,
        remedy="Export the model again; this file is damaged or was edited by hand.",
    )
