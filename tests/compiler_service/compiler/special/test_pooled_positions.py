"""The positions that MaxPool gives lie inside of the image, whatever its windows hold."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from runtime_service.loading.loader import load_model

NAN, LOW = float("nan"), float("-inf")


@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize(
    ("x", "pads", "expected"),
    [
        ([1, NAN, LOW, LOW, 3, 2], 0, [1, 1, 2, 4, 4]),
        ([1, NAN, LOW, LOW, 3, 2], 1, [0, 1, 1, 2, 4, 4, 5]),
        ([LOW] * 4, 1, [0, 0, 1, 2, 3]),
        ([NAN] * 4, 1, [0, 0, 1, 2, 3]),
    ],
)
def test_positions(x: list[float], pads: int, expected: list[int], opt_level: int) -> None:
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2], strides=[1], pads=[pads, pads])
    outputs = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in (("y", TensorProto.FLOAT), ("i", TensorProto.INT64))
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, "n"])]
    graph = helper.make_graph([node], "pooled", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = CompileOptions(opt_level=opt_level)
    artifact = compile_model(ModelSource.of(model.SerializeToString()), host_target(), options, workers=0)
    with load_model(artifact, threads=1) as loaded:
        found = dict(loaded.run({"x": np.array([[x]], np.float32)}))
    assert found["i"].ravel().tolist() == expected
