"""Softmax of rows, from sums of one term after the other to sums in vectors.

A sum of floats in the order in which it is written waits for each addition before it begins the next. `rfactor` makes two sums of it:
one of every sixteenth term, sixteen of which run side by side, and one of these.

python examples/softmax.py
"""

from __future__ import annotations

import time

import numpy as np

from ingot import te

ROWS, COLUMNS = 64, 1000
LANES = 16

X = te.placeholder((ROWS, COLUMNS), name="x")
LARGEST = te.max((ROWS,), COLUMNS, lambda i, k: X[i, k], name="largest")
POWER = te.compute((ROWS, COLUMNS), lambda i, j: te.exp(X[i, j] - LARGEST[i]), name="power")
TOTAL = te.sum((ROWS,), COLUMNS, lambda i, k: POWER[i, k], name="total")
Y = te.compute((ROWS, COLUMNS), lambda i, j: POWER[i, j] / TOTAL[i], name="y")


def plain() -> te.Schedule:
    """Four nests, each over all rows, with whole tensors between them."""
    return te.schedule(Y)


def row_by_row() -> te.Schedule:
    """All that a row needs is computed inside of its turn, in memory that stays in the nearest cache."""
    s = te.schedule(Y)
    for stage in (TOTAL, POWER, LARGEST):
        s[stage].compute_at(Y, "i")
    s[POWER].vectorize("j", LANES)
    s[Y].vectorize("j", LANES)
    return s


def in_lanes() -> te.Schedule:
    """The largest element and the sum are found in sixteen lanes, whose results are put together at the end."""
    s = te.schedule(Y)
    sums, most = s.rfactor(TOTAL, "k", LANES), s.rfactor(LARGEST, "k", LANES)
    for stage in (s[TOTAL], sums, s[POWER], s[LARGEST], most):
        stage.compute_at(Y, "i")
    for lanes in (sums, most):
        lanes.reorder("k_outer", "k_inner").vectorize("k_inner")
    for whole in (s[POWER], s[Y]):
        whole.vectorize("j", LANES)
    return s


def expected(x: np.ndarray) -> np.ndarray:
    power = np.exp(x - x.max(1, keepdims=True))
    found: np.ndarray = power / power.sum(1, keepdims=True)
    return found


def microseconds(function: te.CompiledFunction, x: np.ndarray) -> float:
    """Of the fastest of a hundred calls."""
    seconds = []
    for _ in range(100):
        start = time.perf_counter()
        function(x)
        seconds.append(time.perf_counter() - start)
    return min(seconds) * 1e6


def main() -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    for step in (plain, row_by_row, in_lanes):
        schedule = step()
        function = te.build(schedule, [X])
        np.testing.assert_allclose(function(x), expected(x), rtol=1e-5)
        print(f"\n{step.__name__}: {step.__doc__}\n{schedule}\n{microseconds(function, x):.0f} us")


if __name__ == "__main__":
    main()
