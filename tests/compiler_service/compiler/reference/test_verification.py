"""Whom a compiled model is compared with, and who decides where ONNX Runtime stands alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from compiler_service.compiler.reference import verification
from compiler_service.compiler.reference.emulated import NotRunError
from compiler_service.compiler.reference.precision import tolerance_of
from runtime_service.loading.loader import load_model
from shared_ir.errors import ErrorCode, IngotError


def model(*nodes: onnx.NodeProto) -> bytes:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


RELU = model(helper.make_node("Relu", ["x"], ["y"]))


RELU_SOURCE = ModelSource.of(RELU)


def judged(source: bytes, oracle: Callable[[Sequence[Any]], Sequence[Any]], outputs: Callable[[Any], Any]) -> str:
    """Who is said to agree with ``outputs`` of an input."""
    plan = compile_model(ModelSource.of(source), host_target(), CompileOptions()).plan
    x = np.array([[-2.0, 1.0, 3.0, -1.0]], np.float32)
    found, _, _ = verification._judged(plan, [outputs(x)], [x], "onnxruntime 1", oracle, ModelSource.of(source))
    return found


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def test_onnx_runtime_is_enough_where_it_agrees() -> None:
    assert judged(RELU, lambda inputs: [relu(inputs[0])], relu) == "onnxruntime 1"


def test_the_reference_decides_where_onnx_runtime_answers_otherwise() -> None:
    who = judged(RELU, lambda inputs: [inputs[0]], relu)
    assert who == f"onnx.reference {onnx.__version__} (onnxruntime 1 answers otherwise)"


def test_the_reference_decides_where_onnx_runtime_does_not_run() -> None:
    def fails(inputs: Sequence[Any]) -> Sequence[Any]:
        raise RuntimeError("no kernel")

    assert judged(RELU, fails, relu).endswith("(onnxruntime 1 does not run it)")
    with pytest.raises(NotRunError, match="no kernel"):
        judged(RELU, fails, lambda x: x)


@pytest.mark.parametrize("patience", [0.2, None])
def test_nobody_waits_for_a_model_that_does_not_end(patience: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_TIMEOUT_SECONDS", 0.3)
    artifact = compile_model(RELU_SOURCE, host_target(), CompileOptions())
    means = verification.Means((sys.executable, "-c", "import time; time.sleep(60)"), patience)
    report = verification.verify(artifact, RELU_SOURCE, lambda: lambda inputs: inputs, means)
    assert report["state"] == "not run"
    assert f"had not answered after {patience or 0.3:g} s" in report["reason"]


def test_who_disagrees_with_both_is_wrong() -> None:
    with pytest.raises(IngotError) as caught:
        judged(RELU, lambda inputs: [relu(inputs[0])], lambda x: x)
    assert caught.value.code is ErrorCode.NUMERIC_MISMATCH


def through(narrow: int) -> bytes:
    """A function computed in another type."""
    there = helper.make_node("Cast", ["x"], ["a"], to=narrow)
    back = helper.make_node("Cast", ["b"], ["y"], to=TensorProto.FLOAT)
    return model(there, helper.make_node("Cosh", ["a"], ["b"]), back)


@pytest.mark.parametrize(
    ("narrow", "tolerance"),
    [
        (TensorProto.FLOAT, 1e-3),
        (TensorProto.FLOAT16, 2**-8),
        (TensorProto.BFLOAT16, 2**-5),
        (TensorProto.FLOAT8E5M2, 0.5),
    ],
)
def test_the_narrowest_type_says_how_far_right_answers_may_be_apart(narrow: int, tolerance: float) -> None:
    assert tolerance_of(ModelSource.of(through(narrow))) == tolerance


def test_types_inside_of_branches_count() -> None:
    inner = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16)],
        "inner",
        [],
        [helper.make_tensor_value_info("h", TensorProto.BFLOAT16, ["n", 4])],
    )
    branch = helper.make_node("If", ["c"], ["b"], then_branch=inner, else_branch=inner)
    constant = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [], [True]))
    source = model(constant, branch, helper.make_node("Cast", ["b"], ["y"], to=TensorProto.FLOAT))
    assert tolerance_of(ModelSource.of(source)) == 2**-5


def test_a_rounding_of_a_narrow_type_is_no_mismatch() -> None:
    plan = compile_model(ModelSource.of(through(TensorProto.BFLOAT16)), host_target(), CompileOptions()).plan
    x = np.ones((1, 4), np.float32)
    for off, agrees in ((2**-8, True), (2**-4, False)):
        judge = partial(verification._judged, plan, [x + off], [x], "onnxruntime 1", lambda inputs: [x])
        if agrees:
            assert judge(ModelSource.of(through(TensorProto.BFLOAT16)))[:2] == ("onnxruntime 1", 2**-5)
        with pytest.raises(IngotError, match="differs"):
            judge(RELU_SOURCE if agrees else ModelSource.of(through(TensorProto.BFLOAT16)))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_rows_are_divided_by_their_norm_as_onnx_runtime_does(norm: str) -> None:
    source = model(helper.make_node("Normalizer", ["x"], ["y"], domain="ai.onnx.ml", norm=norm))
    x = np.array([[-2, 1, 3, -1], [-4, -3, -2, -1], [0, 0, 0, 0], [-1, 0, 0, -2]], np.float32)
    expected = onnxruntime.InferenceSession(source).run(None, {"x": x})[0]
    with load_model(compile_model(ModelSource.of(source), host_target(), CompileOptions())) as loaded:
        np.testing.assert_allclose(loaded.run({"x": x})["y"], expected, 1e-6)
