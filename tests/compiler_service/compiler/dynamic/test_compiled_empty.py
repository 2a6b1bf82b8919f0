"""Extents of 0, axes that the run chooses, sums of unknown length: kernels that have little or nothing to tile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.compiler_service.compiler.dynamic.compiled import (
    INT32,
    INT64,
    Case,
    assert_equals_onnxruntime,
    model,
    node,
    normal,
    tensor,
)

UINT8, INT8 = 2, 3
Y = [tensor("y", None)]


def a_sum_of_rows_without_elements() -> Case:
    proto = model(
        [node("ReduceLogSum", ["x", "axes"], ["y"], keepdims=0)],
        [tensor("x", ["n", "m", 7, 0])],
        Y,
        {"axes": np.array([1, 2])},
        21,
    )
    return proto, [{"x": np.zeros((5, 3, 7, 0), np.float32)}]


def a_sum_along_an_empty_axis() -> Case:
    nodes = [node("CumSum", ["x", "axis"], ["y"])]
    proto = model(nodes, [tensor("x", ["n", 0, 2], INT64)], [tensor("y", None, INT64)], {"axis": np.array(0)})
    return proto, [{"x": np.zeros((4, 0, 2), np.int64)}]


def blocks_of_no_channels() -> Case:
    return model([node("DepthToSpace", ["x"], ["y"], blocksize=2)], [tensor("x", ["n", 0, "h", 3])], Y), [
        {"x": np.zeros((2, 0, 2, 3), np.float32)}
    ]


def an_empty_quantized_product() -> Case:
    weights = {"s": np.float32(0.5), "z": np.int8(3)}
    nodes = [node("QLinearMatMul", ["a", "s", "z", "b", "s", "z", "s", "z"], ["y"])]
    inputs = [tensor("a", ["n", 0, "k"], INT8), tensor("b", ["n", "k", "m"], INT8)]
    return model(nodes, inputs, [tensor("y", None, INT8)], {k: np.asarray(v) for k, v in weights.items()}, 21), [
        {"a": np.zeros((2, 0, k), np.int8), "b": np.ones((2, k, m), np.int8)} for k, m in ((3, 1), (1, 0))
    ]


def axes_that_the_run_chooses() -> Case:
    nodes = [node("ReduceLogSumExp", ["x", "axes"], ["y"], keepdims=0)]
    proto = model(nodes, [tensor("x", ["n", "m"]), tensor("axes", [1], INT64)], Y, opset=18)
    return proto, [{"x": normal(3, 5) * 50, "axes": np.array([axis])} for axis in (0, 1, -1)]


def a_product_of_bytes_of_unknown_depth() -> Case:
    rng = np.random.default_rng(0)
    proto = model(
        [node("MatMulInteger", ["a", "b"], ["y"])],
        [tensor("a", ["n", "m", "k"], UINT8), tensor("b", [1, "k", "l"], UINT8)],
        [tensor("y", None, INT32)],
    )
    return proto, [
        {"a": rng.integers(0, 255, (2, m, k), np.uint8), "b": rng.integers(0, 255, (1, k, n), np.uint8)}
        for m, k, n in ((2, 2, 3), (8, 11, 40), (100, 70, 33))
    ]


def a_scale_that_is_computed() -> Case:
    """Rounding to quantized numbers shows the last bit of a scale."""
    proto = model(
        [node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])], [tensor("x", ["n"])], [tensor("y", None, UINT8)]
    )
    rows = [[-3.625, 1.75, 0.5, 3.625, -1.875], [0.625, -3.0, 4.75, 0.375, 1.125]]
    return proto, [
        {"x": np.array(r, np.float32)} for r in (*rows, *np.random.default_rng(1).integers(-40, 40, (20, 9)) / 8)
    ]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "make",
    [
        a_sum_of_rows_without_elements,
        a_sum_along_an_empty_axis,
        blocks_of_no_channels,
        an_empty_quantized_product,
        axes_that_the_run_chooses,
        a_product_of_bytes_of_unknown_depth,
        a_scale_that_is_computed,
    ],
    ids=lambda c: c.__name__,
)
def test_little_to_tile(make: Callable[[], Case], opt_level: int) -> None:
    proto, requests = make()
    assert_equals_onnxruntime(proto, requests, opt_level)
