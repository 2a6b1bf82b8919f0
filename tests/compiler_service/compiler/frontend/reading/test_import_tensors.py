"""Every element type in every storage form of TensorProto; lengths are checked before anything is read."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler_service.compiler.frontend.reading.external_data import ExternalData
from compiler_service.compiler.frontend.reading.limits import FrontendLimits, ImportBudget
from compiler_service.compiler.frontend.reading.tensors import DTYPES, dense, to_array
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError

_BYTES: dict[DType, int] = {t: n for n, t in DTYPES.items() if t is not DType.STRING}


def read(tensor: onnx.TensorProto, limits: FrontendLimits | None = None) -> np.ndarray:
    limits = limits or FrontendLimits()
    return to_array(tensor, ExternalData({}, None, limits), ImportBudget(limits))


@pytest.mark.parametrize("dtype", list(_BYTES), ids=str)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
def test_every_dtype_reads_as_onnx_reads_it(dtype: DType, raw: bool) -> None:
    values = [0, 1, 1, 0, 1] if dtype in (DType.BOOL, DType.UINT2, DType.INT2) else [0, 1, 2, 4, 1]
    target = helper.tensor_dtype_to_np_dtype(_BYTES[dtype])
    array = np.array(values).astype(target)
    if raw:
        tensor = numpy_helper.from_array(array, "t")
        assert tensor.HasField("raw_data")
    else:
        tensor = helper.make_tensor("t", _BYTES[dtype], [5], array if dtype.bits < 8 else array.tolist())
        assert not tensor.HasField("raw_data")
    found = read(tensor)
    assert DType.of(found) is dtype
    np.testing.assert_array_equal(found.astype(np.complex128), numpy_helper.to_array(tensor).astype(np.complex128))
    np.testing.assert_array_equal(found.astype(np.complex128), array.astype(np.complex128))


def test_signed_values_below_a_byte() -> None:
    for kind in (ml_dtypes.int4, ml_dtypes.int2):
        info = ml_dtypes.iinfo(kind)
        array = np.array([info.min, -1, 0, info.max, 1], dtype=kind)
        assert read(numpy_helper.from_array(array, "t")).tolist() == array.tolist()


def test_strings_and_scalars() -> None:
    text = helper.make_tensor("t", onnx.TensorProto.STRING, [2], [b"a", "é".encode()])
    assert read(text).tolist() == ["a", "é"]
    assert read(numpy_helper.from_array(np.array(2.5, np.float32), "t")).shape == ()
    assert read(helper.make_tensor("t", 1, [0, 3], [])).shape == (0, 3)


def _tensor(data_type: int, dims: list[int], raw: bytes | None = None, **fields: list[int]) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name="bad", data_type=data_type, dims=dims, **fields)
    if raw is not None:
        tensor.raw_data = raw
    return tensor


@pytest.mark.parametrize(
    ("tensor", "code", "says"),
    [
        (_tensor(1, [4], b"\0" * 15), ErrorCode.INVALID_MODEL, "as many bytes"),
        (_tensor(1, [4], b"\0" * 17), ErrorCode.INVALID_MODEL, "as many bytes"),
        (_tensor(22, [3], b"\0"), ErrorCode.INVALID_MODEL, "as many bytes"),
        (_tensor(7, [4], None, int64_data=[1, 2, 3]), ErrorCode.INVALID_MODEL, "as many elements"),
        (_tensor(7, [2]), ErrorCode.INVALID_MODEL, "as many elements"),
        (_tensor(8, [2]), ErrorCode.INVALID_MODEL, "as many elements"),
        (_tensor(1, [-1], b""), ErrorCode.INVALID_MODEL, "negative dim"),
        (_tensor(1, [2**33, 2**33], b"\0" * 16), ErrorCode.LIMIT_EXCEEDED, "too large"),
        (_tensor(1, [1] * 17, b"\0" * 4), ErrorCode.LIMIT_EXCEEDED, "too many axes"),
        (_tensor(0, [1], b"\0"), ErrorCode.UNSUPPORTED_DTYPE, "element type"),
        (_tensor(27, [4], b"\0" * 3), ErrorCode.UNSUPPORTED_DTYPE, "element type"),
        (_tensor(99, [1], b"\0"), ErrorCode.UNSUPPORTED_DTYPE, "element type"),
    ],
)
def test_malformed_tensors_are_named(tensor: onnx.TensorProto, code: ErrorCode, says: str) -> None:
    with pytest.raises(IngotError, match=says) as caught:
        read(tensor)
    assert (caught.value.code, caught.value.tensor) == (code, "bad")


def test_segments_are_refused() -> None:
    tensor = _tensor(1, [1], b"\0" * 4)
    tensor.segment.begin = 0
    with pytest.raises(IngotError, match="segmented"):
        read(tensor)


def _sparse(values: list[float], indices: object, dims: list[int]) -> onnx.SparseTensorProto:
    array = np.asarray(indices, dtype=np.int64)
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, np.float32), "s"), numpy_helper.from_array(array, ""), dims
    )


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]], ids=["linear", "by axis"])
def test_sparse_tensors_become_dense(indices: object) -> None:
    limits = FrontendLimits()
    found = dense(_sparse([5, 7], indices, [2, 3]), ExternalData({}, None, limits), ImportBudget(limits))
    assert found.tolist() == [[0, 5, 0], [0, 0, 7]]


@pytest.mark.parametrize(
    ("values", "indices", "dims"),
    [
        ([1.0], [6], [2, 3]),
        ([1.0], [-1], [2, 3]),
        ([1.0], [[0, 3]], [2, 3]),
        ([1.0], [[-1, 0]], [2, 3]),
        ([1.0], [0, 1], [2, 3]),
        ([1.0], [0], [-2, -3]),
        ([1.0], [[[0]]], [2, 3]),
    ],
)
def test_malformed_sparse_tensors_are_named(values: list[float], indices: object, dims: list[int]) -> None:
    limits = FrontendLimits()
    with pytest.raises(IngotError) as caught:
        dense(_sparse(values, indices, dims), ExternalData({}, None, limits), ImportBudget(limits))
    assert (caught.value.code, caught.value.tensor) == (ErrorCode.INVALID_MODEL, "s")


def test_a_sparse_bomb_is_refused() -> None:
    limits = FrontendLimits()
    with pytest.raises(IngotError) as caught:
        dense(_sparse([1.0], [0], [2**20, 2**20]), ExternalData({}, None, limits), ImportBudget(limits))
    assert caught.value.code is ErrorCode.LIMIT_EXCEEDED


def test_empty_tensors_are_fine_and_absurd_ones_are_refused() -> None:
    assert read(_tensor(1, [1024, 0, 3], b"")).shape == (1024, 0, 3)
    with pytest.raises(IngotError) as caught:
        read(_tensor(1, [2**31, 2**31, 0], b""))  # numpy itself cannot hold this
    assert caught.value.code is ErrorCode.LIMIT_EXCEEDED
