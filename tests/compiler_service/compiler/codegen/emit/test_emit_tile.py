"""The register-tiled matrix multiplication that the design's speed rests on, written by hand in loop IR."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from compiler_service.compiler.codegen.emit.kernel import emit_kernel
from compiler_service.compiler.codegen.toolchain.jit import JitKernel
from compiler_service.compiler.codegen.toolchain.machine import assembly
from compiler_service.compiler.loop_ir.ir import Broadcast
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Const
from shared_ir.machine.target import Target, parse_target
from tests.compiler_service.compiler.codegen.loop_kernels import elementwise, matmul


def inner_loop(text: str, multiply_add: str) -> str:
    """The instructions of the one block that multiplies."""
    blocks = re.split(r"^\.L\w+:", text, flags=re.MULTILINE)
    found = [b for b in blocks if multiply_add in b]
    assert len(found) == 1
    return re.split(r"^\t(?:j[a-z]+|b\.[a-z]+|cbn?z)\t.*$", found[0], flags=re.MULTILINE)[0]


def test_the_tile_is_multiplied_correctly(host: Target) -> None:
    m, k, n = 12, 40, 128
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    packed = np.ascontiguousarray(b.reshape(k, n // 64, 64).transpose(1, 0, 2))
    c = np.zeros((m, n), np.float32)
    JitKernel(matmul(m, k, n), host)([a, packed, c])
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


def test_avx512_keeps_the_tile_in_registers() -> None:
    target = parse_target("x86-64-v4")
    loop = inner_loop(assembly(emit_kernel(matmul(768, 768, 768), target, "kernel"), target), "vfmadd")
    assert loop.count("vfmadd231ps") == 24
    assert loop.count("zmm") > 24
    assert "rsp" not in loop  # nothing is spilled
    assert loop.count("vbroadcastss") + loop.count("1to16") == 6  # A is broadcast from memory
    assert "vmovups\t%zmm" not in loop  # nothing is stored


def test_avx2_keeps_a_smaller_tile_in_registers() -> None:
    target = parse_target("x86-64-v3")
    function = matmul(768, 768, 768, rows=6, columns=16, lanes=8)
    loop = inner_loop(assembly(emit_kernel(function, target, "kernel"), target), "vfmadd")
    assert loop.count("vfmadd231ps") == 12
    assert "rsp" not in loop
    assert "vmovups\t%ymm" not in loop


def test_neon_keeps_the_tile_in_registers() -> None:
    target = parse_target("raspberry-pi/4b")
    function = matmul(768, 768, 768, rows=4, columns=16, lanes=4)
    loop = inner_loop(assembly(emit_kernel(function, target, "kernel"), target), "fmla")
    assert loop.count("fmla") == 16
    assert "sp" not in re.findall(r"\bsp\b", loop)


def test_emission_is_deterministic() -> None:
    target = parse_target("x86-64-v3")
    first = emit_kernel(matmul(96, 64, 128), target, "kernel")
    assert emit_kernel(matmul(96, 64, 128), target, "kernel") == first


@pytest.mark.slow
def test_emission_is_fast_enough() -> None:
    """150 vector statements: 6 x 64 tile with the inner loop unrolled six times is more."""
    target = parse_target("x86-64-v4")
    best = min(_seconds_to_emit(target) for _ in range(5))
    assert best < 0.1  # some 8 ms on an idle machine; the bound only catches what went badly wrong


def _seconds_to_emit(target: Target) -> float:
    function = matmul(768, 768, 768, rows=14, columns=64)
    start = time.perf_counter()
    emit_kernel(function, target, "kernel")
    return time.perf_counter() - start


def test_relu_is_one_instruction() -> None:
    target = parse_target("x86-64-v4")
    zero = Broadcast(Const(0.0, DType.FLOAT32), 16)
    function = elementwise({"x": DType.FLOAT32}, {"y": lambda x: Binary(BinaryOp.MAX, x, zero)}, 16)
    text = assembly(emit_kernel(function, target, "kernel"), target)
    assert "vmaxps" in text
    assert "vcmp" not in text
