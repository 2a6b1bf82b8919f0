"""Operators of many operands are several kernels, each of few, with the same elements."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from compiler_service.compiler.frontend.adapters.decomposition import MOST_OPERANDS


def wide(op: str, count: int, **attributes: int) -> onnx.ModelProto:
    """``op`` of inputs, a constant and one operand twice."""
    names = [*(f"x{i}" for i in range(count - 2)), "c", "x0"]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in names[:-2]]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], name="wide", **attributes)],
        "wide",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((1, 1), np.float32), "c")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("op", ["Sum", "Max", "Min", "Mean", "Concat"])
@pytest.mark.parametrize("count", [MOST_OPERANDS, MOST_OPERANDS + 1, 130])
def test_many_operands(op: str, count: int, level: int) -> None:
    model = wide(op, count, **({"axis": 1} if op == "Concat" else {}))
    rows = 1 if op == "Concat" else 5  # the constant has one row
    random = np.random.default_rng(0)
    given = {i.name: random.standard_normal((rows, 3)).astype(np.float32) for i in model.graph.input}
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    (found,) = ingot.load(ingot.compile(model, opt_level=level, workers=1)).run(given).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
