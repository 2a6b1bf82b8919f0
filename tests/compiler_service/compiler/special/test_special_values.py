"""An operator that is folded and one that is computed give the same numbers, at every level, and the right ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

from tests.cases import every
from tests.compiler_service.compiler.special.special_cases import (
    ELEMENTARY,
    ONNX_TYPES,
    Array,
    Case,
    cases,
    is_integer,
    model,
    results,
    units,
)

KINDS = [kind for kind in ONNX_TYPES if kind is not np.bool_]
MOST_UNITS = 2.5
ABSOLUTE = frozenset({"Gelu", "HardSwish", "HardSigmoid", "Swish"})
"""Sums of numbers of opposite sign, or a quick exponential: accurate beside the largest of them, or beside x."""


@cache
def computed(kind: Any, opt_level: int) -> dict[str, Array]:
    return results(cases(kind), opt_level)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", every(KINDS, quick=(np.float32, np.int32)))
def test_folded_and_computed_agree(kind: Any) -> None:
    plain, optimised = computed(kind, 0), computed(kind, 3)
    for number, case in enumerate(cases(kind)):
        most = MOST_UNITS if case.op in ELEMENTARY else 0
        truth = optimised[f"run{number}"]
        for other, allowed in (
            (plain[f"run{number}"], 0),
            (plain[f"folded{number}"], most),
            (optimised[f"folded{number}"], most),
        ):
            error = units(truth, other)
            worst = int(np.argmax(error))
            operands = [a[worst] if a.ndim else a for a in case.operands]
            assert error[worst] <= allowed, f"{case.op}{operands}: {truth[worst]!r} and {other[worst]!r}"


def _pow(x: Array, y: Array) -> Array:
    return np.power(x, y)


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.expm1(x))


_erf = np.frompyfunc(math.erf, 1, 1)

TRUTH: Mapping[str, Callable[..., Array]] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Ceil": np.ceil,
    "Celu": _elu,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Elu": _elu,
    "Erf": lambda x: _erf(x.astype(np.float64)).astype(np.float64),
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "Mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "Neg": np.negative,
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: np.where(x < 0, 0, x),
    "Round": np.rint,
    "Selu": lambda x: (
        np.float32(1.05070102214813232421875) * np.where(x > 0, x, np.float32(1.67326319217681884765625) * np.expm1(x))
    ),
    "Sigmoid": lambda x: np.where(x < 0, np.exp(-np.abs(x)), 1) / (1 + np.exp(-np.abs(x))),
    "Sign": lambda x: np.where(x == 0, 0, np.sign(x)),
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": _pow,
    "Mod": np.fmod,
}


@pytest.mark.parametrize("kind", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_numbers_are_right(kind: Any) -> None:
    """In extended precision; what is less than the least normal number may be 0."""
    found = computed(kind, 3)
    tiny = np.finfo(kind).tiny
    for number, case in enumerate(cases(kind)):
        if case.op not in TRUTH:
            continue
        with np.errstate(all="ignore"):
            truth = np.asarray(TRUTH[case.op](*(a.astype(np.longdouble) for a in case.operands)), np.longdouble)
            rounded = truth.astype(kind)
        got = found[f"run{number}"]
        error = units(got, rounded)
        least = tiny * (np.maximum(1, np.abs(case.operands[0])) if case.op == "Mish" else 1)
        flushed = (np.abs(truth) < least) & (np.abs(got) <= np.abs(rounded)) & (np.signbit(got) == np.signbit(rounded))
        error[flushed] = 0
        worst = int(np.argmax(error))
        operands = [a[worst] if a.ndim else a for a in case.operands]
        assert error[worst] <= MOST_UNITS, f"{case.op}{operands} = {got[worst]!r}, truth {truth[worst]!r}"


UNDEFINED = frozenset({"Cast", "Pow", "Max", "Min", "Sigmoid"})
"""Out of the range of integers, to negative powers of integers, of zeros of both signs; ONNX Runtime's Sigmoid is 0 at -20."""


@pytest.mark.parametrize("kind", every([np.float32, np.float64, np.int32, np.int64], quick=(np.float32,)))
def test_onnxruntime_agrees(kind: Any) -> None:
    for number, case in enumerate(cases(kind)):
        traps = is_integer(kind) and case.op in ("Div", "Mod")  # there, for the least number and -1
        if case.op in UNDEFINED or traps or not _can_run(case):
            continue
        expected = _session(case).run(None, {f"run0_{i}": a for i, a in enumerate(case.operands) if a.ndim})[0]
        got = computed(kind, 3)[f"run{number}"]
        if expected.dtype.kind == "f":
            scale = max(np.finfo(kind).eps * 8, 1e-6 if case.op in ABSOLUTE else 0)
            np.testing.assert_allclose(got, expected, rtol=scale, atol=scale, err_msg=case.op)
        else:
            np.testing.assert_array_equal(got, expected, err_msg=case.op)


def _session(case: Case) -> onnxruntime.InferenceSession:
    proto, _ = model([case])
    graph = proto.graph
    del graph.node[1:], graph.output[1:]
    kept = [c for c in graph.initializer if c.name.startswith("run")]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _can_run(case: Case) -> bool:
    try:
        _session(case)
    except Exception:  # it has no kernel for the type
        return False
    return True


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_subnormal_halves_are_kept(kind: Any) -> None:
    info = ml_dtypes.finfo(kind)
    x = np.array([info.smallest_subnormal, -info.smallest_subnormal, 0.0] * 5).astype(kind)
    found = results([Case("Sign", (x,)), Case("Ceil", (x,)), Case("Greater", (x, np.zeros_like(x)))], 3)
    assert found["run0"].astype(float).tolist() == [1.0, -1.0, 0.0] * 5
    assert found["run1"].astype(float).tolist() == [1.0, 0.0, 0.0] * 5
    assert found["run2"].tolist() == [True, False, False] * 5
