"""The code generators that there are, by the kind of their targets."""

from __future__ import annotations

import re

from compiler_service.compiler.backends.face import Backend
from compiler_service.compiler.backends.llvm import LlvmBackend
from compiler_service.compiler.codegen.toolchain.machine import KIND
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target, register_kind

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")
_BACKENDS: dict[str, Backend] = {KIND: LlvmBackend()}


def register_backend(kind: str, backend: Backend) -> None:
    """From now on ``backend`` makes the code for targets of this kind, in this process; the last one registered counts.

    Raises:
        IngotError: INVALID_ARGUMENT, a name that no target can begin with, or ours, or no code generator.
    """
    if not isinstance(kind, str) or not _NAME.match(kind) or kind in (KIND, "host"):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"{kind!r} is no kind of targets that a code generator can be registered for",
            field="kind",
            expected="up to 32 small letters, digits and '_', a letter first; neither llvm nor host",
            received=str(kind)[:80],
        )
    if not isinstance(backend, Backend) or not isinstance(backend.version, str):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"what is registered for {kind!r} is no code generator",
            field="backend",
            expected="an object of a class that is derived of Backend, whose version is a text",
            received=repr(backend)[:200],
        )
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
