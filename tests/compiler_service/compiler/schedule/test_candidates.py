"""Schedules that a tuner measures: the default first, whatever rule it comes from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from compiler_service.compiler.program.kernels import Kernel
from compiler_service.compiler.schedule.algorithms.byte_dots.step import DotBytes
from compiler_service.compiler.schedule.algorithms.diagonals.step import Diagonals
from compiler_service.compiler.schedule.algorithms.winograd.step import Winograd
from compiler_service.compiler.schedule.default import (
    candidate_schedules,
    default_schedule,
    methods_of,
)
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.operators.convolution import conv
from compiler_service.compiler.tensor_expr.operators.quantized import matmul_integer
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from compiler_service.compiler.tune.records import Record, kernel_digest, merge
from compiler_service.compiler.tune.tuning import TuningRecords
from shared_ir.dtype import DType
from tests.compiler_service.compiler.schedule.algorithms.test_byte_dot_schedules import bytes_of
from tests.compiler_service.compiler.schedule.kernels import VNNI, interpreted


def convolution(channels: int, group: int) -> Tensor:
    x = placeholder("x", (1, 14, 14, channels), DType.FLOAT32)
    w = placeholder("w", (channels, channels // group, 3, 3), DType.FLOAT32)
    return conv(x, w, group=group, pads=(1,) * 4, layout="NHWC")


def product() -> Tensor:
    x, w = placeholder("x", (24, 64), DType.UINT8), placeholder("w", (64, 48), DType.INT8)
    return matmul_integer(x, w)


@pytest.mark.parametrize(
    ("kernel", "step"),
    [(convolution(256, 1), Winograd), (convolution(32, 8), Diagonals), (product(), DotBytes)],
    ids=["winograd", "grouped", "bytes"],
)
def test_the_default_is_measured_first(kernel: Tensor, step: type) -> None:
    output, placeholders = coalesce(kernel)
    constants = frozenset(new for old, new in placeholders.items() if old.name == "w")
    found = candidate_schedules(output, constants, VNNI, methods=("winograd",))
    assert found[0] == default_schedule(output, constants, VNNI, methods=("winograd",))
    assert any(isinstance(s, step) for s in found[0])
    assert len(set(found)) == len(found)


def test_methods_that_are_forbidden_are_not_measured() -> None:
    output, placeholders = coalesce(convolution(256, 1))
    constants = frozenset(new for old, new in placeholders.items() if old.name == "w")
    allowed = candidate_schedules(output, constants, VNNI, methods=("winograd",))
    assert {methods_of(schedule) for schedule in allowed} == {frozenset(), frozenset({"winograd"})}
    forbidden = candidate_schedules(output, constants, VNNI)
    assert {methods_of(schedule) for schedule in forbidden} == {frozenset()}
    assert len(forbidden) > 1, "the candidates of the next rule"


def test_a_record_of_a_forbidden_method_is_none() -> None:
    output, placeholders = coalesce(convolution(256, 1))
    constants = frozenset(new for old, new in placeholders.items() if old.name == "w")
    asked: tuple[tuple[str, ...], ...] = ((), ("winograd",))
    found = {methods: default_schedule(output, constants, VNNI, methods) for methods in asked}

    def record(seconds: float, *methods: str) -> Record:
        digest, schedule = kernel_digest("a kernel"), found[methods]
        return Record(digest, str(VNNI), schedule, seconds, seconds, 0.0, 2, "0")

    kernel = cast(Kernel, SimpleNamespace(key="a kernel"))
    faster = TuningRecords([record(1.0, "winograd")], VNNI)
    assert faster(kernel, ()) is None
    assert faster(kernel, ("winograd",)) == found["winograd",]
    both = merge([record(1.0, "winograd"), record(3.0)], [record(2.0)])
    assert [r.seconds for r in both] == [1.0, 2.0]
    assert TuningRecords(both, VNNI)(kernel, ()) == found[()]
    assert TuningRecords(both, VNNI)(kernel, ("winograd",)) == found["winograd",]


def test_candidates_for_bytes_multiply_bytes() -> None:
    output, placeholders = coalesce(product())
    constants = frozenset(new for old, new in placeholders.items() if old.name == "w")
    found = candidate_schedules(output, constants, VNNI)
    feeds = bytes_of(output, {})
    (wanted,) = evaluate([output], feeds, {})
    assert len(found) > 2
    by_dots = [schedule for schedule in found if any(isinstance(s, DotBytes) for s in schedule)]
    assert len(by_dots) > 2
    for schedule in by_dots[:6]:
        got = interpreted(output, feeds, {}, VNNI, schedule, after_passes=False)
        np.testing.assert_array_equal(got, wanted)
