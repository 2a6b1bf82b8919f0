"""Winograd's filtering: schedules compute the convolution, and only where it applies and pays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Broadcast,
    For,
    Statement,
    Store,
    substatements,
    walk_statements,
)
from compiler_service.compiler.schedule.algorithms.winograd.model import WinogradBlocking
from compiler_service.compiler.schedule.algorithms.winograd.rule import winograd_schedule
from compiler_service.compiler.schedule.algorithms.winograd.step import Winograd
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.packing import Preparation, preparation_of
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.state import stage_names
from compiler_service.compiler.schedule.language.steps import Split
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.schedule.records import from_json, to_json
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, placeholder, reduce
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr.dim import symbol
from shared_ir.machine.target import Target
from tests.cases import every
from tests.compiler_service.compiler.schedule.kernels import (
    AVX2,
    AVX512,
    NEON,
    ONE_QUICK_TARGET,
    TARGETS,
    arguments_of,
    interpreted,
    native,
    prefetched_by,
    random_feeds,
)
from tests.compiler_service.compiler.schedule.test_default_schedules import convolution


def kernel(output: Tensor) -> tuple[Tensor, frozenset[Tensor]]:
    output, placeholders = coalesce(output)
    return output, frozenset(new for old, new in placeholders.items() if old.name == "w")


def schedule_of(output: Tensor, constants: frozenset[Tensor], target: str, blocking: WinogradBlocking) -> Schedule:
    plan = winograd_schedule(KernelView.of(output, constants), TARGETS[target], blocking)
    assert plan is not None
    return plan


def assert_computes(output: Tensor, schedule: Schedule, target: Target, sizes: dict[str, int] | None = None) -> None:
    """Lowered by ``schedule``, ``output`` is what its definition says, within the rounding of filtering."""
    feeds = random_feeds(output, sizes or {})
    got = interpreted(output, feeds, sizes or {}, target, schedule, after_passes=True)
    (wanted,) = evaluate([output], feeds, sizes or {})
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


def computed_natively(output: Tensor, constants: frozenset[Tensor]) -> tuple[dict[Tensor, np.ndarray], np.ndarray]:
    """(arguments, result) of ``output``, filtered as the model of this machine chooses for short vectors."""
    target = host_target()
    schedule = default_schedule(
        output, constants, replace(target, vector_bits=256, vector_registers=16), methods=("winograd",)
    )
    assert any(isinstance(step, Winograd) for step in schedule)
    feeds = random_feeds(output, {})
    return dict(feeds), native(output, feeds, target, schedule)


CASES = {
    "rows": ((8, 4, 16, 32), WinogradBlocking(tile=4, rows=1, columns=0, channels=0, down=1, across=1, vectors=2)),
    "ragged": ((7, 9, 5, 20), WinogradBlocking(tile=4, rows=2, columns=0, channels=0, down=2, across=2, vectors=1)),
    "channels": ((4, 5, 4, 40), WinogradBlocking(tile=2, rows=2, columns=0, channels=32, down=2, across=2, vectors=1)),
    "columns": ((5, 9, 4, 17), WinogradBlocking(tile=2, rows=2, columns=2, channels=0, down=1, across=2, vectors=2)),
    "tile2": ((5, 3, 17, 17), WinogradBlocking(tile=2, rows=2, columns=0, channels=0, down=2, across=1, vectors=2)),
    "tile6": ((12, 6, 16, 32), WinogradBlocking(tile=6, rows=1, columns=0, channels=0, down=1, across=1, vectors=2)),
    "tile5, ragged": (
        (7, 9, 16, 20),
        WinogradBlocking(tile=5, rows=2, columns=0, channels=0, down=2, across=2, vectors=1),
    ),
    "weights": (
        (7, 6, 32, 48),
        WinogradBlocking(4, rows=2, columns=0, channels=0, down=2, across=2, vectors=1, chunk=16),
    ),
    "weights, parts": (
        (3, 8, 16, 64),
        WinogradBlocking(4, rows=1, columns=0, channels=32, down=1, across=2, vectors=1, chunk=16),
    ),
    "weights, one tile": (
        (4, 3, 48, 32),
        WinogradBlocking(4, rows=1, columns=0, channels=0, down=1, across=1, vectors=1, chunk=16),
    ),
    "weights, tile2": (
        (4, 3, 16, 32),
        WinogradBlocking(2, rows=2, columns=0, channels=0, down=2, across=2, vectors=1, chunk=16),
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("case", every(CASES, quick={"ragged"}))
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
def test_filtering_computes_the_convolution(target: str, case: str) -> None:
    (h, w, c, oc), blocking = CASES[case]
    output, constants = kernel(convolution(1, h, w, c, oc, 3, 1, 1))
    schedule = schedule_of(output, constants, target, blocking)
    assert_computes(output, schedule, TARGETS[target])


GROUPED = {
    "all in a task": (
        (7, 6, 48, 48, 3),
        WinogradBlocking(4, rows=1, columns=0, channels=0, down=1, across=2, vectors=1),
        48,
    ),
    "parts": ((5, 9, 96, 64, 2), WinogradBlocking(4, rows=2, columns=0, channels=32, down=2, across=1, vectors=2), 48),
    "narrower than two vectors": (
        (6, 6, 72, 72, 3),
        WinogradBlocking(2, rows=3, columns=0, channels=24, down=1, across=3, vectors=3),
        24,
    ),
    "columns": (
        (6, 9, 32, 64, 2),
        WinogradBlocking(2, rows=1, columns=2, channels=32, down=1, across=2, vectors=1),
        16,
    ),
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("case", every(GROUPED, quick={"parts", "narrower than two vectors"}))
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
def test_groups_are_filtered_each_on_its_own(target: str, case: str) -> None:
    """A task transforms the channels that its own outputs sum, and no others."""
    (h, w, c, oc, groups), blocking, channels = GROUPED[case]
    output, constants = kernel(convolution(1, h, w, c, oc, 3, 1, 1, groups))
    schedule = schedule_of(output, constants, target, blocking)
    assert_computes(output, schedule, TARGETS[target])
    function = lower("kernel", output, arguments_of(output), [], schedule, TARGETS[target])
    allocated = [s.buffer for s in walk_statements(function.body) if isinstance(s, Allocate)]
    assert {b.shape[-1] for b in allocated if b.name.endswith(".data")} == {channels}


@pytest.mark.parametrize(
    ("case", "target", "width"),
    [
        ((28, 192, 4), AVX512, 16),
        ((28, 144, 6), AVX512, 8),  # halves of a register, since no whole ones fit groups of 24
        ((28, 144, 6), AVX2, 8),
        ((28, 64, 8), AVX512, None),  # vectors hold several groups
        ((28, 200, 10), AVX512, None),  # neither whole registers nor halves fit groups of 20
    ],
)
def test_the_model_chooses_for_groups(case: tuple[int, int, int], target: Target, width: int | None) -> None:
    pixels, channels, groups = case
    output, constants = kernel(convolution(1, pixels, pixels, channels, channels, 3, 1, 1, groups))
    schedule = default_schedule(output, constants, target, methods=("winograd",))
    assert any(isinstance(s, Winograd) for s in schedule) == (width is not None)
    splits = [s.factor for s in schedule if isinstance(s, Split) and s.axis == "c"]
    assert width is None or splits[-1] == width


STRIDED = {
    "rows": ((16, 8, 4, 32), WinogradBlocking(4, rows=1, columns=0, channels=0, down=1, across=1, vectors=2), 1),
    "ragged": ((13, 15, 20, 20), WinogradBlocking(4, rows=2, columns=0, channels=0, down=2, across=2, vectors=1), 1),
    "tile2": ((10, 7, 17, 40), WinogradBlocking(2, rows=3, columns=0, channels=32, down=3, across=2, vectors=1), 1),
    "columns": ((9, 18, 4, 17), WinogradBlocking(2, rows=2, columns=2, channels=0, down=1, across=2, vectors=2), 1),
    "groups": ((12, 12, 48, 48), WinogradBlocking(2, rows=3, columns=0, channels=24, down=1, across=3, vectors=3), 2),
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("case", every(STRIDED, quick={"ragged", "groups"}))
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
def test_filtering_with_a_stride(target: str, case: str) -> None:
    (h, w, c, oc), blocking, groups = STRIDED[case]
    output, constants = kernel(convolution(1, h, w, c, oc, 3, 2, 1, groups))
    schedule = schedule_of(output, constants, target, blocking)
    assert from_json(to_json(schedule)) == schedule
    assert_computes(output, schedule, TARGETS[target])


WIDE = {
    "5x5": ((6, 7, 4, 17, 5, 1), WinogradBlocking(2, rows=2, columns=0, channels=0, down=2, across=2, vectors=1)),
    "2x2": ((7, 9, 4, 20, 2, 1), WinogradBlocking(4, rows=2, columns=0, channels=0, down=2, across=2, vectors=1)),
    "4x4, stride 2": (
        (9, 12, 4, 32, 4, 2),
        WinogradBlocking(4, rows=1, columns=0, channels=0, down=1, across=1, vectors=2),
    ),
    "7x7, stride 2": (
        (9, 7, 4, 20, 7, 2),
        WinogradBlocking(2, rows=2, columns=0, channels=0, down=1, across=2, vectors=1),
    ),
    "5x5, stride 2": (
        (9, 12, 4, 32, 5, 2),
        WinogradBlocking(4, rows=1, columns=0, channels=0, down=1, across=1, vectors=2),
    ),
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("case", every(WIDE, quick={"5x5"}))
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
def test_filtering_of_wider_windows(target: str, case: str) -> None:
    (h, w, c, oc, size, stride), blocking = WIDE[case]
    output, constants = kernel(convolution(1, h, w, c, oc, size, stride, size // 2))
    schedule = schedule_of(output, constants, target, blocking)
    assert_computes(output, schedule, TARGETS[target])


@pytest.mark.slow
@pytest.mark.parametrize("size", [{"h": 1, "w": 3}, {"h": 8, "w": 15}, {"h": 17, "w": 26}])
def test_filtering_with_a_stride_of_any_size(size: dict[str, int]) -> None:
    output, constants = kernel(convolution(1, symbol("h"), symbol("w"), 4, 20, 3, 2, 1))
    blocking = WinogradBlocking(tile=2, rows=2, columns=2, channels=0, down=1, across=2, vectors=1)
    schedule = schedule_of(output, constants, "avx512", blocking)
    assert_computes(output, schedule, AVX512, size)


def volume(depth: int, h: int, w: int, c: int, oc: int, stride: int, taps: int = 3) -> Tensor:
    """A convolution of ``taps`` x 3 x 3 over padded planes ``[depth, h, w, c]``, whose depth and sizes have the same stride."""
    x = placeholder("x", (depth + taps - 1, h + 2, w + 2, c), DType.FLOAT32)
    weight = placeholder("w", (oc, c, taps, 3, 3), DType.FLOAT32)
    return reduce(
        ReduceOp.SUM,
        (-(-depth // stride), -(-h // stride), -(-w // stride), oc),
        (taps, 3, 3, c),
        lambda d, i, j, o, kd, kh, kw, ic: (
            x[d * stride + kd, i * stride + kh, j * stride + kw, ic] * weight[o, ic, kd, kh, kw]
        ),
        axes=("od", "oh", "ow", "oc"),
        reduced=("kd", "kh", "kw", "ic"),
    )


VOLUMES = {
    "rows": ((3, 8, 4, 16, 32, 1), WinogradBlocking(4, rows=1, columns=0, channels=0, down=1, across=1, vectors=2)),
    "ragged": ((2, 7, 9, 32, 20, 1), WinogradBlocking(4, rows=2, columns=0, channels=0, down=2, across=2, vectors=1)),
    "stride": ((3, 9, 6, 16, 40, 2), WinogradBlocking(2, rows=3, columns=0, channels=0, down=1, across=3, vectors=1)),
}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("case", every(VOLUMES, quick={"ragged"}))
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
def test_planes_of_a_volume_are_filtered_side_by_side(target: str, case: str) -> None:
    sizes, blocking = VOLUMES[case]
    output, constants = kernel(volume(*sizes))
    schedule = schedule_of(output, constants, target, blocking)
    assert from_json(to_json(schedule)) == schedule
    assert_computes(output, schedule, TARGETS[target])


@pytest.mark.parametrize(("channels", "filtered"), [(64, True), (24, False)])
def test_no_vector_has_channels_of_two_planes(channels: int, filtered: bool) -> None:
    output, constants = kernel(volume(4, 28, 28, channels, 64, 1))
    schedule = default_schedule(output, constants, AVX512, methods=("winograd",))
    assert any(isinstance(s, Winograd) for s in schedule) == filtered


def test_kernels_do_not_transform_the_weights_of_planes() -> None:
    output, constants = kernel(volume(2, 7, 7, 32, 32, 1))
    with pytest.raises(IngotError, match="whole chunks"):
        schedule_of(output, constants, "avx512", WinogradBlocking(4, 2, 0, 0, 2, 2, 1, chunk=16))


def test_a_step_of_another_stride_does_not_fit() -> None:
    output, constants = kernel(convolution(1, 16, 16, 32, 32, 3, 2, 1))
    blocking = WinogradBlocking(2, rows=2, columns=0, channels=0, down=1, across=2, vectors=1)
    first, *rest = schedule_of(output, constants, "avx512", blocking)
    assert isinstance(first, Winograd)
    with pytest.raises(IngotError, match="stride 1"):
        lower("kernel", output, arguments_of(output), [], (replace(first, stride=1), *rest), AVX512)


def test_kernels_do_not_transform_the_weights_of_groups() -> None:
    output, constants = kernel(convolution(1, 7, 7, 64, 64, 3, 1, 1, 2))
    with pytest.raises(IngotError, match="whole chunks"):
        schedule_of(output, constants, "avx512", WinogradBlocking(4, 2, 0, 0, 2, 2, 1, chunk=16))


HANGING = {
    "both": (
        (7, 6, 5, 20),
        WinogradBlocking(tile=4, rows=2, columns=0, channels=0, down=2, across=2, vectors=1),
        11 * 11,
    ),
    "rows of a task": (
        (5, 7, 4, 16),
        WinogradBlocking(tile=4, rows=1, columns=0, channels=0, down=1, across=2, vectors=1),
        132,
    ),
    "one tile": (
        (3, 2, 4, 16),
        WinogradBlocking(tile=4, rows=1, columns=0, channels=0, down=1, across=1, vectors=1),
        25,
    ),
    "none": (
        (8, 8, 4, 16),
        WinogradBlocking(tile=4, rows=2, columns=0, channels=0, down=2, across=2, vectors=1),
        12 * 12,
    ),
    "weights": (
        (7, 7, 32, 32),
        WinogradBlocking(4, rows=2, columns=0, channels=0, down=2, across=2, vectors=1, chunk=16),
        11 * 12,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", every(HANGING, quick={"both", "weights"}))
def test_tiles_that_hang_over_the_end_do_without_the_point_at_infinity(case: str) -> None:
    (h, w, c, oc), blocking, products = HANGING[case]
    output, constants = kernel(convolution(1, h, w, c, oc, 3, 1, 1))
    schedule = schedule_of(output, constants, "avx512", blocking)
    assert_computes(output, schedule, AVX512)
    function = passes.run(lower("kernel", output, arguments_of(output), [], schedule, AVX512))
    tasks = -(-h // (blocking.rows * blocking.tile))
    assert tasks * _sums(function.body, 1) == products * c * -(-oc // 16)


def _sums(statement: Statement, times: int) -> int:
    """How often a task adds a vector of products to an accumulator."""
    if isinstance(statement, For):
        return _sums(statement.body, times * int(getattr(statement.extent, "value", 0)))
    own = (
        isinstance(statement, Store)
        and "accumulated" in statement.buffer.name
        and not isinstance(statement.value, Broadcast)  # which begins a sum
    )
    return times * own + sum(_sums(inner, times) for inner in substatements(statement))


@pytest.mark.slow
@pytest.mark.parametrize(("case", "channels"), [("rows", 4), ("weights", 32)])
def test_filtering_of_a_batch(case: str, channels: int) -> None:
    output, constants = kernel(convolution(symbol("n"), 6, 6, channels, 32, 3, 1, 1))
    schedule = schedule_of(output, constants, "avx512", CASES[case][1])
    assert_computes(output, schedule, AVX512, {"n": 2})


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("size", [{"h": 1, "w": 3}, {"h": 4, "w": 8}, {"h": 9, "w": 13}])
@pytest.mark.parametrize("target", ["avx512", pytest.param("neon", marks=pytest.mark.slow)])
def test_filtering_of_any_size(target: str, size: dict[str, int]) -> None:
    output, constants = kernel(convolution(1, symbol("h"), symbol("w"), 4, 20, 3, 1, 1))
    blocking = WinogradBlocking(tile=4, rows=2, columns=2, channels=0, down=1, across=2, vectors=1)
    schedule = schedule_of(output, constants, target, blocking)
    assert_computes(output, schedule, TARGETS[target], size)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(
    ("h", "channels", "groups", "size", "stride"),
    [
        (56, 64, 1, 3, 1),
        (14, 256, 1, 3, 1),
        (28, 192, 4, 3, 1),
        (28, 72, 3, 3, 1),
        (56, 64, 1, 3, 2),
        (55, 128, 1, 3, 2),
        (28, 96, 1, 5, 1),
        (57, 64, 1, 5, 2),
        (56, 64, 1, 2, 1),
        (56, 64, 1, 4, 2),
    ],
)
def test_error_of_native_code(h: int, channels: int, groups: int, size: int, stride: int) -> None:
    """Within 1e-5 of the largest output, against float64."""
    output, constants = kernel(convolution(1, h, h, channels, channels, size, stride, size // 2, groups))
    feeds, result = computed_natively(output, constants)
    x, w, r = (feeds[t].astype(np.float64) for t in arguments_of(output))
    wanted = direct64(x, w, r, groups=groups, stride=stride)
    assert np.abs(result - wanted).max() < 1e-5 * np.abs(wanted).max()


def direct64(x: np.ndarray, w: np.ndarray, r: np.ndarray, groups: int, stride: int) -> np.ndarray:
    """``relu(conv(pad(x), w) + r)`` in float64."""
    size = w.shape[-1]
    padded = np.pad(x, ((size // 2, size // 2), (size // 2, size // 2), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(0, 1))[::stride, ::stride]
    pairs = zip(np.split(windows, groups, axis=2), np.split(w, groups), strict=True)
    total = [np.tensordot(own, filters, axes=((2, 3, 4), (1, 2, 3))) for own, filters in pairs]
    return np.asarray(np.maximum(np.concatenate(total, axis=2) + r, 0.0))


@pytest.mark.slow
@pytest.mark.parametrize("target", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize(
    ("case", "tile"),
    [
        ((56, 56, 64, 64, 3, 1), 4),
        ((28, 28, 128, 128, 3, 1), 4),
        ((56, 56, 128, 128, 3, 2), 4),
        ((28, 28, 128, 256, 3, 2), 2),
        ((56, 56, 64, 64, 3, 3), None),  # a stride of 3
        ((14, 14, 512, 512, 3, 2), None),  # transformed weights of 26 MB
        ((56, 56, 64, 64, 5, 1), 2),
        ((56, 56, 64, 64, 4, 2), 4),
        ((57, 57, 64, 64, 2, 1), 4),
        ((56, 56, 64, 64, 7, 1), None),  # too many points
        ((56, 56, 3, 8, 3, 1), None),  # transforms cost more than they save
        ((1, 1, 256, 256, 3, 1), None),  # a tile would be mostly padding
    ],
)
def test_the_model_chooses(case: tuple[int, ...], tile: int | None, target: Target) -> None:
    h, w, c, oc, k, stride = case
    output, constants = kernel(convolution(1, h, w, c, oc, k, stride, k // 2))
    schedule = default_schedule(output, constants, target, methods=("winograd",))
    assert next((s.tile for s in schedule if isinstance(s, Winograd)), None) == tile
    assert not any(isinstance(s, Winograd) for s in default_schedule(output, constants, target))


@pytest.mark.parametrize("size", [(56, 64), (28, 128), (14, 256)])
@pytest.mark.parametrize("images", [2, 8])
def test_a_batch_is_filtered_like_one_image(images: int, size: tuple[int, int]) -> None:
    (pixels, channels) = size
    output, constants = kernel(convolution(images, pixels, pixels, channels, channels, 3, 1, 1))
    schedule = default_schedule(output, constants, AVX512, methods=("winograd",))
    assert [s.tile for s in schedule if isinstance(s, Winograd)] == [4]


@pytest.mark.parametrize("size", [(14, 256), (7, 512), (56, 64)])
def test_the_planes_of_a_tile_do_not_share_few_sets_of_the_cache(size: tuple[int, int]) -> None:
    """A tile is written to all planes at once: so many lines that begin a multiple of a page apart would put each other out."""
    (pixels, channels) = size
    output, constants = kernel(convolution(1, pixels, pixels, channels, channels, 3, 1, 1))
    schedule = default_schedule(output, constants, AVX512, methods=("winograd",))
    function = lower("kernel", output, arguments_of(output), [], schedule, AVX512)
    allocated = (s.buffer for s in walk_statements(function.body) if isinstance(s, Allocate))
    *_, p, q, th, tw, c = next(b.shape for b in allocated if b.name.endswith("data.transformed"))
    distance = np.prod(np.array([th, tw, c], np.int64)) * 4
    sets = np.bincount(np.arange(int(str(p)) * int(str(q))) * distance // 64 % 64)
    assert sets.max() <= 9


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize(
    ("case", "target", "chunk"),
    [
        ((7, 512), AVX512, 16),
        ((7, 512), NEON, 0),  # multiplies for so long that larger weights arrive in time
        ((7, 512), AVX2, 0),  # has no registers for a row of points of all tiles
        ((14, 256), AVX512, 0),  # nor has any for 16 tiles
        ((7, 40), AVX512, 0),  # no whole chunks
    ],
)
def test_few_tiles_transform_the_weights_on_the_way(
    case: tuple[int, int], target: Target, chunk: int, images: int
) -> None:
    pixels, channels = case
    output, constants = kernel(convolution(images, pixels, pixels, channels, channels, 3, 1, 1))
    schedule = default_schedule(output, constants, target, methods=("winograd",))
    assert max((s.chunk for s in schedule if isinstance(s, Winograd)), default=0) == chunk
    assert from_json(to_json(schedule)) == schedule


def test_weights_that_the_kernel_transforms_keep_their_size() -> None:
    output, constants = kernel(convolution(1, 7, 7, 64, 64, 3, 1, 1))
    schedule = schedule_of(output, constants, "avx512", WinogradBlocking(4, 2, 0, 0, 2, 2, 1, chunk=16))
    (weight,) = constants
    prepared = preparation_of(schedule, stage_names(output)[weight], weight)
    assert prepared.transform is None
    assert prepared.shape(weight.shape) == (4, 64, 3, 3, 16)


@pytest.mark.slow
def test_the_next_chunk_of_weights_is_asked_for_line_by_line() -> None:
    """Each step of a row of points asks for a part of what the same step of the next chunk reads."""
    output, constants = kernel(convolution(1, 7, 7, 64, 64, 3, 1, 1))
    schedule = schedule_of(output, constants, "avx512", WinogradBlocking(4, 2, 0, 0, 2, 2, 1, chunk=16))
    function = lower("kernel", output, arguments_of(output), [], schedule, AVX512)
    asked = list(prefetched_by(function))
    tile = [at for at in asked if at[:2] == (1, 20)]  # of output channels 16 to 31, channel 20
    assert {at[-1] // 16 for at in tile} == set(range(9))
    assert len(tile) == 12  # six rows of points ask for one line and a half each


def test_constants_are_laid_out_by_several_digits_of_one_axis() -> None:
    weights = np.arange(6 * 40).reshape(6, 40)
    order = ((1, 16, 0), (0, 1, 0), (1, 4, 4), (1, 1, 4))
    packed = Preparation(order=order).apply(weights, placeholder("w", (6, 40), DType.INT64))
    assert packed.shape == Preparation(order=order).shape((6, 40)) == (3, 6, 4, 4)
    for column in range(40):
        np.testing.assert_array_equal(packed[column // 16, :, column // 4 % 4, column % 4], weights[:, column])
    assert not packed[2, :, 2:].any()


def test_schedules_travel_as_json() -> None:
    output, constants = kernel(convolution(1, 56, 56, 64, 64, 3, 1, 1))
    schedule = default_schedule(output, constants, AVX512, methods=("winograd",))
    assert from_json(to_json(schedule)) == schedule


def test_weights_that_are_not_constant_stay_as_they_are() -> None:
    output, _ = kernel(convolution(1, 56, 56, 64, 64, 3, 1, 1))
    schedule = default_schedule(output, frozenset(), AVX512, methods=("winograd",))
    assert not any(isinstance(step, Winograd) for step in schedule)
