"""Winograd's filtering along one axis: lines, rows and columns of images, dilations, windows that are cut in parts."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.schedule.algorithms.winograd.model import WinogradBlocking
from compiler_service.compiler.schedule.algorithms.winograd.step import Winograd
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.records import from_json, to_json
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.expr import lift, maximum
from shared_ir.expr.dim import Dim, as_dim, symbol
from shared_ir.machine.target import Target
from tests.cases import every
from tests.compiler_service.compiler.schedule.algorithms.test_winograd_schedule import (
    assert_computes,
    computed_natively,
    kernel,
    schedule_of,
)
from tests.compiler_service.compiler.schedule.kernels import (
    AVX2,
    AVX512,
    NEON,
    ONE_QUICK_TARGET,
    TARGETS,
    arguments_of,
)

F32 = DType.FLOAT32
Case = tuple[tuple[Dim, Dim, Dim], tuple[int, int], tuple[int, int], int, int]
"""Sizes, channels, window, stride and dilation."""


def convolved(
    size: tuple[Dim, Dim, Dim],
    channels: tuple[int, int],
    window: tuple[int, int],
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """``relu(conv(x))`` with outputs ``[n, h, w, oc]`` of data that has as many elements as windows need."""
    n, *image = size
    c, oc = channels
    steps = [stride if extent > 1 else 1 for extent in window]
    needed = ((lift(d) - 1) * s + (k - 1) * dilation + 1 for d, s, k in zip(image, steps, window, strict=True))
    x = placeholder("x", (n, *map(as_dim, needed), c), F32)
    weight = placeholder("w", (oc, c // groups, *window), F32)
    own, each = oc // groups, c // groups
    conv = reduce(
        ReduceOp.SUM,
        (*size, oc),
        (*window, each),
        lambda b, i, j, o, kh, kw, ic: (
            x[b, i * steps[0] + kh * dilation, j * steps[1] + kw * dilation, o // own * each + ic]
            * weight[o, ic, kh, kw]
        ),
        name="conv",
        axes=("n", "oh", "ow", "oc"),
        reduced=("kh", "kw", "ic"),
    )
    return compute((*size, oc), lambda *i: maximum(conv[i], 0.0), name="relu", axes=("n", "oh", "ow", "oc"))


def lines(
    tile: int, columns: int, across: int, vectors: int = 1, rows: int = 1, down: int = 1, channels: int = 0
) -> WinogradBlocking:
    return WinogradBlocking(tile, rows, columns, channels, down, across, vectors)


CASES = {
    "line": (convolved((1, 1, 24), (4, 32), (1, 3)), lines(4, 2, 2, 2)),
    "ragged": (convolved((1, 1, 29), (5, 20), (1, 3)), lines(6, 2, 2)),
    "whole": (convolved((1, 1, 13), (5, 20), (1, 5)), lines(4, 4, 2)),
    "shares": (convolved((1, 1, 9), (4, 64), (1, 2)), lines(3, 2, 2, channels=32)),
    "lines": (convolved((3, 1, 11), (4, 16), (1, 3)), lines(4, 2, 2, rows=2, down=2)),
    "stride": (convolved((1, 1, 17), (4, 20), (1, 3), 2), lines(5, 2, 2)),
    "stride, ragged": (convolved((2, 1, 11), (17, 16), (1, 5), 2), lines(3, 2, 1)),
    "stride of 4": (convolved((1, 1, 13), (4, 20), (1, 8), 4), lines(5, 2, 2)),
    "stride of 3": (convolved((2, 1, 9), (5, 32), (1, 7), 3), lines(2, 2, 2, 2)),
    "groups": (convolved((1, 1, 18), (32, 64), (1, 3), groups=2), lines(4, 3, 3, channels=32)),
    "rows of an image": (convolved((1, 5, 9), (4, 20), (1, 7)), lines(2, 3, 3, rows=2)),
    "columns of an image": (convolved((1, 9, 5), (4, 20), (7, 1)), lines(2, 3, 3, rows=2)),
    "planes": (convolved((1, 6, 10), (16, 32), (3, 1)), lines(4, 5, 2, 2)),
    "parts": (convolved((1, 1, 21), (4, 20), (1, 7)), lines(4, 2, 2)),
    "parts, ragged": (convolved((1, 1, 23), (5, 32), (1, 11)), lines(4, 3, 3, 2)),
    "parts of columns": (convolved((1, 10, 4), (4, 16), (9, 1)), lines(4, 2, 2, rows=2)),
    "dilation": (convolved((1, 1, 36), (4, 20), (1, 3), dilation=3), lines(4, 1, 1, rows=3, down=3)),
    "dilation, ragged": (convolved((1, 1, 31), (5, 32), (1, 3), dilation=2), lines(4, 2, 2, 2, rows=2)),
    "dilation, parts": (convolved((1, 1, 40), (4, 16), (1, 7), dilation=3), lines(4, 2, 2, rows=3, down=1)),
    "dilation, lines": (convolved((2, 1, 19), (4, 64), (1, 3), dilation=2), lines(3, 1, 1, rows=2, channels=32)),
    "dilation, rows": (convolved((1, 3, 19), (4, 16), (1, 3), dilation=2), lines(3, 2, 2, rows=2)),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("case", every(CASES, quick={"ragged", "parts", "dilation, ragged", "columns of an image"}))
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
def test_filtering_along_one_axis_computes_the_convolution(target: str, case: str) -> None:
    expression, blocking = CASES[case]
    output, constants = kernel(expression)
    schedule = schedule_of(output, constants, target, blocking)
    assert from_json(to_json(schedule)) == schedule
    assert_computes(output, schedule, TARGETS[target])


DYNAMIC = {
    "line": (convolved((1, 1, symbol("t")), (4, 20), (1, 3)), lines(4, 2, 2)),
    "lines": (convolved((symbol("n"), 1, symbol("t")), (4, 20), (1, 3)), lines(6, 2, 2)),
    "stride": (convolved((1, 1, symbol("t")), (4, 20), (1, 3), 2), lines(4, 2, 2)),
    "dilation": (convolved((1, 1, symbol("t")), (4, 20), (1, 3), dilation=3), lines(4, 2, 2, rows=3)),
    "parts": (convolved((symbol("n"), 1, symbol("t")), (4, 20), (1, 7)), lines(4, 2, 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", DYNAMIC)
@pytest.mark.parametrize("length", [1, 7, 24, 50])
def test_lines_of_any_length(case: str, length: int) -> None:
    expression, blocking = DYNAMIC[case]
    output, constants = kernel(expression)
    schedule = schedule_of(output, constants, "avx512", blocking)
    assert_computes(output, schedule, AVX512, {"n": 2, "t": length})


@pytest.mark.parametrize("target", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize(
    ("case", "filtered"),
    [
        (((1, 1, 1000), (128, 128), (1, 3), 1, 1), True),
        (((1, 1, 1000), (128, 128), (1, 5), 1, 1), True),
        (((1, 1, 1000), (64, 64), (1, 11), 1, 1), True),
        (((1, 1, 1000), (128, 128), (1, 3), 1, 8), True),
        (((1, 1, 1000), (96, 192), (1, 8), 4, 1), True),
        (((1, 1, symbol("t")), (128, 128), (1, 3), 1, 3), True),
        (((8, 1, 100), (256, 256), (1, 3), 1, 1), True),
        (((1, 17, 17), (192, 192), (7, 1), 1, 1), True),
        (((1, 1, 1000), (128, 128), (1, 1), 1, 1), False),
        (((1, 1, 1000), (1, 512), (1, 10), 5, 1), False),  # transforms cost more than they save
        (((1, 1, 1000), (128, 128), (1, 3), 3, 1), False),
        (((1, 1, 2), (256, 256), (1, 3), 1, 1), False),  # a tile would be mostly padding
    ],
)
def test_the_model_chooses(case: Case, filtered: bool, target: Target) -> None:
    output, constants = kernel(convolved(*case))
    schedule = default_schedule(output, constants, target, methods=("winograd",))
    assert any(isinstance(s, Winograd) for s in schedule) == filtered
    assert not any(isinstance(s, Winograd) for s in default_schedule(output, constants, target))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "stride", "dilation"),
    [(2, 1, 1), (3, 1, 1), (5, 1, 1), (7, 1, 1), (11, 1, 1), (3, 2, 1), (8, 4, 1), (3, 1, 4)],
)
def test_error_of_native_code(window: int, stride: int, dilation: int) -> None:
    """Within 1e-5 of the largest output, against float64."""
    output, constants = kernel(convolved((1, 1, 1000), (128, 128), (1, window), stride, dilation))
    feeds, result = computed_natively(output, constants)
    data, weight = (feeds[t].astype(np.float64) for t in arguments_of(output))
    places = np.arange(window) * dilation + np.arange(len(result))[:, None] * stride
    wanted = np.maximum(np.einsum("wkc,ock->wo", data[places], weight), 0.0)
    assert np.abs(result - wanted).max() < 1e-5 * np.abs(wanted).max()
