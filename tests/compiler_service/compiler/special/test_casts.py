"""float64 becomes a narrower float with one rounding, at every level, folded and computed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from tests.compiler_service.compiler.special.special_cases import Array, Case, results, units

KINDS: dict[Any, int] = {np.float16: TensorProto.FLOAT16, ml_dtypes.bfloat16: TensorProto.BFLOAT16}


def beside_ties(kind: Any) -> Array:
    """float64 on, just below and just above what is in the middle between two numbers of ``kind``."""
    step = float(ml_dtypes.finfo(kind).eps)
    middle = 1 + np.arange(16) * step + step / 2
    scaled = (middle * 2.0 ** np.array([[-14], [-3], [0], [5]])).ravel()
    return np.concatenate([scaled, scaled * (1 + 2.0**-40), -scaled * (1 - 2.0**-40)])


def nearest(x: float, kind: Any) -> Any:
    """The number of ``kind`` next to ``x``, the even one of two."""
    close = np.array(x).astype(kind)
    bits = int(close.view(f"u{close.itemsize}"))
    numbers = [np.array(b, f"u{close.itemsize}").view(kind) for b in (bits - 1, bits, bits + 1)]
    return min(numbers, key=lambda n: (abs(Fraction(float(n)) - Fraction(x)), int(n.view(f"u{n.itemsize}")) & 1))


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["Cast", "CastLike"])
def test_doubles_are_rounded_once(op: str, kind: Any, opt_level: int) -> None:
    x = beside_ties(kind)
    case = Case("Cast", (x,), {"to": KINDS[kind]}, KINDS[kind])
    if op == "CastLike":
        case = Case(op, (x, np.zeros((), kind)), {}, KINDS[kind])
    found = results([case], opt_level)
    expected = np.array([nearest(n, kind) for n in x.tolist()])
    for result in found.values():
        assert not units(np.asarray(result), expected).any()


@pytest.mark.parametrize("opt_level", [0, 3])
def test_doubles_just_below_what_overflows(opt_level: int) -> None:
    found = results(
        [Case("Cast", (np.array([65519.999999999]),), {"to": TensorProto.FLOAT16}, TensorProto.FLOAT16)], opt_level
    )
    assert found["run0"].tolist() == found["folded0"].tolist() == [65504.0]
