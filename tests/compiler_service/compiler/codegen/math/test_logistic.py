"""Quotients by ``exp(x) + 1``: SiLU and the logistic function as models spell it."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.codegen.emit.kernel import emit_kernel
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.codegen.toolchain.jit import JitKernel
from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.tensor_expr.operators.activation import swish
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.dtype import DType
from shared_ir.machine.target import parse_target


def silu(x: Tensor, values: np.ndarray) -> np.ndarray:
    output = swish(x)
    target = host_target()
    schedule = default_schedule(output, frozenset(), target)
    kernel = JitKernel(passes.run(lower("silu", output, [x], [], schedule, target)), target)
    result = np.empty_like(values)
    try:
        kernel([values, result], {})
    finally:
        kernel.close()
    return result


@pytest.mark.parametrize(("dtype", "error"), [(DType.FLOAT32, 1.5e-7), (DType.FLOAT64, 1e-15)])
def test_silu(dtype: DType, error: float) -> None:
    values = np.linspace(-120, 120, 4801).astype(dtype.numpy)
    found = silu(placeholder("x", values.shape, dtype), values).astype(np.float64)
    exact = values.astype(np.float64)
    wanted = exact / (1 + np.exp(-exact))
    assert (np.abs(found - wanted) / np.maximum(1, np.abs(exact))).max() < error
    near = np.abs(exact) < 4
    assert (np.abs(found - wanted) / np.abs(wanted).clip(1e-30))[near].max() < 4e-7


def test_silu_of_special_values() -> None:
    values = np.array([0.0, -0.0, np.inf, -1e30, np.nan, 1e30] * 8, np.float32)
    found = silu(placeholder("x", values.shape, DType.FLOAT32), values)[:6]
    np.testing.assert_array_equal(found, np.array([0.0, 0.0, np.inf, 0.0, np.nan, 1e30], np.float32))


@pytest.mark.parametrize(("target", "scales"), [("x86-64-v4", True), ("x86-64-v3", False), ("aws/graviton3", False)])
def test_the_instruction_is_used_where_there_is_one(target: str, scales: bool) -> None:
    chosen = parse_target(target)
    output = swish(placeholder("x", (64,), DType.FLOAT32))
    x = next(iter(output.producers))
    schedule = default_schedule(output, frozenset(), chosen)
    text = emit_kernel(passes.run(lower("silu", output, [x], [], schedule, chosen)), chosen, "silu")
    assert ("scalef" in text) is scales
