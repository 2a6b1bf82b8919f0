"""The option ``strassen``: what it changes in the artifact, and that results stay close to float64."""

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

ROWS, WIDTH = 129, 768


def dense_model(*shape: int | str) -> tuple[bytes, np.ndarray]:
    """``relu(x w)``, and its weights; by default x has :data:`ROWS` rows."""
    weight = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="dense"),
        helper.make_node("Relu", ["p"], ["y"], name="relu"),
    ]
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [*(shape or (ROWS,)), WIDTH]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString(), weight


def compiled(**options: Any) -> CompiledArtifact:
    return compile_model(ModelSource.of(dense_model()[0]), host_target(), CompileOptions(**options), workers=0)


@pytest.fixture(scope="module")
def fast() -> CompiledArtifact:
    return compiled()


def run(artifact: CompiledArtifact, x: np.ndarray, threads: int = 1) -> np.ndarray:
    with load_model(artifact, threads=threads) as model:
        return np.array(model.run({"x": x})["y"])


def test_the_report_names_the_algorithm_and_its_error(fast: CompiledArtifact) -> None:
    (entry,) = fast.report["algorithms"]
    assert entry["algorithm"] == "strassen <2, 2, 2; 7>"
    assert entry["nodes"] == ["dense", "relu"]
    assert 0 < entry["error_typical"] < 1e-5 < entry["error_bound"] < 1e-3


@pytest.mark.parametrize("options", [{"strassen": False}, {"opt_level": 2}])
def test_it_can_be_switched_off(fast: CompiledArtifact, options: dict[str, object]) -> None:
    plain = compiled(**options)
    assert plain.report["algorithms"] == []
    assert plain.manifest.key != fast.manifest.key
    assert fast.plan.weights_size == plain.plan.weights_size * 7 // 4


def test_results_stay_close_to_float64(fast: CompiledArtifact) -> None:
    x = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)
    wanted = np.maximum(x.astype(np.float64) @ dense_model()[1], 0)
    for artifact, tolerance in ((fast, 3e-6), (compiled(strassen=False), 2e-6)):
        assert np.abs(run(artifact, x) - wanted).max() < tolerance * np.abs(wanted).max()


def test_threads_compute_the_same_bits(fast: CompiledArtifact) -> None:
    x = np.random.default_rng(2).standard_normal((ROWS, WIDTH)).astype(np.float32)
    np.testing.assert_array_equal(run(fast, x), run(fast, x, threads=2))


def test_what_is_not_finite_stays_within_its_pair_of_rows(fast: CompiledArtifact) -> None:
    x = np.random.default_rng(3).standard_normal((ROWS, WIDTH)).astype(np.float32)
    clean = run(fast, x)
    for row in (5, ROWS - 1):
        spoilt = x.copy()
        spoilt[row, 7] = np.nan
        found = run(fast, spoilt)
        assert np.isnan(found[row]).all()
        others = [r for r in range(ROWS) if r // 2 != row // 2]
        np.testing.assert_array_equal(found[others], clean[others])


@pytest.mark.parametrize("threads", [1, 2])
def test_inputs_of_a_batch_do_not_depend_on_each_other(threads: int) -> None:
    artifact = compile_model(ModelSource.of(dense_model("batch", 64)[0]), host_target(), CompileOptions(), workers=0)
    assert [a["algorithm"] for a in artifact.report["algorithms"]] == ["strassen <2, 2, 2; 7>"]
    x = np.random.default_rng(4).standard_normal((5, 64, WIDTH)).astype(np.float32)
    x[3, 1] = np.inf
    together = run(artifact, x, threads)
    for i, own in enumerate(x):
        np.testing.assert_array_equal(together[i], run(artifact, own[None], threads)[0])
    assert np.isfinite(together[[0, 1, 2, 4]]).all()


def test_an_odd_number_of_rows_of_an_unknown_number_of_inputs_is_a_plain_sum() -> None:
    artifact = compile_model(ModelSource.of(dense_model("batch", 65)[0]), host_target(), CompileOptions(), workers=0)
    assert artifact.report["algorithms"] == []
