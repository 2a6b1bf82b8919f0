"""Input tensors from the command line: whatever is asked for is an array or a sentence."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest

from ingot.cli.tensors import describe, given_input, read_inputs, save_outputs
from ingot.endpoint import Array
from ingot.records import TensorInfo
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError

LARGE = [
    "99999999999x64",
    "9223372036854775807",
    "9223372036854775807x9223372036854775807",
    "0x99999999999999999",
    "x".join("1" * 65),
]


def refused(dtype: str, shape: tuple[str, ...], *given: str) -> IngotError:
    with pytest.raises(IngotError) as caught:
        read_inputs(dict(map(given_input, given)), [TensorInfo("x", dtype, shape)])
    assert (caught.value.code, caught.value.tensor) == (ErrorCode.INVALID_ARGUMENT, "x")
    return caught.value


@pytest.mark.parametrize("dtype", [*DType, "float99"])
@pytest.mark.parametrize("text", LARGE)
def test_random_values_of_any_size_are_refused_before_memory_is(dtype: str, text: str) -> None:
    if text.startswith("0x"):
        text = text.replace("99999999999999999", str(2**62))
    refused(dtype, ("?",), f"x=random:{text}")
    refused(dtype, tuple(text.split("x")))  # as a server may tell


@pytest.mark.parametrize("dtype", DType)
def test_random_values_of_every_type(dtype: DType, tmp_path: Path) -> None:
    (array,) = read_inputs({"x": (2, 3)}, [TensorInfo("x", dtype, ("2", "3"))]).values()
    assert array.shape == (2, 3)
    (told,) = describe({"x": array}) if array.dtype.kind != "c" else ({"name": "x"},)
    assert told["name"] == "x"
    save_outputs({"x": array}, tmp_path)
    assert (tmp_path / "x.npy").is_file()


def head(shape: str, dtype: str = "<f4") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({shape}), }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def several() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, a=np.ones(2), b=np.ones(3))
    return stream.getvalue()


FILES = {
    "less than it says": head("99999999999, 64") + b"\0" * 64,
    "beyond all numbers": head("9223372036854775807, 9223372036854775807"),
    "less than none": head("-1,"),
    "objects": head("1,", "|O") + b"\0" * 8,
    "several": several(),
    "no array": b"text",
    "nothing": b"",
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_not_what_it_says_is_refused(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    file.write_bytes(FILES[kind])
    assert refused("float32", ("?",), f"x={file}").field == str(file)


@pytest.mark.parametrize("array", [np.ones((2, 3), np.float32), np.zeros((0, 4)), np.float64(3), np.array(["a", "bc"])])
def test_a_file_of_an_array_is_read(array: Array, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array)
    (found,) = read_inputs({"x": tmp_path / "a.npy"}, [TensorInfo("x", "float32", ("?",))]).values()
    np.testing.assert_array_equal(found, array)
