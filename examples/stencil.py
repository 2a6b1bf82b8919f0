"""Two steps of heat that spreads on a plate: every point becomes the mean of itself and its four neighbours, twice.

Between the steps stands a whole plate, which is written to memory and read again, unless the second step computes what it needs of the
first as it goes: `compute_at`. A row of the second step needs three of the first.

python examples/stencil.py
"""

from __future__ import annotations

import time

import numpy as np

from ingot import te

H, W = te.var("h"), te.var("w")
PLATE = te.placeholder((H + 4, W + 4), name="plate")


def spread(t: te.Tensor, height: te.Dim, width: te.Dim, name: str) -> te.Tensor:
    """The mean of the five points around each that has four neighbours."""

    def mean(i: te.Expr, j: te.Expr) -> te.Expr:
        return (t[i + 1, j + 1] + t[i, j + 1] + t[i + 2, j + 1] + t[i + 1, j] + t[i + 1, j + 2]) * 0.2

    return te.compute((height, width), mean, name=name)


ONCE = spread(PLATE, H + 2, W + 2, "once")
TWICE = spread(ONCE, H, W, "twice")


def plate_by_plate() -> te.Schedule:
    """One step after the other; elements that lie together are computed together."""
    s = te.schedule(TWICE)
    for stage in (ONCE, TWICE):
        s[stage].vectorize("j", 16)
    return s


def tile_by_tile() -> te.Schedule:
    """Sixteen rows of 256 columns at a time: the first step is computed for the tile, and a rim of one point around it."""
    s = te.schedule(TWICE)
    rows, columns, _, column = s[TWICE].tile("i", "j", 16, 256)
    s[TWICE].parallel(rows).vectorize(column, 16)
    s[ONCE].compute_at(TWICE, columns).vectorize("j", 16)
    return s


def expected(plate: np.ndarray) -> np.ndarray:
    for _ in range(2):
        plate = (
            plate[1:-1, 1:-1] + plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
        ) * np.float32(0.2)
    return plate


def milliseconds(function: te.CompiledFunction, plate: np.ndarray) -> float:
    """Of the fastest of twenty calls."""
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        function(plate)
        seconds.append(time.perf_counter() - start)
    return min(seconds) * 1e3


def main() -> None:
    plate = np.random.default_rng(0).random((1500, 1900), dtype=np.float32)
    for step in (plate_by_plate, tile_by_tile):
        schedule = step()
        function = te.build(schedule, [PLATE], threads=2)
        np.testing.assert_allclose(function(plate), expected(plate), rtol=1e-5)
        print(f"\n{step.__name__}: {step.__doc__}\n{schedule}\n{milliseconds(function, plate):.2f} ms")


if __name__ == "__main__":
    main()
