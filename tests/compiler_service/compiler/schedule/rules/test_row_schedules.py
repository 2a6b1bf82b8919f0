"""Which rows go through the stages together, what stays in registers, and what is asked for ahead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Buffer,
    BufferScope,
    For,
    ForKind,
    Let,
    Statement,
    Store,
    substatements,
    walk_statements,
)
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.apply import apply_schedule
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.steps import Alias, ComputeAt, FetchNext, Split, Stagger
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.schedule.lowering.stagger import in_one_loop, lags
from compiler_service.compiler.schedule.records import from_json, to_json
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.operators.normalization import (
    layer_normalization,
    rms_normalization,
    softmax,
)
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Var, lift
from shared_ir.expr.dim import symbol
from tests.cases import every
from tests.compiler_service.compiler.schedule.kernels import (
    AVX2,
    AVX512,
    ONE_QUICK_TARGET,
    TARGETS,
    arguments_of,
    interpreted,
    random_feeds,
)

F32 = DType.FLOAT32


def normalised(rows: int, length: int) -> Tensor:
    scale, bias = (placeholder(n, (length,), F32) for n in ("scale", "bias"))
    output, _ = coalesce(layer_normalization(placeholder("x", (rows, length), F32), scale, bias)[0])
    return output


def scaled(rows: int, length: int) -> Tensor:
    x, scale = placeholder("x", (rows, length), F32), placeholder("scale", (length,), F32)
    output, _ = coalesce(rms_normalization(x, scale))
    return output


def softened(*shape: int) -> Tensor:
    output, _ = coalesce(softmax(placeholder("x", shape, F32)))
    return output


def places(schedule: Schedule) -> dict[str, str]:
    return {s.stage: s.loop for s in schedule if isinstance(s, ComputeAt)}


def test_a_row_that_fits_the_registers_is_finished_alone() -> None:
    schedule = default_schedule(softened(64, 128), frozenset(), AVX512)
    found = places(schedule)
    assert found["exp"] == found["sum"] == found["inverse"] == "i0"
    assert found["max"] == "i0.4"
    assert not any(isinstance(s, Alias) for s in schedule)


def test_a_longer_row_lives_in_the_output() -> None:
    schedule = default_schedule(softened(64, 128), frozenset(), AVX2)  # 16 registers of 8
    assert [s.stage for s in schedule if isinstance(s, Alias)] == ["exp"]
    assert len(set(places(schedule).values())) == 2


def test_a_row_in_the_output_is_summed_while_it_is_computed() -> None:
    schedule = default_schedule(softened(64, 6625), frozenset(), AVX512)
    (at,) = (s for s in schedule if isinstance(s, ComputeAt) and s.stage == "exp")
    assert (at.consumer, at.loop) == ("sum", "k0.128")


@pytest.mark.parametrize(("length", "rows"), [(49, 8), (128, 4), (400, 4), (768, 2), (3000, None)])
def test_rows_go_together_as_long_as_the_cache_holds_them(length: int, rows: int | None) -> None:
    schedule = default_schedule(scaled(64, length), frozenset(), AVX512)
    together = {s.loop for s in schedule if isinstance(s, ComputeAt)}
    sizes = [s.factor for s in schedule if isinstance(s, Split) and together == {f"i0.{s.factor}"}]
    assert (sizes[0] if rows is not None else None) == rows
    assert any(isinstance(s, FetchNext) for s in schedule) is (rows is not None)


def test_the_next_rows_are_asked_for() -> None:
    schedule = default_schedule(scaled(64, 768), frozenset(), AVX512)
    (found,) = (s for s in schedule if isinstance(s, FetchNext))
    assert (found.tensor, found.axis, found.distance) == ("x", "i0", 2)
    assert from_json(to_json(schedule)) == schedule


@pytest.mark.parametrize(
    ("rows", "length", "turns"),
    [
        (64, 96, ("i0.32", 4)),
        (197, 384, ("i0.99", 4)),
        (5000, 768, ("i0.500", 2)),
        (49, 1536, ("i0.25", 1)),
        (2, 768, None),
        (1, 768, None),
        (0, 768, None),
        (64, 2048, None),
        (64, 3000, None),
    ],
)
def test_rows_of_a_normalisation_take_turns(rows: int, length: int, turns: tuple[str, int] | None) -> None:
    schedule = default_schedule(normalised(rows, length), frozenset(), AVX512)
    assert [(s.loop, s.rows) for s in schedule if isinstance(s, Stagger)] == ([] if turns is None else [turns])
    assert turns is None or set(places(schedule).values()) == {turns[0]}
    assert from_json(to_json(schedule)) == schedule


@pytest.mark.parametrize("most", [1, 2, 3])
def test_any_number_of_rows_goes_side_by_side(most: int) -> None:
    tensor = normalised(23, 130)
    feeds = random_feeds(tensor, {})
    schedule = tuple(
        replace(s, rows=most) if isinstance(s, Stagger) else s for s in default_schedule(tensor, frozenset(), AVX512)
    )
    (wanted,) = evaluate([tensor], feeds, {})
    got = interpreted(tensor, feeds, {}, AVX512, schedule, after_passes=True)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def swept(extent: int) -> tuple[Statement, Store, For, Store]:
    i, out = Var("i"), Buffer("out", F32, (extent,), BufferScope.STACK)
    first, each, last = (Store(out, (at,), lift(1.0, F32)) for at in (lift(0), i, lift(extent - 1)))
    loop = For(i, lift(extent), ForKind.SERIAL, each)
    return Allocate(out, Block((first, loop, last))), first, loop, last


def test_loops_of_one_length_become_one() -> None:
    (one, first, sweep, last), (other, other_first, other_sweep, other_last) = swept(8), swept(8)
    body = in_one_loop([one, other])
    assert isinstance(body, Allocate)
    while isinstance(body, Allocate):
        body = body.body
    *before, loop, behind, other_behind = substatements(body)
    assert [*before, behind, other_behind] == [first, other_first, last, other_last]
    assert isinstance(loop, For)
    own, renamed = substatements(loop.body)
    assert own is sweep.body
    assert isinstance(renamed, Let)
    assert (renamed.var, renamed.value, renamed.body) == (other_sweep.var, loop.var, other_sweep.body)


def test_loops_of_other_lengths_stay_in_a_row() -> None:
    one, other = swept(8)[0], swept(9)[0]
    assert substatements(in_one_loop([one, other])) == (one, other)


@pytest.mark.sampled
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize(("rows", "length"), every([(5, 49), (64, 96), (131, 40), (23, 130)], quick={(5, 49)}))
def test_rows_that_take_turns_compute_the_expression(rows: int, length: int, target: str) -> None:
    tensor = normalised(rows, length)
    feeds = random_feeds(tensor, {})
    schedule = default_schedule(tensor, frozenset(), TARGETS[target])
    assert any(isinstance(s, Stagger) for s in schedule)
    (wanted,) = evaluate([tensor], feeds, {})
    for after_passes in (False, True):
        got = interpreted(tensor, feeds, {}, TARGETS[target], schedule, after_passes=after_passes)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_any_number_of_rows_takes_turns() -> None:
    n = symbol("n")
    x, scale = placeholder("x", (n, 40), F32), placeholder("scale", (40,), F32)
    output, _ = coalesce(layer_normalization(x, scale)[0])
    schedule = default_schedule(output, frozenset(), AVX512)
    assert any(isinstance(s, Stagger) for s in schedule)
    for rows in (1, 2, 7, 64, 65, 200):
        feeds = random_feeds(output, {"n": rows})
        (wanted,) = evaluate([output], feeds, {"n": rows})
        got = interpreted(output, feeds, {"n": rows}, AVX512, schedule, after_passes=True)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def lags_of(tensor: Tensor) -> Mapping[str, int]:
    state = apply_schedule(tensor, default_schedule(tensor, frozenset(), AVX512))
    return lags(state, list(state.stages.values()))


def test_a_stage_is_a_row_behind_what_it_reads() -> None:
    assert lags_of(normalised(64, 96)) == {
        "sum": 0,
        "mean": 0,
        "sum_square": 1,
        "variance": 1,
        "inverse_deviation": 1,
        "layer_normalization": 2,
    }


def test_a_row_that_is_read_once_is_a_turn_less_at_hand() -> None:
    found = lags_of(normalised(64, 384))
    assert (found["shift"], found["sum"], found["sum_square"]) == (0, 1, 1)
    assert (found["mean"], found["inverse_deviation"], found["layer_normalization"]) == (1, 1, 2)


def test_sums_of_one_turn_share_a_loop_with_the_row_behind_them() -> None:
    tensor = normalised(8, 384)
    schedule = default_schedule(tensor, frozenset(), AVX512)
    function = lower("rows", tensor, arguments_of(tensor), [], schedule, AVX512)
    loops = [s for s in walk_statements(function.body) if isinstance(s, For) and s.extent == lift(384 // 16)]
    stored = [sorted({s.buffer.name for s in walk_statements(loop) if isinstance(s, Store)}) for loop in loops]
    assert ["out", "sum_lanes", "sum_square_lanes"] in stored


@pytest.mark.parametrize("target", ["avx512", "avx2"])
@pytest.mark.parametrize("rows", [1, 5, 8])
@pytest.mark.parametrize("output", [softened, normalised])
def test_rows_compute_the_expression(output: object, rows: int, target: str) -> None:
    assert callable(output)
    tensor = output(rows, 49)
    feeds = random_feeds(tensor, {})
    schedule = default_schedule(tensor, frozenset(), TARGETS[target])
    (wanted,) = evaluate([tensor], feeds, {})
    for after_passes in (False, True):
        got = interpreted(tensor, feeds, {}, TARGETS[target], schedule, after_passes=after_passes)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_rows_of_unknown_length_go_one_by_one() -> None:
    output, _ = coalesce(softmax(placeholder("x", (64, symbol("n")), F32)))
    schedule = default_schedule(output, frozenset(), AVX512)
    assert not any(isinstance(s, FetchNext) for s in schedule)


def test_only_what_a_stage_reads_can_be_asked_for() -> None:
    output = scaled(64, 768)
    schedule = default_schedule(output, frozenset(), AVX512)
    (step,) = (s for s in schedule if isinstance(s, FetchNext))
    wrong = FetchNext("mean", "i0", step.tensor, step.axis, step.distance)
    with pytest.raises(IngotError) as caught:
        interpreted(output, random_feeds(output, {}), {}, AVX512, (*schedule, wrong), after_passes=False)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
