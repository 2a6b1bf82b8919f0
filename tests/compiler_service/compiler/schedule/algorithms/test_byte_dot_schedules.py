"""Sums of products of bytes, by dot products of four bytes where the target has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler_service.compiler.schedule.algorithms.byte_dots.stages import Words
from compiler_service.compiler.schedule.algorithms.byte_dots.step import DotBytes
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.steps import CacheRead, PrefetchTile
from compiler_service.compiler.schedule.records import from_json, to_json
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.meaning.scalar_semantics import BINARY
from compiler_service.compiler.tensor_expr.operators.movement import padded
from compiler_service.compiler.tensor_expr.operators.quantized import conv_integer, matmul_integer
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute, placeholder
from shared_ir.dtype import DType
from shared_ir.expr import BinaryOp, lift
from shared_ir.expr.dim import Dim, symbol
from shared_ir.expr.dim import evaluate as evaluate_dim
from shared_ir.machine.target import Target
from tests.cases import every
from tests.compiler_service.compiler.schedule.algorithms.test_grouped_schedules import scheduled
from tests.compiler_service.compiler.schedule.kernels import (
    AVX2,
    AVX512,
    AVX_VNNI,
    DOT_PRODUCTS,
    NEON,
    VNNI,
    arguments_of,
    interpreted,
)

WITH_DOTS = [
    pytest.param(VNNI, id="avx512vnni"),
    pytest.param(AVX_VNNI, id="avxvnni", marks=pytest.mark.slow),
    pytest.param(DOT_PRODUCTS, id="dotprod", marks=pytest.mark.slow),
]


def kind_of(target: Target) -> DType:
    assert target.dot4 is not None
    return target.dot4


def matmul(rows: Dim, depth: int, columns: int, kind: DType = DType.UINT8) -> Tensor:
    x, w = placeholder("x", (rows, depth), kind), placeholder("w", (depth, columns), DType.INT8)
    return matmul_integer(x, w)


def convolution(
    size: Dim,
    channels: int,
    outputs: int,
    kernel: int,
    stride: int,
    kind: DType = DType.UINT8,
    *,
    is_first: bool = False,
) -> Tensor:
    """Padded with 7 or -7; ``is_first``: the data has its channels first."""
    p = kernel // 2
    shape, border = ((1, channels, size, size), (0, 0, p, p)) if is_first else ((1, size, size, channels), (0, p, p, 0))
    x = padded(placeholder("x", shape, kind), border, border, lift(-7 if kind.is_signed else 7, kind))
    w = placeholder("w", (outputs, channels, kernel, kernel), DType.INT8)
    return conv_integer(x, w, strides=(stride,) * 2, layout="NHWC", data_layout="NCHW" if is_first else "")


def bytes_of(output: Tensor, symbols: dict[str, int]) -> dict[Tensor, np.ndarray]:
    rng = np.random.default_rng(3)
    feeds = {}
    for tensor in arguments_of(output):
        shape = tuple(evaluate_dim(d, symbols) for d in tensor.shape)
        limits = np.iinfo(tensor.dtype.value)
        feeds[tensor] = rng.integers(limits.min, limits.max, shape, endpoint=True).astype(tensor.dtype.numpy)
    return feeds


def check(output: Tensor, target: Target, symbols: dict[str, int]) -> Schedule:
    output, schedule = scheduled(output, target)
    feeds = bytes_of(output, symbols)
    for after_passes in (False, True):
        got = interpreted(output, feeds, symbols, target, schedule, after_passes=after_passes)
        (wanted,) = evaluate([output], feeds, symbols)
        np.testing.assert_array_equal(got, wanted)
    return schedule


def is_by_dots(schedule: Schedule) -> bool:
    return any(isinstance(step, DotBytes) for step in schedule)


@pytest.mark.parametrize("target", WITH_DOTS)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(7, 64, 48), (33, 8, 20), (5, 63, 32), (1, 12, 7), (4, 3, 16)])
def test_products_of_matrices(rows: int, depth: int, columns: int, target: Target) -> None:
    assert is_by_dots(check(matmul(rows, depth, columns, kind_of(target)), target, {}))


@pytest.mark.parametrize("target", WITH_DOTS)
def test_rows_times_a_vector(target: Target) -> None:
    x, w = placeholder("x", (40, 64), kind_of(target)), placeholder("w", (64,), DType.INT8)
    schedule = check(matmul_integer(x, w), target, {})
    assert is_by_dots(schedule)
    assert [s.tensor for s in schedule if isinstance(s, CacheRead)] == ["x"]


@pytest.mark.parametrize("rows", [1, 2, 19])
def test_rows_of_the_run(rows: int) -> None:
    assert is_by_dots(check(matmul(symbol("m"), 24, 40), VNNI, {"m": rows}))


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("target", WITH_DOTS)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("channels", "kernel"), every([(8, 3), (8, 1), (6, 3), (3, 5)], quick={(8, 1), (6, 3)}))
def test_convolutions_padded_in_words(channels: int, kernel: int, stride: int, target: Target) -> None:
    assert is_by_dots(check(convolution(9, channels, 20, kernel, stride, kind_of(target)), target, {}))


@pytest.mark.parametrize("target", WITH_DOTS)
def test_a_first_convolution_puts_its_words_together(target: Target) -> None:
    assert is_by_dots(check(convolution(11, 3, 24, 7, 2, kind_of(target), is_first=True), target, {}))


def test_rows_are_asked_for_by_the_name_of_their_bytes() -> None:
    """Data that the second cache level does not hold."""
    schedule = check(matmul(40, 64, 48), replace(VNNI, l2=512), {})
    assert any(isinstance(step, PrefetchTile) and step.tensor == "x" for step in schedule)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 10])
def test_sizes_of_the_run(size: int) -> None:
    assert is_by_dots(check(convolution(symbol("s"), 4, 24, 3, 1), VNNI, {"s": size}))


def test_data_that_does_not_lie_along_the_sum() -> None:
    x, w = placeholder("x", (12, 9), DType.UINT8), placeholder("w", (12, 16), DType.INT8)
    turned = compute((9, 12), lambda i, k: x[k, i], name="turned")
    assert is_by_dots(check(matmul_integer(turned, w), VNNI, {}))


@pytest.mark.parametrize("target", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
def test_other_targets_multiply_integers(target: Target) -> None:
    assert not is_by_dots(check(matmul(7, 24, 20), target, {}))


def test_no_dots_of_other_data_or_weights_of_the_run() -> None:
    assert not is_by_dots(check(matmul(7, 24, 20, DType.INT8), VNNI, {}))
    assert not is_by_dots(check(matmul(7, 24, 20, DType.UINT8), DOT_PRODUCTS, {}))
    output, _ = coalesce(matmul(7, 24, 20))
    assert not is_by_dots(default_schedule(output, frozenset(), VNNI))


def test_words_hold_bytes_in_order_and_zeros_after_them() -> None:
    array = np.arange(-5, 7, dtype=np.int8).reshape(6, 2)
    words = Words(0).apply(array)
    assert words.shape == Words(0).shape(array.shape) == (2, 2)
    assert words[0, 1].tobytes() == array[:4, 1].tobytes()
    assert words[1, 0].tobytes() == array[4:, 0].tobytes() + b"\0\0"


def test_the_operators_multiply_bytes_by_signed_bytes() -> None:
    left = np.array([[255, 1, 2, 128], [0, 0, 0, 255]], np.uint8)
    right = np.array([[-128, 127, -1, 3], [9, 9, 9, -128]], np.int8)
    words = [a.view(np.int32).ravel() for a in (left, right)]
    assert BINARY[BinaryOp.DOT4](*words).tolist() == [255 * -128 + 127 - 2 + 384, 255 * -128]
    assert BINARY[BinaryOp.SIGNED_DOT4](*words).tolist() == [128 + 127 - 2 - 384, 128]


def test_the_step_travels_as_json() -> None:
    schedule = scheduled(matmul(7, 24, 20), VNNI)[1]
    assert is_by_dots(schedule)
    assert from_json(to_json(schedule)) == schedule


@pytest.mark.parametrize("gap", [8, 6])
def test_data_with_gaps_between_its_rows(gap: int) -> None:
    """As words where the gaps are of whole words, else put together."""
    x = placeholder("x", (9, 12), DType.UINT8, strides=(12 + gap, 1))
    w = placeholder("w", (12, 16), DType.INT8)
    assert is_by_dots(check(matmul_integer(x, w), VNNI, {}))
