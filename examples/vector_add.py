"""The sum of two vectors of any length: written, scheduled, looked at, built, called, saved and loaded.

python examples/vector_add.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import ingot
from ingot import te

N = te.var("n")
A, B = te.placeholder((N,), name="A"), te.placeholder((N,), name="B")
C = te.compute((N,), lambda i: A[i] + B[i], name="C")


def scheduled() -> te.Schedule:
    """Blocks of 1024 elements are tasks that threads take; in each, 16 elements are added at once."""
    s = te.schedule(C)
    block, element = s[C].split("i", 1024)
    s[C].parallel(block).vectorize(element, 16)
    return s


def refused(s: te.Schedule) -> str:
    """What a schedule for a device says here: its threads have no place on a CPU."""
    block, _ = s[C].split("i", 64)
    try:
        s[C].bind(block, "blockIdx.x")
    except ingot.IngotError as error:
        return str(error)
    raise AssertionError("a CPU has no blockIdx.x")


def main() -> None:
    print(f"bind: {refused(te.schedule(C))}\n")
    s = scheduled()
    print(f"{te.text(C)}\n\n{s}\n\n{te.lower(s, [A, B], name='add')}\n")

    module = te.build({"add": (s, [A, B])}, threads=2)
    a, b = np.random.default_rng(0).random((2, 100_003), dtype=np.float32)
    np.testing.assert_array_equal(module["add"](a, b), a + b)
    result = np.empty_like(a)
    module["add"](a, b, out=result)
    np.testing.assert_array_equal(result, a + b)

    with tempfile.TemporaryDirectory() as folder:
        module.save(Path(folder) / "functions", home=folder)
        add = ingot.load_module(Path(folder) / "functions", home=folder)["add"]
        np.testing.assert_array_equal(add(a, b), a + b)
        print(f"loaded: {add}")


if __name__ == "__main__":
    main()
