"""Kernels are built with the schedule of their rule, or with a plain one where that does not fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper

import ingot
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import inference, optimize
from compiler_service.compiler.program import kernels
from compiler_service.compiler.program.definitions import define_kernels
from compiler_service.compiler.program.kernels import ScheduledKernel, ScheduleFaultWarning, distinct_kernels
from compiler_service.compiler.program.variants import import_variants
from compiler_service.compiler.progress import Log, silent
from compiler_service.compiler.schedule.default import ChosenSchedule
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.steps import Split
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import parse_target

FLOAT = onnx.TensorProto.FLOAT
TARGET = parse_target("x86-64-v3")


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


def scheduled_kernel() -> ScheduledKernel:
    source, options = ModelSource(model().SerializeToString()), CompileOptions()
    (variant,) = import_variants(source, options.import_options, inference(), fast=False)
    defined = define_kernels(optimize(variant, TARGET, options, Log.from_environment(silent)))
    (kernel,) = distinct_kernels([(defined.definitions, defined.constants)])[0]
    assert isinstance(kernel, ScheduledKernel)
    return kernel


def test_a_kernel_opens_the_space_of_its_schedules() -> None:
    kernel, knobs = scheduled_kernel(), Knobs()
    assert kernel.open_schedule(TARGET, knobs) == kernel.chosen_schedule(TARGET)
    assert {"contraction", "row"} <= set(knobs.asked["rule"].options)
    other = kernel.open_schedule(TARGET, Knobs({"rule": "row"}))
    assert other.rule == "row"
    assert other.schedule != kernel.chosen_schedule(TARGET).schedule


def test_what_an_open_kernel_cannot_be_is_said_of_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "does not fit together")

    monkeypatch.setattr(kernels, "open_schedule", refuses)
    with pytest.raises(IngotError, match="does not fit together") as caught:
        scheduled_kernel().open_schedule(TARGET, Knobs())
    assert caught.value.node == "product, y"
