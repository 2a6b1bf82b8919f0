"""Narrow groups of convolutions: by their diagonals, several to a vector."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.schedule.algorithms.diagonals.stages import Turned
from compiler_service.compiler.schedule.algorithms.diagonals.step import Diagonals
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.steps import ComputeAt
from compiler_service.compiler.schedule.records import from_json, to_json
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.operators.activation import relu
from compiler_service.compiler.tensor_expr.operators.convolution import conv
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, symbol
from shared_ir.machine.target import Target
from tests.cases import every
from tests.compiler_service.compiler.schedule.kernels import (
    AVX2,
    AVX512,
    NEON,
    ONE_QUICK_TARGET,
    TARGETS,
    interpreted,
    random_feeds,
)


def grouped(
    shape: tuple[Dim, ...], channels: int, group: int, kernel: int = 3, stride: int = 1, pad: int = 1
) -> Tensor:
    x = placeholder("x", (1, *shape, channels), DType.FLOAT32)
    w = placeholder("w", (channels, group, *(kernel,) * len(shape)), DType.FLOAT32)
    b = placeholder("b", (channels,), DType.FLOAT32)
    rank = len(shape)
    made = conv(x, w, b, group=channels // group, pads=(pad,) * (2 * rank), strides=(stride,) * rank, layout="NHWC")
    return relu(made)


def scheduled(output: Tensor, target: Target) -> tuple[Tensor, Schedule]:
    output, placeholders = coalesce(output)
    constants = frozenset(new for old, new in placeholders.items() if old.name == "w")
    return output, default_schedule(output, constants, target)


def check(output: Tensor, target: Target, symbols: dict[str, int]) -> Schedule:
    output, schedule = scheduled(output, target)
    feeds = random_feeds(output, symbols)
    got = interpreted(output, feeds, symbols, target, schedule, after_passes=True)
    (wanted,) = evaluate([output], feeds, symbols)
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)
    return schedule


def is_by_diagonals(schedule: Schedule) -> bool:
    return any(isinstance(step, Diagonals) for step in schedule)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("channels", "group"), every([(32, 2), (24, 8), (20, 4), (8, 4)], quick={(20, 4), (8, 4)}))
def test_diagonals_compute_the_convolution(channels: int, group: int, stride: int, target: str) -> None:
    schedule = check(grouped((5, 7), channels, group, 3, stride), TARGETS[target], {})
    assert is_by_diagonals(schedule) == (group * 32 < TARGETS[target].vector_bits)


@pytest.mark.parametrize(("height", "copied"), [(9, False), (symbol("h"), True)])
def test_data_is_read_where_it_lies_if_its_edges_are_known(height: Dim, copied: bool) -> None:
    schedule = check(grouped((height, 8), 32, 8, 3, 2), AVX512, {"h": 9})
    assert any(isinstance(step, ComputeAt) and step.stage == "pad" for step in schedule) == copied


@pytest.mark.parametrize("target", [AVX512, pytest.param(AVX2, marks=pytest.mark.slow)], ids=["avx512", "avx2"])
@pytest.mark.parametrize(
    ("shape", "kernel", "pad"),
    every(
        [((6, 9), 1, 0), ((6, 9), 5, 2), ((9,), 3, 1), ((3, 4, 5), 3, 1), ((6, 9), 3, 0)],
        quick={((6, 9), 1, 0), ((9,), 3, 1), ((6, 9), 3, 0)},
    ),
)
def test_windows_of_any_rank(shape: tuple[int, ...], kernel: int, pad: int, target: Target) -> None:
    assert is_by_diagonals(check(grouped(shape, 24, 4, kernel, 1, pad), target, {}))


@pytest.mark.slow
@pytest.mark.parametrize("size", [{"h": 1, "w": 2}, {"h": 5, "w": 11}])
def test_sizes_of_the_run(size: dict[str, int]) -> None:
    assert is_by_diagonals(check(grouped((symbol("h"), symbol("w")), 24, 8), AVX512, size))


def test_no_diagonals_where_nothing_is_gained() -> None:
    """A group that fills a vector; weights of the run; as many outputs as no group has channels."""
    assert not is_by_diagonals(scheduled(grouped((6, 6), 64, 16), AVX512)[1])
    assert not is_by_diagonals(scheduled(grouped((6, 6), 16, 4), NEON)[1])
    output, _ = coalesce(grouped((6, 6), 64, 4))
    assert not is_by_diagonals(default_schedule(output, frozenset(), AVX512))
    x, w = placeholder("x", (1, 6, 6, 32), DType.FLOAT32), placeholder("w", (64, 4, 3, 3), DType.FLOAT32)
    wider = conv(x, w, group=8, layout="NHWC")
    assert not is_by_diagonals(scheduled(wider, AVX512)[1])


def test_weights_are_turned() -> None:
    weight = np.arange(6 * 3 * 2, dtype=np.float32).reshape(6, 3, 2)
    turned = Turned(3).apply(weight)
    assert turned.shape == Turned(3).shape(weight.shape) == (3, 6, 2)
    for r in range(3):
        for i in range(6):
            np.testing.assert_array_equal(turned[r, i], weight[i // 3 * 3 + (i - r) % 3, i % 3])


def test_the_step_travels_as_json() -> None:
    schedule = scheduled(grouped((6, 6), 32, 4), AVX512)[1]
    assert is_by_diagonals(schedule)
    assert from_json(to_json(schedule)) == schedule
