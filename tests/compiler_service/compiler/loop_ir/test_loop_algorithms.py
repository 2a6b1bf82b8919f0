"""Loop functions of sequential operators, in the interpreter and through the passes, against plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.loop_ir.algorithms.table import algorithm_function
from compiler_service.compiler.loop_ir.interpret import run
from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.loop_ir.verify import verify
from compiler_service.compiler.tensor_expr.tensor import placeholder
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import symbol

Array = np.ndarray[Any, np.dtype[Any]]


def positions(mask: Array, count: int) -> Array:
    n, k = symbol("d0"), symbol("d1")
    given_mask, out = placeholder("x0", (n,), DType.BOOL), placeholder("y", (k,), DType.INT64)
    function = algorithm_function("ingot.Positions", "positions", [given_mask], out, 2, {})
    verify(function)
    flat = passes.run(function)
    verify(flat, flat=True)
    results = []
    for program in (function, flat):
        result = np.full(count, -7)
        run(program, [mask, result], {"d0": len(mask), "d1": count})
        results.append(result)
    np.testing.assert_array_equal(results[0], results[1])
    return results[0]


@given(st.lists(st.booleans(), max_size=20))
def test_positions(mask: list[bool]) -> None:
    array = np.array(mask, bool)
    np.testing.assert_array_equal(positions(array, int(array.sum())), np.flatnonzero(array))


def test_positions_never_leave_their_room() -> None:
    assert positions(np.ones(5, bool), 3).tolist() == [0, 1, 2]


def overlap(a: Array, b: Array) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    common = float(np.prod(np.maximum(high - low, 0)))
    union = float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - common
    return common / union if union > 0 else 0.0


def suppressed(boxes: Array, scores: Array, most: int, threshold: float, least: float) -> list[list[list[int]]]:
    found = []
    for number in range(len(boxes)):
        rows = []
        for row in scores[number]:
            kept: list[int] = []
            for i in np.argsort(-row, kind="stable"):
                if (
                    row[i] > least
                    and len(kept) < most
                    and all(overlap(boxes[number, i], boxes[number, k]) <= threshold for k in kept)
                ):
                    kept.append(int(i))
            rows.append(kept)
        found.append(rows)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("centered", [0, 1])
@pytest.mark.parametrize(("most", "least"), [(3, 0.3), (100, -1.0), (0, 0.0)])
def test_suppression(most: int, least: float, centered: int) -> None:
    rng = np.random.default_rng(most)
    low = rng.random((2, 12, 2))
    boxes = np.concatenate([low, low + rng.random((2, 12, 2)) / 2], -1).astype(np.float32)
    scores = rng.random((2, 3, 12)).astype(np.float32)
    order = np.argsort(-scores, axis=-1, kind="stable")
    given_boxes = boxes
    if centered:
        given_boxes = np.concatenate([(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]], -1)
    shapes = [boxes.shape, scores.shape, order.shape, (1,), (), (1,)]
    dtypes = [DType.FLOAT32, DType.FLOAT32, DType.INT64, DType.INT64, DType.FLOAT32, DType.FLOAT32]
    arguments = [placeholder(f"x{i}", s, t) for i, (s, t) in enumerate(zip(shapes, dtypes, strict=True))]
    out = placeholder("y", scores.shape, DType.INT64)
    function = algorithm_function("ingot.Suppressed", "nms", arguments, out, 0, {"centered": centered})
    verify(function)
    arrays: list[np.ndarray] = [
        given_boxes.astype(np.float32),
        scores,
        order,
        np.array([most]),
        np.array(0.3, np.float32),
        np.array([least], np.float32),
    ]
    for program in (function, passes.run(function)):
        result = np.zeros(scores.shape, np.int64)
        run(program, [*arrays, result])
        kept = [[[int(i) for i in row if i >= 0] for row in rows] for rows in result]
        assert kept == suppressed(boxes, scores, most, 0.3, least)


def sorted_by(algorithm: str, data: Array, dtype: DType, largest: bool, count: int) -> Array:
    """The first ``count`` positions that the algorithm gives, before and after the loop passes."""
    rows, n = data.shape
    width = symbol("d0")
    shape = (rows, 2, width) if algorithm == "ingot.Sorted" else (rows, count)
    x, out = placeholder("x0", (rows, width), dtype), placeholder("y", shape, DType.INT64)
    function = algorithm_function(algorithm, "sort", [x], out, 1, {"largest": int(largest)})
    verify(function)
    flat = passes.run(function)
    verify(flat, flat=True)
    results = []
    for program in (function, flat):
        result = np.full((rows, 2, n) if algorithm == "ingot.Sorted" else (rows, count), -7)
        run(program, [data, result], {"d0": n})
        results.append(result[:, 0, :count] if algorithm == "ingot.Sorted" else result)
    np.testing.assert_array_equal(results[0], results[1])
    return results[0]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ingot.Sorted", "ingot.Best"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 15, 16, 17, 33, 64, 70])
def test_sorting_is_stable(algorithm: str, largest: bool, n: int) -> None:
    data = np.random.default_rng(n).integers(0, 6, (3, n))
    expected = np.argsort(-data if largest else data, axis=1, kind="stable")
    for count in {1, (n + 1) // 2, n}:
        np.testing.assert_array_equal(sorted_by(algorithm, data, DType.INT64, largest, count), expected[:, :count])


@pytest.mark.parametrize("algorithm", ["ingot.Sorted", "ingot.Best"])
def test_not_a_number_is_the_largest(algorithm: str) -> None:
    data = np.array([[1, np.nan, 3, -np.inf, np.nan, np.inf]], np.float32)
    assert sorted_by(algorithm, data, DType.FLOAT32, True, 6).tolist() == [[1, 4, 5, 2, 0, 3]]
    assert sorted_by(algorithm, data, DType.FLOAT32, False, 6).tolist() == [[3, 0, 2, 5, 1, 4]]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    "dtype",
    [DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.INT8, DType.UINT8, DType.INT32, DType.INT64, DType.UINT64],
)
def test_the_first_many_are_those_that_reach_a_threshold(dtype: DType, largest: bool) -> None:
    random = np.random.default_rng(dtype.bits)
    few, many = random.integers(0, 9, (1, 90)), random.integers(0, 1 << 62, (1, 90)) >> (62 - min(dtype.bits, 62))
    for numbers in (few, many, many * (random.random((1, 90)) < 0.5), np.zeros((1, 90), np.int64)):
        data = numbers.astype(dtype.numpy)
        if dtype.is_signed:
            data = data * random.choice(np.array([-1, 1], dtype.numpy), data.shape)
        keys = data.astype(object)
        expected = sorted(range(90), key=lambda i: -keys[0, i] if largest else keys[0, i])
        for count in (65, 90):
            assert sorted_by("ingot.Best", data, dtype, largest, count).tolist() == [expected[:count]]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("share", [0.1, 0.9, 1.0])
def test_a_threshold_knows_no_number_and_infinities(share: float, largest: bool) -> None:
    random = np.random.default_rng(0)
    data = random.choice(np.array([1, -1, np.inf, -np.inf, 0.0, -0.0], np.float32), (1, 80))
    data = np.where(random.random((1, 80)) < share, np.float32(np.nan), data)
    rank = [(2, 0) if np.isnan(v) else (1, float(v)) for v in data[0]]
    expected = sorted(range(80), key=lambda i: tuple(-r for r in rank[i]) if largest else rank[i])
    assert sorted_by("ingot.Best", data, DType.FLOAT32, largest, 70).tolist() == [expected[:70]]


def in_both_forms(function: Function, arrays: list[Array], blank: Array) -> Array:
    """What the program makes of ``blank``, the same before and after the loop passes."""
    verify(function)
    flat = passes.run(function)
    verify(flat, flat=True)
    results = [blank.copy(), blank.copy()]
    for program, result in zip((function, flat), results, strict=True):
        run(program, [*arrays, result], {})
    np.testing.assert_array_equal(results[0], results[1])
    return results[0]


def cumulative(x: Array, dtype: DType, axis: int, **flags: int) -> Array:
    given_x, out = placeholder("x0", x.shape, dtype), placeholder("y", x.shape, dtype)
    function = algorithm_function("ingot.Cumulative", "cumulative", [given_x], out, 0, {"axis": axis, **flags})
    return in_both_forms(function, [x], np.full(x.shape, 77, x.dtype))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("product", [0, 1])
def test_cumulative(axis: int, product: int) -> None:
    x = np.random.default_rng(axis).integers(-3, 4, (3, 4, 5))
    expected = (np.cumprod if product else np.cumsum)(x, axis=axis)
    np.testing.assert_array_equal(cumulative(x, DType.INT64, axis, product=product), expected)
    back = np.flip((np.cumprod if product else np.cumsum)(np.flip(x, axis), axis=axis), axis)
    np.testing.assert_array_equal(cumulative(x, DType.INT64, axis, product=product, reverse=1), back)


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=30), st.booleans())
def test_an_exclusive_sum_is_that_before_the_element(numbers: list[int], reverse: bool) -> None:
    x = np.array([numbers])
    flags = {"reverse": int(reverse)}
    with_own = cumulative(x, DType.INT64, 1, **flags)
    np.testing.assert_array_equal(cumulative(x, DType.INT64, 1, exclusive=1, **flags), with_own - x)


def test_narrow_floats_are_summed_in_full_and_rounded_once() -> None:
    x = np.full((1, 400), 0.1, np.float16)
    expected = np.cumsum(x.astype(np.float32), axis=1, dtype=np.float32).astype(np.float16)
    np.testing.assert_array_equal(cumulative(x, DType.FLOAT16, 1), expected)


def scattered(data: Array, indices: Array, updates: Array, **attributes: int | str) -> Array:
    arguments = [
        placeholder(name, array.shape, DType.INT64 if array is indices else DType.FLOAT32)
        for name, array in (("x0", data), ("x1", indices), ("x2", updates))
    ]
    out = placeholder("y", data.shape, DType.FLOAT32)
    function = algorithm_function("ingot.Scattered", "scattered", arguments, out, 0, attributes)
    return in_both_forms(function, [data, indices, updates], np.full(data.shape, 77, np.float32))


def test_updates_beyond_an_end_are_passed_over() -> None:
    data, updates = np.zeros((2, 5), np.float32), np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    found = scattered(data, np.array([[0, 5, -1], [-6, 9, 2]]), updates, axis=1, reduction="none")
    assert found.tolist() == [[1, 0, 0, 0, 3], [0, 0, 6, 0, 0]]
    slices = np.arange(1, 41, dtype=np.float32).reshape(2, 20)
    found = scattered(np.zeros((3, 20), np.float32), np.array([[3], [-3]]), slices, reduction="add")
    np.testing.assert_array_equal(found, [slices[1], *np.zeros((2, 20))])


def test_updates_may_cover_a_part_of_the_data() -> None:
    data = np.zeros((3, 4), np.float32)
    found = scattered(data, np.array([[1, 3], [0, 2]]), np.ones((2, 2), np.float32), axis=1, reduction="none")
    assert found.tolist() == [[0, 1, 0, 1], [1, 0, 1, 0], [0, 0, 0, 0]]


def test_unknown_algorithms_are_a_fault() -> None:
    with pytest.raises(IngotError, match=r"ingot\.Nothing") as caught:
        algorithm_function("ingot.Nothing", "f", [], placeholder("y", (1,), DType.INT64), 0, {})
    assert caught.value.code is ErrorCode.COMPILER_FAULT


def determinants(x: Array) -> Array:
    given_x, out = placeholder("x0", x.shape, DType.FLOAT32), placeholder("y", x.shape[:-2], DType.FLOAT32)
    function = algorithm_function("ingot.Determinant", "det", [given_x], out, 0, {})
    return in_both_forms(function, [x], np.full(x.shape[:-2], 77, np.float32))


def test_determinants() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 7)).astype(np.float32)
    x[0, 0, 0, 0] = 0  # rows must be exchanged
    x[0, 1, 5] = x[0, 1, 2]
    x[1, 0] = 0
    np.testing.assert_allclose(determinants(x), np.linalg.det(x.astype(np.float64)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("place", [(0, 0), (4, 0), (6, 6), (0, 6)])
def test_the_determinant_of_what_holds_no_number_is_none(place: tuple[int, int]) -> None:
    x = np.zeros((7, 7), np.float32)
    x[place] = np.nan
    assert np.isnan(determinants(x + np.eye(7, dtype=np.float32)))
