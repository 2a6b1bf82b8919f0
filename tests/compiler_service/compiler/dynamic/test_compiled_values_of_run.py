"""Positions, steps and counts at the ends of their range: what an operator rules out is refused, and what it allows does not wrap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

from runtime_service.loading.loader import load_model
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.dynamic.compiled import (
    EXECUTORS,
    INT64,
    Array,
    Feeds,
    compiled,
    model,
    node,
    normal,
    tensor,
)

_LEAST, _MOST = -(2**63), 2**63 - 1
_ROW = np.arange(5, dtype=np.float32)


def run(proto: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    """The first output, by each executor."""
    found = []
    for executor in EXECUTORS:
        with load_model(compiled(proto), threads=1, executor=executor) as loaded:
            found.append(next(iter(loaded.run(feeds).values())))
    return found


def refused(proto: onnx.ModelProto, feeds: Feeds, code: ErrorCode = ErrorCode.INVALID_ARGUMENT) -> None:
    for executor in EXECUTORS:
        with load_model(compiled(proto), threads=1, executor=executor) as loaded, pytest.raises(IngotError) as caught:
            loaded.run(feeds)
        assert caught.value.code is code, caught.value


_RANGE = model(
    [node("Range", ["a", "b", "c"], ["y"])], [tensor(n, [], INT64) for n in "abc"], [tensor("y", ["n"], INT64)]
)


@pytest.mark.parametrize(
    ("start", "limit", "delta"),
    [
        (_LEAST, _MOST, _MOST),
        (_MOST, _LEAST, _LEAST),
        (-5, _MOST, 1 << 62),
        (5, _LEAST, -(1 << 62)),
        (_MOST, _LEAST, 1),
        (_LEAST, _MOST, -1),
        (0, 1, _MOST),
        (0, -1, _LEAST),
        (0, 10, 3),
        (10, 0, -3),
        (0, 9, 3),
        (5, 5, 1),
        (5, 5, -1),
    ],
)
def test_a_range_has_as_many_numbers_as_whole_arithmetic_says(start: int, limit: int, delta: int) -> None:
    feeds = {"a": np.array(start), "b": np.array(limit), "c": np.array(delta)}
    for found in run(_RANGE, feeds):
        assert found.tolist() == list(range(start, limit, delta))


@pytest.mark.parametrize("limit", [5, _MOST])
def test_a_range_that_no_memory_holds_is_refused(limit: int) -> None:
    feeds = {"a": np.array(_LEAST), "b": np.array(limit), "c": np.array(1)}
    refused(_RANGE, feeds, ErrorCode.RESOURCE_EXHAUSTED)


_SLICE = model(
    [node("Slice", ["x", "s", "e", "a", "k"], ["y"])],
    [tensor("x", [5]), *(tensor(n, [1], INT64) for n in "seak")],
    [tensor("y", ["n"])],
)


@pytest.mark.parametrize("step", [_MOST, 6, 5, 4, 2, -2, -4, -5, -6, _LEAST])
def test_a_slice_takes_one_element_where_its_step_is_longer_than_its_axis(step: int) -> None:
    first, last = (0, _MOST) if step > 0 else (4, _LEAST)
    expected = _ROW[:: step if abs(step) < 6 else (6 if step > 0 else -6)]
    feeds: Feeds = {"x": _ROW, **{n: np.array([v]) for n, v in zip("seak", (first, last, 0, step), strict=True)}}
    for found in run(_SLICE, feeds):
        np.testing.assert_array_equal(found, expected)


def _one(op: str, inputs: Sequence[tuple[str, Sequence[int], int]], **attributes: object) -> onnx.ModelProto:
    """One node; inputs without a shape are absent."""
    names = [name for name, _, _ in inputs]
    values = [tensor(name, shape, kind) for name, shape, kind in inputs if name]
    return model([node(op, names, ["y"], **attributes)], values, [onnx.ValueInfoProto(name="y")], opset=24)


_F = onnx.TensorProto.FLOAT
_ABSENT = ("", (), _F)
_UNPOOL = _one(
    "MaxUnpool",
    [("x", (1, 1, 2, 2), _F), ("i", (1, 1, 2, 2), INT64), ("o", (4,), INT64)],
    kernel_shape=[2, 2],
    strides=[2, 2],
)
_CACHED = _one(
    "Attention",
    [("q", (1, 1, 2, 4), _F), ("k", (1, 1, 5, 4), _F), ("v", (1, 1, 5, 4), _F), *3 * [_ABSENT], ("i", (1,), INT64)],
)
_REGION = _one("RoiAlign", [("x", (2, 1, 4, 4), _F), ("r", (1, 4), _F), ("i", (1,), INT64)])
_SHAPE = _one("Reshape", [("x", (4,), _F), ("i", (2,), INT64)])
_PADDED = _one("Pad", [("x", (2, 2, 2), _F), ("p", (2,), INT64), _ABSENT, ("i", (1,), INT64)])
_UNPOOLED: Feeds = {"x": normal(1, 1, 2, 2), "o": np.array([1, 1, 5, 5])}
_ATTENDED: Feeds = {"q": normal(1, 1, 2, 4), "k": normal(1, 1, 5, 4, seed=1), "v": normal(1, 1, 5, 4, seed=2)}
_IMAGES: Feeds = {"x": normal(2, 1, 4, 4), "r": np.array([[0, 0, 2, 2]], np.float32)}


def _place(last: int) -> Array:
    return np.array([0, 2, 8, last]).reshape(1, 1, 2, 2)


@pytest.mark.parametrize(
    ("proto", "feeds", "right", "wrong"),
    [
        (_UNPOOL, _UNPOOLED, [_place(15)], [_place(i) for i in (16, 25, -1, _MOST, _LEAST)]),
        (_CACHED, _ATTENDED, [np.array([n]) for n in (1, 5)], [np.array([n]) for n in (6, -1, _MOST, _LEAST)]),
        (_REGION, _IMAGES, [np.array([n]) for n in (0, 1)], [np.array([n]) for n in (2, -1, -2, _MOST, _LEAST)]),
        (
            _SHAPE,
            {"x": normal(4)},
            [np.array(s) for s in ([2, 2], [-1, 2])],
            [np.array([n, 2]) for n in (-2, -7, _LEAST)],
        ),
        (
            _PADDED,
            {"x": normal(2, 2, 2), "p": np.array([1, 1])},
            [np.array([n]) for n in (0, 2, -3)],
            [np.array([n]) for n in (3, -4, 7, _LEAST)],
        ),
    ],
    ids=["MaxUnpool", "Attention", "RoiAlign", "Reshape", "Pad"],
)
def test_what_is_out_of_range_is_refused_and_never_taken_for_something_else(
    proto: onnx.ModelProto, feeds: Feeds, right: Sequence[Array], wrong: Sequence[Array]
) -> None:
    for value in right:
        run(proto, {**feeds, "i": value})
    for value in wrong:
        refused(proto, {**feeds, "i": value})
