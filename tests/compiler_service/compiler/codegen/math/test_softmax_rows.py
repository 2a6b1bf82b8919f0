"""Softmax as compiled for this machine: rows of every kind of length, special values, and how exact powers of differences are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.codegen.emit.kernel import emit_kernel
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.codegen.toolchain.jit import JitKernel
from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.tensor_expr.broadcast import elementwise
from compiler_service.compiler.tensor_expr.operators.normalization import log_softmax, softmax
from compiler_service.compiler.tensor_expr.scalar import exp
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder, topological
from shared_ir.dtype import DType
from shared_ir.expr.dim import symbol
from shared_ir.machine.target import parse_target
from tests.cases import every

Array = np.ndarray[Any, Any]
F32 = DType.FLOAT32


def compiled(output: Tensor, arrays: list[Array], symbols: dict[str, int] | None = None) -> Array:
    target, symbols = host_target(), symbols or {}
    arguments = [t for t in topological(output) if not t.producers]
    schedule = default_schedule(output, frozenset(), target)
    kernel = JitKernel(passes.run(lower("rows", output, arguments, sorted(symbols), schedule, target)), target)
    result = np.empty(arrays[0].shape, arrays[0].dtype)
    try:
        kernel([*arrays, result], symbols)
    finally:
        kernel.close()
    return result


def exact_softmax(x: Array) -> Array:
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(-1, keepdims=True))
    found: Array = powers / powers.sum(-1, keepdims=True)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3, 37])
@pytest.mark.parametrize(
    "length", every([1, 3, 15, 16, 17, 49, 128, 197, 256, 257, 1000], quick={1, 17, 49, 256, 1000})
)
def test_softmax_of_rows(rows: int, length: int) -> None:
    x = (np.random.default_rng(length).standard_normal((rows, length)) * 4).astype(np.float32)
    found = compiled(softmax(placeholder("x", x.shape, F32)), [x])
    np.testing.assert_allclose(found, exact_softmax(x), rtol=4e-6)


def test_softmax_of_rows_of_any_length() -> None:
    output = softmax(placeholder("x", (symbol("m"), symbol("n")), F32))
    for rows, length in [(1, 1), (5, 33), (9, 300)]:
        x = np.random.default_rng(length).standard_normal((rows, length)).astype(np.float32)
        found = compiled(output, [x], {"m": rows, "n": length})
        np.testing.assert_allclose(found, exact_softmax(x), rtol=2e-6)


def special_rows(length: int) -> Array:
    """Ordinary, one NaN at the start, one at the end, one +inf, one -inf, nothing but -inf, the least numbers only, far apart."""
    rows = np.random.default_rng(0).standard_normal((8, length)).astype(np.float32)
    rows[1, 0] = rows[2, -1] = np.nan
    rows[3, length // 2], rows[4, length // 2] = np.inf, -np.inf
    rows[5], rows[6] = -np.inf, np.finfo(np.float32).min
    rows[7] = np.linspace(-3e38, 3e38, length)
    return rows


@pytest.mark.parametrize("length", [17, 128, 600])
def test_special_values_of_softmax(length: int) -> None:
    x = special_rows(length)
    found = compiled(softmax(placeholder("x", x.shape, F32)), [x])
    for row in (1, 2, 3, 5):
        assert np.isnan(found[row]).all()
    for row in (0, 4, 6, 7):
        np.testing.assert_allclose(found[row], exact_softmax(x)[row], rtol=2e-6)
    assert found[4, length // 2] == 0


@pytest.mark.parametrize("length", [17, 600])
def test_special_values_of_log_softmax(length: int) -> None:
    x = special_rows(length)
    found = compiled(log_softmax(placeholder("x", x.shape, F32)), [x])
    for row in (1, 2, 3, 5):
        assert np.isnan(found[row]).all()
    np.testing.assert_allclose(found[6], np.full(length, -np.log(length)), rtol=1e-6)


def test_powers_of_differences_are_as_exact_as_the_differences() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(-40, 40, 1 << 16).astype(np.float32) for _ in range(2))
    special = [np.inf, -np.inf, np.nan, 90, 300, -300, -103, 3e38, -3e38, 0, -0.0]
    a[: len(special)], b[: len(special)] = special, 0
    output = elementwise("power", lambda u, v: exp(u - v), *(placeholder(n, a.shape, F32) for n in "ab"))
    found = compiled(output, [a, b]).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = np.exp(a.astype(np.float64) - b)
        rounded = wanted.astype(np.float32).astype(np.float64)
        error = np.abs(found - wanted) / wanted
    normal = np.isfinite(rounded) & (rounded > 2.0**-125)
    assert (error[normal] <= 2.5e-7 + 1.4e-7 * np.abs(a.astype(np.float64) - b)[normal]).all()
    odd = ~np.isfinite(rounded)
    np.testing.assert_array_equal(found[odd], rounded[odd])
    tiny = rounded <= 2.0**-125
    np.testing.assert_allclose(found[tiny], wanted[tiny], rtol=2e-5, atol=2.0**-148)


@pytest.mark.parametrize(("target", "scales"), [("x86-64-v4", True), ("x86-64-v3", False), ("aws/graviton3", False)])
def test_powers_are_scaled_where_there_is_an_instruction(target: str, scales: bool) -> None:
    chosen = parse_target(target)
    x = placeholder("x", (12, 128), F32)
    output = softmax(x)
    function = passes.run(lower("rows", output, [x], [], default_schedule(output, frozenset(), chosen), chosen))
    assert ("scalef" in emit_kernel(function, chosen, "rows")) is scales
