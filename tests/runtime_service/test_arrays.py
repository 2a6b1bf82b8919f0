"""Memory that kernels take as it is."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from runtime_service import arrays
from runtime_service.arrays import address_of, aligned_bytes, aligned_copy


@pytest.mark.parametrize("size", [1, 64, 1000])
def test_aligned_bytes(size: int) -> None:
    for alignment in (64, 4096):
        block = aligned_bytes(size, alignment)
        assert (block.nbytes, block.ctypes.data % alignment) == (size, 0)


@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=np.float32).reshape(2, 3).T, np.array(7, np.int64), np.zeros((0, 4), np.bool_)],
    ids=["transposed", "scalar", "empty"],
)
def test_aligned_copy(array: np.ndarray) -> None:
    copy = aligned_copy(array)
    assert (copy.dtype, copy.shape) == (array.dtype, array.shape)
    assert copy.flags.c_contiguous
    assert copy.ctypes.data % 64 == 0 or not copy.size
    assert not np.shares_memory(copy, array)
    np.testing.assert_array_equal(copy, array)


_BLOCK = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize(
    "array",
    [
        _BLOCK,
        _BLOCK[1:, ::2],
        _BLOCK[::-1],
        np.zeros((0, 3)),
        np.array(5.0),
        np.frombuffer(b"read only", np.uint8, offset=3),
        np.ones(3, ml_dtypes.bfloat16),
        np.array(["text"], object),
        _BLOCK.view(np.recarray),
    ],
    ids=["plain", "strided", "reversed", "empty", "scalar", "read-only", "bfloat16", "objects", "subclass"],
)
def test_address(array: np.ndarray) -> None:
    assert address_of is arrays._read_address  # the slow way is for other interpreters
    assert address_of(array) == arrays._ask_address(array) == array.ctypes.data


def test_addresses_are_asked_for_where_objects_lie_elsewise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_HEADER", arrays._HEADER + 8)  # that is the number of axes and the flags
    assert not arrays._lies_as_expected()
    monkeypatch.undo()
    assert arrays._lies_as_expected()
    monkeypatch.setattr("sys.implementation.name", "another")
    assert not arrays._lies_as_expected()
