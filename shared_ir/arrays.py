"""numpy arrays of every element type: numpy's own types and those of ml_dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from shared_ir.dtype import DType

_EXTENSIONS: Mapping[DType, np.dtype[Any]] = MappingProxyType(
    {
        dtype: np.dtype(extension)
        for dtype, extension in {
            DType.BFLOAT16: ml_dtypes.bfloat16,
            DType.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
            DType.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
            DType.FLOAT8E5M2: ml_dtypes.float8_e5m2,
            DType.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
            DType.FLOAT8E8M0: ml_dtypes.float8_e8m0fnu,
            DType.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
            DType.INT4: ml_dtypes.int4,
            DType.UINT4: ml_dtypes.uint4,
            DType.INT2: ml_dtypes.int2,
            DType.UINT2: ml_dtypes.uint2,
        }.items()
    }
)
_BY_EXTENSION: Mapping[np.dtype[Any], DType] = MappingProxyType({own: dtype for dtype, own in _EXTENSIONS.items()})


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy dtype of arrays of ``dtype``: numpy's own or one of ml_dtypes (sub-byte types take a byte each)."""
    extension = _EXTENSIONS.get(dtype)
    return dtype.numpy if extension is None else extension


def dtype_of(array: np.ndarray[Any, np.dtype[Any]]) -> DType:
    """The element type of an array, those of ml_dtypes included; the inverse of :func:`storage_dtype`."""
    return _BY_EXTENSION.get(array.dtype) or DType.of(array)
