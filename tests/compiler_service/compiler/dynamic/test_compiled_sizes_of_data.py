"""Shapes that depend on data, through the whole compiler and both executors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest

from runtime_service.loading.loader import ExecutorKind, load_model
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.program import launches
from tests.compiler_service.compiler.dynamic.compiled import (
    BOOL,
    EXECUTORS,
    FLOAT,
    INT32,
    INT64,
    Array,
    Case,
    Feeds,
    assert_equals_onnxruntime,
    check_cases,
    compiled,
    constant,
    model,
    node,
    normal,
    tensor,
)

X = tensor("x", ["n", 6])


def numbers(*values: int) -> Array:
    return np.array(values, np.int64)


def with_operand(op: str, extent: int, result: list[str | None], requests: Sequence[Sequence[int]], n: int = 4) -> Case:
    """``relu(op(x, s))`` for every ``s`` of ``requests``."""
    nodes = [node(op, ["x", "s"], ["y"]), node("Relu", ["y"], ["z"])]
    proto = model(nodes, [X, tensor("s", [extent], INT64)], [tensor("z", result)])
    return proto, [{"x": normal(n, 6), "s": numbers(*s)} for s in requests]


def reshape() -> Case:
    return with_operand("Reshape", 2, [None, None], ([8, 3], [-1, 2], [0, -1], [24, 1], [0, 6]))


def reshape_to_partly_known() -> Case:
    nodes = [
        constant("free", [-1]),
        constant("three", [3]),
        node("Concat", ["s", "free", "three"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
        constant("last", [2]),
        node("ReduceSum", ["y", "last"], ["z"], keepdims=0),
    ]
    proto = model(nodes, [X, tensor("s", [1], INT64)], [tensor("z", [None, None])])
    return proto, [{"x": normal(4, 6), "s": numbers(s)} for s in (2, 4, 8, 0)]


def expand() -> Case:
    nodes = [node("Expand", ["x", "s"], ["y"]), node("Neg", ["y"], ["z"])]
    proto = model(nodes, [tensor("x", ["n", 1]), tensor("s", [3], INT64)], [tensor("z", [None] * 3)])
    return proto, [{"x": normal(4, 1), "s": numbers(*s)} for s in ([2, 4, 3], [1, 1, 1], [5, 1, 7])]


def slices() -> Case:
    nodes = [node("Slice", ["x", "s", "e"], ["y"]), node("Neg", ["y"], ["z"])]
    proto = model(nodes, [X, tensor("s", [2], INT64), tensor("e", [2], INT64)], [tensor("z", [None, None])])
    bounds = (([0, 0], [5, 6]), ([1, 2], [3, 4]), ([-2, -3], [100, -1]), ([4, 0], [2, 9]))
    return proto, [{"x": normal(5, 6), "s": numbers(*s), "e": numbers(*e)} for s, e in bounds]


def slices_with_steps() -> Case:
    nodes = [constant("ax", [-1]), constant("st", [2]), node("Slice", ["x", "s", "e", "ax", "st"], ["y"])]
    proto = model(nodes, [X, tensor("s", [1], INT64), tensor("e", [1], INT64)], [tensor("y", ["n", None])])
    return proto, [{"x": normal(5, 6), "s": numbers(s), "e": numbers(e)} for s, e in ((0, 6), (1, 5), (-4, -1), (3, 1))]


def slices_along_axes_of_the_run() -> Case:
    names = ("s", "e", "a", "p")
    nodes = [node("Slice", ["x", *names], ["y"]), node("Neg", ["y"], ["z"])]
    proto = model(nodes, [X, *(tensor(n, [2], INT64) for n in names)], [tensor("z", [None, None])])
    requests = (
        ([0, 0], [5, 6], [0, 1], [1, 1]),
        ([1, 5], [4, 0], [0, 1], [2, -2]),
        ([-1, 0], [-100, 3], [-2, -1], [-1, 1]),
        ([3, 4], [1, 2], [1, 0], [1, 1]),
        ([0, 4], [1000, -1000], [1, 0], [5, -3]),
    )
    return proto, [{"x": normal(5, 6), **{n: numbers(*v) for n, v in zip(names, r, strict=True)}} for r in requests]


def slices_backwards() -> Case:
    nodes = [constant("a", [1]), constant("p", [-1]), node("Slice", ["x", "s", "e", "a", "p"], ["y"])]
    proto = model(nodes, [X, tensor("s", [1], INT64), tensor("e", [1], INT64)], [tensor("y", ["n", None])])
    return proto, [{"x": normal(3, 6), "s": numbers(s), "e": numbers(e)} for s, e in ((5, 0), (-1, -100), (2, 4))]


def tile() -> Case:
    return with_operand("Tile", 2, [None, None], ([2, 3], [1, 1], [0, 2]))


def pad() -> Case:
    return with_operand("Pad", 4, [None, None], ([1, 2, 3, 4], [0, 0, 0, 0]))


def resize() -> Case:
    nodes = [node("Resize", ["x", "", "", "s"], ["y"], mode="nearest")]
    proto = model(nodes, [tensor("x", [1, 2, "a", "b"]), tensor("s", [4], INT64)], [tensor("y", [None] * 4)])
    return proto, [{"x": normal(1, 2, 4, 5), "s": numbers(*s)} for s in ([1, 2, 8, 10], [1, 2, 3, 3])]


def constant_of_shape() -> Case:
    nodes = [node("ConstantOfShape", ["s"], ["y"])]
    proto = model(nodes, [tensor("s", [2], INT64)], [tensor("y", [None, None])])
    return proto, [{"s": numbers(*s)} for s in ([2, 3], [0, 4], [5, 1])]


def _range(dtype: int, kind: type, requests: Sequence[tuple[float, float, float]]) -> Case:
    nodes = [node("Range", ["a", "b", "d"], ["y"]), node("Mul", ["y", "y"], ["z"])]
    proto = model(nodes, [tensor(n, [], dtype) for n in "abd"], [tensor("z", [None], dtype)])
    return proto, [{n: np.array(v, kind) for n, v in zip("abd", r, strict=True)} for r in requests]


def range_of_integers() -> Case:
    return _range(INT64, np.int64, ((0, 5, 1), (10, 3, -2), (3, 3, 1), (5, 0, 1), (-7, 8, 3), (7, -8, -4)))


def range_of_floats() -> Case:
    return _range(FLOAT, np.float32, ((0, 5, 1), (1, 3, 0.25), (10, 3, -2.5), (5, 0, 1)))


def top_k() -> Case:
    nodes = [node("TopK", ["x", "k"], ["v", "i"]), node("Neg", ["v"], ["z"])]
    outputs = [tensor("z", ["n", None]), tensor("i", ["n", None], INT64)]
    return model(nodes, [X, tensor("k", [1], INT64)], outputs), [
        {"x": normal(3, 6), "k": numbers(k)} for k in (1, 3, 6)
    ]


def top_k_of_many() -> Case:
    nodes = [node("TopK", ["x", "k"], ["v", "i"], axis=1)]
    inputs = [tensor("x", ["n", "m", 3]), tensor("k", [1], INT64)]
    proto = model(nodes, inputs, [tensor("v", ["n", None, 3]), tensor("i", ["n", None, 3], INT64)])
    sizes = ((1, 1, 1), (2, 7, 3), (3, 200, 50), (1, 1000, 1000))
    return proto, [{"x": normal(n, m, 3), "k": numbers(k)} for n, m, k in sizes]


def a_few_of_many() -> Case:
    nodes = [constant("k", [5]), node("TopK", ["x", "k"], ["v", "i"], largest=0)]
    proto = model(nodes, [tensor("x", ["n", "m"])], [tensor("v", ["n", 5]), tensor("i", ["n", 5], INT64)])
    rng = np.random.default_rng(0)
    return proto, [{"x": rng.integers(0, 9, (n, m)).astype(np.float32)} for n, m in ((1, 5), (4, 300))]


def one_hot() -> Case:
    nodes = [constant("v", [0, 1], np.float32), node("OneHot", ["x", "d", "v"], ["y"])]
    proto = model(nodes, [tensor("x", ["n"], INT64), tensor("d", [1], INT64)], [tensor("y", ["n", None])])
    return proto, [{"x": numbers(0, 2, 1), "d": numbers(d)} for d in (3, 5)]


def split() -> Case:
    nodes = [node("Split", ["x", "s"], ["a", "b"], axis=1)]
    proto = model(nodes, [X, tensor("s", [2], INT64)], [tensor("a", ["n", None]), tensor("b", ["n", None])])
    return proto, [{"x": normal(2, 6), "s": numbers(*s)} for s in ([2, 4], [1, 5], [6, 0])]


def non_zero_and_what_follows() -> Case:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["nz"]),
        node("Transpose", ["nz"], ["t"]),
        node("GatherND", ["x", "t"], ["v"]),
        node("ReduceSum", ["v"], ["s"]),
    ]
    proto = model(nodes, [X], [tensor("t", [None, 2], INT64), tensor("v", [None]), tensor("s", [1])])
    nothing = {"x": -np.ones((2, 6), np.float32)}
    return proto, [*({"x": normal(n, 6)} for n in (1, 3, 50)), nothing, {"x": normal(2, 6)}]


def non_zero_of_three_axes() -> Case:
    proto = model(
        [node("NonZero", ["x"], ["y"])], [tensor("x", ["a", "b", "c"], INT32)], [tensor("y", [3, None], INT64)]
    )
    rng = np.random.default_rng(0)
    return proto, [{"x": rng.integers(0, 2, (a, 3, 4)).astype(np.int32)} for a in (1, 4, 0)]


def non_zero_of_what_is_filled(filled: int, axes: int) -> Case:
    """So PyTorch's exporter counts rows."""
    value = onnx.numpy_helper.from_array(np.array([filled], np.int64), "v")
    nodes = [
        node("Shape", ["x"], ["s"], start=0, end=axes),
        node("ConstantOfShape", ["s"], ["f"], value=value),
        node("NonZero", ["f"], ["y"]),
    ]
    return model(nodes, [X], [tensor("y", [axes, None], INT64)]), [{"x": normal(n, 6)} for n in (3, 1, 0)]


def every_row() -> Case:
    return non_zero_of_what_is_filled(1, 1)


def every_element() -> Case:
    return non_zero_of_what_is_filled(-2, 2)


def no_row() -> Case:
    return non_zero_of_what_is_filled(0, 1)


def non_zero_of_a_constant() -> Case:
    nodes = [constant("c", [[0, 3], [1, 0], [0, 0]]), node("NonZero", ["c"], ["t"]), node("Add", ["t", "x"], ["y"])]
    proto = model(nodes, [tensor("x", ["n", 2, 2], INT64)], [tensor("y", ["n", 2, 2], INT64)])
    return proto, [{"x": np.arange(8).reshape(2, 2, 2)}]


def the_size_as_a_number() -> Case:
    nodes = [
        constant("z", 0, np.float32),
        node("Greater", ["x", "z"], ["m"]),
        node("NonZero", ["m"], ["nz"]),
        constant("one", [1]),
        node("Shape", ["nz"], ["sh"]),
        node("Gather", ["sh", "one"], ["count"], axis=0),
        node("ConstantOfShape", ["count"], ["zeros"]),
        node("Cast", ["count"], ["f"], to=FLOAT),
        node("Add", ["zeros", "f"], ["y"]),
    ]
    return model(nodes, [X], [tensor("y", [None])]), [{"x": normal(n, 6)} for n in (1, 3)]


def compress_an_axis() -> Case:
    nodes = [node("Compress", ["x", "m"], ["y"], axis=1)]
    proto = model(nodes, [X, tensor("m", [6], BOOL)], [tensor("y", ["n", None])])
    masks = np.random.default_rng(0).integers(0, 2, (3, 6)).astype(bool)
    return proto, [{"x": normal(4, 6), "m": m} for m in masks]


def compress_all() -> Case:
    nodes = [node("Compress", ["x", "m"], ["y"])]
    proto = model(nodes, [X, tensor("m", ["q"], BOOL)], [tensor("y", [None])])
    rng = np.random.default_rng(0)
    return proto, [{"x": normal(4, 6), "m": rng.integers(0, 2, q).astype(bool)} for q in (1, 5, 24)]


def _unique(x: onnx.ValueInfoProto, requests: Sequence[Array], rank: int, **attributes: int) -> Case:
    nodes = [node("Unique", ["x"], ["y", "i", "v", "c"], **attributes)]
    dtype = x.type.tensor_type.elem_type
    outputs = [tensor("y", [None] * rank, dtype), *(tensor(n, [None], INT64) for n in "ivc")]
    return model(nodes, [x], outputs), [{"x": r} for r in requests]


def unique() -> Case:
    rng = np.random.default_rng(0)
    return _unique(tensor("x", ["n"], INT64), [rng.integers(0, 5, n) for n in (1, 4, 100)], 1)


def unique_in_order_of_appearance() -> Case:
    rng = np.random.default_rng(0)
    data = [rng.integers(0, 5, (n, 3)).astype(np.float32) for n in (1, 4, 30)]
    return _unique(tensor("x", ["n", "m"]), data, 1, sorted=0)


def unique_columns() -> Case:
    rng = np.random.default_rng(0)
    data = [rng.integers(0, 2, (2, n)).astype(np.float32) for n in (1, 4, 30)]
    return _unique(tensor("x", ["n", "m"]), data, 2, axis=1)


def non_max_suppression() -> Case:
    nodes = [node("NonMaxSuppression", ["b", "s", "m", "i", "t"], ["y"])]
    inputs = [
        tensor("b", ["batch", "count", 4]),
        tensor("s", ["batch", "classes", "count"]),
        tensor("m", [1], INT64),
        tensor("i", [1]),
        tensor("t", [1]),
    ]
    rng = np.random.default_rng(0)

    def request(batch: int, classes: int, count: int, most: int, least: float) -> Feeds:
        corners = rng.random((batch, count, 2))
        boxes = np.concatenate([corners, corners + rng.random((batch, count, 2)) / 2], -1)
        scores = rng.random((batch, classes, count)).astype(np.float32)
        limits = {"m": numbers(most), "i": np.array([0.4], np.float32), "t": np.array([least], np.float32)}
        return {"b": boxes.astype(np.float32), "s": scores, **limits}

    sizes = ((1, 1, 5, 3, 0.0), (2, 3, 40, 10, 0.2), (1, 4, 100, 100, 0.5), (1, 1, 7, 0, 0.0), (1, 2, 30, 5, 2.0))
    return model(nodes, inputs, [tensor("y", [None, 3], INT64)]), [request(*s) for s in sizes]


CASES: tuple[Callable[[], Case], ...] = (
    reshape, reshape_to_partly_known, expand, slices, slices_with_steps, slices_along_axes_of_the_run,
    slices_backwards, tile, pad, resize, constant_of_shape,
    range_of_integers, range_of_floats, top_k, top_k_of_many, a_few_of_many, one_hot, split,
    non_zero_and_what_follows, non_zero_of_three_axes,
    every_row, every_element, no_row, non_zero_of_a_constant, the_size_as_a_number, compress_an_axis, compress_all,
    unique, unique_in_order_of_appearance, unique_columns, non_max_suppression,
)  # fmt: skip


@pytest.mark.parametrize("case", [every_row, every_element], ids=lambda case: case.__name__)
def test_how_many_are_filled_is_known_before_the_run(case: Callable[[], Case]) -> None:
    proto, _ = case()
    assert not compiled(proto).plan.run_symbols


@check_cases(CASES)
def test_answers_are_those_of_onnxruntime(case: Callable[[], Case], opt_level: int) -> None:
    assert_equals_onnxruntime(*case(), opt_level=opt_level)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_does_not_fit_is_refused_in_the_run(executor: ExecutorKind) -> None:
    proto, _ = reshape()
    with load_model(compiled(proto), executor=executor) as loaded:
        with pytest.raises(IngotError, match="24") as caught:
            loaded.run({"x": normal(4, 6), "s": numbers(5, 5)})
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert (caught.value.expected, caught.value.received) in (("24", "25"), ("25", "24"))
        assert loaded.run({"x": normal(4, 6), "s": numbers(3, 8)})["z"].shape == (3, 8)


def test_more_of_many_than_there_are() -> None:
    with load_model(compiled(a_few_of_many()[0])) as loaded:
        with pytest.raises(IngotError, match="must be at least 5") as caught:
            loaded.run({"x": normal(2, 4)})
        assert caught.value.received == "4"


@pytest.mark.parametrize("executor", EXECUTORS)
def test_negative_sizes_are_refused_in_the_run(executor: ExecutorKind) -> None:
    proto, _ = constant_of_shape()
    with load_model(compiled(proto), executor=executor) as loaded:
        with pytest.raises(IngotError, match="must be at least 0") as caught:
            loaded.run({"s": numbers(2, -1)})
        assert caught.value.received == "-1"


@pytest.mark.parametrize("executor", EXECUTORS)
def test_sizes_without_memory_are_an_error(executor: ExecutorKind) -> None:
    proto, _ = constant_of_shape()
    with load_model(compiled(proto), executor=executor) as loaded:
        for size in (2**30, 2**62):
            with pytest.raises(IngotError, match="memory") as caught:
                loaded.run({"s": numbers(size, 2**20)})
            assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
        assert loaded.run({"s": numbers(2, 2)})["y"].shape == (2, 2)


@pytest.mark.slow
def test_two_slices_by_one_bound_have_one_size() -> None:
    """Keys and values cut to a length of the run: attention stays one kernel, since the length is one symbol."""
    nodes = [
        *(constant(n, v) for n, v in (("zero", [0]), ("axis", [2]))),
        node("Slice", ["k", "zero", "n", "axis"], ["keys"]),
        node("Slice", ["v", "zero", "n", "axis"], ["values"]),
        node("Transpose", ["keys"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "turned"], ["scores"]),
        node("Softmax", ["scores"], ["weights"]),
        node("MatMul", ["weights", "values"], ["y"]),
    ]
    sizes = [tensor("q", [1, 2, "s", 16]), tensor("k", [1, 2, "t", 16]), tensor("v", [1, 2, "t", 16])]
    proto = model(nodes, [*sizes, tensor("n", [1], INT64)], [tensor("y", None)])
    requests = [
        {"q": normal(1, 2, 3, 16), "k": normal(1, 2, 9, 16), "v": normal(1, 2, 9, 16, seed=1), "n": np.array([n])}
        for n in (5, 9, 1, -2)
    ]
    artifact = assert_equals_onnxruntime(proto, requests)
    assert any("MatMul+Softmax+MatMul" in s.label for s in launches(artifact.plan.steps))
