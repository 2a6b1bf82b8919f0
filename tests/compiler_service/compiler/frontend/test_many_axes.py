"""Nodes that name more axes than a tensor has are refused before anything is made of them, which grows with their square or cube."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from compiler_service.compiler.pipeline import ModelSource, check_model
from shared_ir.errors import ErrorCode

MANY = 1000
NODES = {
    "Unsqueeze": helper.make_node("Unsqueeze", ["x", "axes"], ["y"]),
    "Squeeze": helper.make_node("Squeeze", ["x", "axes"], ["y"]),
    "ReduceSum": helper.make_node("ReduceSum", ["x", "axes"], ["y"]),
    "Slice": helper.make_node("Slice", ["x", "ones", "ones", "ones"], ["y"]),
    "Slice with steps": helper.make_node("Slice", ["x", "ones", "ones", "axes", "ones"], ["y"]),
}


@pytest.mark.parametrize("node", NODES.values(), ids=NODES.keys())
@pytest.mark.parametrize("count", [MANY, 4 * MANY])
def test_many_axes_are_refused_at_once(node: NodeProto, count: int) -> None:
    lists = {"axes": list(range(count)), "ones": [1] * count}
    initializers = [numpy_helper.from_array(np.array(own, np.int64), name) for name, own in lists.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("b", 4))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    report = check_model(ModelSource.of(model.SerializeToString()))
    codes = {obstacle.code for obstacle in report.obstacles}
    assert codes & {ErrorCode.LIMIT_EXCEEDED, ErrorCode.UNSUPPORTED_ATTRIBUTE, ErrorCode.TYPE_MISMATCH}
