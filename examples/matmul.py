"""A product of matrices, from a plain nest to one that keeps the registers busy, step by step; each step is printed and measured.

python examples/matmul.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ingot import te

SIZE = 512
Function = Callable[[np.ndarray, np.ndarray], np.ndarray]

K = SIZE
X = te.placeholder((SIZE, K), name="X")
W = te.placeholder((K, SIZE), name="W")
Y = te.sum((SIZE, SIZE), K, lambda i, j, k: X[i, k] * W[k, j], name="Y")


def plain() -> te.Schedule:
    """Three loops, one inside the other; every product goes through the memory of the result."""
    return te.schedule(Y)


def in_vectors() -> te.Schedule:
    """Sixteen columns at once: the sum goes over k outside of them, so that rows of W are read as they lie."""
    s = te.schedule(Y)
    outer, inner = s[Y].split("j", 16)
    s[Y].reorder("i", outer, "k", inner)
    s[Y].vectorize(inner)
    return s


def in_registers() -> te.Schedule:
    """A tile of the result stays in registers while k runs: each element of X that is read meets 64 columns, each row of W 6 rows."""
    s = te.schedule(Y)
    tile = s.cache_write(Y)
    _, columns, _, column = s[Y].tile("i", "j", 6, 64)
    s[Y].vectorize(column, 16)
    tile.compute_at(Y, columns)
    tile.split("j", 16)
    tile.reorder("k", "i", "j.16", "j").vectorize("j").unroll("i", "j.16")
    return s


def rate(function: Function, x: np.ndarray, w: np.ndarray) -> float:
    """GFLOP/s of the fastest of ten calls."""
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        function(x, w)
        seconds.append(time.perf_counter() - start)
    return 2 * SIZE**3 / min(seconds) / 1e9


def main() -> None:
    numbers = np.random.default_rng(0)
    x, w = (numbers.random((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    for step in (plain, in_vectors, in_registers):
        schedule = step()
        function = te.build(schedule, [X, W])
        np.testing.assert_allclose(function(x, w), x @ w, rtol=1e-4)
        print(f"\n{step.__name__}: {step.__doc__}\n{schedule}\n{rate(function, x, w):.1f} GFLOP/s")


if __name__ == "__main__":
    main()
