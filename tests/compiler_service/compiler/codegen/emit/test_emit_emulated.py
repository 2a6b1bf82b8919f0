"""The operators again, on emulated ARM and RISC-V machines."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.loop_ir.algorithms.table import algorithm_function
from compiler_service.compiler.tensor_expr.tensor import placeholder
from shared_ir.dtype import DType
from shared_ir.machine.target import parse_target
from tests.compiler_service.compiler.codegen.emit.test_emit_operators import TYPES, check_casts, check_operators
from tests.compiler_service.compiler.codegen.emulated import EmulatedKernel
from tests.compiler_service.compiler.codegen.loop_kernels import matmul

DEFAULT = "aarch64/generic"
"""The machine that `make test` emulates; `make test-all` emulates all of them."""
FAMILIES = [DEFAULT, "armv7/generic", "riscv64/generic", "riscv64/rvv"]


def on_all(cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """``cases``, which begin with the name of a machine; those of others than the default one are marked."""
    return [pytest.param(*c, marks=[] if c[0] == DEFAULT else [pytest.mark.machines]) for c in cases]


# qemu before 8.0 aborts (decode_save_opc) on the vector conversions between floats and integers
PAIRS = [(name, dtype) for name in FAMILIES for dtype in TYPES if name != "riscv64/rvv" or not dtype.is_float]
CASES = on_all(PAIRS)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_operators_on_other_machines(name: str, dtype: DType, tmp_path: Path) -> None:
    target = parse_target(name)
    check_operators(dtype, 4, target, partial(EmulatedKernel, folder=tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_casts_on_other_machines(name: str, dtype: DType, tmp_path: Path) -> None:
    target = parse_target(name)
    check_casts(dtype, 4, target, partial(EmulatedKernel, folder=tmp_path))


@pytest.mark.slow  # the first build for a machine builds its C library
@pytest.mark.parametrize("name", on_all((name,) for name in FAMILIES))
def test_matrix_multiplication_on_other_machines(name: str, tmp_path: Path) -> None:
    target = parse_target(name)
    m, k, n = 8, 24, 32
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    packed = np.ascontiguousarray(b.reshape(k, n // 8, 8).transpose(1, 0, 2))
    c = np.zeros((m, n), np.float32)
    EmulatedKernel(matmul(m, k, n, rows=4, columns=8, lanes=4), target, tmp_path)([a, packed, c], {})
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_dot_products_of_bytes_on_arm(tmp_path: Path) -> None:
    target = parse_target("raspberry-pi/5")
    assert target.dot4 is DType.INT8
    check_operators(DType.INT32, 4, target, partial(EmulatedKernel, folder=tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, 70])  # by insertion, by a threshold
@pytest.mark.parametrize(("name", "dtype"), on_all(c for c in PAIRS if c[1] in (DType.FLOAT32, DType.INT64)))
def test_the_first_of_rows_on_other_machines(name: str, dtype: DType, count: int, tmp_path: Path) -> None:
    x = np.random.default_rng(count).integers(-50, 50, (3, 301)).astype(dtype.numpy)
    given, out = placeholder("x", x.shape, dtype), placeholder("y", (3, count), DType.INT64)
    function = passes.run(algorithm_function("ingot.Best", "best", [given], out, 0, {"largest": 1}))
    found = np.zeros((3, count), np.int64)
    EmulatedKernel(function, parse_target(name), tmp_path)([x, found], {})
    np.testing.assert_array_equal(found, np.argsort(-x, axis=1, kind="stable")[:, :count])
