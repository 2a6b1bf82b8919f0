"""Ingot compiles ONNX models to native code and serves them.

``compile`` and ``load`` work in this process; ``Client`` talks to a compiler service, ``Endpoint`` to a runtime service. ``ingot.ir`` and
``ingot.te`` are the compiler as a library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingot.artifact import Artifact, save_artifacts
from ingot.compiling import compile
from ingot.model import load
from ingot.target import Target
from ingot.tuning import TuningResult, tune
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.extras import needing

if TYPE_CHECKING:
    from ingot.client import Client
    from ingot.codegen import register_backend
    from ingot.endpoint import Endpoint
    from ingot.functions import CompiledFunction, CompiledModule, load_module
    from runtime_service.loading.model import Model

__all__ = (
    "Artifact", "Client", "CompiledFunction", "CompiledModule", "Endpoint", "ErrorCode", "IngotError", "Model", "Target", "TuningResult",
    "compile", "load", "load_module", "register_backend", "save_artifacts", "tune",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """What needs gRPC or the runtime is imported when it is first used."""
    match name:
        case "Client":
            from ingot.client import Client as found
        case "Endpoint":
            from ingot.endpoint import Endpoint as found  # type: ignore[assignment]
        case "CompiledFunction" | "CompiledModule" | "load_module":
            import ingot.functions

            return getattr(ingot.functions, name)
        case "register_backend":
            with needing("compiler", "ingot.register_backend"):
                from ingot.codegen import register_backend as found  # type: ignore[assignment]
        case "Model":
            from runtime_service.loading.model import Model as found  # type: ignore[assignment]
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
