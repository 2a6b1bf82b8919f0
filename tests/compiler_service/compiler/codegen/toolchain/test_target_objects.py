"""Objects for every target: complete in themselves, of the right format."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from typing import Any

import pytest

from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.codegen.emit.kernel import emit_kernel
from compiler_service.compiler.codegen.toolchain import support
from compiler_service.compiler.codegen.toolchain.elf import undefined_symbols
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.codegen.toolchain.machine import assembly, compile_ir
from compiler_service.compiler.codegen.toolchain.support import require_llvm
from compiler_service.compiler.loop_ir.ir import Function
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Cast, Unary, UnaryOp
from shared_ir.machine.target import PRESETS, Target, parse_target
from tests.compiler_service.compiler.codegen.emit.test_emit_operators import TYPES, operators
from tests.compiler_service.compiler.codegen.loop_kernels import elementwise, matmul

MACHINES = {"x86_64": 62, "aarch64": 183, "armv7": 40, "riscv64": 243}  # e_machine of ELF
FAMILIES = ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64/generic", "armv7/generic", "riscv64/generic", "riscv64/rvv"]


def everything(dtype: DType, lanes: int) -> Function:
    unary, binary = operators(dtype)
    outputs: dict[str, Any] = {op.value: (lambda a, b, op=op: Unary(op, a)) for op in unary}
    outputs |= {f"{op.value}2": (lambda a, b, op=op: Binary(op, a, b)) for op in binary}
    outputs |= {f"to_{t.value}": (lambda a, b, t=t: Cast(t, a)) for t in TYPES if t is not dtype}
    return elementwise({"x": dtype, "y": dtype}, outputs, lanes)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_yields_a_complete_object(name: str) -> None:
    target = parse_target(name)
    lanes = max(2, target.vector_bits // 32)
    for function in (
        matmul(8, 16, 64, rows=4, columns=2 * lanes, lanes=lanes),
        elementwise(
            {"x": DType.FLOAT32},
            {"y": lambda x: Unary(UnaryOp.ERF, x), "z": lambda x: Unary(UnaryOp.ROUND, x)},
            lanes,
        ),
    ):
        data = compile_ir(emit_kernel(function, target, "kernel"), target)
        assert undefined_symbols(data) == []
        assert struct.unpack_from("<H", data, 18)[0] == MACHINES[target.architecture]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FAMILIES)
def test_no_operator_calls_a_library(name: str, dtype: DType) -> None:
    target = parse_target(name)
    for lanes in (1, 4):
        assert undefined_symbols(compile_ir(emit_kernel(everything(dtype, lanes), target, "kernel"), target)) == []


def test_no_loop_becomes_memset_or_memcpy() -> None:
    target = parse_target("x86-64-v3")
    function = elementwise({"x": DType.UINT8}, {"y": lambda x: x}, 1)
    text = assembly(emit_kernel(function, target, "kernel"), target)
    assert "memcpy" not in text
    assert "memset" not in text


def test_the_host_is_a_target() -> None:
    host = host_target()
    assert parse_target(str(host)) == host
    assert host.cores >= 1
    assert host.l1 >= 1024


def test_targets_of_another_kind_are_refused() -> None:
    with pytest.raises(IngotError) as caught:
        backend_of(Target("cuda", "nvptx64", "sm_90"))
    assert (caught.value.code, caught.value.received) == (ErrorCode.INVALID_TARGET, "cuda")
    for name in PRESETS:
        require_llvm(parse_target(name))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=nope", "processor 'nope'"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=znver3", "processor 'znver3'"),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64 -mattr=+sse3,+nope", "feature '+nope'"),
        ("aws/graviton3 -mattr=+avx2", "feature '+avx2'"),
    ],
)
def test_names_that_llvm_would_ignore_are_refused(text: str, word: str) -> None:
    with pytest.raises(IngotError, match=re.escape(f"LLVM knows no {word}")) as caught:
        require_llvm(parse_target(text))
    assert caught.value.code is ErrorCode.INVALID_TARGET


def test_llvm_knows_every_name_of_the_presets() -> None:
    lines = "".join(f"{name}\n" for name in PRESETS)
    command = [sys.executable, "-m", support.__name__]
    done = subprocess.run(command, input=lines, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_other_names_that_llvm_knows_are_accepted() -> None:
    require_llvm(parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a35 -mattr=+crc"))


def test_invalid_ir_is_a_compiler_fault() -> None:
    with pytest.raises(IngotError) as caught:
        compile_ir("define void @f( {", parse_target("x86-64-v3"))
    assert caught.value.code is ErrorCode.COMPILER_FAULT


@pytest.mark.parametrize("name", ["intel/sapphirerapids", "aws/graviton3"])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT32], ids=["halves", "floats that are rounded to halves"])
def test_a_product_of_halves_is_rounded_before_it_is_added(name: str, dtype: DType) -> None:
    """Both machines multiply and add halves in one instruction, which rounds once."""
    half, target = DType.FLOAT16, parse_target(name)

    def total(a: Any, b: Any) -> Any:
        product = Cast(half, Binary(BinaryOp.MUL, Cast(dtype, a), Cast(dtype, b)))
        return Cast(half, Binary(BinaryOp.ADD, Cast(dtype, product), Cast(dtype, a)))

    code = assembly(emit_kernel(elementwise({"x": half, "y": half}, {"z": total}, 8), target, "kernel"), target)
    fused = re.findall(r"vf[n]?m(?:add|sub)\w*ph\b|fm(?:la|ls|add)\s+v\d+\.8h", code)
    assert not fused
    assert re.search(r"\bv?mulp[sh]\b|\bfmul\b", code)
