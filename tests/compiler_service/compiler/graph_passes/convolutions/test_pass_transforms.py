"""Fourier transforms of many elements are steps of few."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from compiler_service.compiler.graph_passes.convolutions.factor_transforms import FactorTransforms, best_factors
from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, symbol
from shared_ir.graph.ir import Graph, Value
from shared_ir.types import TensorType
from tests.compiler_service.compiler.graph_passes.pass_graphs import feeds, run_passes


def transform(
    shape: tuple[Dim, ...], axis: int = 1, length: int | None = None, *, inverse: int = 0, onesided: int = 0
) -> Graph:
    """``DFT(x)`` as the frontend imports it, in float64."""
    x = Value("x", TensorType(DType.FLOAT64, shape))
    builder = Builder.of(Graph("main", (x,), (), ()))
    along = builder.constant(np.array(axis, np.int64))
    count = () if length is None else (builder.constant(np.array(length, np.int64)),)
    kind = {"inverse": inverse, "onesided": onesided}
    matrix = builder.write("ingot.FourierMatrix", (x, along, *count), kind)
    y = builder.node("ingot.Fourier", x, matrix, along)
    return Graph("main", (x,), (y,), tuple(builder.nodes), dict(builder.added))


def assert_factored(before: Graph, tolerance: float = 1e-12) -> None:
    after = run_passes(before, FactorTransforms(), FoldConstants())
    assert not any(n.op.startswith("ingot.Fourier") for n in after.nodes)
    inputs = feeds(before)
    (wanted,), (found,) = run_graph(before, inputs), run_graph(after, inputs)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("size", [48, 100, 256, 600])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("onesided", [0, 1])
def test_a_transform_of_many_elements_is_several_of_few(size: int, parts: int, onesided: int) -> None:
    assert_factored(transform((2, size, parts), onesided=onesided))


@pytest.mark.parametrize("length", [96, 128, 150])
def test_missing_elements_are_zero_and_those_beyond_the_length_are_left_out(length: int) -> None:
    assert_factored(transform((3, 128, 2), length=length))


def test_inverses() -> None:
    assert_factored(transform((3, 128, 2), inverse=1))


@pytest.mark.parametrize(("bins", "length"), [(65, None), (51, 100), (50, 81), (40, 128)])
def test_real_results_of_half_a_spectrum(bins: int, length: int | None) -> None:
    assert_factored(transform((2, bins, 2), length=length, inverse=1, onesided=1))


@pytest.mark.parametrize("axis", [0, 1, 2, -2, -3])
def test_along_any_axis(axis: int) -> None:
    assert_factored(transform((64, 48, 54, 2), axis))


def test_batches_that_only_the_run_knows() -> None:
    assert_factored(transform((symbol("batch"), symbol("h"), 80, 1), 2, onesided=1))


@pytest.mark.parametrize("shape", [(2, 47, 2), (2, 32, 2), (2, 97, 2), (2, symbol("h"), 2)])
def test_short_ones_primes_and_unknown_lengths_stay_one_product(shape: tuple[Dim, ...]) -> None:
    before = transform(shape)
    assert run_passes(before, FactorTransforms()) is before


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(48, 700).filter(lambda n: len(best_factors(n)) > 1),
    parts=st.sampled_from([1, 2]),
    inverse=st.booleans(),
    onesided=st.booleans(),
)
def test_every_length(size: int, parts: int, inverse: bool, onesided: bool) -> None:
    is_real = inverse and onesided
    own = size // 2 + 1 if is_real else size
    length = size if is_real else None
    shape = (2, own, 2 if is_real else parts)
    assert_factored(transform(shape, length=length, inverse=inverse, onesided=onesided))


@given(st.integers(1, 5000))
@settings(deadline=None)
def test_factors_make_up_the_length_and_none_is_long(size: int) -> None:
    factors = best_factors(size)
    assert math.prod(factors) == size
    assert factors == (size,) or max(factors) <= 256


def test_a_million_elements_are_factored_at_once() -> None:
    assert math.prod(best_factors(1 << 20)) == 1 << 20
    assert max(best_factors(1 << 20)) <= 64


def test_long_primes_are_one_step_of_several_or_stay_whole() -> None:
    assert 97 in best_factors(97 * 64)
    assert best_factors(257 * 64) == (257 * 64,)
