"""The matrices of Winograd's filtering and their rounding errors."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.schedule.algorithms.winograd.filtering import (
    error_bound,
    filtering,
    is_known,
    measured_error,
)


@pytest.mark.parametrize(
    ("tile", "kernel", "stride"),
    [
        *((2, 3, 1), (3, 3, 1), (4, 3, 1), (2, 5, 1), (3, 2, 1), (2, 3, 2), (4, 3, 2), (3, 5, 2), (2, 3, 3), (2, 7, 3)),
        *((6, 3, 1), (4, 5, 1), (2, 7, 1), (6, 2, 1), (6, 3, 2)),  # along one axis alone
    ],
)
def test_filtering_is_exact_correlation(tile: int, kernel: int, stride: int) -> None:
    f = filtering(tile, kernel, stride)
    random = np.random.default_rng(1)
    data, weight = random.integers(-9, 9, f.size), random.integers(-9, 9, kernel)
    back, scale, forth = (np.array(m, object) for m in (f.output, f.weight, f.data))
    wanted = np.correlate(data, weight, "valid")[::stride]
    assert list(back @ ((scale @ weight) * (forth @ data))) == list(wanted)
    assert np.count_nonzero(back[:, -1]) == back[-1, -1] == 1  # the last point adds to the last output alone


@pytest.mark.parametrize(("tile", "terms"), [(2, 4), (4, 8)])
def test_plain_weights_are_exact_correlation_too(tile: int, terms: int) -> None:
    """Every row of G starts with 1: no more than additions and multiply-adds."""
    f = filtering(tile, 3).with_plain_weights()
    assert [next(c for c in row if c) for row in f.weight] == [1] * f.size
    assert sum(1 for row in f.weight for c in row if c) - f.size == terms
    data, weight = np.arange(f.size) ** 2 - 7, np.array([3, -5, 2])
    back, scale, forth = (np.array(m, object) for m in (f.output, f.weight, f.data))
    assert list(back @ ((scale @ weight) * (forth @ data))) == list(np.correlate(data, weight, "valid"))


@pytest.mark.parametrize(("tile", "kernel", "parts"), [(4, 7, 2), (4, 11, 3), (3, 7, 3), (2, 9, 5), (4, 16, 4)])
def test_the_parts_of_a_long_window_share_what_data_is_transformed_to(tile: int, kernel: int, parts: int) -> None:
    f = filtering(tile, kernel)
    assert (f.parts, f.size, f.reach) == (parts, 2 * tile - 1, parts * tile)
    random = np.random.default_rng(1)
    data, weight = random.integers(-9, 9, tile - 1 + f.reach), random.integers(-9, 9, kernel)
    back, scale, forth = (np.array(m, object) for m in (f.output, f.weight, f.data))
    own = (scale @ weight).reshape(f.size, parts)
    products = sum(own[:, s] * (forth @ data[s * tile : s * tile + f.size]) for s in range(parts))
    assert list(back @ products) == list(np.correlate(data[: tile + kernel - 1], weight, "valid"))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", range(1, 9))
@pytest.mark.parametrize("tile", range(2, 7))
def test_what_is_known_has_matrices(tile: int, kernel: int, stride: int) -> None:
    """Along both axes only what has few points is."""
    assert is_known(tile, kernel, stride, axes=1) or not is_known(tile, kernel, stride)
    if is_known(tile, kernel, stride, axes=1):
        f = filtering(tile, kernel, stride)
        assert f.size == ((tile - 1) * stride + kernel if f.parts == 1 else 2 * tile - 1)
    else:
        with pytest.raises(ValueError, match=r"points|passes over"):
            filtering(tile, kernel, stride)


def test_too_few_points() -> None:
    assert not is_known(6, 3)
    with pytest.raises(ValueError, match="needs 9 points"):
        filtering(8, 3)
    with pytest.raises(ValueError, match="passes over data"):
        filtering(2, 3, 4)


@pytest.mark.parametrize("transforms_weights", [False, True])
@pytest.mark.parametrize(("tile", "stride"), [(2, 1), (4, 1), (2, 2), (4, 2)])
def test_the_bound_is_above_what_is_measured(tile: int, stride: int, transforms_weights: bool) -> None:
    for channels in (32, 256):
        typical = measured_error(tile, 3, channels, stride, transforms_weights=transforms_weights)
        bound = error_bound(tile, 3, channels, stride, transforms_weights=transforms_weights)
        assert 1e-8 < typical < 1e-5
        assert typical < bound < 1e-2
    assert measured_error(2, 3, 64) < measured_error(4, 3, 64)


def test_what_is_asked_for_may_have_all_points() -> None:
    for tile, kernel in [(5, 3), (6, 3), (3, 5), (4, 5)]:
        assert is_known(tile, kernel, asked=True)
        assert not is_known(tile, kernel)
        assert measured_error(4, 3, 128) < measured_error(tile, kernel, 128) < 8 * measured_error(4, 3, 128)
    assert not is_known(7, 3, asked=True)


@pytest.mark.parametrize(("tile", "kernel", "stride"), [(6, 3, 1), (4, 5, 1), (2, 7, 1), (4, 11, 1), (5, 3, 2)])
def test_the_bound_along_one_axis(tile: int, kernel: int, stride: int) -> None:
    typical = measured_error(tile, kernel, 128, stride, 1)
    assert 1e-8 < typical < 1e-5
    assert typical < error_bound(tile, kernel, 128, stride, 1) < 1e-2
