"""Contractions whose sizes are known: how they are divided, and what is asked of memory ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler_service.compiler.loop_ir.ir import Prefetch, walk_statements
from compiler_service.compiler.loop_ir.text import expression_text
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.steps import Pack, Parallel, Reorder, Split
from compiler_service.compiler.schedule.language.steps import PrefetchTile as PrefetchStep
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.schedule.model.tiles import register_tiles
from compiler_service.compiler.schedule.records import from_json, to_json
from compiler_service.compiler.schedule.rules.contraction.division import ContractionWork, Division, Tile, best_division
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.strides import Strides
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.machine.target import Target
from tests.compiler_service.compiler.schedule.kernels import (
    AVX512,
    arguments_of,
    interpreted,
    prefetched_by,
    random_feeds,
)

F32 = DType.FLOAT32


def product(rows: int, depth: int, columns: int, strides: Strides | None = None) -> Tensor:
    x, w = placeholder("x", (rows, depth), F32, strides=strides), placeholder("w", (depth, columns), F32)
    return reduce(
        ReduceOp.SUM, (rows, columns), (depth,), lambda m, n, k: x[m, k] * w[k, n], name="mm", axes="mn", reduced="k"
    )


def work(rows: int, depth: int, columns: int, window: int = 1) -> ContractionWork:
    size = 4 * depth
    return ContractionWork(1, window, rows, columns, depth, size, size, rows * size, False, False, 16)


def division(given: ContractionWork, cores: int) -> Division:
    tiles = [Tile(h, 16 * v) for h, v in register_tiles(given.rows, given.columns, AVX512, F32)]
    return best_division(given, tuple(tiles), replace(AVX512, cores=cores))[2]


def tasks(given: ContractionWork, d: Division) -> int:
    sizes = ((given.window, d.window), (given.rows, d.rows), (given.columns, d.columns))
    return int(np.prod([-(-extent // size) for extent, size in sizes]))


@pytest.mark.parametrize("cores", [2, 4, 8])
@pytest.mark.parametrize("shape", [(960, 240, 240), (49, 440, 440), (128, 768, 3072), (784, 104, 104)])
def test_every_core_has_about_as_much_to_do(shape: tuple[int, int, int], cores: int) -> None:
    given = work(*shape)
    chosen = division(given, cores)
    count = tasks(given, chosen)
    largest = chosen.rows * chosen.columns * -(-count // cores)
    assert largest <= 1.2 * given.rows * given.columns / cores


def test_one_core_and_little_work_are_one_task() -> None:
    assert division(work(240, 240, 240), 1) == Division(1, 240, 240)
    small = work(8, 16, 32)
    assert tasks(small, division(small, 8)) == 1


def test_wide_weights_are_read_once() -> None:
    """Rows that are divided would read 9 MB again for every part."""
    assert division(work(128, 768, 3072), 2).rows == 128


def test_rows_stay_on_the_core_that_made_them_unless_weights_are_more() -> None:
    """450 KB of results that the next layer reads by rows, and 220 KB of weights; then the other way round."""
    assert division(work(196, 96, 576), 2) == Division(1, 102, 576)
    wide = division(work(49, 960, 1280), 2)
    assert (wide.rows, wide.columns) == (49, 640)


def test_no_row_waits_for_weights_from_the_second_level() -> None:
    """Two rows of four vectors are multiplied faster than the 256 bytes of weights for them arrive."""
    given = work(7, 1024, 2048, window=7)
    tiles = [Tile(h, 16 * v) for h, v in register_tiles(given.rows, given.columns, AVX512, F32)]
    tile = best_division(given, tuple(tiles), AVX512)[1]
    assert tile.width // 16 <= min(tile.height, given.rows % tile.height or tile.height)


def with_weights(
    rows: int, depth: int, columns: int, target: Target = AVX512, strides: Strides | None = None
) -> tuple[Tensor, Schedule]:
    output = product(rows, depth, columns, strides)
    constants = frozenset(t for t in arguments_of(output) if t.name == "w")
    return output, default_schedule(output, constants, target)


def test_large_weights_are_asked_for_a_tile_ahead() -> None:
    output, schedule = with_weights(24, 512, 256)
    (step,) = (s for s in schedule if isinstance(s, PrefetchStep))
    assert from_json(to_json(schedule)) == schedule
    assert any(isinstance(s, Parallel) for s in schedule)
    function = lower("kernel", output, list(arguments_of(output)), [], schedule, AVX512)
    asked = [s for s in walk_statements(function.body) if isinstance(s, Prefetch)]
    assert asked
    (tile,) = {s.buffer.shape[-1] for s in asked}
    assert isinstance(tile, int)
    ((_, extent, covered),) = step.sweeps
    part = -(-tile // -(-extent // covered))
    texts = {expression_text(s.indices[-1]) for s in asked}
    assert all(f"* {part}" in text for text in texts), texts


def test_the_next_tile_is_asked_for_in_the_second_level_and_what_is_near_in_the_first() -> None:
    output, schedule = with_weights(24, 512, 256)
    (pack,) = (s for s in schedule if isinstance(s, Pack))
    function = lower("kernel", output, list(arguments_of(output)), [], schedule, AVX512)
    asked = [s for s in walk_statements(function.body) if isinstance(s, Prefetch)]
    assert {s.level for s in asked} == {2}
    assert {s.buffer.prefetch for s in asked} == {pack.prefetch} != {0}


@pytest.mark.parametrize(
    ("depth", "target"),
    [(64, AVX512), (512, replace(AVX512, l1=1 << 18)), (512, replace(AVX512, vector_bits=256))],
    ids=["a tile that the first level keeps", "a large first level", "two vectors a line"],
)
def test_nothing_near_is_asked_for_in_vain(depth: int, target: Target) -> None:
    _, schedule = with_weights(24, depth, 4096, target)
    assert any(isinstance(s, PrefetchStep) for s in schedule)
    assert [s.prefetch for s in schedule if isinstance(s, Pack)] == [0]


def loops_of(schedule: Schedule) -> list[str]:
    return list(next(s.loops for s in schedule if isinstance(s, Reorder)))


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "finished"),
    [
        (3136, 64, 256, True),
        (196, 64, 256, False),  # the second-level cache keeps this output
        (3136, 1024, 256, False),  # and does not keep these weights
    ],
)
def test_rows_of_large_outputs_are_finished_one_after_the_other(
    rows: int, depth: int, columns: int, finished: bool
) -> None:
    _, schedule = with_weights(rows, depth, columns)
    tiles = ["m.6", "n.64"]
    assert loops_of(schedule)[1:3] == (tiles if finished else tiles[::-1])


@pytest.mark.slow
def test_finished_rows_compute_the_product() -> None:
    target = replace(AVX512, l1=1024, l2=65536)  # with which a small output is a large one
    output, schedule = with_weights(145, 24, 96, target)
    assert loops_of(schedule)[:2] == ["m.5", "n.64"]
    assert not any(isinstance(s, PrefetchStep) for s in schedule)
    feeds = random_feeds(output, {})
    (wanted,) = evaluate([output], feeds, {})
    for after_passes in (False, True):
        got = interpreted(output, feeds, {}, target, schedule, after_passes=after_passes)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)


def test_a_prefetch_changes_nothing() -> None:
    target = replace(AVX512, l1=4096, l2=16384)  # with which a small product is a large one
    output, schedule = with_weights(24, 64, 64, target)
    assert any(isinstance(s, PrefetchStep) for s in schedule)
    feeds = random_feeds(output, {})
    (wanted,) = evaluate([output], feeds, {})
    for after_passes in (False, True):
        got = interpreted(output, feeds, {}, target, schedule, after_passes=after_passes)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)


SMALL = replace(AVX512, l1=1024, l2=40960)
"""Small data is large for it."""


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("strides", [None, (32, 1)], ids=["rows without gaps", "padded rows"])
@pytest.mark.parametrize("columns", [32, 96], ids=["one sweep", "several sweeps"])
def test_every_line_of_large_data_is_asked_for_a_register_tile_ahead(columns: int, strides: Strides | None) -> None:
    output, schedule = with_weights(301, 24, columns, SMALL, strides)
    assert from_json(to_json(schedule)) == schedule
    (step,) = (s for s in schedule if isinstance(s, PrefetchStep) and s.tensor == "x")
    assert bool(step.sweeps) == (columns > 64)
    height = next(s.factor for s in schedule if isinstance(s, Split) and s.axis == "m" and s.factor < 16)
    function = lower("kernel", output, list(arguments_of(output)), [], schedule, SMALL)
    stride = 24 if strides is None else 32
    places = [at for at in prefetched_by(function) if len(at) == 2]  # the others are of the weights
    asked = {(row * stride + element) // 16 for row, element in places}
    tiles = ((start * stride, min(301, start + height) * stride) for start in range(height, 301, height))
    wanted = {line for start, end in tiles for line in range(-(-start // 16), end // 16)}
    assert wanted <= asked  # lines that two tiles share may come with either
    assert max(asked) <= (301 + height) * stride // 16  # a tile behind the end


@pytest.mark.slow
def test_rows_that_are_asked_for_compute_the_product() -> None:
    output, schedule = with_weights(301, 24, 96, SMALL, (32, 1))
    feeds = random_feeds(output, {})
    (wanted,) = evaluate([output], feeds, {})
    for after_passes in (False, True):
        got = interpreted(output, feeds, {}, SMALL, schedule, after_passes=after_passes)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("rows", "asked"), [(3136, True), (196, False)])
def test_data_that_the_second_level_keeps_is_not_asked_for(rows: int, asked: bool) -> None:
    _, schedule = with_weights(rows, 384, 96)
    assert any(isinstance(s, PrefetchStep) and s.tensor == "x" for s in schedule) is asked


def test_only_rows_of_the_reduction_are_asked_for() -> None:
    output, schedule = with_weights(301, 24, 96, SMALL)
    (step,) = (s for s in schedule if isinstance(s, PrefetchStep) and s.tensor == "x")
    for wrong in (replace(step, tensor="w"), replace(step, loop="m"), replace(step, tensor="mm")):
        steps = tuple(wrong if s is step else s for s in schedule if not isinstance(s, Pack))
        with pytest.raises(IngotError):
            lower("kernel", output, list(arguments_of(output)), [], steps, SMALL)


def test_a_prefetch_needs_a_packed_constant_and_a_reduction() -> None:
    output, schedule = with_weights(24, 512, 256)
    (step,) = (s for s in schedule if isinstance(s, PrefetchStep))
    unpacked = tuple(s for s in schedule if not isinstance(s, Pack))
    outside = tuple(replace(s, loop="m") if s is step else s for s in schedule)
    for wrong in (unpacked, outside):
        with pytest.raises(IngotError):
            lower("kernel", output, list(arguments_of(output)), [], wrong, AVX512)
