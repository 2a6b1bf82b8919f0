"""Every pair of element types is converted: 0 and 1, which all of them have, stay what they are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from runtime_service.loading.loader import load_model

KINDS = (
    *("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FLOAT16", "BFLOAT16"),
    *("FLOAT", "DOUBLE", "INT4", "UINT4", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"),
    "FLOAT4E2M1",
)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(("source", "opt_level"), list(product(KINDS, (0, 3))))
def test_pairs(source: str, opt_level: int) -> None:
    """Through the narrow type and on to int32: what a vector and what is left of it hold."""
    numbers = np.array([0, 1, 0, 1, 1] * 5, bool)
    own = getattr(TensorProto, source)
    nodes = [helper.make_node("Cast", ["x"], ["own"], to=own)]
    for kind in KINDS:
        nodes.append(helper.make_node("Cast", ["own"], [f"as_{kind}"], to=getattr(TensorProto, kind)))
        nodes.append(helper.make_node("Cast", [f"as_{kind}"], [f"y_{kind}"], to=TensorProto.INT32))
    outputs = [helper.make_tensor_value_info(f"as_{k}", getattr(TensorProto, k), ["n"]) for k in KINDS]
    outputs += [helper.make_tensor_value_info(f"y_{k}", TensorProto.INT32, ["n"]) for k in KINDS]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.BOOL, ["n"])], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    options = CompileOptions(opt_level=opt_level)
    artifact = compile_model(ModelSource.of(model.SerializeToString()), host_target(), options, workers=0)
    with load_model(artifact, threads=1) as loaded:
        found = loaded.run({"x": numbers})
    for kind in KINDS:
        np.testing.assert_array_equal(found[f"y_{kind}"], numbers.astype(np.int32), err_msg=kind)
