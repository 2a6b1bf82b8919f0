"""Results of very different magnitudes: each is compared by what it is, and orders of adding up are still no difference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_service.compiler.tune.measuring.contents import TOLERANCES, disagreement
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType


def differs(expected: np.ndarray, found: np.ndarray, dtype: DType = DType.FLOAT32) -> bool:
    one, other = (array.astype(storage_dtype(dtype)).tobytes() for array in (expected, found))
    return bool(disagreement(one, other, dtype))


@pytest.mark.parametrize(
    ("mask", "dtype"),
    [
        (-1e9, DType.FLOAT32),
        (-1e4, DType.FLOAT32),
        (-3.4e38, DType.FLOAT32),
        (-65504.0, DType.FLOAT16),
        (-1e30, DType.BFLOAT16),
        (-1e9, DType.FLOAT64),
    ],
)
def test_what_a_mask_leaves_is_compared(mask: float, dtype: DType) -> None:
    numbers = np.random.default_rng(1)
    x = numbers.uniform(-1, 1, 4096)
    masked = np.where(x > 0.9, x + mask, np.exp(x))
    assert not differs(masked, masked * (1 - TOLERANCES[dtype] / 3), dtype)
    assert differs(masked, np.where(x > 0.9, masked, x), dtype)
    assert differs(masked, np.where(x > 0.9, masked / 2, masked), dtype)


def test_zeros_beside_a_mask_are_compared() -> None:
    mask = np.where(np.arange(100) % 3 == 0, -1e9, 0.0)
    assert not differs(mask, mask.copy())
    assert differs(mask, np.where(mask == 0, 5.0, mask))


def test_zeros_of_what_is_cut_off_may_be_rounding() -> None:
    x = np.maximum(np.random.default_rng(1).uniform(-1, 1, 1000), 0)
    assert not differs(x, np.where(x == 0, 1e-8, x))
    assert differs(x, np.where(x == 0, 0.1, x))


def test_what_happens_to_cancel_out_is_rounding() -> None:
    x = np.random.default_rng(1).uniform(0.5, 1, 1000)
    x[:5] = [1e-7, 3e-8, -2e-7, 1e-9, 0]
    other = x.copy()
    other[:5] = [-1e-7, 0, 2e-8, 5e-8, 1e-9]
    assert not differs(x, other)


def test_so_is_what_cancels_out_in_many_places() -> None:
    """Sums of terms of which half are the others with another sign."""
    numbers = np.random.default_rng(2)
    half = numbers.uniform(-1, 1, (300, 256)).astype(np.float32)
    terms = np.concatenate([half, -half], 1)
    terms[::2, 256:] = numbers.uniform(-1, 1, (150, 256))
    one = terms[:, numbers.permutation(512)].cumsum(1, dtype=np.float32)[:, -1]
    other = terms[:, numbers.permutation(512)].cumsum(1, dtype=np.float32)[:, -1]
    assert np.abs(one[1::2]).max() < 1e-3 * np.median(np.abs(one[::2]))
    assert not differs(one, other)


@given(
    st.lists(st.integers(-28, 28), min_size=1, max_size=5),
    st.integers(1, 40),
    st.integers(1, 200),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_orders_of_adding_up_are_no_difference(
    powers: list[int], rows: int, terms: int, is_cut_off: bool, seed: int
) -> None:
    numbers = np.random.default_rng(seed)
    scale = np.repeat(10.0 ** np.array(powers), rows)[:, None]
    x = (numbers.uniform(-1, 1, (scale.size, terms)) * scale).astype(np.float32)
    one = x.cumsum(1, dtype=np.float32)[:, -1]
    other = x[:, numbers.permutation(terms)].cumsum(1, dtype=np.float32)[:, -1]
    if is_cut_off:
        one, other = np.maximum(one, 0), np.maximum(other, 0)
    assert not differs(one, other)


@given(st.integers(10, 200), st.floats(1, 60), st.integers(0, 2**32))
def test_neither_are_they_behind_an_exponential(terms: int, width: float, seed: int) -> None:
    numbers = np.random.default_rng(seed)
    weights = (numbers.uniform(-1, 1, (64, terms)) * width / terms).astype(np.float32)
    order = numbers.permutation(terms)
    one, other = (np.exp(w.cumsum(1, dtype=np.float32)[:, -1]) for w in (weights, weights[:, order]))
    assert not differs(one / one.sum(), other / other.sum())
