"""Input tensors from the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ingot.cli.values import extents, pair
from ingot.endpoint import Array
from ingot.records import TensorInfo
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import whole_number
from shared_ir.storage.faults import told

HELP = "NAME=file.npy, or NAME=random:1x3x48x192; may be repeated; inputs of fixed shape are random without it"


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
        return random_array(info.dtype, shape, random)
    if isinstance(given, tuple):
        return random_array(info.dtype, given, random)
    try:
        return np.asarray(np.load(given, allow_pickle=False))
    except (OSError, ValueError) as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT, f"cannot read the array: {error}", tensor=info.name, field=str(given)
        ) from error


def random_array(dtype: str, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Normally distributed floats, integers from 0 to 9, or bools."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(np.bool_)
    if kind.kind in "iu":
        return random.integers(0, 10, shape).astype(kind)
    return random.standard_normal(shape).astype(kind)


def describe(outputs: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Name, dtype, shape and range of each array."""
    return [
        {
            "name": name,
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            **({"min": array.min().item(), "max": array.max().item()} if array.size else {}),
            **({"mean": float(array.mean(dtype=np.float64))} if array.size else {}),
        }
        for name, array in outputs.items()
    ]


def save_outputs(outputs: Mapping[str, Array], directory: Path) -> None:
    """One ``.npy`` per output."""
    with told("the outputs cannot be written", directory):
        directory.mkdir(parents=True, exist_ok=True)
        for name, array in outputs.items():
            np.save(directory / f"{name.replace('/', '_')}.npy", array, allow_pickle=False)
