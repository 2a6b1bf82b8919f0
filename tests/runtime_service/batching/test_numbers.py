"""Numbers of JSON documents and typed contents are exact, or refused by name."""

from __future__ import annotations

import json
import math
import random
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from runtime_service.api.answers import json_values
from runtime_service.arrays import Array
from runtime_service.batching.numbers import from_numbers
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http.message import parse_json, written_json

INTEGERS = [d for d in DType if d in {DType.of(np.zeros(0, t)) for t in "bhiqBHIQ"}]
FLOATS = [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64]


def read(text: str, dtype: DType) -> Array:
    data = parse_json(text.encode())
    return from_numbers(data, dtype, (len(data),), "x")


def written(array: Array) -> Any:
    return parse_json(b"[" + b"".join(json_values(array, lambda size: None)) + b"]")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_every_integer_of_a_type_is_exact_both_ways(dtype: DType) -> None:
    limits, source = np.iinfo(dtype.numpy.name), random.Random(dtype.value)
    values = [limits.min, limits.max, 0, 1, limits.max // 2 + 1, limits.max - 1]
    values += [source.randint(limits.min, limits.max) for _ in range(500)]
    for some in (values, values[:1], values[1:2], sorted(values)):
        found = read(json.dumps(some), dtype)
        assert found.dtype == dtype.numpy
        assert found.tolist() == some
        assert written(found) == some


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_float_of_a_type_is_exact_both_ways(dtype: DType) -> None:
    kept = storage_dtype(dtype)
    bits = np.random.default_rng(3).integers(0, 256, 2000 * kept.itemsize, np.uint8).view(kept)
    with np.errstate(invalid="ignore"):
        values = bits[np.isfinite(bits)]
    found = from_numbers(written(values), dtype, values.shape, "x")
    assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize("text", ["[18446744073709551616, 1]", "[1, 1.5]", "[1e308, -0.0]", "[9007199254740993]"])
def test_integers_among_floats_are_the_nearest_ones(text: str) -> None:
    np.testing.assert_array_equal(read(text, DType.FLOAT64), [float(v) for v in json.loads(text)])


def test_infinities_that_are_written_stay() -> None:
    for dtype in FLOATS:
        found = read("[Infinity, -Infinity, NaN, 1]", dtype).astype(np.float64)
        np.testing.assert_array_equal(found, [math.inf, -math.inf, math.nan, 1])


BEYOND = [
    *((dtype, np.iinfo(dtype.numpy.name).max + 1) for dtype in INTEGERS),
    *((dtype, np.iinfo(dtype.numpy.name).min - 1) for dtype in INTEGERS),
    *((dtype, 10**400) for dtype in [*INTEGERS, *FLOATS]),
    (DType.FLOAT16, 65520.0),
    (DType.FLOAT16, -1e6),
    (DType.BFLOAT16, 3.4e38),
    (DType.FLOAT32, 1e39),
    (DType.FLOAT32, -3.4028236e38),
    (DType.BOOL, 2),
]


@pytest.mark.parametrize(("dtype", "value"), BEYOND)
def test_what_is_out_of_range_is_refused_with_its_place(dtype: DType, value: Any) -> None:
    refused(f"[0, {value}, 1]", dtype, "position 1")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("text", ["1e400", "-1e400", "1" + "0" * 309])
def test_no_number_becomes_infinite(dtype: DType, text: str) -> None:
    refused(f"[Infinity, {text}]", dtype, "position 1")


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("text", ["1.0", "1e3", "0.5", "true", "NaN", "Infinity", '"1"', "null", "{}"])
def test_what_is_no_integer_is_none(dtype: DType, text: str) -> None:
    refused(f"[1, {text}]", dtype, "position 1")


@pytest.mark.parametrize("dtype", [*FLOATS, DType.BOOL])
@pytest.mark.parametrize("text", ['"1"', "null", "{}"])
def test_what_is_no_number_is_none(dtype: DType, text: str) -> None:
    refused(f"[1, {text}]", dtype, "position 1")


def test_typed_contents_do_not_wrap() -> None:
    for dtype, value in ((DType.INT8, 128), (DType.UINT8, 256), (DType.INT16, -40000), (DType.UINT16, 65536)):
        with pytest.raises(IngotError) as caught:
            from_numbers(np.array([1, value]), dtype, (2,), "x")
        assert caught.value.received == f"{value} at position 1"


def refused(text: str, dtype: DType, received: str) -> None:
    with pytest.raises(IngotError) as caught:
        read(text, dtype)
    error = caught.value
    assert (error.code, error.tensor) == (ErrorCode.INVALID_ARGUMENT, "x")
    assert received in error.received
    assert "values for" in error.expected
    assert len(str(error)) < 500


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32])
def test_what_is_beside_the_middle_of_two_numbers_becomes_the_nearer_one(dtype: DType) -> None:
    kept, source = storage_dtype(dtype), random.Random(dtype.value)
    word = np.dtype(f"u{kept.itemsize}")
    largest = int(np.array(np.inf).astype(kept).view(word)) - 1
    codes = [0, 1, 2, largest - 1, *(source.randrange(largest) for _ in range(300))]
    below, above = (np.array([c + more for c in codes], word).view(kept).astype(np.float64).tolist() for more in (0, 1))
    texts, nearest = [], []
    with localcontext(prec=1500):
        for code, low, high in zip(codes, below, above, strict=True):
            middle = (Fraction(low) + Fraction(high)) / 2
            exact = Decimal(middle.numerator) / Decimal(middle.denominator)
            less, more = exact * (1 - Decimal("1e-30")), exact * (1 + Decimal("1e-30"))
            texts += [str(less), str(exact), str(more), f"-{more}"]
            nearest += [low, high if code % 2 else low, high, -high]
    text = f"[{','.join(texts)}]".encode()
    found = from_numbers(parse_json(text), dtype, (len(texts),), "x", lambda: written_json(text))
    assert found.astype(np.float64).tolist() == nearest
