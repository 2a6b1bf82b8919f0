"""Elementary functions: at most 2.5 units in the last place from the truth, special values as C's Annex F has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.jit import JitKernel
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Const, Unary, UnaryOp
from shared_ir.machine.target import Target, parse_target
from tests.compiler_service.compiler.codegen.loop_kernels import elementwise

Array = np.ndarray[Any, Any]
LARGEST_ERROR = 2.5
CIRCULAR = (UnaryOp.SIN, UnaryOp.COS, UnaryOp.TAN)


def _erf(x: Array) -> Array:
    """In extended precision: the series where it converges without cancellation, else the continued fraction."""
    x = np.asarray(x, np.longdouble)
    a = np.minimum(np.abs(x), 12.0)
    square = a * a
    term = total = a
    for k in range(1, 90):  # erf(x) = 2/sqrt(pi) exp(-x^2) sum 2^k x^(2k+1) / (2k+1)!!
        term = term * (2 * square) / (2 * k + 1)
        total = total + term
    root_pi = np.sqrt(np.longdouble(math.pi) + np.longdouble(1.2246467991473531772e-16))
    series = 2 / root_pi * np.exp(-square) * total
    far = np.maximum(a, 2.5)
    fraction = np.zeros_like(far)
    for k in range(120, 0, -1):  # erfc(x) = exp(-x^2)/sqrt(pi) / (x + (1/2)/(x + (2/2)/(x + ...
        fraction = (np.longdouble(k) / 2) / (far + fraction)
    tail = 1 - np.exp(-far * far) / root_pi / (far + fraction)
    values: np.ndarray[Any, Any] = np.copysign(np.where(a < 2.5, series, tail), x) + np.where(np.isnan(x), np.nan, 0)
    return values


def _sigmoid(x: Array) -> Array:
    return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))


TRUTH: Mapping[UnaryOp, Callable[[Array], Array]] = {
    UnaryOp.EXP: np.exp,
    UnaryOp.EXPM1: np.expm1,
    UnaryOp.LOG: np.log,
    UnaryOp.TANH: np.tanh,
    UnaryOp.SIGMOID: _sigmoid,
    UnaryOp.ERF: _erf,
    UnaryOp.SIN: np.sin,
    UnaryOp.COS: np.cos,
    UnaryOp.TAN: np.tan,
    UnaryOp.ASIN: np.arcsin,
    UnaryOp.ACOS: np.arccos,
    UnaryOp.ATAN: np.arctan,
    UnaryOp.SINH: np.sinh,
    UnaryOp.COSH: np.cosh,
    UnaryOp.ASINH: np.arcsinh,
    UnaryOp.ACOSH: np.arccosh,
    UnaryOp.ATANH: np.arctanh,
}


def samples(op: UnaryOp, dtype: DType, count: int = 4096) -> Array:
    """Random bit patterns, the ranges where the function moves, its difficult points, and the special values."""
    rng = np.random.default_rng(11)
    kind: Any = dtype.numpy.type
    info = np.finfo(kind)
    patterns = rng.integers(0, 256, count * dtype.itemsize).astype(np.uint8).view(kind)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0]
    edges = [s * v for v in (info.tiny, info.smallest_subnormal, info.max, info.eps) for s in (1, -1)]
    parts = [
        patterns,
        rng.uniform(-1, 1, count),
        rng.standard_normal(count) * 10,
        rng.uniform(-800, 800, count),
        rng.uniform(-1e5, 1e5, count),
        np.arange(count) * (math.pi / 4),  # near the zeros of sine and cosine
        1 + rng.standard_normal(count) * 1e-3,  # near the zero of the logarithm
        rng.uniform(1, 20, count),
        np.array(special + edges),
    ]
    with np.errstate(all="ignore"):
        x = np.concatenate([np.asarray(p).astype(kind) for p in parts])
    return np.resize(x, -(-len(x) // 16) * 16)


def error_in_ulps(got: Array, truth: Array) -> Array:
    with np.errstate(all="ignore"):
        rounded = truth.astype(got.dtype)
        spacing = np.abs(np.spacing(np.where(np.isfinite(rounded), rounded, 1).astype(got.dtype))).astype(np.longdouble)
        error = np.abs(got.astype(np.longdouble) - truth) / spacing
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return np.where(same & ~np.isfinite(error), 0.0, np.where(np.isfinite(error), error, np.inf))


def run_unary(op: UnaryOp, x: Array, lanes: int, target: Target) -> Array:
    function = elementwise({"x": DType.of(x)}, {"y": lambda a: Unary(op, a)}, lanes)
    y = np.zeros_like(x)
    JitKernel(function, target)([x, y], {"n": len(x)})
    return y


def check(op: UnaryOp, dtype: DType, lanes: int, target: Target) -> None:
    x = samples(op, dtype)
    y = run_unary(op, x, lanes, target)
    with np.errstate(all="ignore"):
        truth = TRUTH[op](x.astype(np.longdouble))
        error = error_in_ulps(y, truth)
    worst = int(np.argmax(error))
    assert error[worst] <= LARGEST_ERROR, f"{op}({x[worst]!r}) = {y[worst]!r}, truth {truth[worst]!r}"


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64])
@pytest.mark.parametrize("op", TRUTH)
def test_functions_are_near_the_truth(op: UnaryOp, dtype: DType, host: Target) -> None:
    check(op, dtype, 16, host)


@pytest.mark.parametrize("op", TRUTH)
def test_functions_do_not_depend_on_fma(op: UnaryOp, host: Target) -> None:
    if host.architecture != "x86_64":
        pytest.skip("runs code of an older x86-64 level")
    old = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64")
    for dtype in (DType.FLOAT32, DType.FLOAT64):
        check(op, dtype, 4, old)


HARD = (
    1e22,
    6381956970095103 * 2.0**797,
    5.319372648326541e255,
    16367173 * 2.0**72,
    2.0**20,
    1048576.5,
    2.0**20 + 2.0**-30,
)
"""Arguments that come very near to a multiple of pi/2, and those where the way to reduce them changes."""


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64])
@pytest.mark.parametrize("op", CIRCULAR)
def test_circular_functions_of_any_argument(op: UnaryOp, dtype: DType, lanes: int, host: Target) -> None:
    rng = np.random.default_rng(2)
    kind: Any = dtype.numpy.type
    largest = float(np.finfo(kind).max)
    sizes = [*10.0 ** rng.uniform(5, math.log10(largest), 241), *(h for h in HARD if h < largest), largest, np.inf]
    x = np.array([s * sign for s in sizes for sign in (1, -1)] + [1.0, -0.0]).astype(kind)
    x = np.resize(x, -(-len(x) // 16) * 16)
    found = run_unary(op, x, lanes, host)
    with np.errstate(all="ignore"):
        error = error_in_ulps(found, TRUTH[op](x.astype(np.longdouble)))
    worst = int(np.argmax(error))
    assert error[worst] <= LARGEST_ERROR, f"{op}({x[worst]!r}) = {found[worst]!r}"
    assert np.signbit(run_unary(UnaryOp.SIN, np.full(16, -0.0, kind), lanes, host)).all()


@pytest.mark.parametrize("op", TRUTH)
def test_lane_count_does_not_change_the_result(op: UnaryOp, host: Target) -> None:
    x = samples(op, DType.FLOAT32, 64)
    scalar = run_unary(op, x, 1, host)
    np.testing.assert_array_equal(scalar, run_unary(op, x, 8, host))


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64])
@pytest.mark.parametrize("op", [BinaryOp.POW, BinaryOp.ATAN2])
def test_binary_functions(op: BinaryOp, dtype: DType, host: Target) -> None:
    rng = np.random.default_rng(5)
    kind: Any = dtype.numpy.type
    special = np.array(
        [0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30]
    )
    count = 1000
    base = [rng.uniform(0, 10, count), np.exp(rng.uniform(-80, 80, count)), rng.standard_normal(count)]
    exponent = [rng.uniform(-20, 20, count), rng.uniform(-1, 1, count), rng.integers(-9, 9, count)]
    x = np.concatenate([*base, np.repeat(special, len(special))]).astype(kind)
    y = np.concatenate([*exponent, np.tile(special, len(special))]).astype(kind)
    x, y = (np.resize(v, -(-len(v) // 16) * 16) for v in (x, y))
    function = elementwise({"x": dtype, "y": dtype}, {"z": lambda a, b: Binary(op, a, b)}, 16)
    z = np.zeros_like(x)
    JitKernel(function, host)([x, y, z], {"n": len(x)})
    reference = np.power if op is BinaryOp.POW else np.arctan2
    with np.errstate(all="ignore"):
        truth = reference(x.astype(np.longdouble), y.astype(np.longdouble))
        own = reference(x, y)
        error = error_in_ulps(z, truth)
        # where the extended type reaches further than this one, numpy's own answer decides
        error = np.where((own == z) | (np.isnan(own) & np.isnan(z)), 0, error)
    worst = int(np.argmax(error))
    assert error[worst] <= LARGEST_ERROR, f"{op}({x[worst]!r}, {y[worst]!r}) = {z[worst]!r}, truth {truth[worst]!r}"
    assert np.array_equal(np.signbit(z[z == 0]), np.signbit(own[z == 0]))


@pytest.mark.parametrize("exponent", [-1.0, 0.5, 1.0, 2.0, 3.0])
def test_simple_powers_need_no_logarithm(exponent: float, host: Target) -> None:
    x = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, 7.25], np.float32)
    function = elementwise(
        {"x": DType.FLOAT32}, {"y": lambda a: Binary(BinaryOp.POW, a, Const(exponent, DType.FLOAT32))}, 1
    )
    y = np.zeros_like(x)
    JitKernel(function, host)([x, y], {"n": len(x)})
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(y, np.power(x, np.full(len(x), exponent, np.float32)), rtol=2e-7)
