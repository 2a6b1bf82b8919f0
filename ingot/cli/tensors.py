"""Input tensors from the command line."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ingot.cli.values import extents, pair
from ingot.endpoint import Array
from ingot.records import TensorInfo
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import whole_number
from shared_ir.storage.faults import told

HELP = "NAME=file.npy, or NAME=random:1x3x48x192; may be repeated; inputs of fixed shape are random without it"


_BYTES_OF_ELEMENT = 16
"""That an element takes while it is made up."""
_MOST_DIMS = 64
"""Of an array of NumPy."""
Given = Path | tuple[int, ...]
"""A file, or the shape of an array of random values."""


def given_input(text: str) -> tuple[str, Given]:
    """For ``type=``: the name of an input, and what it is to be."""
    return pair(_given, "NAME=file.npy or NAME=random:1x3")(text)


def _given(text: str) -> Given:
    return extents(text.removeprefix("random:")) if text.startswith("random:") else Path(text)


def read_inputs(given: Mapping[str, Given], expected: Sequence[TensorInfo], seed: int = 0) -> dict[str, Array]:
    """Arrays for the inputs of a model; those that are not given are random where their shape is fixed, and left out
    where they are optional.

    Raises:
        IngotError: INVALID_ARGUMENT naming the input.
    """
    random = np.random.default_rng(seed)
    by_name = {info.name: info for info in expected}
    for name in given:
        if name not in by_name:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT, "the model has no such input", tensor=name, expected=", ".join(by_name)
            )
    wanted = {name: info for name, info in by_name.items() if name in given or not info.optional}
    return {name: _array(info, given.get(name), random) for name, info in wanted.items()}


def _array(info: TensorInfo, given: Given | None, random: np.random.Generator) -> Array:
    if given is None:
        shape = tuple(extent for extent in map(whole_number, info.shape) if extent is not None)
        if len(shape) < len(info.shape):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "an input of variable shape is not given",
                tensor=info.name,
                expected=f"{info.dtype}[{', '.join(info.shape)}]",
                remedy=f"Add --input {info.name}=file.npy or --input {info.name}=random:1x3x224x224.",
            )
        return random_array(info.name, info.dtype, shape, random)
    if isinstance(given, tuple):
        return random_array(info.name, info.dtype, given, random)
    return _read(info.name, given)


def _read(name: str, path: Path) -> Array:
    """NOTE: what the head of a file says of its size is believed by NumPy, but where the file is mapped: then all of it is there."""
    try:
        with np.errstate(all="ignore"):  # sizes that wrap are refused too
            found = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(found, np.ndarray):
            return np.array(found)
        reason = "a file of several arrays"
    except (OSError, EOFError, ValueError, OverflowError, MemoryError) as error:
        reason = str(error) or type(error).__name__
    message = f"cannot read the array: {reason[:200]}"
    raise IngotError(ErrorCode.INVALID_ARGUMENT, message, tensor=name, field=str(path), expected="an array as .npy")


def random_array(name: str, dtype: str, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Normally distributed floats, integers from 0 to 9 as far as there are, bools, or strings of a digit.

    Raises:
        IngotError: INVALID_ARGUMENT naming the input, the machine has not the memory, or there is no such type of elements here.
    """
    if dtype not in set(DType):
        message, remedy = f"values of type {dtype} cannot be made up", "Give a file."
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, tensor=name, remedy=remedy)
    most = _memory() // _BYTES_OF_ELEMENT
    if len(shape) > _MOST_DIMS or math.prod(max(1, extent) for extent in shape) > most:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "an array of random values would be larger than this machine",
            tensor=name,
            expected=f"at most {most} elements in at most {_MOST_DIMS} dims",
            received="x".join(map(str, shape))[:100],
        )
    try:
        return _random(DType(dtype), shape, random)
    except MemoryError as error:
        message = "there is no memory for an array of random values"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, tensor=name, remedy="Ask for a smaller one.") from error


def _random(dtype: DType, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    if dtype is DType.STRING:
        return random.integers(0, 10, shape).astype(str).astype(object)
    kind = storage_dtype(dtype)
    if dtype.is_float or kind.kind == "c":
        return random.standard_normal(shape).astype(kind)
    return random.integers(0, 2 if dtype is DType.BOOL else min(10, dtype.limits[1] + 1), shape).astype(kind)


def _memory() -> int:
    """Bytes that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def describe(outputs: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Name, dtype, shape and range of each array."""
    return [
        {
            "name": name,
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            **(_range(array) if array.size and array.dtype != object else {}),
        }
        for name, array in outputs.items()
    ]


def _range(array: Array) -> dict[str, Any]:
    least, most = array.min().item(), array.max().item()
    return {"min": least, "max": most, "mean": float(array.mean(dtype=np.float64))}


def save_outputs(outputs: Mapping[str, Array], directory: Path) -> None:
    """One ``.npy`` per output; strings as arrays of bytes, which lose zeros at their ends."""
    with told("the outputs cannot be written", directory):
        directory.mkdir(parents=True, exist_ok=True)
        for name, array in outputs.items():
            plain = array if array.dtype != object else _as_bytes(array)
            np.save(directory / f"{name.replace('/', '_')}.npy", plain, allow_pickle=False)


def _as_bytes(array: Array) -> Array:
    texts = [text if isinstance(text, bytes) else str(text).encode() for text in array.flat]
    return np.array(texts, "S").reshape(array.shape)
