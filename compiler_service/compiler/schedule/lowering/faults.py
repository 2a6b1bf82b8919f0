"""A schedule that cannot be lowered."""

from __future__ import annotations

from shared_ir.errors import ErrorCode, IngotError


def fault(message: str) -> IngotError:
    """COMPILER_FAULT, to raise."""
    return IngotError(ErrorCode.COMPILER_FAULT, f"schedule: {message}")
