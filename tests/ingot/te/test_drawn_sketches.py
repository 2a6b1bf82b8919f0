"""Any answers to what the generator asks, of any program, make a schedule that computes what the plain one does, or that is refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.tune.sketches.sketch import sketch
from ingot import te
from ingot.artifact import chosen_target
from shared_ir.errors import ErrorCode, IngotError
from tests.ingot.te.computations import Array, Computation, drawn_array, drawn_computation, interpreted

TARGETS = ("x86-64-v4", "raspberry-pi/4b", "x86-64-v3 -cores=4")


def normalisation(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    size = n if isinstance(n, int) else 19
    x, g = te.placeholder((m, size), name="X"), te.placeholder((size,), name="G")
    total = te.sum((m,), size, lambda i, q: x[i, q], name="total")
    mean = te.compute((m,), lambda i: total[i] * (1.0 / size), name="mean")
    squares = te.sum((m,), size, lambda i, q: (x[i, q] - mean[i]) * (x[i, q] - mean[i]), name="squares")
    y = te.compute(
        (m, size), lambda i, j: (x[i, j] - mean[i]) * te.rsqrt(squares[i] * (1.0 / size) + 1e-5) * g[j], name="Y"
    )
    return Computation(
        (x, g), y, lambda a, b: (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5) * b
    )


def transposed_product(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    x, w = te.placeholder((k, m), name="A"), te.placeholder((n, k), name="W")
    y = te.sum((m, n), k, lambda i, j, q: x[q, i] * w[j, q], name="Y")
    return Computation((x, w), y, lambda a, b: a.T @ b.T)


def batched(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    x, w, s = te.placeholder((2, m, k), name="X"), te.placeholder((2, k, n), name="W"), te.placeholder((2, n), name="S")
    y = te.sum((2, m, n), k, lambda b, i, j, q: x[b, i, q] * w[b, q, j], name="Y")
    z = te.compute(
        (2, m, n), lambda b, i, j: te.select(y[b, i, j] > s[b, j], te.tanh(y[b, i, j]) * s[b, j], y[b, i, j]), name="Z"
    )

    def expected(a: Array, b: Array, c: Array) -> Array:
        product, row = a @ b, c[:, None, :]
        return np.where(product > row, np.tanh(product) * row, product)

    return Computation((x, w, s), z, expected)


def depthwise(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    """With padding that is a stage of its own, and an activation behind."""
    x, f = te.placeholder((m, 5, n), name="X"), te.placeholder((3, 3, n), name="F")
    padded = te.compute(
        (m + 2, 7, n),
        lambda i, j, c: te.select(te.all_of(i >= 1, i < m + 1, j >= 1, j < 6), x[i - 1, j - 1, c], te.const(0.0)),
        name="padded",
    )
    y = te.sum((m, 5, n), (3, 3), lambda i, j, c, r, s: padded[i + r, j + s, c] * f[r, s, c], name="Y")
    z = te.compute((m, 5, n), lambda i, j, c: te.maximum(y[i, j, c], 0.0), name="Z")

    def expected(a: Array, b: Array) -> Array:
        around = np.pad(a, ((1, 1), (1, 1), (0, 0)))
        rows, columns = a.shape[:2]
        out = np.zeros_like(a)
        for r in range(3):
            for s in range(3):
                out += around[r : r + rows, s : s + columns] * b[r, s]
        return np.maximum(out, 0)

    return Computation((x, f), z, expected)


def column_maxima(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    a = te.placeholder((m, n, 3), name="A")
    r = te.max((m, 3), n, lambda i, c, q: a[i, q, c], name="R")
    return Computation((a,), r, lambda x: x.max(1))


def grand_total(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    a = te.placeholder((4100, 2), name="A")
    r = te.sum((), (4100, 2), lambda i, j: a[i, j], name="R")
    return Computation((a,), r, lambda x: np.asarray(x.astype(np.float64).sum(), np.float32))


def two_products(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    """One after the other, with a sum of rows that both of them go into."""
    x, w = te.placeholder((m, 8), name="X"), te.placeholder((8, n), name="W")
    y = te.sum((m, n), 8, lambda i, j, q: x[i, q] * w[q, j], name="Y")
    e = te.compute((m, n), lambda i, j: te.exp(y[i, j] * 0.1), name="E")
    v = te.placeholder((n, 6), name="V")
    z = te.sum((m, 6), n, lambda i, j, q: e[i, q] * v[q, j], name="Z")
    t = te.sum((m,), n, lambda i, q: e[i, q], name="T")
    o = te.compute((m, 6), lambda i, j: z[i, j] / t[i], name="O")

    def expected(a: Array, b: Array, c: Array) -> Array:
        powers = np.exp(a @ b * np.float32(0.1))
        found: Array = powers @ c / powers.sum(1, keepdims=True)
        return found

    return Computation((x, w, v), o, expected)


def deep_product(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    """Of so many terms that they may be summed in chunks."""
    x, w = te.placeholder((6, 256), name="A"), te.placeholder((256, n), name="W")
    y = te.sum((6, n), 256, lambda i, j, q: x[i, q] * w[q, j], name="Y")
    return Computation((x, w), y, lambda a, b: a @ b)


def turned(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    """Read across rows."""
    a = te.placeholder((m, n), name="A")
    b = te.compute((n, m), lambda i, j: te.exp(a[j, i]), name="B")
    return Computation((a,), b, lambda x: np.exp(x.T))


KINDS: tuple[Callable[[te.Dim, te.Dim, te.Dim], Computation], ...] = (
    normalisation,
    transposed_product,
    batched,
    depthwise,
    column_maxima,
    grand_total,
    two_products,
    deep_product,
    turned,
)


def drawn(draw: random.Random) -> Computation:
    if draw.random() < 0.4:
        return drawn_computation(draw)
    m, n, k = (te.var(x) if draw.random() < 0.4 else draw.choice([1, 3, 8, 17, 33, 48]) for x in "mnk")
    return draw.choice(KINDS)(m, n, k)


def drawn_sketch(draw: random.Random, output: te.Tensor) -> te.Schedule | None:
    """The generator's schedule with drawn answers, around the default or far from it; None where it is refused."""
    often, target = draw.choice([0.0, 0.1, 0.5, 1.0]), chosen_target(draw.choice(TARGETS))
    knobs = Knobs(otherwise=lambda k: draw.choice(k.options) if draw.random() < often else k.default)
    schedule = te.schedule(output)
    try:
        schedule._commit(sketch(schedule._program, target, knobs))
    except IngotError as error:
        assert error.code is ErrorCode.INVALID_ARGUMENT  # noqa: PT017 - any other one is a fault of the rules
        assert knobs.values, "the default answers are refused"
        return None
    return schedule


def extents_of(draw: random.Random) -> Mapping[str, int]:
    return {"m": draw.choice([1, 2, 5, 9, 20]), "n": draw.choice([1, 3, 16, 19, 40]), "k": draw.choice([1, 4, 7, 18])}


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(150))
def test_a_drawn_sketch_computes_what_numpy_does(seed: int) -> None:
    draw = random.Random(seed)
    computation, extents = drawn(draw), extents_of(draw)
    schedule = drawn_sketch(draw, computation.output)
    if schedule is None:
        return
    numbers = np.random.default_rng(seed)
    arrays = {a: drawn_array(numbers, a, extents) for a in computation.arguments}
    found = interpreted(schedule, arrays, extents)
    np.testing.assert_allclose(found, computation.expected(*arrays.values()), rtol=1e-3, atol=1e-5)


def test_few_answers_are_refused() -> None:
    """A generator that refuses what it offers searches a space of holes."""
    refused = sum(drawn_sketch(draw, drawn(draw).output) is None for draw in map(random.Random, range(500, 560)))
    assert refused <= 6


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(1000, 1020))
def test_so_does_the_code(seed: int) -> None:
    draw = random.Random(seed)
    computation, extents = drawn(draw), extents_of(draw)
    schedule = drawn_sketch(draw, computation.output)
    if schedule is None:
        return
    numbers = np.random.default_rng(seed)
    arrays = [drawn_array(numbers, a, extents) for a in computation.arguments]
    function = te.build(schedule, computation.arguments, threads=2)
    np.testing.assert_allclose(function(*arrays), computation.expected(*arrays), rtol=1e-3, atol=1e-5)
