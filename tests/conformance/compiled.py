"""Models through compiled code, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.pipeline import CompileOptions, compile_model
from runtime_service.loading.loader import load_model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.machine.target import Target
from shared_ir.plan.json_form import read_plan, write_plan

Array = np.ndarray


def one_node(
    op: str, feeds: Mapping[str, Array], outputs: int = 1, domain: str = "", opset: int = 21, **attributes: Any
) -> onnx.ModelProto:
    """A model of one operator, with the first axis of every input symbolic where it is a matrix."""
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, list(feeds), names, domain=domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), ["n", *x.shape[1:]] if x.ndim > 1 else x.shape
        )
        for name, x in feeds.items()
    ]
    graph = helper.make_graph([node], op, inputs, [onnx.ValueInfoProto(name=n) for n in names])
    opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, opset)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run_compiled(
    model: onnx.ModelProto, feeds: Mapping[str, Any], opt_level: int = 3, target: Target | None = None
) -> list[Array]:
    """Outputs in the order of the graph; ``target``: this machine. A value may be a sequence of arrays, or None."""
    artifact = _artifact(model.SerializeToString(deterministic=True), opt_level, target or host_target())
    with load_model(artifact, threads=1) as loaded:
        found = loaded.run(feeds)
        return [found[spec.name] for spec in loaded.outputs]


@lru_cache(maxsize=16)
def _artifact(model: bytes, opt_level: int, target: Target) -> CompiledArtifact:
    """Tests run one model over several feeds. What runs is the plan that a file would give."""
    made = compile_model(ModelSource.of(model), target, CompileOptions(opt_level=opt_level), workers=0)
    return replace(made, plan=read_plan(write_plan(made.plan)))


def run_onnx_runtime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    answers: list[Array] = session.run(None, dict(feeds))
    return answers


def check_against_onnx_runtime(model: onnx.ModelProto, feeds: Mapping[str, Array], rtol: float = 1e-4) -> None:
    """Equal shapes, dtypes and, within ``rtol``, elements."""
    for found, expected in zip(run_compiled(model, feeds), run_onnx_runtime(model, feeds), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-5)
