"""Schedules that a tuner measures: of any rule that has one, and of no method that is forbidden."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from compiler_service.compiler.program.kernels import Kernel
from compiler_service.compiler.schedule.algorithms.diagonals.step import Diagonals
from compiler_service.compiler.schedule.algorithms.winograd.step import Winograd
from compiler_service.compiler.schedule.default import (
    default_schedule,
    methods_of,
    open_schedule,
)
from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.operators.convolution import conv
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from compiler_service.compiler.tune.records.book import RecordBook
from compiler_service.compiler.tune.records.record import TrialRecord, Workload
from compiler_service.compiler.tune.tuning import tuned_schedules
from shared_ir.dtype import DType
from tests.compiler_service.compiler.schedule.kernels import VNNI
from tests.compiler_service.compiler.tune.records.trials import trial


def convolution(channels: int, group: int) -> Tensor:
    x = placeholder("x", (1, 14, 14, channels), DType.FLOAT32)
    w = placeholder("w", (channels, channels // group, 3, 3), DType.FLOAT32)
    return conv(x, w, group=group, pads=(1,) * 4, layout="NHWC")


@pytest.mark.parametrize(
    ("made", "step"),
    [(convolution(256, 1), Winograd), (convolution(32, 8), Diagonals)],
    ids=["winograd", "grouped"],
)
def test_rules_of_the_kernel_are_points(made: Tensor, step: type) -> None:
    output, placeholders = coalesce(made)
    constants = frozenset(new for old, new in placeholders.items() if old.name == "w")
    knobs = Knobs()
    open_schedule(KernelView.of(output, constants).answered_by(knobs), VNNI, ("winograd",))
    for name in knobs.asked["rule"].options:
        found = open_schedule(KernelView.of(output, constants).answered_by(Knobs({"rule": name})), VNNI, ("winograd",))
        assert found.rule == name
        assert any(isinstance(s, step) for s in found.schedule) == (name == knobs.asked["rule"].default)


def test_methods_that_are_forbidden_are_no_points() -> None:
    output, placeholders = coalesce(convolution(256, 1))
    constants = frozenset(new for old, new in placeholders.items() if old.name == "w")
    for methods in ((), ("winograd",)):
        knobs = Knobs()
        open_schedule(KernelView.of(output, constants).answered_by(knobs), VNNI, methods)
        assert set(methods) == {"winograd", "strassen"} & set(knobs.asked["rule"].options)
        asked = Knobs({"rule": "winograd"})
        found = open_schedule(KernelView.of(output, constants).answered_by(asked), VNNI, methods)
        assert methods_of(found.schedule) == set(methods)


def test_a_record_of_a_forbidden_method_is_none() -> None:
    output, placeholders = coalesce(convolution(256, 1))
    constants = frozenset(new for old, new in placeholders.items() if old.name == "w")
    asked: tuple[tuple[str, ...], ...] = ((), ("winograd",))
    found = {methods: default_schedule(output, constants, VNNI, methods) for methods in asked}

    def record(seconds: float, *methods: str, allowed: tuple[str, ...] = ("winograd",)) -> TrialRecord:
        own = {"schedules": (found[methods],), "seconds": seconds, "default_seconds": 4.0, "confirmed": True}
        return trial(Workload.of("a kernel", "Conv"), target=str(VNNI), methods=allowed, **own)

    kernel = cast(Kernel, SimpleNamespace(key="a kernel"))
    faster = tuned_schedules(RecordBook([record(1.0, "winograd")], VNNI))
    assert faster(kernel, ()) is None
    assert faster(kernel, ("winograd",)) == found["winograd",]
    edited = tuned_schedules(RecordBook([record(1.0, "winograd", allowed=())], VNNI))
    assert edited(kernel, ()) is None, "it names a method that it says was forbidden"
    both = tuned_schedules(RecordBook([record(1.0, "winograd"), record(3.0), record(2.0, allowed=())], VNNI))
    assert both(kernel, ()) == found[()]
    assert both(kernel, ("winograd",)) == found["winograd",]
