"""Targets that lack features: they are refused with a sentence, or what is generated for them works."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import numpy as np
import pytest

from compiler_service.compiler.codegen.emit.kernel import emit_kernel
from compiler_service.compiler.codegen.toolchain import support
from compiler_service.compiler.codegen.toolchain.asking import Answered
from compiler_service.compiler.codegen.toolchain.elf import undefined_symbols
from compiler_service.compiler.codegen.toolchain.machine import compile_ir
from compiler_service.compiler.codegen.toolchain.support import require_llvm
from compiler_service.compiler.loop_ir.ir import Function
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Cast, Unary, UnaryOp
from shared_ir.machine.target import PRESETS, architecture_of, parse_target
from tests.compiler_service.compiler.codegen.emulated import EMULATORS, EmulatedKernel
from tests.compiler_service.compiler.codegen.loop_kernels import elementwise

_RISCV, _ARM64, _X86 = (f"llvm -mtriple={name}-linux-gnu" for name in ("riscv64", "aarch64", "x86_64"))
_ARM = "llvm -mtriple=armv7-linux-gnueabihf"
_TRIPLES = (_RISCV, _ARM64, _X86, _ARM, "llvm -mtriple=armv7-linux-gnueabi")
_FEATURES = {
    "x86_64": "sse sse2 ssse3 sse4.1 avx avx2 fma f16c avx512f x87 mmx cx8 bmi2",
    "aarch64": "fp-armv8 neon fullfp16 dotprod crc lse sve",
    "armv7": "vfp2 vfp2sp vfp3 vfp3sp vfp4 fp64 d32 fp16 neon hwdiv hwdiv-arm fpregs",
    "riscv64": "m a f d c v zba zbb",
}
_DRAWN = 20
_EXTENT = 64


def _draw(seed: int) -> str:
    source = random.Random(seed)
    triple = _TRIPLES[seed % len(_TRIPLES)]
    architecture = architecture_of(triple.partition("=")[2])
    cpus = sorted({own.cpu for own, _ in PRESETS.values() if own.architecture == architecture} | {"generic"})
    lacking = source.sample(_FEATURES[architecture].split(), source.randint(1, 3))
    return f"{triple} -mcpu={source.choice(cpus)} -mattr={','.join(f'-{name}' for name in lacking)}"


def _floats(lanes: int) -> Function:
    """Of every kind of arithmetic that would call a library where there are no instructions for it."""
    wide = DType.FLOAT64
    outputs = {
        "y": lambda x: Unary(UnaryOp.EXP, Binary(BinaryOp.MUL, x, Unary(UnaryOp.ROUND, x))),
        "z": lambda x: Binary(
            BinaryOp.DIV, Cast(wide, x), Unary(UnaryOp.SQRT, Binary(BinaryOp.ADD, *[Cast(wide, x)] * 2))
        ),
        "w": lambda x: Cast(DType.INT32, Binary(BinaryOp.MUL, x, x)),
    }
    return elementwise({"x": DType.FLOAT32}, outputs, lanes)


@pytest.mark.sampled
@pytest.mark.slow  # the first build for a machine builds its C library
@pytest.mark.parametrize("seed", range(_DRAWN))
def test_a_target_that_lacks_features_works_or_is_refused(seed: int, tmp_path: Path) -> None:
    target = parse_target(_draw(seed))
    try:
        require_llvm(target)
    except IngotError as error:
        assert error.code is ErrorCode.INVALID_TARGET  # noqa: PT017
        assert (error.field, error.received) == ("target", str(target))  # noqa: PT017
        return
    function = _floats(4)
    assert undefined_symbols(compile_ir(emit_kernel(function, target, "kernel"), target)) == []
    if target.architecture not in EMULATORS:
        return
    x = np.linspace(0.1, 3, _EXTENT, dtype=np.float32)
    y, z, w = np.empty_like(x), np.empty(_EXTENT, np.float64), np.empty(_EXTENT, np.int32)
    EmulatedKernel(function, target, tmp_path)([x, y, z, w], {"n": _EXTENT})
    wide = x.astype(np.float64)
    np.testing.assert_allclose(y, np.exp(x * np.round(x)), rtol=1e-5)
    np.testing.assert_allclose(z, wide / np.sqrt(2 * wide), rtol=1e-12)
    np.testing.assert_array_equal(w, (x * x).astype(np.int32))


@pytest.mark.parametrize("end", [-signal.SIGKILL, 1, OSError("no process"), TimeoutError("no answer")])
def test_an_accident_of_who_is_asked_is_not_remembered(monkeypatch: pytest.MonkeyPatch, end: int | OSError) -> None:
    """Neither as that the target is known, nor as that it is not."""
    target = parse_target(
        f"llvm -mtriple=aarch64-linux-gnu -mcpu=nope{end if isinstance(end, int) else type(end).__name__}"
    )

    def ask(line: str) -> Answered:
        if isinstance(end, OSError):
            raise end
        return Answered(end, "MemoryError")

    with monkeypatch.context() as patch:
        patch.setattr(support._LLVM, "ask", ask)
        with pytest.raises(IngotError) as caught:
            require_llvm(target)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    with pytest.raises(IngotError) as caught:
        require_llvm(target)
    assert caught.value.code is ErrorCode.INVALID_TARGET


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{_RISCV} -mattr=-d", "without d no code works"),
        (f"{_RISCV} -mcpu=sifive-u74 -mattr=-f", "without f no code works"),
        (f"{_RISCV} -mcpu=sifive-s51", "Hard-float 'd' ABI can't be used"),
        (f"{_ARM64} -mattr=-fp-armv8", "without fp-armv8 no code works"),
        (f"{_X86} -mattr=-sse2", "without sse2 no code works"),
        (f"{_X86} -mattr=-sse", "SSE register return with SSE disabled"),
        (f"{_X86} -mcpu=i386", "64-bit code requested"),
        (f"{_X86} -mattr=+soft-float", "no instructions for what __"),
        (f"{_ARM} -mattr=-fp64", "no instructions for what __"),
        (f"{_ARM} -mattr=+soft-float", "soften"),
        (f"{_ARM} -mattr=-vfp2sp", "Cannot select"),
        (f"{_ARM} -mcpu=cortex-m3", "no instructions for what __"),
        ("llvm -mtriple=armv7-linux-gnu", "the ABI 'gnu' of armv7"),
        ("llvm -mtriple=x86_64-linux-gnux32", "the ABI 'gnux32' of x86_64"),
        ("llvm -mtriple=aarch64-linux-gnueabihf", "the ABI 'gnueabihf' of aarch64"),
        ("llvm -mtriple=aarch64-linux-android", "the ABI 'android' of aarch64"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(text: str, said: str) -> None:
    with pytest.raises(IngotError) as caught:
        require_llvm(parse_target(text))
    assert caught.value.code is ErrorCode.INVALID_TARGET
    assert said in caught.value.message
    assert caught.value.expected
    assert caught.value.remedy


@pytest.mark.parametrize("text", [_RISCV, f"{_RISCV} -mcpu=generic-rv64", f"{_RISCV} -mattr=+zba"])
def test_a_riscv_of_which_nothing_is_said_is_rv64gc(text: str) -> None:
    target, told = parse_target(text), parse_target("riscv64/generic")
    require_llvm(target)
    assert target.required_features >= told.required_features
    if not target.features:
        ir = emit_kernel(_floats(4), told, "kernel")
        assert compile_ir(ir, target) == compile_ir(ir, told)
