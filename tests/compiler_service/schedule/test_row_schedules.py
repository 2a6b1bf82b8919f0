"""Which rows go through the stages together, what stays in registers, and what is asked for ahead."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.schedule.rules import default_schedule
from compiler_service.schedule.steps import Alias, ComputeAt, FetchNext, Schedule, Split, from_json, to_json
from compiler_service.tensor_expr.coalesce import coalesce
from compiler_service.tensor_expr.evaluate import evaluate
from compiler_service.tensor_expr.operators.normalization import layer_normalization, softmax
from compiler_service.tensor_expr.tensor import Tensor, placeholder
from shared_ir.dim import symbol
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.schedule.kernels import AVX2, AVX512, TARGETS, interpreted, random_feeds

F32 = DType.FLOAT32


def normalised(rows: int, length: int) -> Tensor:
    scale, bias = (placeholder(n, (length,), F32) for n in ("scale", "bias"))
    output, _ = coalesce(layer_normalization(placeholder("x", (rows, length), F32), scale, bias)[0])
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
    assert len(set(places(schedule).values())) == 1


@pytest.mark.parametrize(("length", "rows"), [(49, 8), (128, 4), (400, 4), (768, 2), (3000, None)])
def test_rows_go_together_as_long_as_the_cache_holds_them(length: int, rows: int | None) -> None:
    schedule = default_schedule(normalised(64, length), frozenset(), AVX512)
    together = {s.loop for s in schedule if isinstance(s, ComputeAt)}
    sizes = [s.factor for s in schedule if isinstance(s, Split) and together == {f"i0.{s.factor}"}]
    assert (sizes[0] if rows is not None else None) == rows
    assert any(isinstance(s, FetchNext) for s in schedule) is (rows is not None)


def test_the_next_rows_are_asked_for() -> None:
    schedule = default_schedule(normalised(64, 768), frozenset(), AVX512)
    (found,) = (s for s in schedule if isinstance(s, FetchNext))
    assert (found.tensor, found.axis, found.distance) == ("x", "i0", 2)
    assert from_json(to_json(schedule)) == schedule


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
    output = normalised(64, 768)
    schedule = default_schedule(output, frozenset(), AVX512)
    (step,) = (s for s in schedule if isinstance(s, FetchNext))
    wrong = FetchNext("mean", "i0", step.tensor, step.axis, step.distance)
    with pytest.raises(IngotError) as caught:
        interpreted(output, random_feeds(output, {}), {}, AVX512, (*schedule, wrong), after_passes=False)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
