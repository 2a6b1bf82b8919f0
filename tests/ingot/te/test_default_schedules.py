"""The rules' choice is a schedule like others: it prints, computes the same, and can be gone on with."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ingot import te
from tests.ingot.te.computations import drawn_array, drawn_computation, interpreted

N = te.var("n")
A, B, G = te.placeholder((N, 64), name="a"), te.placeholder((64, 32), name="b"), te.placeholder((64,), name="g")
SERVER = "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512"


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(25))
def test_it_computes_what_numpy_does(seed: int) -> None:
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    computation = drawn_computation(draw)
    extents = {"m": draw.choice([1, 9, 20]), "n": draw.choice([1, 19, 40]), "k": draw.choice([1, 7, 18])}
    arrays = {a: drawn_array(numbers, a, extents) for a in computation.arguments}
    found = interpreted(te.default_schedule(computation.output), arrays, extents)
    np.testing.assert_allclose(found, computation.expected(*arrays.values()), rtol=1e-4, atol=1e-5)


def test_a_product_keeps_a_tile_in_registers_with_what_follows_it() -> None:
    out = te.nn.relu(te.nn.mat_mul(A, B))
    s = te.default_schedule(out, target=SERVER)
    assert list(te.lower(s, [A, B], SERVER).functions) == ["relu"]
    steps = str(s).splitlines()
    assert "compute_at('matmul', 'relu', 'i0.12', 'stack')" in steps
    assert "unroll('matmul', 'm')" in steps


def test_each_product_is_a_nest_and_all_of_softmax_another() -> None:
    hidden = te.nn.relu(te.nn.mat_mul(A, B))
    out = te.nn.softmax(te.nn.mat_mul(hidden, te.placeholder((32, 8), name="c")))
    assert [line for line in str(te.default_schedule(out, target=SERVER)).splitlines() if line.endswith(":")] == [
        "relu:",
        "matmul_2:",
        "softmax:",
    ]


ROWS, TURNED = te.placeholder((48, 64), name="r"), te.placeholder((32, 64), name="t")
WINDOWS = te.placeholder((6, 3, 3, 64), name="w")
IMAGE = te.placeholder((8, 8, 64), name="x")


@pytest.mark.parametrize(
    ("out", "args"),
    [
        (te.sum((48, 32), 64, lambda i, j, k: ROWS[i, k] * TURNED[j, k], name="y"), (ROWS, TURNED)),
        (te.sum((48, 48), 64, lambda i, j, k: ROWS[i, k] * ROWS[j, k], name="y"), (ROWS,)),
        (
            te.sum(
                (6, 6, 6), (3, 3, 64), lambda y, x, o, a, b, c: IMAGE[y + a, x + b, c] * WINDOWS[o, a, b, c], name="y"
            ),
            (IMAGE, WINDOWS),
        ),
    ],
    ids=["turned", "with itself", "windows"],
)
def test_a_product_reads_an_operand_that_lies_along_the_sum_through_a_turned_copy(
    out: te.Tensor, args: tuple[te.Tensor, ...]
) -> None:
    s = te.default_schedule(out, target=SERVER)
    assert f"vectorize('{args[-1].name}.local'" in str(s)
    assert "unroll('y.acc'" in str(s), "a tile stays in registers"
    numbers = np.random.default_rng(3)
    arrays = {a: drawn_array(numbers, a, {}) for a in args}
    plain = interpreted(te.schedule(out), arrays, {})
    np.testing.assert_allclose(interpreted(s, arrays, {}), plain, rtol=1e-5)
    np.testing.assert_allclose(te.build(te.default_schedule(out), args)(*arrays.values()), plain, rtol=1e-5)


def test_rows_that_are_normalised_are_one_nest() -> None:
    out = te.nn.layer_normalization(A, G)[0]
    assert list(te.lower(te.default_schedule(out), [A, G]).functions) == ["scaled"]


def test_it_can_be_gone_on_with() -> None:
    total = te.sum((N, 32), 64, lambda i, j, k: A[i, k] * B[k, j], name="total")
    s = te.default_schedule(total)
    s["total.acc"].prefetch(B, "k", 8)
    assert "fetch_next('total.acc', 'k', 'b', 'k', 8, '', ())" in str(s)
    a, b = np.random.default_rng(0).random((7, 64), np.float32), np.random.default_rng(1).random((64, 32), np.float32)
    np.testing.assert_allclose(te.build(s, [A, B])(a, b), a @ b, rtol=1e-5)
