"""Modules in files: a ZIP archive with the text, and every large array under its digest."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.text import array_digest
from shared_ir.storage.faults import told

Array = np.ndarray[Any, Any]
_TEXT = "module.txt"
_ARRAY = ".npy"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The time of every member: equal modules make equal files."""


def write_module(path: Path, text: str, constants: Mapping[str, Array]) -> None:
    with told("the module cannot be written", path), zipfile.ZipFile(path, "w") as archive:
        _write(archive, _TEXT, text.encode())
        for digest, array in sorted(constants.items()):
            data = io.BytesIO()
            np.lib.format.write_array(data, np.ascontiguousarray(_plain(array)), allow_pickle=False)
            _write(archive, f"{digest}.{DType.of(array).value}{_ARRAY}", data.getvalue())


def read_module(path: Path) -> tuple[str, Mapping[str, Array]]:
    """Text and arrays by digest.

    Raises:
        IngotError: NOT_FOUND; INVALID_ARGUMENT, the file is none of :func:`write_module`.
    """
    try:
        with told("the module cannot be read", path), zipfile.ZipFile(path) as archive:
            arrays = [_read(archive, n) for n in archive.namelist() if n.endswith(_ARRAY)]
            return archive.read(_TEXT).decode(), {array_digest(a): a for a in arrays}
    except (zipfile.BadZipFile, LookupError, ValueError, EOFError) as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the file is no module, or damaged",
            field=str(path),
            expected="a file of Module.save",
            received=f"{type(error).__name__}: {error}",
        ) from error


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), data)


def _read(archive: zipfile.ZipFile, name: str) -> Array:
    """NOTE: the element type is in the name, since files of numpy know none of ml_dtypes."""
    stored = np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False)
    dtype = DType(name.removesuffix(_ARRAY).rpartition(".")[2])
    return stored if dtype is DType.STRING else stored.view(storage_dtype(dtype))


def _plain(array: Array) -> Array:
    """``array`` with elements of numpy's own types that have the same bits."""
    if array.dtype == object:
        return array.astype(str)
    return array if array.dtype.type.__module__ == "numpy" else array.view(f"u{array.dtype.itemsize}")
