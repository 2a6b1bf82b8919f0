"""The matrices of Winograd's filtering and their rounding errors."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.tensor_expr.winograd import error_bound, filtering, measured_error


@pytest.mark.parametrize(("tile", "kernel"), [(2, 3), (3, 3), (4, 3), (2, 5), (3, 2)])
def test_filtering_is_exact_correlation(tile: int, kernel: int) -> None:
    f = filtering(tile, kernel)
    random = np.random.default_rng(1)
    data, weight = random.integers(-9, 9, f.size), random.integers(-9, 9, kernel)
    back, scale, forth = (np.array(m, object) for m in (f.output, f.weight, f.data))
    assert list(back @ ((scale @ weight) * (forth @ data))) == list(np.correlate(data, weight, "valid"))


def test_too_few_points() -> None:
    with pytest.raises(ValueError, match="needs 7 points"):
        filtering(6, 3)


@pytest.mark.parametrize("tile", [2, 4])
def test_the_bound_is_above_what_is_measured(tile: int) -> None:
    for channels in (32, 256):
        typical, bound = measured_error(tile, 3, channels), error_bound(tile, 3, channels)
        assert 1e-8 < typical < 1e-5
        assert typical < bound < 1e-2
    assert measured_error(2, 3, 64) < measured_error(4, 3, 64)
