"""The option ``winograd``: what it changes in the artifact, and that results stay close to float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import ModelSource, compile_model
from runtime_service.loading.loader import load_model
from shared_ir.artifact.value import CompiledArtifact

CHANNELS = 32


def convolution_model() -> tuple[bytes, np.ndarray]:
    """``relu(conv3x3(x) + b)`` over 24 x 24 pixels, and its weights."""
    rng = np.random.default_rng(0)
    weight = (rng.standard_normal((CHANNELS, CHANNELS, 3, 3)) * 0.1).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, CHANNELS, 24, 24]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    onnx.checker.check_model(model)
    return model.SerializeToString(), weight


@pytest.fixture(scope="module")
def filtered() -> CompiledArtifact:
    return compiled()


def compiled(**options: Any) -> CompiledArtifact:
    return compile_model(ModelSource.of(convolution_model()[0]), host_target(), CompileOptions(**options), workers=0)


def test_the_report_names_the_algorithm_and_its_error(filtered: CompiledArtifact) -> None:
    (entry,) = filtered.report["algorithms"]
    assert entry["algorithm"] == "winograd F(4x4, 3x3)"
    assert entry["nodes"] == ["conv", "relu"]
    assert 0 < entry["error_typical"] < 1e-5 < entry["error_bound"] < 1e-2


def test_the_report_names_windows_along_one_axis() -> None:
    weight = np.ones((CHANNELS, CHANNELS, 11), np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], name="conv", kernel_shape=[11], pads=[5, 5])]
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, CHANNELS, 480]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    artifact = compile_model(ModelSource.of(model.SerializeToString()), host_target(), CompileOptions(), workers=0)
    (entry,) = artifact.report["algorithms"]
    assert entry["algorithm"] == "winograd F(4, 11)"
    assert 0 < entry["error_typical"] < 1e-5 < entry["error_bound"] < 1e-2


@pytest.mark.parametrize("options", [{"winograd": False}, {"opt_level": 2}])
def test_it_can_be_switched_off(filtered: CompiledArtifact, options: dict[str, object]) -> None:
    plain = compiled(**options)
    assert plain.report["algorithms"] == []
    assert plain.manifest.key != filtered.manifest.key
    assert filtered.plan.weights_size >= 4 * plain.plan.weights_size * 0.9  # 36 products in place of 9


def test_results_stay_close_to_float64(filtered: CompiledArtifact) -> None:
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, 24, 24)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x[0].astype(np.float64), ((0, 0), (1, 1), (1, 1))), (3, 3), (1, 2)
    )
    wanted = np.maximum(np.einsum("chwij,ocij->ohw", windows, convolution_model()[1].astype(np.float64)), 0)
    for artifact, tolerance in ((filtered, 1e-5), (compiled(winograd=False), 2e-6)):
        model = load_model(artifact)
        found = model.run({"x": x})["y"][0]
        model.close()
        assert np.abs(found - wanted).max() < tolerance * np.abs(wanted).max()
