"""Element types by the names of the Open Inference Protocol v2.

Source: open-inference-protocol, ``specification/protocol/inference_grpc.md``, "Tensor Data Types".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shared_ir.dtype import DType

WIRE_NAMES: Mapping[DType, str] = MappingProxyType(
    {
        DType.BOOL: "BOOL",
        DType.UINT8: "UINT8",
        DType.UINT16: "UINT16",
        DType.UINT32: "UINT32",
        DType.UINT64: "UINT64",
        DType.INT8: "INT8",
        DType.INT16: "INT16",
        DType.INT32: "INT32",
        DType.INT64: "INT64",
        DType.FLOAT16: "FP16",
        DType.FLOAT32: "FP32",
        DType.FLOAT64: "FP64",
        DType.BFLOAT16: "BF16",
        DType.STRING: "BYTES",
    }
)
DTYPES: Mapping[str, DType] = MappingProxyType({name: dtype for dtype, name in WIRE_NAMES.items()})
