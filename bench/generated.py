"""The generator alone, without the compiler's rules: small programs of ``ingot.te``, tuned for a minute each, beside numpy and the roofs.

``python -m bench.generated --seconds 60 [--only matmul] [--markdown]``

Everything runs on one thread. A bound is the later of two times: that of the arithmetic at the peak of fused multiply-adds, and that of
the bytes of arguments and results, moved once, at the bandwidth of the level of memory that holds them. numpy is timed with the same
arrays, each of its operations into memory of its own, as its users write them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.peaks import Peaks, measure_peaks
from compiler_service.compiler.tensor_expr.kernel.group import flops_of
from ingot import te
from shared_ir.expr.dim import static

Array = np.ndarray[Any, Any]

_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
_ROUNDS, _ROUND_SECONDS = 15, 0.05
_TIMES_NUMPY, _OF_THE_ROOF, _OF_THE_PEAK = 10.0, 0.7, 0.8


@dataclass(frozen=True)
class Generated:
    """A program, and the same by numpy.

    Attributes:
        of_peak: whether it is judged by the peak of multiply-adds alone.
    """

    name: str
    arguments: tuple[te.Tensor, ...]
    output: te.Tensor
    by_numpy: Callable[..., Array]
    of_peak: bool = False

    @property
    def bytes(self) -> int:
        """Of arguments and results."""
        return sum(
            int(np.prod([static(d) for d in t.shape])) * t.dtype.itemsize for t in (*self.arguments, self.output)
        )

    @property
    def flops(self) -> int:
        return static(flops_of(self.output))


def softmax(m: int, n: int) -> Generated:
    a = te.placeholder((m, n), name="A")
    largest = te.max((m,), n, lambda i, q: a[i, q], name="largest")
    e = te.compute((m, n), lambda i, j: te.exp(a[i, j] - largest[i]), name="powers")
    total = te.sum((m,), n, lambda i, q: e[i, q], name="total")
    out = te.compute((m, n), lambda i, j: e[i, j] / total[i], name="softmax")

    def by_numpy(x: Array) -> Array:
        powers = np.exp(x - x.max(1, keepdims=True))
        found: Array = powers / powers.sum(1, keepdims=True)
        return found

    return Generated(f"softmax {m}x{n}", (a,), out, by_numpy)


def layer_norm(m: int, n: int) -> Generated:
    x, g, b = te.placeholder((m, n), name="X"), te.placeholder((n,), name="G"), te.placeholder((n,), name="B")
    total = te.sum((m,), n, lambda i, k: x[i, k], name="total")
    mean = te.compute((m,), lambda i: total[i] * (1.0 / n), name="mean")
    squares = te.sum((m,), n, lambda i, k: (x[i, k] - mean[i]) * (x[i, k] - mean[i]), name="squares")
    scale = te.compute((m,), lambda i: te.rsqrt(squares[i] * (1.0 / n) + 1e-5), name="scale")
    out = te.compute((m, n), lambda i, j: (x[i, j] - mean[i]) * scale[i] * g[j] + b[j], name="norm")

    def by_numpy(x: Array, g: Array, b: Array) -> Array:
        mean = x.mean(1, keepdims=True)
        variance = ((x - mean) ** 2).mean(1, keepdims=True)
        found: Array = (x - mean) / np.sqrt(variance + 1e-5) * g + b
        return found

    return Generated(f"layer norm {m}x{n}", (x, g, b), out, by_numpy)


def stencil(m: int, n: int) -> Generated:
    a = te.placeholder((m + 2, n + 2), name="A")

    def point(i: te.Expr, j: te.Expr) -> te.Expr:
        around = a[i, j + 1] + a[i + 2, j + 1] + a[i + 1, j] + a[i + 1, j + 2]
        return 0.5 * a[i + 1, j + 1] + 0.125 * around

    def by_numpy(x: Array) -> Array:
        around = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        found: Array = np.float32(0.5) * x[1:-1, 1:-1] + np.float32(0.125) * around
        return found

    return Generated(f"5-point stencil {m}x{n}", (a,), te.compute((m, n), point, name="stencil"), by_numpy)


def batched_product(b: int, m: int, n: int, k: int) -> Generated:
    """Behind it something that no library has: what is above a row's threshold is bent, the rest is shifted."""
    x, w = te.placeholder((b, m, k), name="X"), te.placeholder((b, k, n), name="W")
    s = te.placeholder((b, n), name="S")
    y = te.sum((b, m, n), k, lambda p, i, j, q: x[p, i, q] * w[p, q, j], name="Y")

    def bent(p: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
        y_, s_ = y[p, i, j], s[p, j]
        return te.select(y_ > s_, te.tanh(y_) * s_, y_ * 0.5 - te.absolute(s_))

    def by_numpy(x: Array, w: Array, s: Array) -> Array:
        y, row = x @ w, s[:, None, :]
        return np.where(y > row, np.tanh(y) * row, y * np.float32(0.5) - np.abs(row))

    return Generated(f"{b} products {m}x{n}x{k}, bent", (x, w, s), te.compute((b, m, n), bent, name="bent"), by_numpy)


def depthwise(h: int, w: int, c: int) -> Generated:
    x, f = te.placeholder((h + 2, w + 2, c), name="X"), te.placeholder((3, 3, c), name="F")
    y = te.sum((h, w, c), (3, 3), lambda i, j, k, r, s: x[i + r, j + s, k] * f[r, s, k], name="depthwise")

    def by_numpy(x: Array, f: Array) -> Array:
        out = np.zeros((h, w, c), np.float32)
        for r in range(3):
            for s in range(3):
                out += x[r : r + h, s : s + w] * f[r, s]
        return out

    return Generated(f"depthwise conv {h}x{w}x{c}", (x, f), y, by_numpy)


def product(size: int) -> Generated:
    a, b = te.placeholder((size, size), name="A"), te.placeholder((size, size), name="B")
    c = te.sum((size, size), size, lambda i, j, k: a[i, k] * b[k, j], name="C")
    return Generated(f"matmul {size}", (a, b), c, lambda x, y: x @ y, of_peak=True)


PROGRAMS: tuple[Callable[[], Generated], ...] = (
    lambda: softmax(8192, 1024),
    lambda: layer_norm(8192, 1024),
    lambda: stencil(2048, 2048),
    lambda: batched_product(8, 256, 256, 128),
    lambda: depthwise(56, 56, 128),
    lambda: product(1024),
)


@dataclass(frozen=True)
class GeneratedRow:
    """Seconds of a program, of numpy, of the bound, and of the arithmetic at the peak."""

    program: Generated
    tuned: te.Tuned
    by_numpy: float
    bound: float
    level: str
    at_peak: float

    @property
    def is_met(self) -> bool:
        if self.program.of_peak:
            return self.at_peak / self.tuned.seconds >= _OF_THE_PEAK
        return self.by_numpy / self.tuned.seconds >= _TIMES_NUMPY or self.bound / self.tuned.seconds >= _OF_THE_ROOF

    def cells(self) -> tuple[str, ...]:
        own = self.tuned
        return (
            self.program.name,
            f"{own.default_seconds * 1e6:.0f}",
            f"{own.seconds * 1e6:.0f} ± {own.spread * 1e6:.1f}",
            f"{own.trials} ({own.failed})",
            f"{self.by_numpy * 1e6:.0f}",
            f"{self.by_numpy / own.seconds:.1f}x",
            f"{self.bound * 1e6:.0f} ({self.level})",
            f"{self.bound / own.seconds:.0%}",
            f"{self.at_peak / own.seconds:.0%}",
            "yes" if self.is_met else "no",
        )


HEADER = (
    "program",
    "default us",
    "tuned us",
    "trials (failed)",
    "numpy us",
    "of numpy",
    "bound us",
    "of bound",
    "of peak",
    "met",
)


def measured(program: Generated, seconds: float, peaks: Peaks) -> GeneratedRow:
    """Tunes ``program`` for ``seconds``, checks it against numpy, and times numpy.

    Raises:
        AssertionError: the best schedule computes something else than numpy.
    """
    tuned = te.tune(program.output, program.arguments, seconds=seconds)
    numbers = np.random.default_rng(0)
    arrays = [numbers.uniform(-1, 1, [static(d) for d in t.shape]).astype(np.float32) for t in program.arguments]
    np.testing.assert_allclose(tuned.build()(*arrays), program.by_numpy(*arrays), rtol=1e-3, atol=1e-4)
    level, at_peak = peaks.level(program.bytes), program.flops / peaks.flops
    moved = program.bytes / peaks.bandwidth[level].roof
    bound = max(at_peak, moved)
    return GeneratedRow(
        program, tuned, typical_seconds(program.by_numpy, arrays), bound, "fma" if bound == at_peak else level, at_peak
    )


def typical_seconds(function: Callable[..., object], arrays: list[Array]) -> float:
    """The median of several rounds."""
    function(*arrays)
    rounds = []
    for _ in range(_ROUNDS):
        count, start = 0, time.perf_counter()
        while count == 0 or time.perf_counter() - start < _ROUND_SECONDS:
            function(*arrays)
            count += 1
        rounds.append((time.perf_counter() - start) / count)
    return statistics.median(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of tuning for each program")
    parser.add_argument("--only", default="", help="programs whose names hold this")
    parser.add_argument("--markdown", action="store_true", help="a table to be put in a page")
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in _ONE_THREAD.items()):  # numpy asks when it is loaded
        again = [sys.executable, "-m", "bench.generated", *sys.argv[1:]]
        raise SystemExit(subprocess.run(again, env={**os.environ, **_ONE_THREAD}, check=False).returncode)
    peaks = measure_peaks()
    print(
        f"peak {peaks.flops / 1e9:.0f} GFLOP/s, "
        + ", ".join(f"{n} {b.roof / 1e9:.0f} GB/s" for n, b in peaks.bandwidth.items())
    )
    join: Callable[[tuple[str, ...]], str] = (
        (lambda cells: f"| {' | '.join(cells)} |")
        if options.markdown
        else lambda cells: "  ".join(c.rjust(14) for c in cells)
    )
    print(join(HEADER))
    if options.markdown:
        print(join(("---",) * len(HEADER)))
    for make in PROGRAMS:
        program = make()
        if options.only in program.name:
            print(join(measured(program, options.seconds, peaks).cells()), flush=True)


if __name__ == "__main__":
    main()
