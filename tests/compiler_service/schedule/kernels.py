"""Kernels to schedule, and running one through the loop interpreter."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from compiler_service.loop_ir import passes
from compiler_service.loop_ir.interpret import run as interpret
from compiler_service.loop_ir.verify import verify
from compiler_service.schedule.lower import lower
from compiler_service.schedule.packing import preparation_of
from compiler_service.schedule.rules import default_schedule
from compiler_service.schedule.state import stage_names
from compiler_service.schedule.steps import Schedule
from compiler_service.tensor_expr.evaluate import evaluate
from compiler_service.tensor_expr.tensor import Placeholder, Tensor, topological
from shared_ir.arrays import storage_dtype
from shared_ir.dim import dim_symbols
from shared_ir.dim import evaluate as evaluate_dim
from shared_ir.target import Target

AVX512 = Target("llvm", "x86_64-linux-gnu", "skylake-avx512", (), 512, 32, True, 32768, 1 << 20, 0, 2)
AVX2 = Target("llvm", "x86_64-linux-gnu", "haswell", (), 256, 16, False, 32768, 1 << 18, 0, 2)
NEON = Target("llvm", "aarch64-linux-gnu", "cortex-a72", (), 128, 32, False, 32768, 1 << 20, 0, 4)
TARGETS = {"avx512": AVX512, "avx2": AVX2, "neon": NEON}
ONE_QUICK_TARGET = ["avx512", *(pytest.param(t, marks=pytest.mark.slow) for t in ("avx2", "neon"))]
"""All targets; the quick tests look at the one with the most machinery: masks."""


def arguments_of(output: Tensor) -> tuple[Tensor, ...]:
    return tuple(t for t in topological(output) if isinstance(t.op, Placeholder))


def random_feeds(output: Tensor, symbols: Mapping[str, int], seed: int = 0) -> dict[Tensor, np.ndarray]:
    rng = np.random.default_rng(seed)
    feeds: dict[Tensor, np.ndarray] = {}
    for tensor in arguments_of(output):
        shape = tuple(evaluate_dim(d, symbols) for d in tensor.shape)
        if tensor.dtype.is_float:
            feeds[tensor] = rng.standard_normal(shape).astype(storage_dtype(tensor.dtype))
        else:
            feeds[tensor] = rng.integers(0, 3, shape).astype(storage_dtype(tensor.dtype))
    return feeds


def interpreted(
    output: Tensor,
    feeds: Mapping[Tensor, np.ndarray],
    symbols: Mapping[str, int],
    target: Target,
    schedule: Schedule,
    *,
    after_passes: bool,
) -> np.ndarray:
    """The output as the loop program computes it, every access checked."""
    arguments = arguments_of(output)
    names = stage_names(output)
    parameters = sorted(dim_symbols(d for t in topological(output) for d in t.shape))
    function = lower("kernel", output, arguments, parameters, schedule, target)
    verify(function)
    if after_passes:
        function = passes.run(function)
        verify(function, flat=True)
    arrays = [preparation_of(schedule, names[t], t).apply(feeds[t], t) for t in arguments]
    shape = tuple(evaluate_dim(d, symbols) for d in output.shape)
    result = np.zeros(shape, storage_dtype(output.dtype))
    interpret(function, [*arrays, result], {p: symbols[p] for p in parameters})
    return result


def check(
    output: Tensor, symbols: Mapping[str, int], target: Target, constants: frozenset[Tensor], after_passes: bool
) -> None:
    feeds = random_feeds(output, symbols)
    schedule = default_schedule(output, constants, target)
    got = interpreted(output, feeds, symbols, target, schedule, after_passes=after_passes)
    (wanted,) = evaluate([output], feeds, symbols)
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)
