"""The code generator of targets of kind ``llvm``: LLVM IR, compiled by llvmlite, linked by the linker of the zig wheel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from compiler_service.compiler.backends.face import Backend, ObjectMaker, SourceCode
from compiler_service.compiler.codegen.emit.kernel import emit_kernel
from compiler_service.compiler.codegen.entry.module import emit_entry
from compiler_service.compiler.codegen.toolchain.bundle import link_bundle
from compiler_service.compiler.codegen.toolchain.link import link_library
from compiler_service.compiler.codegen.toolchain.machine import assembly
from compiler_service.compiler.codegen.toolchain.objects import ObjectCompiler
from compiler_service.compiler.codegen.toolchain.support import require_llvm
from compiler_service.compiler.loop_ir.ir import Function
from shared_ir.machine.target import Target
from shared_ir.plan.program import Plan

LLVM_IR = "ll"
"""The language of a :class:`SourceCode` in LLVM's own assembly."""


@dataclass(frozen=True)
class _LlvmObjects:
    compiler: ObjectCompiler

    def submit(self, name: str, source: SourceCode) -> Future[bytes]:
        return self.compiler.submit(name, source.text)


class LlvmBackend(Backend):
    """Through LLVM. What is derived of it may make kernels otherwise and leave the entry, its objects and the linking as they are."""

    def require(self, target: Target) -> None:
        require_llvm(target)

    def kernel(self, function: Function, target: Target, symbol: str) -> SourceCode:
        return SourceCode(LLVM_IR, emit_kernel(function, target, symbol))

    def entry(
        self, plan: Plan, target: Target, kernel_symbols: Sequence[str], compiler_version: str, *, denormals: bool
    ) -> SourceCode:
        return SourceCode(LLVM_IR, emit_entry(plan, target, kernel_symbols, compiler_version, denormals=denormals))

    @contextmanager
    def objects(self, target: Target, workers: int) -> Iterator[ObjectMaker]:
        with ObjectCompiler(target, workers) as compiler:
            yield _LlvmObjects(compiler)

    def link(self, objects: Mapping[str, bytes], target: Target) -> bytes:
        return link_library(objects, target)

    def bundle(
        self,
        objects: Mapping[str, bytes],
        weights: bytes | memoryview | Path,
        target: Target,
        kind: Literal["shared", "executable"],
    ) -> bytes:
        return link_bundle(objects, weights, target, kind)

    def assembly(self, source: SourceCode, target: Target) -> str:
        return assembly(source.text, target) if source.language == LLVM_IR else source.text
