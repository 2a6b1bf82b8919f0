"""Named arrays in a file, bfloat16 included: numpy alone forgets what its 16 bits are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

from bench.inputs import Array

_BRAIN = "bfloat16:"
"""What the name of an array of bfloat16 begins with in the file, where it is one of uint16."""


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    stored = dict(_stored(name, array) for name, array in arrays.items())
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **stored)


def read_arrays(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(_read(name, arrays[name]) for name in arrays.files)


def _stored(name: str, array: Array) -> tuple[str, Array]:
    return (_BRAIN + name, array.view(np.uint16)) if array.dtype == ml_dtypes.bfloat16 else (name, array)


def _read(name: str, array: Array) -> tuple[str, Array]:
    if not name.startswith(_BRAIN):
        return name, array
    return name.removeprefix(_BRAIN), array.view(ml_dtypes.bfloat16)
