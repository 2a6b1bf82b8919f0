"""Any sequence of primitives computes what the plain schedule does, at any size; one that does not fit raises and changes nothing."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ingot import te
from tests.ingot.te.computations import drawn_array, drawn_computation, drawn_schedule, interpreted

SEEDS = 150


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_drawn_schedule_computes_what_numpy_does(seed: int) -> None:
    draw = random.Random(seed)
    computation = drawn_computation(draw)
    schedule = drawn_schedule(draw, computation.output)
    extents = {
        "m": draw.choice([1, 2, 5, 9, 20]),
        "n": draw.choice([1, 3, 16, 19, 40]),
        "k": draw.choice([1, 4, 7, 18]),
    }
    numbers = np.random.default_rng(seed)
    arrays = {a: drawn_array(numbers, a, extents) for a in computation.arguments}
    found = interpreted(schedule, arrays, extents)
    np.testing.assert_allclose(found, computation.expected(*arrays.values()), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(1000, 1020))
def test_so_does_the_code(seed: int) -> None:
    draw = random.Random(seed)
    computation = drawn_computation(draw)
    function = te.build(drawn_schedule(draw, computation.output), computation.arguments, threads=2)
    for m, n, k in ((1, 1, 1), (5, 19, 7), (20, 40, 18)):
        extents = {"m": m, "n": n, "k": k}
        numbers = np.random.default_rng(seed)
        arrays = [drawn_array(numbers, a, extents) for a in computation.arguments]
        np.testing.assert_allclose(function(*arrays), computation.expected(*arrays), rtol=1e-4, atol=1e-5)
