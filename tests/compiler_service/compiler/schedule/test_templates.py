"""Rules as templates: whatever their knobs are answered, the schedule computes the same, or is refused with a sentence."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_service.compiler.loop_ir.verify import verify
from compiler_service.compiler.schedule.algorithms.winograd.step import Winograd
from compiler_service.compiler.schedule.default import METHODS, ChosenSchedule, chosen_schedule, open_schedule
from compiler_service.compiler.schedule.language.knobs import NO_VALUES, Knobs
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.schedule.model.analysis import KernelView
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.tensor import Tensor, topological
from shared_ir.errors import IngotError
from shared_ir.expr.dim import dim_symbols, symbol
from shared_ir.machine.target import Target
from tests.compiler_service.compiler.schedule.algorithms.test_attention_nest import attention
from tests.compiler_service.compiler.schedule.algorithms.test_byte_dot_schedules import bytes_of
from tests.compiler_service.compiler.schedule.algorithms.test_byte_dot_schedules import convolution as byte_convolution
from tests.compiler_service.compiler.schedule.algorithms.test_byte_dot_schedules import matmul as byte_matmul
from tests.compiler_service.compiler.schedule.algorithms.test_grouped_schedules import grouped
from tests.compiler_service.compiler.schedule.algorithms.test_winograd_lines import convolved
from tests.compiler_service.compiler.schedule.kernels import (
    AVX2,
    AVX512,
    NEON,
    VNNI,
    arguments_of,
    interpreted,
    random_feeds,
)
from tests.compiler_service.compiler.schedule.rules.test_column_schedule import instance_normalization
from tests.compiler_service.compiler.schedule.rules.test_few_columns import product as few_columns
from tests.compiler_service.compiler.schedule.rules.test_head_schedule import head
from tests.compiler_service.compiler.schedule.rules.test_reused_schedules import resized
from tests.compiler_service.compiler.schedule.rules.test_row_schedules import normalised
from tests.compiler_service.compiler.schedule.rules.test_window_schedules import window
from tests.compiler_service.compiler.schedule.test_default_schedules import (
    broadcast_add,
    convolution,
    global_average,
    layer_norm,
    matmul,
    max_pool,
    softmax,
    to_integers,
    transpose,
    transposed_convolution,
    transposed_matmul,
)
from tests.compiler_service.compiler.schedule.test_narrow_weights import nibbles, scaled

NAMES = [row.name for row in METHODS]
LEAST_PART_THAT_LOWERS = 0.9


@dataclass(frozen=True)
class Space:
    """A kernel whose schedules are looked at.

    Attributes:
        sizes: of what only the run knows.
        packed: names of the arguments that are constants.
        rules: that must be among the options of the first knob.
    """

    tensor: Tensor
    rules: tuple[str, ...]
    packed: tuple[str, ...] = ("w", "b", "s", "z")
    sizes: Mapping[str, int] = field(default_factory=dict)
    target: Target = AVX512

    @property
    def kernel(self) -> KernelView:
        output, placeholders = coalesce(self.tensor)
        return KernelView.of(output, frozenset(new for old, new in placeholders.items() if old.name in self.packed))

    def at(self, kernel: KernelView, knobs: Knobs) -> ChosenSchedule:
        return open_schedule(kernel.answered_by(knobs), self.target, NAMES)


m, n, w = symbol("m"), symbol("n"), symbol("w")
SPACES = {
    "product": Space(matmul(37, 100, 19), ("contraction", "row")),
    "product of whole tiles": Space(matmul(24, 128, 16), ("strassen", "contraction"), target=AVX2),
    "product of any rows": Space(matmul(m, 70, 19), ("contraction",), sizes={"m": 29}),
    "product of anything": Space(matmul(m, n, symbol("k")), ("contraction",), (), {"m": 7, "n": 45, "k": 5}),
    "one row": Space(matmul(1, 100, 30), ("contraction",), target=NEON),
    "turned product": Space(transposed_matmul(9, 33, 8), ("contraction",), ()),
    "3x3": Space(convolution(1, 7, 9, 16, 40, 3, 1, 1), ("winograd", "contraction")),
    "3x3 whole": Space(convolution(1, 8, 8, 16, 64, 3, 1, 1), ("winograd", "contraction"), target=AVX2),
    "3x3, stride": Space(convolution(2, 9, 9, 5, 20, 3, 2, 1), ("contraction",)),
    "3x3 of any size": Space(convolution(m, n, w, 8, 24, 3, 1, 1), ("contraction",), sizes={"m": 2, "n": 5, "w": 13}),
    "1x1": Space(convolution(2, 5, 5, 16, 32, 1, 1, 0), ("contraction",)),
    "1x1, stride": Space(convolution(1, 8, 8, 16, 32, 1, 2, 0), ("contraction",)),
    "groups": Space(convolution(1, 6, 6, 48, 72, 3, 1, 1, 3), ("contraction",)),
    "narrow groups": Space(grouped((5, 7), 20, 4), ("grouped", "contraction")),
    "narrow groups of any size": Space(grouped((symbol("h"), w), 24, 8), ("grouped",), sizes={"h": 5, "w": 11}),
    "line": Space(convolved((1, 1, 29), (16, 32), (1, 3)), ("winograd", "contraction")),
    "line, dilation": Space(convolved((1, 1, 31), (16, 32), (1, 3), dilation=2), ("winograd", "contraction")),
    "transposed": Space(transposed_convolution(5, 7, 12, 24, 2, 2, 0), ("contraction",)),
    "few columns": Space(few_columns(2, 37, 3, 16), ("few columns",)),
    "columns of half vectors": Space(matmul(25, 24, 40), ("folded", "contraction")),
    "depthwise": Space(window(1, 6, 9, 40, 3, 1), ("window",)),
    "depthwise, stride": Space(window(n, 6, 9, 24, 3, 2), ("window",), sizes={"n": 2}),
    "depthwise of any size": Space(window(1, symbol("h"), w, 24, 3, 1), ("window",), sizes={"h": 7, "w": 21}),
    "pooling": Space(max_pool(1, 9, 11, 20), ("window", "row"), target=NEON),
    "global pooling": Space(global_average(m, 7, 70), ("window",), sizes={"m": 2}),
    "softmax": Space(softmax(9, 50), ("row",)),
    "softmax of any size": Space(softmax(m, n), ("row",), sizes={"m": 2, "n": 75}),
    "layer norm": Space(layer_norm(m, 96), ("row",), sizes={"m": 3}),
    "layer norm of long rows": Space(normalised(9, 320), ("row",)),
    "instance norm": Space(instance_normalization(2, 9, 40), ("column", "row")),
    "head": Space(head(1, 3, 4, 40), ("head",)),
    "attention": Space(attention(1, 2, 7, 37, 5, 18), ("attention",)),
    "attention of any size": Space(attention(1, 2, m, n, 8, 8), ("attention",), sizes={"m": 9, "n": 21}),
    "sum": Space(broadcast_add(m, n), ("elementwise",), sizes={"m": 3, "n": 80}),
    "transpose": Space(transpose(20, 18), ("elementwise",)),
    "cast": Space(to_integers(700), ("elementwise",)),
    "resized": Space(resized((1, 3, 8, 9), (1, 3, 16, 20)), ("reused", "elementwise"), ()),
    "product of bytes": Space(byte_matmul(7, 64, 48), ("bytes", "contraction"), target=VNNI),
    "3x3 of bytes": Space(byte_convolution(6, 8, 24, 3, 1), ("bytes",), target=VNNI),
    "weights of bytes": Space(scaled(9, 32, 40, 0, zeros=True)[0], ("contraction",)),
    "weights of 4 bits": Space(nibbles(5, 64, 40, 32, zeros=True)[0], ("blocks",)),
}
QUICK = ("1x1, stride", "depthwise", "softmax", "cast")


def at_random(seed: int) -> Knobs:
    rng = random.Random(seed)
    return Knobs(otherwise=lambda knob: rng.choice(knob.options))


def near(space: Space, kernel: KernelView, seed: int) -> Knobs:
    """A point that has another option of one knob, and what becomes of the others."""
    rng, knobs = random.Random(seed), Knobs()
    space.at(kernel, knobs)
    asked = [knob for knob in knobs.asked.values() if knob.name != "rule"]
    knob = rng.choice(asked)
    return Knobs({knob.name: rng.choice(knob.options)})


def lowered(space: Space, kernel: KernelView, chosen: ChosenSchedule) -> None:
    """Raises IngotError, a step does not fit, or a stage that is kept has no constant size."""
    parameters = sorted(dim_symbols(d for t in topological(kernel.output) for d in t.shape))
    function = lower("kernel", kernel.output, arguments_of(kernel.output), parameters, chosen.schedule, space.target)
    verify(function)


@pytest.mark.parametrize("case", SPACES)
def test_as_the_model_answers_the_schedule_is_the_default(case: str) -> None:
    space, knobs = SPACES[case], Knobs()
    kernel = space.kernel
    assert space.at(kernel, knobs) == chosen_schedule(kernel.output, kernel.constants, space.target, NAMES)
    rules = knobs.asked["rule"].options if "rule" in knobs.asked else space.rules
    assert set(space.rules) <= set(rules)
    assert len(knobs.asked) > 1
    assert knobs.values == NO_VALUES


@pytest.mark.parametrize(
    ("window", "usual", "asked"), [(3, {2, 4}, {2, 3, 4, 5, 6}), (5, {2}, {2, 3, 4}), (7, set(), {2})]
)
def test_larger_tiles_are_filtered_where_they_are_asked_for(window: int, usual: set[int], asked: set[int]) -> None:
    """No default has their errors, whatever the sizes are."""
    for size in (8, 30, 60):
        kernel = Space(convolution(1, size, size, 64, 64, window, 1, window // 2), ()).kernel
        default = chosen_schedule(kernel.output, kernel.constants, AVX512, NAMES)
        assert {step.tile for step in default.schedule if isinstance(step, Winograd)} <= usual
        knobs = Knobs({"rule": "winograd"})
        schedule = open_schedule(kernel.answered_by(knobs), AVX512, NAMES).schedule
        taken = {step.tile for step in schedule if isinstance(step, Winograd)}
        assert taken
        assert taken <= (usual or asked)
        tile = knobs.asked.get("winograd.tile")  # of which there is none where there is one option
        assert set(tile.options if tile else taken) == asked


@pytest.mark.parametrize("tile", [3, 5, 6])
def test_tiles_that_are_asked_for_compute_the_same(tile: int) -> None:
    space = Space(convolution(1, 12, 7, 16, 32, 3, 1, 1), ())
    kernel, knobs = space.kernel, Knobs({"rule": "winograd", "winograd.tile": tile})
    chosen = space.at(kernel, knobs)
    assert next(step.tile for step in chosen.schedule if isinstance(step, Winograd)) == tile
    feeds = random_feeds(kernel.output, {})
    got = interpreted(kernel.output, feeds, {}, space.target, chosen.schedule, after_passes=True)
    (wanted,) = evaluate([kernel.output], feeds, {})
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.sampled
@pytest.mark.parametrize("case", [pytest.param(c, marks=[] if c in QUICK else pytest.mark.slow) for c in SPACES])
@settings(max_examples=3, deadline=None)
@given(st.integers(0, 1 << 30), st.booleans())
def test_any_answers_compute_the_same(case: str, seed: int, alone: bool) -> None:
    space = SPACES[case]
    kernel = space.kernel
    output, sizes = kernel.output, dict(space.sizes)
    knobs = near(space, kernel, seed) if alone else at_random(seed)
    is_exact = all(not t.dtype.is_float for t in arguments_of(output))
    feeds = bytes_of(output, sizes) if is_exact else random_feeds(output, sizes)
    try:
        chosen = space.at(kernel, knobs)
        got = interpreted(output, feeds, sizes, space.target, chosen.schedule, after_passes=bool(seed % 2))
    except IngotError:
        return
    (wanted,) = evaluate([output], feeds, sizes)
    largest = float(np.abs(wanted.astype(np.float64)).max(initial=0.0))
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=0 if is_exact else 1e-4 * largest)


def points(space: Space, kernel: KernelView, count: int) -> Iterator[Knobs]:
    for seed in range(count):
        yield at_random(seed)
        yield near(space, kernel, seed)


@pytest.mark.slow
def test_most_points_lower() -> None:
    refused: dict[str, list[str]] = {}
    for case, space in SPACES.items():
        kernel = space.kernel
        for knobs in points(space, kernel, 3):
            try:
                lowered(space, kernel, space.at(kernel, knobs))
            except IngotError as error:
                refused.setdefault(case, []).append(str(error))
    count = sum(map(len, refused.values()))
    assert count <= (1 - LEAST_PART_THAT_LOWERS) * 6 * len(SPACES), refused
