"""Both executors on a plan with a branch, a loop, and an output that the run sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from runtime_service.arrays import Array
from runtime_service.loading.loader import load_model
from runtime_service.loading.model import Model
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.json_form import read_plan, write_plan
from shared_ir.plan.program import launches, walk_steps
from tests.native_growing import GROWING_KERNELS, GROWING_SYMBOLS, MOST_ELEMENTS, growing_plan
from tests.native_models import NativeModel, build_model


@pytest.fixture(scope="module")
def native() -> NativeModel:
    built = build_model(plan=growing_plan(), kernels=GROWING_KERNELS, symbols=GROWING_SYMBOLS)
    return NativeModel(built.plan, built.target, built.objects, b"")


@pytest.fixture(params=["aot", "graph"])
def model(native: NativeModel, request: pytest.FixtureRequest) -> Iterator[Model]:
    with load_model(native.artifact(), threads=2, executor=request.param) as loaded:
        yield loaded


def feeds(n: int, m: int, p: bool) -> dict[str, Array]:
    return {"x": np.arange(n, dtype=np.float32), "m": np.array(m), "p": np.array(p)}


def reference(given: dict[str, Array]) -> tuple[Array, Array]:
    start = given["x"] * (2 if given["p"] else 1)
    rows = start + np.cumsum(np.arange(int(given["m"]), dtype=np.float32))[:, None]
    return rows.astype(np.float32), (rows[-1] if len(rows) else start).astype(np.float32)


@pytest.mark.parametrize("n", [0, 1, 17, 1000])
def test_rows_grow(model: Model, n: int) -> None:
    for m in (3, 0, 50, 1, 2):
        for p in (True, False):
            given = feeds(n, m, p)
            results, (rows, last) = model.run(given), reference(given)
            assert results["rows"].shape == (m, n)
            np.testing.assert_array_equal(results["rows"], rows)
            np.testing.assert_array_equal(results["last"], last)


def test_outputs_of_earlier_runs_stay(model: Model) -> None:
    first = model.run(feeds(5, 4, True))["rows"]
    kept = first.copy()
    model.run(feeds(5, 9, False))
    np.testing.assert_array_equal(first, kept)


def test_a_constraint_that_the_run_breaks(model: Model) -> None:
    with pytest.raises(IngotError, match="elements left") as caught:
        model.run(feeds(1000, 101, True))
    error = caught.value
    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert (error.expected, error.received) == ("at least 0", str(MOST_ELEMENTS - 101_000))
    assert model.run(feeds(1000, 100, True))["rows"].shape == (100, 1000)


def test_a_profile_adds_up_the_iterations(model: Model) -> None:
    doubled, increased = model.profile(feeds(16, 10, False), 3)
    assert (doubled.seconds, doubled.flops) == (0, 0)  # the branch was not taken
    assert increased.seconds > 0
    assert increased.flops == 160


@pytest.mark.parametrize(
    ("part", "damaged"),
    [
        ('"step":"branch"', '"step":"unknown"'),
        ('"counter":"i",', ""),
        ('"keep":true', '"kept":true'),
        ('"limit":"limit"', '"limit":"limit limit"'),
        ('"condition":"doubled",', ""),
    ],
)
def test_damaged_plans_are_refused(part: str, damaged: str) -> None:
    text = write_plan(growing_plan())
    assert part in text
    with pytest.raises(IngotError, match=r"malformed plan|an integer that is none"):
        read_plan(text.replace(part, damaged, 1))


def test_launches_are_found_inside() -> None:
    steps = growing_plan().steps
    assert [s.kernel for s in launches(steps)] == [0, 1]
    assert len(list(walk_steps(steps))) == len(steps) + 2 + 5
