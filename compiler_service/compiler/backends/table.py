"""The code generators that there are, by the kind of their targets."""

from __future__ import annotations

from compiler_service.compiler.backends.face import Backend
from compiler_service.compiler.backends.llvm import LlvmBackend
from compiler_service.compiler.backends.registering import NAMES, check_generator, is_name
from compiler_service.compiler.codegen.toolchain.machine import KIND
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target, register_kind

_BACKENDS: dict[str, Backend] = {KIND: LlvmBackend()}


def register_backend(kind: str, backend: Backend) -> None:
    """From now on ``backend`` makes the code for targets of this kind, in this process; the last one registered counts.

    Raises:
        IngotError: INVALID_ARGUMENT, a name that no target can begin with, or ours, or no code generator.
    """
    if not is_name(kind) or kind in (KIND, "host"):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"{kind!r} is no kind of targets that a code generator can be registered for",
            field="kind",
            expected=f"{NAMES}; neither llvm nor host",
            received=str(kind)[:80],
        )
    check_generator(backend, Backend, "backend", f"for {kind!r}")
    register_kind(kind)
    _BACKENDS[kind] = backend


def backend_of(target: Target) -> Backend:
    """The code generator for ``target``.

    Raises:
        IngotError: INVALID_TARGET, there is none of its kind.
    """
    backend = _BACKENDS.get(target.kind)
    if backend is None:
        raise IngotError(
            ErrorCode.INVALID_TARGET,
            f"there is no code generator for targets of kind {target.kind!r}",
            field="target",
            expected=" or ".join(_BACKENDS),
            received=target.kind,
            remedy="`ingot.register_backend(kind, backend)` adds one to a process; a service has those that it was built with.",
        )
    return backend
