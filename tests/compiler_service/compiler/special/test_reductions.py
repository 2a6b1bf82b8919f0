"""NaN, infinities and zeros of both signs in what looks at many elements: as numpy has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.compiler_service.compiler.special.special_cases import Array, Case, results

NAN, INF = np.nan, np.inf
ROWS = np.array(
    [
        [1, NAN, 3, 2, 0, -1, 5],
        [INF, -INF, 0, 1, 2, 3, 4],
        [-INF] * 7,
        [INF] * 7,
        [NAN] * 7,
        [INF, NAN, -INF, 1, 2, 3, 4],
        [88, 89, -104, 1e30, -1e30, 2, 2],
        [1] * 7,
        [-INF, 1, 2, -INF, NAN, 0, 0],
        [3, 1, 2, 0, -3, 7, NAN],
    ]
)
WIDE = np.tile(ROWS, (1, 5))[:, :33]
"""More than two vectors and a rest."""


def _softmax(x: Array) -> Array:
    with np.errstate(all="ignore"):
        powers = np.exp(x - x.max(-1, keepdims=True))
        shares: Array = powers / powers.sum(-1, keepdims=True)
        return shares


def _last(x: Array, best: Any) -> Array:
    positions: Array = x.shape[-1] - 1 - best(x[:, ::-1], axis=-1)
    return positions


@pytest.mark.sampled
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("kind", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rows", [ROWS, WIDE], ids=["narrow", "wide"])
def test_rows(rows: Array, kind: Any, opt_level: int) -> None:
    x = rows.astype(kind)
    axis = np.array([1])
    wanted: list[tuple[Case, Array]] = [
        (Case("ReduceMax", (x, axis), {"keepdims": 0}), x.max(1)),
        (Case("ReduceMin", (x, axis), {"keepdims": 0}), x.min(1)),
        (Case("Softmax", (x,), {"axis": 1}), _softmax(x.astype(np.longdouble)).astype(kind)),
        (Case("MaxPool", (x[:, None],), {"kernel_shape": [3], "strides": [3]}), _pooled(x)[:, None]),
    ]
    for last, op, best in (
        (0, "ArgMax", np.argmax),
        (0, "ArgMin", np.argmin),
        (1, "ArgMax", np.argmax),
        (1, "ArgMin", np.argmin),
    ):
        attributes = {"axis": 1, "keepdims": 0, "select_last_index": last}
        found = _last(x, best) if last else best(x, axis=1)
        wanted.append((Case(op, (x,), attributes, TensorProto.INT64), found))
    computed = results([case for case, _ in wanted], opt_level)
    for number, (case, expected) in enumerate(wanted):
        for way in ("run", "folded"):
            np.testing.assert_allclose(
                computed[f"{way}{number}"].reshape(expected.shape),
                expected,
                rtol=1e-6,
                atol=1e-37,
                err_msg=f"{case.op} {way}",
            )


def _pooled(x: Array) -> Array:
    whole = x[:, : x.shape[1] // 3 * 3]
    largest: Array = whole.reshape(len(x), -1, 3).max(-1)
    return largest


@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("columns", [1, 40])
def test_what_outweighs_all_else_has_the_logarithm_0(columns: int, opt_level: int) -> None:
    """The exponential of a difference of 0 is 1 to the bit: no logarithm of a share is above 0."""
    x = np.full((5, columns), -400, np.float32)
    x[:, 0] = [-1, 0, 3, 0.1, 1e30]
    axis = np.array([1])
    cases = [Case("LogSoftmax", (x,), {"axis": 1}), Case("ReduceLogSumExp", (x, axis), {"keepdims": 0})]
    computed = results(cases, opt_level)
    for way in ("run", "folded"):
        np.testing.assert_array_equal(computed[f"{way}0"], x - x[:, :1], err_msg=way)
        np.testing.assert_array_equal(computed[f"{way}1"], x[:, 0], err_msg=way)
