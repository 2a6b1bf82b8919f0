"""Compilation in child processes: same bytes as in this one, and a child that dies takes nothing with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler_service.compiler.codegen.emit.kernel import emit_kernel
from compiler_service.compiler.codegen.toolchain.machine import compile_ir
from compiler_service.compiler.codegen.toolchain.objects import ObjectCompiler
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Unary, UnaryOp
from shared_ir.machine.target import Target, parse_target
from tests.compiler_service.compiler.codegen.loop_kernels import elementwise, matmul

TARGET = parse_target("x86-64-v3")
LLVM_REFUSES = """\
define void @f() {
  call void asm sideeffect "no such instruction", ""()
  ret void
}"""


def modules(target: Target) -> dict[str, str]:
    functions = {
        "matmul": matmul(12, 16, 64, columns=64, lanes=8),
        "exp": elementwise({"x": DType.FLOAT32}, {"y": lambda x: Unary(UnaryOp.EXP, x)}, 8),
        "erf": elementwise({"x": DType.FLOAT32}, {"y": lambda x: Unary(UnaryOp.ERF, x)}, 8),
    }
    return {name: emit_kernel(function, target, name) for name, function in functions.items()}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_objects_are_the_same_wherever_they_are_made(workers: int) -> None:
    texts = modules(TARGET)
    with ObjectCompiler(TARGET, workers) as compiler:
        objects = compiler.compile(texts)
        assert dict(compiler.as_completed(texts)) == objects
        assert compiler.submit("exp", texts["exp"]).result() == objects["exp"]
    assert list(objects) == list(texts)
    assert objects == {name: compile_ir(text, TARGET) for name, text in texts.items()}


def test_large_modules_pass_through_the_pipe() -> None:
    text = modules(TARGET)["exp"]
    padded = text + "\n; " + "x" * 3_000_000
    with ObjectCompiler(TARGET, 1) as compiler:
        assert compiler.compile({"exp": padded}) == {"exp": compile_ir(text, TARGET)}


@pytest.mark.parametrize("workers", [0, 1])
def test_invalid_text_names_the_kernel_and_keeps_the_text(workers: int, tmp_path: Path) -> None:
    with ObjectCompiler(TARGET, workers, dump_directory=tmp_path) as compiler, pytest.raises(IngotError) as caught:
        compiler.compile({"broken/kernel": "not LLVM"})
    error = caught.value
    assert error.code is ErrorCode.COMPILER_FAULT
    assert error.node == "broken/kernel"
    (kept,) = tmp_path.iterdir()
    assert kept.read_text() == "not LLVM"
    assert str(kept) in error.remedy


def test_a_child_that_llvm_brings_down_is_replaced(tmp_path: Path) -> None:
    texts = modules(TARGET)
    with ObjectCompiler(TARGET, 1, dump_directory=tmp_path) as compiler:
        with pytest.raises(IngotError) as caught:
            compiler.compile({"fatal": LLVM_REFUSES})
        assert caught.value.code is ErrorCode.COMPILER_FAULT
        assert "fatal" in str(caught.value)
        assert "exit status" in caught.value.message or "signal" in caught.value.message
        assert len(list(tmp_path.iterdir())) == 1
        assert compiler.compile(texts) == {name: compile_ir(text, TARGET) for name, text in texts.items()}


def test_a_child_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with (
        ObjectCompiler(TARGET, 1, timeout=0.0, dump_directory=tmp_path) as compiler,
        pytest.raises(IngotError, match="too long"),
    ):
        compiler.compile(modules(TARGET))


def test_use_outside_the_context_is_refused() -> None:
    with pytest.raises(RuntimeError, match="context"):
        ObjectCompiler(TARGET, 1).submit("exp", "")
