"""A product of matrices, from a plain nest to one that keeps the multipliers busy, step by step; each step is printed and measured.

What there is to reach is measured too: a sum that reads next to nothing, and does as many multiply-adds in a second as this machine
can.

python examples/matmul.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ingot import te

SIZE, LANES = 512, 16
HEIGHT, WIDTH = 6, 64
Function = Callable[..., np.ndarray]

X = te.placeholder((SIZE, SIZE), name="X")
W = te.placeholder((SIZE, SIZE), name="W")
Y = te.sum((SIZE, SIZE), SIZE, lambda i, j, k: X[i, k] * W[k, j], name="Y")


def plain() -> te.Schedule:
    """Three loops, one inside the other; every product goes through the memory of the result."""
    return te.schedule(Y)


def in_vectors() -> te.Schedule:
    """Sixteen columns at once: the sum goes over k outside of them, so that rows of W are read as they lie."""
    s = te.schedule(Y)
    outer, inner = s[Y].split("j", LANES)
    s[Y].reorder("i", outer, "k", inner)
    s[Y].vectorize(inner)
    return s


def in_registers() -> te.Schedule:
    """A tile of the result stays in registers while k runs: each element of X that is read meets 64 columns, each row of W 6 rows."""
    s = te.schedule(Y)
    _tiled(s)
    return s


def in_panels() -> te.Schedule:
    """The 64 columns of W that a tile reads are copied together once, and stay in the cache for all tiles below each other."""
    s = te.schedule(Y)
    panel = s.pack(W, Y, axis=1, tile=WIDTH)
    panel.vectorize("W_place", LANES)
    rows, columns = _tiled(s)
    s[Y].reorder(columns, rows)
    s["Y.acc"].compute_at(Y, rows)
    return s


def _tiled(s: te.Schedule) -> tuple[te.Loop, te.Loop]:
    """Tiles of the result in registers; the loops over tiles."""
    tile = s.cache_write(Y)
    rows, columns, _, column = s[Y].tile("i", "j", HEIGHT, WIDTH)
    s[Y].vectorize(column, LANES)
    tile.compute_at(Y, columns)
    tile.split("j", LANES)
    tile.reorder("k", "i", f"j.{LANES}", "j").vectorize("j").unroll("i", f"j.{LANES}")
    return rows, columns


def multiply_adds() -> tuple[Function, tuple[np.ndarray, ...], int]:
    """A function that multiplies and adds in twelve registers at once, what it is called with, and how many operations it does."""
    lanes, terms = 12 * LANES, 1 << 15
    a, b = te.placeholder((lanes,), name="a"), te.placeholder((terms,), name="b")
    total = te.sum((lanes,), terms, lambda i, k: a[i] * b[k], name="total")
    s = te.schedule(total)
    registers = s.cache_write(total)
    whole, _ = s[total].split("i", lanes)
    registers.compute_at(total, whole)
    outer, inner = registers.split("i", LANES)
    registers.reorder("k", outer, inner).vectorize(inner).unroll(outer)
    arrays = np.ones(lanes, np.float32), np.full(terms, 1e-6, np.float32)
    return te.build(s, [a, b]), arrays, 2 * lanes * terms


def rate(function: Function, arrays: tuple[np.ndarray, ...], operations: int, calls: int = 50) -> float:
    """GFLOP/s of the fastest of the calls: others share this machine."""
    seconds = []
    for _ in range(calls):
        start = time.perf_counter()
        function(*arrays)
        seconds.append(time.perf_counter() - start)
    return operations / min(seconds) / 1e9


def main() -> None:
    peak = rate(*multiply_adds())
    print(f"peak of this machine, one thread: {peak:.1f} GFLOP/s")
    numbers = np.random.default_rng(0)
    x, w = (numbers.random((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    for step in (plain, in_vectors, in_registers, in_panels):
        schedule = step()
        start = time.perf_counter()
        function = te.build(schedule, [X, W])
        built = time.perf_counter() - start
        np.testing.assert_allclose(function(x, w), x @ w, rtol=1e-4)
        calls = 3 if step is plain else 50
        reached = rate(function, (x, w), 2 * SIZE**3, calls)
        peak = max(peak, rate(*multiply_adds()))
        print(f"\n{step.__name__}: {step.__doc__}\n{schedule}")
        print(f"built in {built:.2f} s; {reached:.1f} GFLOP/s, {reached / peak:.0%} of the peak")


if __name__ == "__main__":
    main()
