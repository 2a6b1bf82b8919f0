"""The object of each kernel, from the code generator of the target or from the one that took the part."""

from __future__ import annotations

from concurrent.futures import Future

from compiler_service.compiler.backends.face import Backend, ObjectMaker, SourceCode
from compiler_service.compiler.codegen.toolchain.machine import KIND
from compiler_service.compiler.external.objects import part_object
from compiler_service.compiler.program.kernels import BuiltKernel, ExternalKernel
from compiler_service.compiler.progress import Log
from compiler_service.compiler.showing import show_code, show_loops
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target


def emit_object(item: BuiltKernel, target: Target, backend: Backend, maker: ObjectMaker, log: Log) -> Future[bytes]:
    """Emit the code of ``item``; its object, to come.

    Raises:
        IngotError: whatever a code generator says of it; NOT_FOUND, there is none of the name that a part asks for.
    """
    kernel = item.kernel
    if isinstance(kernel, ExternalKernel):
        done: Future[bytes] = Future()
        with log.part("external"):
            done.set_result(part_object(kernel.definition.codegen, kernel.part(), target, kernel.name))
        return done
    show_loops(log, item, target)
    with log.part("emit"):
        source = _source_of(item, target, backend)
    show_code(log, kernel.name, source, target)
    return maker.submit(kernel.name, source)


def _source_of(item: BuiltKernel, target: Target, backend: Backend) -> SourceCode:
    """The code of ``item``; what a code generator of others gets wrong is told as its own.

    Raises:
        IngotError: whatever it says; INVALID_ARGUMENT, it is of others and failed, or gave no code.
    """
    name = item.kernel.name
    try:
        source = backend.kernel(item.function, target, name)
    except IngotError:
        raise
    except Exception as error:
        if target.kind == KIND:
            raise
        raise _fault(target, name, "failed", "", f"{type(error).__name__}: {error}"[:2000]) from error
    if not isinstance(source, SourceCode):
        raise _fault(target, name, "gave no code", "an ingot.codegen.SourceCode", type(source).__name__)
    return source


def _fault(target: Target, kernel: str, what: str, expected: str, received: str) -> IngotError:
    message = f"the code generator of targets {target.kind!r} {what}"
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, node=kernel, expected=expected, received=received)
