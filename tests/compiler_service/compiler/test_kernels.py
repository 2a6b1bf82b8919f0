"""Kernels are built with the schedule of their rule, or with a plain one where that does not fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper

import ingot
from compiler_service.compiler.program import kernels
from compiler_service.compiler.program.kernels import ScheduleFaultWarning
from compiler_service.compiler.schedule.default import ChosenSchedule
from compiler_service.compiler.schedule.language.steps import Split
from shared_ir.errors import ErrorCode, IngotError

FLOAT = onnx.TensorProto.FLOAT


def model() -> onnx.ModelProto:
    weight = helper.make_tensor("w", FLOAT, [3, 2], range(6))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="product"), helper.make_node("Relu", ["p"], ["y"])]
    infos = [helper.make_tensor_value_info(n, FLOAT, [4, d]) for n, d in (("x", 3), ("y", 2))]
    graph = helper.make_graph(nodes, "small", infos[:1], infos[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def misfit(*_: object, **__: object) -> ChosenSchedule:
    return ChosenSchedule("misfit", (Split("no such stage", "m", 4),))


def broken(*_: object, **__: object) -> ChosenSchedule:
    raise KeyError("a rule is broken")


def test_a_schedule_that_fits_is_no_fault() -> None:
    report = ingot.compile(model()).report
    assert report["faults"] == []
    (rule,) = report["rules"].values()
    assert rule == "contraction"
    assert set(report["codegen"]) == {"schedule", "lower", "prove", "loop passes", "emit"}


@pytest.mark.slow
@pytest.mark.parametrize("rules", [misfit, broken])
def test_a_schedule_that_does_not_fit_costs_speed_alone(
    rules: Callable[..., ChosenSchedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "chosen_schedule", rules)
    with pytest.warns(ScheduleFaultWarning, match=r"\(product, y\) is compiled with a plain schedule"):
        artifact = ingot.compile(model())
    (fault,) = artifact.report["faults"]
    assert tuple(fault["nodes"]) == ("product", "y")
    assert fault["reason"]
    assert list(artifact.report["rules"].values()) == ["plain row"]
    x = np.arange(12, dtype=np.float32).reshape(4, 3) - 5
    expected = np.maximum(x @ np.arange(6, dtype=np.float32).reshape(3, 2), 0)
    np.testing.assert_allclose(ingot.load(artifact).run({"x": x})["y"], expected)


def test_a_kernel_that_no_loops_compute_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise IngotError(ErrorCode.COMPILER_FAULT, "no loops")

    monkeypatch.setattr(kernels, "lower", refuses)
    with pytest.raises(IngotError, match="no loops"):
        ingot.compile(model())
