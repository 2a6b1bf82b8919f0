"""The model in double precision, which others are measured against."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from bench.double_precision import widen
from bench.engines.engine import LoadRequest
from bench.engines.reference_engine import ReferenceEngine

FLOAT = TensorProto.FLOAT


def model_of(nodes: list[NodeProto], opset: int = 17, **constants: np.ndarray) -> onnx.ModelProto:
    """y = nodes(x), both float32 of unknown shape"""
    initializers = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    x, y = (helper.make_tensor_value_info(n, FLOAT, None) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def run(path: Path, model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    onnx.save(model, path / "m.onnx")
    engine = ReferenceEngine()
    engine.load(LoadRequest(path / "m.onnx", {}, False, 1))
    engine.prepare({"x": x})
    return engine.outputs()["y"]


def test_sums_keep_what_single_precision_loses(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "large"], ["h"]), helper.make_node("Sub", ["h", "large"], ["y"])]
    found = run(tmp_path, model_of(nodes, large=np.array([2**30], np.float32)), np.array([1.0], np.float32))
    assert found.dtype == np.float64
    assert found.tolist() == [1.0]


def test_constants_casts_and_bodies_are_widened() -> None:
    body = helper.make_graph(
        [helper.make_node("Constant", [], ["b"], value_float=0.1), helper.make_node("Cast", ["b"], ["c"], to=FLOAT)],
        "body",
        [],
        [helper.make_tensor_value_info("c", FLOAT, [])],
        [numpy_helper.from_array(np.array([0.5], np.float16), "half")],
    )
    model = model_of([helper.make_node("If", ["on"], ["y"], then_branch=body, else_branch=body)], on=np.array(True))
    widen(model)
    inner = model.graph.node[0].attribute[0].g
    constant, cast = inner.node
    assert numpy_helper.to_array(constant.attribute[0].t) == np.float64(np.float32(0.1))
    assert cast.attribute[0].i == TensorProto.DOUBLE
    assert inner.output[0].type.tensor_type.elem_type == TensorProto.DOUBLE
    assert inner.initializer[0].data_type == TensorProto.DOUBLE
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.DOUBLE
    assert model.graph.initializer[0].data_type == TensorProto.BOOL


@pytest.mark.parametrize("opset", [9, 14, 17])
def test_batch_normalization_takes_the_given_statistics(tmp_path: Path, opset: int) -> None:
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], epsilon=0.0, momentum=0.9)
    constants = {k: np.array([n], np.float32) for k, n in {"s": 2, "b": 1, "m": 3, "v": 4}.items()}
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    assert run(tmp_path, model_of([node], opset, **constants), x).ravel().tolist() == [-2.0, -1.0, 0.0, 1.0]


def test_gather_elements_along_the_last_of_several_axes(tmp_path: Path) -> None:
    node = helper.make_node("GatherElements", ["x", "i"], ["y"], axis=1)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    model = model_of([node], i=np.array([[3, 0, -1, 1, 2], [0, 1, 2, 3, 0]], np.int64))
    assert run(tmp_path, model, x).tolist() == [[3.0, 0.0, 3.0, 1.0, 2.0], [4.0, 5.0, 6.0, 7.0, 4.0]]
