"""Data with a line of padding after each row: perceptrons and convolutions of many channels; against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx

from shared_ir.plan.program import launches
from tests.compiler_service.compiler.dynamic.compiled import (
    Array,
    Case,
    assert_equals_onnxruntime,
    check_cases,
    compiled,
    model,
    node,
    normal,
    tensor,
)

WIDE = 1024
"""Float32 numbers of 4 KiB: rows of so many share one set of a first-level cache."""


def perceptron(shape: Sequence[int | str]) -> onnx.ModelProto:
    """Through a wide layer and back, with what came in added."""
    nodes = [
        node("MatMul", ["x", "up"], ["wide"]),
        node("Relu", ["wide"], ["positive"]),
        node("MatMul", ["positive", "down"], ["narrow"]),
        node("Add", ["narrow", "x"], ["y"]),
    ]
    weights = {"up": normal(40, WIDE, seed=1) / 7, "down": normal(WIDE, 40, seed=2) / 32}
    return model(nodes, [tensor("x", shape)], [tensor("y", [None] * len(shape))], weights)


def convolutions(shape: Sequence[int | str]) -> onnx.ModelProto:
    """1x1, 3x3, depthwise and pooled readers of the same pixels, and a sum that is written over one of them."""
    weights = {
        "first": normal(512, 8, 1, 1, seed=1) / 3,
        "square": normal(16, 512, 3, 3, seed=2) / 70,
        "depth": normal(512, 1, 3, 3, seed=3) / 3,
        "last": normal(16, 512, 1, 1, seed=4) / 23,
    }
    nodes = [
        node("Conv", ["x", "first"], ["a"]),
        node("Relu", ["a"], ["pixels"]),
        node("Conv", ["pixels", "square"], ["squares"], pads=[1] * 4),
        node("Conv", ["pixels", "depth"], ["depths"], pads=[1] * 4, group=512),
        node("Sigmoid", ["depths"], ["gates"]),
        node("Add", ["gates", "pixels"], ["sum"]),
        node("Conv", ["sum", "last"], ["lasts"]),
        node("GlobalAveragePool", ["sum"], ["mean"]),
        node("Add", ["squares", "lasts"], ["y"]),
    ]
    return model(nodes, [tensor("x", shape)], [tensor("y", [None] * 4), tensor("mean", [None] * 4)], weights)


def _requests(*shapes: tuple[int, ...]) -> list[dict[str, Array]]:
    return [{"x": normal(*shape, seed=i)} for i, shape in enumerate(shapes)]


def static_perceptron() -> Case:
    return perceptron((9, 40)), _requests((9, 40))


def perceptron_of_any_size() -> Case:
    return perceptron(("n", "t", 40)), _requests((1, 9, 40), (3, 1, 40), (2, 30, 40))


def static_convolutions() -> Case:
    return convolutions((1, 8, 7, 5)), _requests((1, 8, 7, 5))


def convolutions_of_any_size() -> Case:
    return convolutions(("n", 8, "h", "w")), _requests((1, 8, 7, 5), (2, 8, 1, 9))


@check_cases([static_perceptron, perceptron_of_any_size, static_convolutions, convolutions_of_any_size])
def test_padded_rows_equal_onnxruntime(case: Callable[[], Case], opt_level: int) -> None:
    proto, requests = case()
    assert_equals_onnxruntime(proto, requests, opt_level)


def test_the_wide_layer_is_padded() -> None:
    """What the first launch writes takes a cache line more for each row than it has elements, but for the last."""
    artifact = compiled(perceptron((9, 40)))
    first = next(iter(launches(artifact.plan.steps)))
    sizes = {artifact.plan.buffers[b].size for b in first.buffers}
    assert 9 * WIDE * 4 + 8 * 64 in sizes
