"""LayerNormalization as compiled for this machine: rows of many lengths, also where the mean is far larger than the deviation."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.codegen.toolchain.jit import JitKernel
from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.tensor_expr.operators.normalization import layer_normalization
from compiler_service.compiler.tensor_expr.tensor import placeholder
from shared_ir.dtype import DType


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize(("rows", "length"), [(1, 5), (7, 96), (9, 100), (13, 384), (6, 768), (11, 1536), (3, 3000)])
def test_rows_are_normalised(rows: int, length: int, offset: float) -> None:
    rng = np.random.default_rng(length)
    x = (rng.standard_normal((rows, length)) + offset).astype(np.float32)
    scale, bias = (rng.uniform(1, 2, length).astype(np.float32) for _ in range(2))
    target = host_target()
    arguments = [placeholder(n, a.shape, DType.FLOAT32) for n, a in zip(("x", "s", "b"), (x, scale, bias), strict=True)]
    output = layer_normalization(*arguments)[0]
    schedule = default_schedule(output, frozenset(), target)
    kernel = JitKernel(passes.run(lower("rows", output, arguments, [], schedule, target)), target)
    found = np.empty_like(x)
    try:
        kernel([x, scale, bias, found])
    finally:
        kernel.close()
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias
    mean_error = 5 * np.spacing(np.float32(offset))  # sums in float32, rounded a few times
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6 + mean_error * scale.max())
