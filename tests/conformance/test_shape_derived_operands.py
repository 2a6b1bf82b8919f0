"""Operands that are arithmetic on the sizes of a run, and ranges of integers that conversions wrap, beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shared_ir.errors import ErrorCode, IngotError
from tests.conformance.compiled import Array, run_compiled, run_onnx_runtime

pytestmark = pytest.mark.slow

RUNTIME_FAILS = (Exception,)
"""ONNX Runtime's own errors have no common class."""


def model(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], **constants: Any) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def agree(tried: onnx.ModelProto, feeds: dict[str, Array]) -> None:
    """Both answer alike, or both refuse."""
    try:
        (expected,) = run_onnx_runtime(tried, feeds)
    except RUNTIME_FAILS:
        with pytest.raises(IngotError) as caught:
            run_compiled(tried, feeds)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        return
    (found,) = run_compiled(tried, feeds)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def floats(name: str, *shape: str | int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("length", [5, 8, 13])
def test_padding_to_a_multiple(mode: str, length: int) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Mod", ["n", "eight"], ["rest"]),
        helper.make_node("Sub", ["eight", "rest"], ["missing"]),
        helper.make_node("Mod", ["missing", "eight"], ["behind"]),
        helper.make_node("Concat", ["zero", "behind"], ["pads"], axis=0),
        helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode),
    ]
    tried = model(nodes, [floats("x", "n")], eight=np.array([8]), zero=np.array([0]))
    agree(tried, {"x": np.arange(length, dtype=np.float32)})


@pytest.mark.parametrize("op", ["CumSum", "ReduceSum", "ReduceMax", "Unsqueeze"])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5])
def test_an_axis_that_a_size_decides(op: str, length: int) -> None:
    """The axis is ``length - 3``: -3 and 2 are none of a matrix."""
    nodes = [
        helper.make_node("Shape", ["s"], ["n"]),
        helper.make_node("Sub", ["n", "three"], ["axes" if op != "CumSum" else "vector"]),
        *([helper.make_node("Squeeze", ["vector", "first"], ["axes"])] if op == "CumSum" else []),
        helper.make_node(op, ["x", "axes"], ["y"]),
    ]
    tried = model(nodes, [floats("x", 4, 3), floats("s", "n")], three=np.array([3]), first=np.array([0]))
    agree(tried, {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "s": np.zeros(length, np.float32)})


@pytest.mark.parametrize("narrow", [TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32])
@pytest.mark.parametrize("position", [0, 100, 150, 200, 256, 300])
def test_positions_that_wrapped_are_outside(narrow: int, position: int) -> None:
    nodes = [
        helper.make_node("Clip", ["i", "low", "high"], ["clipped"]),
        helper.make_node("Cast", ["clipped"], ["narrow"], to=narrow),
        helper.make_node("Cast", ["narrow"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Add", ["wide", "shift"], ["at"]),
        helper.make_node("Gather", ["x", "at"], ["y"]),
    ]
    inputs = [floats("x", 201), helper.make_tensor_value_info("i", TensorProto.INT64, [1])]
    for shift in (0, 56):
        tried = model(nodes, inputs, low=np.int64(0), high=np.int64(200), shift=np.array([shift]))
        agree(tried, {"x": np.arange(201, dtype=np.float32), "i": np.array([position])})
