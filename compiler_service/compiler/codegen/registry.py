"""The code generators, by the name that a target's ``kind`` gives: ``target.build.<kind>``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from compiler_service.compiler.codegen.emit.kernel import emit_kernel, scratch_size
from compiler_service.compiler.codegen.toolchain.machine import assembly, compile_ir
from compiler_service.compiler.loop_ir.ir import Function
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target


@dataclass(frozen=True)
class Backend:
    """A way from loop IR to object files.

    Attributes:
        name: ``target.build.llvm``.
        emit: (function, target, symbol) -> text of the module that exports ``symbol``.
        compile: (text, target) -> object file.
        assembly: (text, target) -> text for people.
        scratch_size: function -> bytes of scratch memory per thread.
    """

    name: str
    emit: Callable[[Function, Target, str], str]
    compile: Callable[[str, Target], bytes]
    assembly: Callable[[str, Target], str]
    scratch_size: Callable[[Function], int]


BACKENDS: Mapping[str, Backend] = MappingProxyType(
    {
        "target.build.llvm": Backend("target.build.llvm", emit_kernel, compile_ir, assembly, scratch_size),
    }
)


def backend_of(target: Target) -> Backend:
    """The backend that builds for ``target``.

    Raises:
        IngotError: INVALID_TARGET, no backend has this kind.
    """
    found = BACKENDS.get(f"target.build.{target.kind}")
    if found is None:
        raise IngotError(
            ErrorCode.INVALID_TARGET,
            f"no backend builds for targets of kind {target.kind!r}",
            field="target",
            expected=", ".join(BACKENDS),
            received=target.kind,
        )
    return found
