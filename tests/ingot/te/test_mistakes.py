"""Tensors, schedules and calls that are written wrong: what is wrong is said, and nothing else happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import te

N = te.var("n")
A = te.placeholder((N, 4), name="A")
K = te.placeholder((5,), "int64", name="K")
B = te.compute((N, 4), lambda i, j: A[i, j] + 1.0, name="B")


@pytest.mark.parametrize("wrong", [3.0, -1, "n", None])
def test_extents_are_whole_numbers_and_symbols(wrong: Any) -> None:
    for make in (te.placeholder, lambda shape: te.compute(shape, lambda i, j: A[i, j])):
        with pytest.raises(ingot.IngotError, match="an extent is no whole number") as caught:
            make((wrong, 4))
        assert caught.value.code is ingot.ErrorCode.INVALID_ARGUMENT


def test_numbers_of_numpy_are_numbers() -> None:
    twelve: Any = np.int32(12)
    four: Any = np.int64(4)
    x = te.placeholder((twelve,), name="x")
    s = te.schedule(te.compute(twelve, lambda i: x[i] * 2.0, name="y"))
    s["y"].split("i", four)
    np.testing.assert_array_equal(te.build(s, [x])(np.ones(12, np.float32)), np.full(12, 2.0))


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s["B"].split("i", 2.5),
        lambda s: s["B"].split("i", "4"),
        lambda s: s["B"].split("j", nparts=2.0),
        lambda s: s["B"].tile("i", "j", 4, 2.5),
        lambda s: s["B"].vectorize("j", 2.5),
        lambda s: s["B"].prefetch("A", "i", 1.5),
        lambda s: s.pack("A", "B", 1, 2.5),
        lambda s: s.rfactor("B", "j", 2.5),
        lambda s: s[5],
        lambda s: s.cache_write(5),
    ],
)
def test_a_step_of_what_is_no_number_or_stage_is_refused(step: Callable[[te.Schedule], Any]) -> None:
    s = te.schedule(B)
    before = str(s), str(te.lower(s, [A]))
    with pytest.raises(ingot.IngotError) as caught:
        step(s)
    assert caught.value.code is ingot.ErrorCode.INVALID_ARGUMENT
    assert (str(s), str(te.lower(s, [A]))) == before


def test_a_comparison_of_objects_is_no_condition() -> None:
    for body in (
        lambda i: te.select(i == 1, A[0, i], 0.0),
        lambda i: te.select(te.all_of(i < 3, i != 1), A[0, i], 0.0),
        lambda i: te.select(te.any_of(i == 1), A[0, i], 0.0),
    ):
        with pytest.raises(ingot.IngotError, match=r"te\.equal\(a, b\)") as caught:
            te.compute((4,), body)
        assert caught.value.code is ingot.ErrorCode.TYPE_MISMATCH


def test_positions_from_data_are_the_business_of_who_reads_there() -> None:
    s = te.schedule(te.compute((5,), lambda i: A[K[i], 0], name="G"))
    function: Callable[[], object]
    for function in (lambda: te.build(s, [A, K]), lambda: te.build(s, [A, K], target="aarch64/generic")):
        with pytest.raises(ingot.IngotError, match="not proven to be inside") as caught:
            function()
        assert caught.value.code is ingot.ErrorCode.INVALID_ARGUMENT
        assert "te.select" in caught.value.remedy


def test_what_is_built_is_a_schedule_of_tensors() -> None:
    s: Any = te.schedule(B)
    wrong: list[Callable[[], object]] = [
        lambda: te.build(B, [A]),  # type: ignore[call-overload]
        lambda: te.build({"b": s}),
        lambda: te.build(s, A),  # type: ignore[call-overload]
        lambda: te.build(s, ["A"]),  # type: ignore[list-item]
        lambda: te.build(s, [A, A]),
        lambda: te.schedule("B"),  # type: ignore[arg-type]
        lambda: te.var(5),  # type: ignore[arg-type]
    ]
    for call in wrong:
        with pytest.raises(ingot.IngotError) as caught:
            call()
        assert caught.value.code is ingot.ErrorCode.INVALID_ARGUMENT


W = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (lambda: te.nn.mat_mul(A, W), lambda x: x @ W),
        (lambda: te.nn.add(A, W[0, :4]), lambda x: x + W[0, :4]),
        (lambda: te.nn.relu(te.nn.add(te.nn.mat_mul(A, W), W[1])), lambda x: np.maximum(x @ W + W[1], 0)),
        (lambda: te.nn.gather(A, (3, 0, 3), axis=1), lambda x: x[:, [3, 0, 3]]),
        (lambda: te.nn.pad(A, (0, 1, 0, 2)), lambda x: np.pad(x, ((0, 0), (1, 2)))),
        (lambda: te.nn.concat(A, np.zeros((0, 4), np.float32), axis=0), lambda x: x),
    ],
)
@pytest.mark.parametrize("schedule", [te.schedule, te.default_schedule])
def test_arrays_beside_tensors_are_tensors_whose_elements_are_known(
    written: Callable[[], te.Tensor],
    expected: Callable[[np.ndarray], np.ndarray],
    schedule: Callable[[te.Tensor], te.Schedule],
) -> None:
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose(te.build(schedule(written()), [A])(x), expected(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["", "1", "a b", "for", "out", "n", "x.y", "\n"])
def test_loops_are_read_back_whatever_a_tensor_is_called(name: str) -> None:
    x = te.placeholder((N, 4), name=name)
    doubled = te.compute((N, 4), lambda i, j: x[i, j] * 2.0, name=name)
    program = te.lower(te.schedule(te.sum((N,), 4, lambda i, k: doubled[i, k], name=name)), [x])
    again = ingot.ir.LoopProgram.parse(str(program))
    assert str(again) == str(program)
    np.testing.assert_array_equal(again.interpret(np.ones((3, 4), np.float32))[0], np.full(3, 8.0))
