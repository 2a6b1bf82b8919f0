"""Batches that a small cache does not hold, computed part by part; against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from runtime_service.loading.loader import load_model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.plan.program import Repeat, walk_steps
from tests.compiler_service.compiler.dynamic.compiled import (
    Case,
    assert_equals_onnxruntime,
    check_cases,
    compiled,
    model,
    node,
    normal,
    tensor,
)

SMALL = replace(host_target(), l2=64 << 10, l3=512 << 10, memory_bytes=1)
"""A quarter of its last-level cache holds some of the images below, not all, and memory is slow."""


def convolutions(samples: int | str) -> onnx.ModelProto:
    """Dense and depthwise, a branch that is added, one that is concatenated, and a head that looks at the whole batch."""
    weights = {
        "first": normal(16, 3, 3, 3, seed=1) / 5,
        "wide": normal(48, 16, 1, 1, seed=2) / 4,
        "depth": normal(48, 1, 3, 3, seed=3) / 3,
        "narrow": normal(16, 48, 1, 1, seed=4) / 7,
        "head": normal(32, 10, seed=5) / 6,
    }
    nodes = [
        node("Conv", ["x", "first"], ["a"], pads=[1] * 4),
        node("Conv", ["a", "wide"], ["b"]),
        node("Relu", ["b"], ["c"]),
        node("Conv", ["c", "depth"], ["d"], pads=[1] * 4, group=48),
        node("Relu", ["d"], ["e"]),
        node("Conv", ["e", "narrow"], ["f"]),
        node("Add", ["f", "a"], ["g"]),
        node("Concat", ["g", "a"], ["h"], axis=1),
        node("MaxPool", ["h"], ["i"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["i"], ["j"]),
        node("Flatten", ["j"], ["k"]),
        node("MatMul", ["k", "head"], ["l"]),
        node("Softmax", ["l"], ["y"], axis=0),
    ]
    outputs = [tensor("y", [None] * 2), tensor("i", [None] * 4)]
    return model(nodes, [tensor("x", [samples, 3, 20, 16])], outputs, weights)


def windows(samples: int | str) -> onnx.ModelProto:
    """Attention within windows, which are rows of their own, sixteen of each image."""
    nodes = [
        node("MatMul", ["x", "up"], ["a"]),
        node("Constant", [], ["cut"], value_ints=[-1, 16, 24]),
        node("Reshape", ["a", "cut"], ["b"]),
        node("Transpose", ["b"], ["c"], perm=[0, 2, 1]),
        node("MatMul", ["b", "c"], ["d"]),
        node("Softmax", ["d"], ["e"]),
        node("MatMul", ["e", "b"], ["f"]),
        node("Constant", [], ["whole"], value_ints=[-1, 256, 24]),
        node("Reshape", ["f", "whole"], ["g"]),
        node("Add", ["g", "a"], ["y"]),
    ]
    weights = {"up": normal(20, 24, seed=1) / 5}
    return model(nodes, [tensor("x", [samples, 256, 20])], [tensor("y", [None] * 3)], weights)


def static_convolutions() -> Case:
    return convolutions(6), [{"x": normal(6, 3, 20, 16)}]


def convolutions_of_any_batch() -> Case:
    return convolutions("n"), [{"x": normal(n, 3, 20, 16, seed=n)} for n in (1, 7, 2)]


def static_windows() -> Case:
    return windows(12), [{"x": normal(12, 256, 20)}]


def windows_of_any_batch() -> Case:
    return windows("n"), [{"x": normal(n, 256, 20, seed=n)} for n in (9, 1)]


def loops(artifact: CompiledArtifact) -> list[Repeat]:
    return [s for s in walk_steps(artifact.plan.steps) if isinstance(s, Repeat)]


@check_cases([static_convolutions, convolutions_of_any_batch, static_windows, windows_of_any_batch])
def test_batches_in_parts_equal_onnxruntime(case: Callable[[], Case], opt_level: int) -> None:
    proto, requests = case()
    artifact = assert_equals_onnxruntime(proto, requests, opt_level, target=SMALL)
    assert bool(loops(artifact)) == (opt_level == 3)


@pytest.mark.slow
@pytest.mark.parametrize("samples", [6, "n"])
def test_parts_are_the_same_bits_on_any_number_of_threads_and_the_whole_is_close(samples: int | str) -> None:
    feeds = {"x": normal(6, 3, 20, 16)}
    large = replace(host_target(), l3=1 << 30)
    found = []
    for target, threads in ((SMALL, 1), (SMALL, 2), (large, 1)):
        artifact = compiled(convolutions(samples), target=target)
        assert bool(loops(artifact)) == (target is SMALL)
        with load_model(artifact, threads=threads) as loaded:
            found.append(loaded.run(feeds)["i"])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], found[2], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_an_empty_batch_has_empty_results() -> None:
    with load_model(compiled(convolutions("n"), target=SMALL), threads=1) as loaded:
        results = loaded.run({"x": normal(0, 3, 20, 16)})
    assert results["i"].shape == (0, 32, 10, 8)
    assert results["y"].shape == (0, 10)
