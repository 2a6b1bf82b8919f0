"""Memory that kernels take as it is."""

from __future__ import annotations

import numpy as np
import pytest

from runtime_service.arrays import aligned_bytes, aligned_copy


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
