"""Parts that many elements of the output share are computed once, with vectors along their own source."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.loop_ir.ir import Allocate, Statement, substatements
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.steps import ComputeAt
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.schedule.rules.elementwise import elementwise_schedule
from compiler_service.compiler.schedule.rules.reused import reused_schedule
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.operators.interpolation import grid_sample
from compiler_service.compiler.tensor_expr.operators.reshaping import transpose
from compiler_service.compiler.tensor_expr.operators.resize import resize
from compiler_service.compiler.tensor_expr.scalar import rsqrt
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute, placeholder
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, symbol
from tests.compiler_service.compiler.schedule.kernels import (
    AVX512,
    ONE_QUICK_TARGET,
    TARGETS,
    arguments_of,
    interpreted,
    random_feeds,
)

F32 = DType.FLOAT32


def known(sizes: tuple[int, ...]) -> Tensor:
    return placeholder("sizes", (len(sizes),), DType.INT64, np.array(sizes, dtype=object))


def resized(shape: tuple[Dim, ...], sizes: tuple[int, ...], mode: str = "linear", layout: str = "NCHW") -> Tensor:
    return coalesce(resize(placeholder("x", shape, F32), sizes=known(sizes), mode=mode, layout=layout))[0]


def sampled(channels: int, size: int, mode: str = "linear") -> Tensor:
    x, grid = placeholder("x", (2, channels, size, size), F32), placeholder("grid", (2, size, size, 2), F32)
    return coalesce(grid_sample(x, grid, mode=mode))[0]


def towards_channels_first(channels: int, size: int, wanted: int) -> Tensor:
    """An image whose channels come last, resized to one whose channels come first."""
    x = placeholder("x", (1, size, size, channels), F32)
    return coalesce(
        transpose(
            resize(x, sizes=known((1, channels, wanted, wanted)), mode="linear", layout="NHWC"), perm=(0, 3, 1, 2)
        )
    )[0]


def kept(schedule: Schedule) -> dict[str, str]:
    return {s.stage: s.loop for s in schedule if isinstance(s, ComputeAt)}


KERNELS = {
    "up": resized((1, 3, 9, 21), (1, 3, 18, 42)),
    "by no whole number": resized((1, 2, 7, 20), (1, 2, 15, 37)),
    "down": resized((1, 2, 40, 60), (1, 2, 17, 33)),
    "cubic": resized((1, 2, 9, 20), (1, 2, 18, 40), "cubic"),
    "channels first at last": towards_channels_first(19, 10, 36),
    "sampled": sampled(3, 19),
    "sampled cubic": sampled(3, 19, "cubic"),
    "sampled nearest": sampled(3, 19, "nearest"),
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("name", KERNELS)
def test_what_is_kept_is_what_would_be_computed_anew(name: str, target: str) -> None:
    output = KERNELS[name]
    schedule = reused_schedule(KernelView.of(output, frozenset()), TARGETS[target])
    assert schedule is not None
    feeds = random_feeds(output, {})
    (wanted,) = evaluate([output], feeds, {})
    for after_passes in (False, True):
        got = interpreted(output, feeds, {}, TARGETS[target], schedule, after_passes=after_passes)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("factor", [1.25, 1.5, 2, 2.5, 3])
def test_no_lane_reads_where_no_place_was_written(factor: float) -> None:
    """Places of a row that is no whole number of vectors, read by vectors whose last lanes are behind its end."""
    rows, columns = symbol("d0"), symbol("d1")
    scales = placeholder("scales", (4,), F32, np.array([1, 1, 1.5, factor], dtype=object))
    x = placeholder("x", (rows, 4, columns, 7), F32)
    output = coalesce(resize(x, scales=scales, mode="cubic", exclude_outside=1))[0]
    schedule = reused_schedule(KernelView.of(output, frozenset()), AVX512)
    assert schedule is not None
    sizes = {"d0": 2, "d1": 3}
    feeds = random_feeds(output, sizes)
    (wanted,) = evaluate([output], feeds, sizes)
    for after_passes in (False, True):
        got = interpreted(output, feeds, sizes, AVX512, schedule, after_passes=after_passes)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_rows_between_pixels_are_kept_for_a_row_of_the_output() -> None:
    schedule = default_schedule(resized((1, 8, 56, 50), (1, 8, 112, 130)), frozenset(), AVX512)
    assert kept(schedule)["resize"] == "i2"  # of the output's planes, rows and columns i1, i2, i3


def test_what_depends_on_no_other_axis_is_found_once_in_a_task() -> None:
    found = kept(default_schedule(resized((1, 64, 56, 50), (1, 64, 112, 130)), frozenset(), AVX512))
    assert {loop for stage, loop in found.items() if stage != "resize"} == {"i1.8"}
    assert any(stage.startswith("positions") for stage in found)


def test_channels_of_a_pixel_share_what_is_found_for_it() -> None:
    schedule = default_schedule(sampled(64, 32), frozenset(), AVX512)
    found = kept(schedule)
    assert len(found) == 12  # places, whether they are inside, weights: of two taps along two axes
    assert len(set(found.values())) == 1


def test_places_of_pixels_are_kept_as_int32() -> None:
    output = sampled(64, 32)
    schedule = default_schedule(output, frozenset(), AVX512)
    function = lower("kernel", output, arguments_of(output), (), schedule, AVX512)
    dtypes = {s.buffer.name: s.buffer.dtype for s in _statements(function.body) if isinstance(s, Allocate)}
    assert {dtype for name, dtype in dtypes.items() if name.startswith("positions")} == {DType.INT32}


@pytest.mark.parametrize(("columns", "is_kept"), [(40, True), (80, False)])
def test_rows_that_leave_the_cache_are_not_kept(columns: int, is_kept: bool) -> None:
    output = resized((1, 40, columns, 256), (1, 256, 80, 2 * columns), layout="NHWC")
    assert ("resize" in kept(default_schedule(output, frozenset(), AVX512))) == is_kept


def test_rows_whose_length_only_the_run_knows_are_not_kept() -> None:
    wide = resized((1, 4, 20, symbol("w")), (1, 4, 40, 80))
    assert "resize" not in kept(default_schedule(wide, frozenset(), AVX512))


def test_a_part_that_is_read_along_an_axis_of_unknown_extent_is_not_kept() -> None:
    """A model may promise that the two are equal."""
    x, variance = placeholder("x", (symbol("n"), symbol("c")), F32), placeholder("variance", (3,), F32)
    factor = compute((3,), lambda i: rsqrt(variance[i]), name="factor")
    output = compute((symbol("n"), symbol("c")), lambda i, j: x[i, j] * factor[j], name="scaled")
    assert kept(default_schedule(output, frozenset(), AVX512)) == {}


def test_cheap_terms_are_computed_where_they_are_read() -> None:
    x, bias = placeholder("x", (64, 128), F32), placeholder("bias", (128,), F32)
    doubled = compute((128,), lambda i: bias[i] + bias[i], name="doubled")
    output = compute((64, 128), lambda i, j: x[i, j] + doubled[j], name="sum")
    view = KernelView.of(output, frozenset())
    assert reused_schedule(view, AVX512) is None
    assert default_schedule(output, frozenset(), AVX512) == elementwise_schedule(view, AVX512)


def _statements(statement: Statement) -> list[Statement]:
    return [statement, *(inner for part in substatements(statement) for inner in _statements(part))]
