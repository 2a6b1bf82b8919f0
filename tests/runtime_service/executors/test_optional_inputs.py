"""Inputs with a default: both executors, the services' checks and documents, the C ABI through a static program."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from runtime_service.api import documents
from runtime_service.batching.messages import TensorData
from runtime_service.batching.rows import batch_symbol
from runtime_service.batching.validation import check_inputs
from runtime_service.loading.loader import load_model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.json_form import read_plan, write_plan

X = np.arange(6, dtype=np.float32).reshape(2, 3)
GIVEN = np.full((3, 4), 2, np.float32)


def product() -> onnx.ModelProto:
    """``y = x @ w + b``: ``w`` of unknown width and ``b`` have defaults."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    infos = [("b", []), ("x", ["n", 3]), ("w", [3, "m"])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in infos]
    defaults = [
        numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "w"),
        numpy_helper.from_array(np.array(0.5, np.float32), "b"),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "m"])]
    graph = helper.make_graph(nodes, "product", inputs, outputs, defaults)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.fixture(scope="module")
def artifact() -> CompiledArtifact:
    source = ModelSource.of(product().SerializeToString())
    return compile_model(source, host_target(), CompileOptions(), workers=0)


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_defaults_are_taken_where_nothing_is_given(
    artifact: CompiledArtifact, executor: Literal["aot", "graph"]
) -> None:
    session = onnxruntime.InferenceSession(product().SerializeToString(), providers=["CPUExecutionProvider"])
    requests = [{"x": X}, {"x": X, "w": GIVEN}, {"x": X, "b": np.array(3, np.float32)}, {"x": X}]
    with load_model(artifact, threads=1, executor=executor) as model:
        assert [spec.name for spec in model.inputs if spec.is_optional] == ["b", "w"]
        for feeds in requests:
            np.testing.assert_allclose(model.run(feeds)["y"], session.run(None, feeds)[0])


def test_what_has_no_default_must_be_given(artifact: CompiledArtifact) -> None:
    with load_model(artifact, threads=1) as model, pytest.raises(IngotError, match="no value for input 'x'") as caught:
        model.run({"w": GIVEN})
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_the_plan_keeps_defaults_and_others_look_as_before(artifact: CompiledArtifact) -> None:
    text = write_plan(artifact.plan)
    assert read_plan(text).inputs == artifact.plan.inputs
    assert text.count('"default":') == 2  # of three inputs and an output


def test_requests_may_lack_optional_inputs(artifact: CompiledArtifact) -> None:
    specs = artifact.plan.inputs
    assert list(check_inputs((TensorData("x", DType.FLOAT32, X),), specs)) == ["x"]
    with pytest.raises(IngotError, match="an input is missing"):
        check_inputs((TensorData("w", DType.FLOAT32, GIVEN),), specs)


def test_rows_of_requests_are_not_merged(artifact: CompiledArtifact) -> None:
    assert batch_symbol(artifact.plan.inputs, artifact.plan.outputs) is None


def test_the_configuration_of_a_served_model_says_what_is_optional(artifact: CompiledArtifact) -> None:
    found = [documents._config_tensor(spec, 0) for spec in artifact.plan.inputs]
    assert [entry.get("optional", False) for entry in found] == [True, False, True]


@pytest.mark.slow
def test_a_static_program_leaves_inputs_to_their_defaults(tmp_path: Path) -> None:
    source = ModelSource.of(product().SerializeToString())
    made = compile_model(source, host_target(), CompileOptions(bundle="executable"), workers=0)
    program = tmp_path / "model"
    (content,) = made.attachments.values()
    program.write_bytes(content)
    program.chmod(0o755)
    (tmp_path / "x.bin").write_bytes(X.tobytes())
    files = ["-", str(tmp_path / "x.bin"), "-", str(tmp_path / "y.bin")]
    subprocess.run([str(program), "--threads", "1", *files], check=True, timeout=60)
    found = np.fromfile(tmp_path / "y.bin", np.float32).reshape(2, 2)
    np.testing.assert_allclose(found, X @ np.arange(6, dtype=np.float32).reshape(3, 2) + 0.5)


def test_what_was_given_is_told_without_the_defaults(artifact: CompiledArtifact) -> None:
    with load_model(artifact, threads=1) as model, pytest.raises(IngotError) as caught:
        model.run({"w": GIVEN})
    assert (caught.value.tensor, caught.value.received) == ("x", "w")
    assert caught.value.expected == "b (optional), x, w (optional)"
    assert "not optional" in caught.value.remedy
