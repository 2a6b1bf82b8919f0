"""Strides of tensors that are part of larger ones, and of the same elements under other shapes."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings
from numpy.lib.stride_tricks import as_strided

from compiler_service.compiler.tensor_expr.strides import merges, reshaped, row_major, span, with_gaps
from shared_ir.expr import Var
from shared_ir.expr.dim import as_dim

N = Var("n")


@st.composite
def slices(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape and the strides of a slice of a larger tensor."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    larger = tuple(d + draw(st.sampled_from([0, 0, 1, 3])) for d in shape)
    return shape, tuple(int(str(s)) for s in row_major(larger))


@settings(deadline=None)
@given(slices(), st.data())
def test_reshaped_strides_are_those_of_numpy(
    given_slice: tuple[tuple[int, ...], tuple[int, ...]], data: st.DataObject
) -> None:
    shape, strides = given_slice
    size = int(np.prod(shape))
    new: list[int] = []
    while size > 1 and len(new) < 5:
        new.append(data.draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0])))
        size //= new[-1]
    new.append(size)
    memory = np.arange(int(str(span(shape, strides))), dtype=np.int64)
    array = as_strided(memory, shape, [s * 8 for s in strides])
    found = reshaped(shape, strides, new)
    try:
        view = array.view()
        view.shape = tuple(new)  # numpy refuses to copy here
    except AttributeError:
        assert found is None
    else:
        assert found is not None
        np.testing.assert_array_equal(as_strided(memory, new, [int(str(s)) * 8 for s in found]), view)


def test_symbols_pass_through() -> None:
    shape, strides = (N, 4, 16), row_major((N, 4, 48))
    assert reshaped(shape, strides, (as_dim(N * 4), 16)) == (48, 1)
    assert reshaped(shape, strides, (N, 2, 2, 16)) == (192, 96, 48, 1)
    assert reshaped(shape, strides, (N, 1, 4, 16)) == (192, 1, 48, 1)
    assert reshaped(shape, strides, (N, 64)) is None
    assert reshaped((N, N), (N * 3, 1), (as_dim(N * N),)) is None


def test_gaps_are_told_from_axes_of_one_element() -> None:
    assert with_gaps((1, 4, 16), (4096, 16, 1)) is None
    assert with_gaps((2, 4, 16), (4096, 16, 1)) == (4096, 16, 1)
    assert with_gaps((3, 1), (1, 7)) is None
    assert with_gaps((2, 3), None) is None


def test_memory_ends_with_the_last_element() -> None:
    assert span((2, 3), None) == 6
    assert span((2, 3), (10, 1)) == 13
    assert span((N, 3), (10, 1)) == as_dim(N * 10 - 7)
    assert merges((2, 3), (3, 1), 0)
    assert not merges((2, 3), (4, 1), 0)
