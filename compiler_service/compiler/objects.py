"""The object of each kernel, from the code generator of the target or from the one that took the part."""

from __future__ import annotations

from concurrent.futures import Future

from compiler_service.compiler.backends.face import Backend, ObjectMaker
from compiler_service.compiler.external.objects import part_object
from compiler_service.compiler.program.kernels import BuiltKernel, ExternalKernel
from compiler_service.compiler.progress import Log
from compiler_service.compiler.showing import show_code, show_loops
from shared_ir.machine.target import Target


def submit_kernel(item: BuiltKernel, target: Target, backend: Backend, maker: ObjectMaker, log: Log) -> Future[bytes]:
    """The object of ``item``, to come.

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
        source = backend.kernel(item.function, target, kernel.name)
    show_code(log, kernel.name, source, target)
    return maker.submit(kernel.name, source)
