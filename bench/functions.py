"""What functions of ``ingot.te`` cost beside what they compute: a call of a small one, and building a scheduled product.

``python -m bench.functions``
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ingot import te

SIZE = 1024
_TRIALS, _CALLS = 200, 200
_BUILDS = 5


def fastest(work: Callable[[], object], trials: int, calls: int) -> float:
    """Seconds of one of ``calls`` in a row, in the fastest of ``trials``."""
    found = []
    for _ in range(trials):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        found.append(time.perf_counter() - start)
    return min(found) / calls


def vector_add() -> te.CompiledFunction:
    n = te.var("n")
    a, b = te.placeholder((n,), name="a"), te.placeholder((n,), name="b")
    c = te.compute((n,), lambda i: a[i] + b[i], name="c")
    s = te.schedule(c)
    s[c].vectorize("i", 16)
    return te.build(s, [a, b])


def product() -> te.CompiledFunction:
    """A product of matrices in tiles that registers hold, scheduled and built."""
    x, w = te.placeholder((SIZE, SIZE), name="x"), te.placeholder((SIZE, SIZE), name="w")
    y = te.sum((SIZE, SIZE), SIZE, lambda i, j, k: x[i, k] * w[k, j], name="y")
    s = te.schedule(y)
    tile = s.cache_write(y)
    _, columns, _, column = s[y].tile("i", "j", 6, 64)
    s[y].vectorize(column, 16)
    tile.compute_at(y, columns)
    outer, inner = tile.split("j", 16)
    tile.reorder("k", "i", outer, inner).vectorize(inner).unroll("i", outer)
    return te.build(s, [x, w])


def main() -> None:
    add, (a, b), out = vector_add(), np.ones((2, 64), np.float32), np.empty(64, np.float32)
    print(f"call of two arrays: {fastest(lambda: add(a, b), _TRIALS, _CALLS) * 1e6:.2f} us")
    print(f"the same with out=: {fastest(lambda: add(a, b, out=out), _TRIALS, _CALLS) * 1e6:.2f} us")
    print(f"a + b of numpy:     {fastest(lambda: a + b, _TRIALS, _CALLS) * 1e6:.2f} us")
    print(f"product of {SIZE} x {SIZE}, scheduled and built: {fastest(product, _BUILDS, 1) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
