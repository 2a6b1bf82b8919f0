"""Kernels without reductions: how many elements a vector has."""

from __future__ import annotations

import pytest

from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.steps import Split, Vectorize
from compiler_service.compiler.tensor_expr.tensor import Tensor, compute, placeholder
from shared_ir.dtype import DType
from shared_ir.expr import Expr, maximum, minimum, select
from shared_ir.expr.dim import symbol
from tests.compiler_service.compiler.schedule.kernels import AVX512, check

n, m = symbol("n"), symbol("m")


def moved(dtype: DType, place: str) -> Tensor:
    """A row of ``dtype`` whose elements are read at a place of the kind that is asked for."""
    x, indices = placeholder("x", (m,), dtype), placeholder("indices", (n,), DType.INT64)

    def at(i: Expr) -> Expr:
        match place:
            case "in place":
                return i
            case "backwards":
                return m - 1 - i
            case "every second":
                return i * 2
            case "clamped":
                return minimum(maximum(i - 3, 0), m - 1)
            case "reflected":
                return select(i < m, i, 2 * m - 2 - i)
            case "divided":
                return i % m
            case _:
                return indices[i]

    return compute((n,), lambda i: x[at(i)], name="moved")


def width(output: Tensor) -> int:
    steps = default_schedule(output, frozenset(), AVX512)
    assert any(isinstance(s, Vectorize) for s in steps)
    return min(s.factor for s in steps if isinstance(s, Split))


@pytest.mark.parametrize("place", ["in place", "backwards", "every second"])
def test_bytes_at_plain_steps_fill_a_register(place: str) -> None:
    assert width(moved(DType.UINT8, place)) == 64


@pytest.mark.parametrize("place", ["clamped", "reflected", "divided", "given"])
def test_bytes_at_calculated_places_are_as_many_as_the_places_of_a_register(place: str) -> None:
    assert width(moved(DType.UINT8, place)) == 8
    assert width(moved(DType.FLOAT32, place)) == 16


@pytest.mark.slow
@pytest.mark.parametrize("place", ["clamped", "reflected", "divided"])
def test_bytes_at_calculated_places_are_what_the_expression_says(place: str) -> None:
    for sizes in ({"n": 1, "m": 1}, {"n": 70, "m": 40}, {"n": 129, "m": 129}):
        for after_passes in (False, True):
            check(moved(DType.UINT8, place), sizes, AVX512, frozenset(), after_passes=after_passes)
