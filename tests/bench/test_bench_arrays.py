"""Arrays keep their names and types on the way to an engine and back."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from bench.arrays import read_arrays, write_arrays


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.bool_])
def test_arrays_come_back_as_they_were(tmp_path: Path, dtype: type) -> None:
    array: np.ndarray = np.arange(6).reshape(2, 3).astype(dtype)
    write_arrays(tmp_path / "arrays.npz", {"a/b:c": array})
    (name,), (found,) = zip(*read_arrays(tmp_path / "arrays.npz").items(), strict=True)
    assert name == "a/b:c"
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()
