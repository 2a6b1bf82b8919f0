"""What the values of a request may make the server allocate."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from runtime_service.batching.datatypes import MOST_STRINGS, element_count, from_bytes
from runtime_service.batching.numbers import from_numbers
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http.message import json_bytes, parse_json


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT64, DType.BOOL])
@pytest.mark.parametrize("nested", [False, True])
def test_one_long_text_among_numbers_does_not_widen_them(dtype: DType, nested: bool) -> None:
    data: list[object] = ["a" * 100_000, *([1] * 1000)]
    tracemalloc.start()
    with pytest.raises(IngotError, match="type str at position 0") as caught:
        from_numbers([data] if nested else data, dtype, (1001,), "x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert peak < 1_000_000


def test_numbers_of_any_kind_are_what_they_were() -> None:
    cases: tuple[Any, ...] = ([1, 2.5], [[1], [2.5]], [1.0, float("nan")], [2**53 + 1, 1], [True, False], 7, [2**63, 0])
    for data in cases:
        dtype = DType.FLOAT64 if np.asarray(data).dtype.kind == "f" else DType.UINT64
        found = from_numbers(data, DType.BOOL if data == [True, False] else dtype, np.shape(data), "x")
        np.testing.assert_array_equal(found, np.asarray(data))


MANY = 100_000
DOCUMENTS = {
    "small integers": (DType.INT64, "1"),
    "large integers": (DType.UINT64, "18446744073709551615"),
    "floats": (DType.FLOAT32, "0.12345"),
    "short floats": (DType.FLOAT64, "1e9"),
    "halves": (DType.BFLOAT16, "1e9"),
    "no numbers": (DType.FLOAT64, "NaN"),
    "infinities": (DType.FLOAT32, "Infinity"),
    "truth values": (DType.BOOL, "true"),
    "what does not fit": (DType.INT8, "300"),
    "what becomes infinite": (DType.FLOAT16, "1e9"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_numbers_take_no_more_than_their_document_was_counted_for(name: str) -> None:
    dtype, value = DOCUMENTS[name]
    text = f"[{','.join([value] * MANY)}]".encode()
    tracemalloc.start()
    data = parse_json(text)
    with suppress(IngotError):
        from_numbers(data, dtype, (MANY,), "x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < json_bytes(text)


def test_strings_are_counted_before_they_are_made() -> None:
    with pytest.raises(IngotError, match="too many strings"):
        from_bytes(bytes(4), DType.STRING, (MOST_STRINGS + 1,), "x")
    with pytest.raises(IngotError, match="too many strings"):
        from_numbers([""], DType.STRING, (MOST_STRINGS + 1,), "x")


@pytest.mark.parametrize(("dtype", "value"), [(DType.FLOAT32, 2.5), (DType.INT64, 7), (DType.BOOL, True)])
def test_a_scalar_stays_one(dtype: DType, value: object) -> None:
    for data in (value, [value]):
        found = from_numbers(data, dtype, (), "x")
        assert found.shape == ()
        assert found.item() == value


@pytest.mark.parametrize("extent", [2**63 - 1, -1, 0])
def test_what_many_extents_come_to_is_not_computed(extent: int) -> None:
    """The product of so many numbers would take hours."""
    with pytest.raises(IngotError) as caught:
        element_count([extent] * 2_000_000, "x")
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.received == "2000000 dimensions"
