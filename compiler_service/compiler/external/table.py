"""The code generators for parts of models, by name."""

from __future__ import annotations

from compiler_service.compiler.backends.registering import NAMES, check_generator, is_name
from compiler_service.compiler.external.face import ExternalCodegen
from compiler_service.compiler.external.onednn import OneDnn
from shared_ir.errors import ErrorCode, IngotError

_EXTERNAL: dict[str, ExternalCodegen] = {"dnnl": OneDnn()}


def register_external(name: str, codegen: ExternalCodegen) -> None:
    """From now on ``codegen`` makes the parts that are annotated with ``name``, in this process; the last one registered counts.

    Raises:
        IngotError: INVALID_ARGUMENT, no name that a code generator can have, or no code generator.
    """
    if not is_name(name):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"{name!r} is no name for a code generator",
            field="name",
            expected=NAMES,
            received=str(name)[:80],
        )
    check_generator(codegen, ExternalCodegen, "codegen", f"as {name!r}")
    _EXTERNAL[name] = codegen


def external_of(name: str) -> ExternalCodegen:
    """The code generator that was registered as ``name``.

    Raises:
        IngotError: NOT_FOUND.
    """
    found = _EXTERNAL.get(name)
    if found is None:
        raise IngotError(
            ErrorCode.NOT_FOUND,
            f"there is no code generator {name!r} for parts of models",
            expected=" or ".join(sorted(_EXTERNAL)) or "one that is registered",
            received=name,
            remedy="`ingot.codegen.register_external(name, codegen)` adds one to a process.",
        )
    return found
