"""The factors of a sum of products."""

from __future__ import annotations

from compiler_service.compiler.schedule.language.state import KernelStage
from compiler_service.compiler.tensor_expr.tensor import (
    Load,
)
from shared_ir.expr import Binary, BinaryOp


def factors(stage: KernelStage) -> tuple[tuple[Load, Load], ...]:
    """The loads that ``stage`` multiplies, in both orders."""
    found = stage.body.children() if isinstance(stage.body, Binary) and stage.body.op is BinaryOp.MUL else ()
    if len(found) != 2 or not all(isinstance(f, Load) for f in found):
        return ()
    first, second = (f for f in found if isinstance(f, Load))
    return (first, second), (second, first)
