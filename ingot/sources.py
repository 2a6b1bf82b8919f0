"""What this process reads models with, where the compiler is installed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.extras import needing


def compiler() -> AbstractContextManager[None]:
    """Around imports of the compiler: without it, they raise IngotError UNAVAILABLE with the way to get it."""
    return needing("compiler", "the compiler", "or use that of a service (`ingot.Client`, or commands without --local)")


def model_source(model: Any, external_data: Mapping[str, bytes | Path] | None = None) -> Any:
    """The compiler's :class:`ModelSource` for what :func:`ingot.compile` accepts: for an :class:`ingot.ir.Module`, its graph."""
    with compiler():
        from compiler_service.compiler.frontend.reading.source import ModelSource

    if hasattr(model, "_compiler_source"):
        return model._compiler_source()
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    if not isinstance(model, str | Path | bytes | bytearray | memoryview):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "not a model",
            field="model",
            expected="a path, bytes, an onnx.ModelProto, or an ingot.ir.Module",
            received=type(model).__name__,
        )
    return ModelSource(ModelSource.of(model).model, dict(external_data or {}))
