"""Every operator on every element type and lane count, against the numpy semantics of the scalar operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.jit import JitKernel
from compiler_service.compiler.tensor_expr.domains import takes
from compiler_service.compiler.tensor_expr.meaning.scalar_semantics import BINARY, UNARY
from compiler_service.compiler.tensor_expr.meaning.scalar_semantics import cast as numpy_cast
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Cast, Unary, UnaryOp
from shared_ir.machine.target import Target, parse_target
from tests.cases import every
from tests.compiler_service.compiler.codegen.loop_kernels import elementwise

Array = np.ndarray[Any, Any]

FLOATS = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)
INTEGERS = tuple(DType(f"{sign}int{n}") for sign in ("", "u") for n in (8, 16, 32, 64))
TYPES = (DType.BOOL, *INTEGERS, *FLOATS)

EXACT_UNARY = {
    UnaryOp.NEG,
    UnaryOp.ABS,
    UnaryOp.FLOOR,
    UnaryOp.CEIL,
    UnaryOp.ROUND,
    UnaryOp.TRUNC,
    UnaryOp.SQRT,
    UnaryOp.RECIPROCAL,
    UnaryOp.IS_NAN,
    UnaryOp.IS_INF,
}
INTEGER_UNARY = {UnaryOp.NEG, UnaryOp.ABS, UnaryOp.BIT_NOT, UnaryOp.POPCOUNT}
FLOAT_UNARY = set(UnaryOp) - {UnaryOp.NOT, UnaryOp.BIT_NOT, UnaryOp.POPCOUNT}
COMPARISONS = {BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE, BinaryOp.EQ, BinaryOp.NE}
LOGICAL = {BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR}
FLOAT_BINARY = {
    BinaryOp.ADD,
    BinaryOp.SUB,
    BinaryOp.MUL,
    BinaryOp.DIV,
    BinaryOp.TRUNC_MOD,
    BinaryOp.FLOOR_MOD,
    BinaryOp.MIN,
    BinaryOp.MAX,
    BinaryOp.POW,
    BinaryOp.ATAN2,
    *COMPARISONS,
}
INTEGER_BINARY = set(BinaryOp) - {BinaryOp.DIV, BinaryOp.ATAN2}
NOT_EXACT = {BinaryOp.POW, BinaryOp.ATAN2}


def operators(dtype: DType) -> tuple[list[UnaryOp], list[BinaryOp]]:
    if dtype is DType.BOOL:
        return [UnaryOp.NOT], sorted(LOGICAL | COMPARISONS | {BinaryOp.MIN, BinaryOp.MAX})
    if dtype.is_float:
        return sorted(FLOAT_UNARY), sorted(FLOAT_BINARY)
    return sorted(INTEGER_UNARY), sorted(
        INTEGER_BINARY - (set() if dtype is DType.INT32 else {BinaryOp.DOT4, BinaryOp.SIGNED_DOT4})
    )


def operands(dtype: DType, count: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(7)
    storage = storage_dtype(dtype)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, count).astype(bool), rng.integers(0, 2, count).astype(bool)
    if dtype.is_float:
        x = np.where(rng.random(count) < 0.5, rng.standard_normal(count), rng.uniform(-60, 60, count))
        y = np.where(rng.random(count) < 0.5, rng.standard_normal(count), rng.integers(-4, 5, count))
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.5, 2.0])
        x[: len(special) ** 2] = np.repeat(special, len(special))
        y[: len(special) ** 2] = np.tile(special, len(special))
        return x.astype(storage), y.astype(storage)
    info = np.iinfo(storage)
    x = rng.integers(info.min, info.max, count, dtype=storage, endpoint=True)
    y = rng.integers(info.min, info.max, count, dtype=storage, endpoint=True)
    small = rng.integers(0, dtype.bits + 3, count).astype(storage)
    y = np.where(rng.random(count) < 0.5, small, y)
    corners = np.array([info.min, info.max, 0, 1, info.max if info.min == 0 else -1], storage)
    x[: len(corners) ** 2] = np.repeat(corners, len(corners))
    y[: len(corners) ** 2] = np.tile(corners, len(corners))
    return x, y


def assert_same(name: str, got: Array, expected: Array, x: Array, y: Array, ulps: float) -> None:
    if got.dtype.kind not in "fV" and got.dtype != ml_dtypes.bfloat16:
        wrong = got != expected
    else:
        wide, reference = got.astype(np.float64), expected.astype(np.float64)
        spacing = np.abs(np.spacing(np.abs(expected)).astype(np.float64))
        with np.errstate(all="ignore"):
            near = np.abs(wide - reference) <= ulps * spacing
        wrong = ~(near | (wide == reference) | (np.isnan(wide) & np.isnan(reference)))
    at = np.flatnonzero(wrong)[:5]
    assert not at.size, f"{name}: x={x[at]} y={y[at]} got={got[at]} expected={expected[at]}"


def tolerance(op: UnaryOp | BinaryOp, dtype: DType) -> float:
    """Units in the last place by which this implementation and numpy's own may differ."""
    if op in EXACT_UNARY or (isinstance(op, BinaryOp) and op not in NOT_EXACT):
        return 0.0
    if dtype in (DType.FLOAT16, DType.BFLOAT16):
        return 1.0 if op is not UnaryOp.RSQRT else 2.0  # numpy rounds the root before it inverts it
    return 6.0  # ours 4, numpy's 2


@pytest.mark.parametrize("lanes", every([1, 4, 16], quick={1, 16}))
@pytest.mark.parametrize("dtype", TYPES)
def test_operators_agree_with_numpy(dtype: DType, lanes: int, host: Target) -> None:
    check_operators(dtype, lanes, host)


@pytest.mark.parametrize("dtype", TYPES)
def test_all_that_definitions_may_ask_for_is_generated(dtype: DType, host: Target) -> None:
    outputs: dict[str, Any] = {o.value: (lambda a, b, o=o: Unary(o, a)) for o in UnaryOp if takes(o, dtype)}
    outputs |= {f"{o.value}2": (lambda a, b, o=o: Binary(o, a, b)) for o in BinaryOp if takes(o, dtype)}
    assert outputs
    JitKernel(elementwise({"x": dtype, "y": dtype}, outputs, 1), host)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_operators_without_fma_and_half_conversion(dtype: DType, host: Target) -> None:
    if host.architecture != "x86_64":
        pytest.skip("runs code of the oldest x86-64 level")
    check_operators(dtype, 4, parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64"))


def check_operators(dtype: DType, lanes: int, target: Target, build: Callable[..., Any] = JitKernel) -> None:
    unary, binary = operators(dtype)
    outputs: dict[str, Any] = {op.value: (lambda a, b, op=op: Unary(op, a)) for op in unary}
    outputs |= {f"{op.value}2": (lambda a, b, op=op: Binary(op, a, b)) for op in binary}
    x, y = operands(dtype, 256)
    function = elementwise({"x": dtype, "y": dtype}, outputs, lanes)
    results = [np.zeros(x.shape, storage_dtype(b.dtype)) for b in function.buffers[2:]]
    build(function, target)([x, y, *results], {"n": len(x)})
    with np.errstate(all="ignore"):
        for op, got in zip(unary, results, strict=False):
            assert_same(op, got, expected_unary(op, x), x, y, tolerance(op, dtype))
        for bop, got in zip(binary, results[len(unary) :], strict=True):
            if bop is BinaryOp.POW and x.dtype.kind == "i":
                got = np.where(y == np.iinfo(y.dtype).min, expected_binary(bop, x, y), got)
            assert_same(bop, got, expected_binary(bop, x, y), x, y, tolerance(bop, dtype))


def expected_unary(op: UnaryOp, x: Array) -> Array:
    """numpy's answer; for functions of 16-bit floats that of the wider type, rounded."""
    if x.dtype.itemsize == 2 and op not in EXACT_UNARY and x.dtype.kind not in "iu":
        return UNARY[op](x.astype(np.float32)).astype(x.dtype)
    return UNARY[op](x)


def expected_binary(op: BinaryOp, x: Array, y: Array) -> Array:
    if x.dtype == ml_dtypes.bfloat16 or (x.dtype == np.float16 and op in NOT_EXACT):
        result = BINARY[op](x.astype(np.float32), y.astype(np.float32))
        return result if result.dtype == bool else result.astype(x.dtype)
    if op is BinaryOp.POW and x.dtype.kind == "i":
        y = np.where(y == np.iinfo(y.dtype).min, 0, y)  # numpy's oracle negates the exponent
    return BINARY[op](x, y)


@pytest.mark.parametrize("lanes", every([1, 4, 16], quick={1, 16}))
@pytest.mark.parametrize("source", TYPES)
def test_casts_agree_with_numpy(source: DType, lanes: int, host: Target) -> None:
    check_casts(source, lanes, host)


@pytest.mark.parametrize("source", TYPES)
def test_casts_without_half_conversion(source: DType, host: Target) -> None:
    if host.architecture != "x86_64":
        pytest.skip("runs code of the oldest x86-64 level")
    check_casts(source, 4, parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64"))


def check_casts(source: DType, lanes: int, target: Target, build: Callable[..., Any] = JitKernel) -> None:
    x, _ = operands(source, 256)
    if source.is_float:
        rng = np.random.default_rng(3)
        patterns = rng.integers(0, 1 << 16, len(x)).astype(np.uint16)
        x[100:] = patterns[100:].view(np.float16).astype(x.dtype)  # subnormal halves and NaN among them
        x[200:] = (rng.standard_normal(56) * 1e-5).astype(x.dtype)
    outputs: dict[str, Any] = {t.value: (lambda a, t=t: Cast(t, a)) for t in TYPES}
    function = elementwise({"x": source}, outputs, lanes)
    results = [np.zeros(x.shape, storage_dtype(t)) for t in TYPES]
    build(function, target)([x, *results], {"n": len(x)})
    for dtype, got in zip(TYPES, results, strict=True):
        assert_same(f"to {dtype}", got, expected_cast(x, source, dtype), x, x, 0.0)


def expected_cast(x: Array, source: DType, dtype: DType) -> Array:
    if source.is_float and dtype in INTEGERS:  # saturating where numpy leaves the answer to the processor
        info = np.iinfo(dtype.value)
        wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
        inside = (wide > float(info.min)) & (wide < float(info.max))
        ends = np.where(wide <= float(info.min), info.min, info.max).astype(dtype.numpy)
        return np.where(inside, np.where(inside, wide, 0.0).astype(dtype.numpy), ends)
    return numpy_cast(x, dtype)
