"""Whether a kernel may write its result over an argument, read off its tensor expression."""

from __future__ import annotations

from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition
from compiler_service.compiler.tensor_expr.strides import row_major
from compiler_service.compiler.tensor_expr.tensor import Compute, Load, Tensor, loads, topological
from shared_ir.expr import Expr, lift
from shared_ir.expr.simplify import simplify
from shared_ir.graph.ir import Value


def reads_in_place(kernel: KernelDefinition, operand: Value) -> bool:
    """Whether every element of the result reads ``operand`` at its own place in memory alone, and no other stage of the kernel does
    differently."""
    given = {a for a, v in zip(kernel.arguments, kernel.operands, strict=True) if v == operand}
    reaching: set[Tensor] = set(given)
    for stage in topological(kernel.output):
        if not isinstance(stage.op, Compute):
            continue
        found = [ld for ld in loads(stage.op.body) if ld.tensor in reaching]
        if not found:
            continue
        if stage.op.reduction is not None or any(not _is_own_place(stage, ld) for ld in found):
            return False
        reaching.add(stage)
    return True


def _is_own_place(stage: Tensor, load: Load) -> bool:
    assert isinstance(stage.op, Compute)
    own = tuple(a.var for a in stage.op.axes)
    return simplify(_place(load.tensor, load.indices) - _place(stage, own)) == lift(0)


def _place(tensor: Tensor, indices: tuple[Expr, ...]) -> Expr:
    strides = row_major(tensor.shape) if tensor.strides is None else tensor.strides
    extents = zip(tensor.shape, indices, strides, strict=True)
    return sum((i * s for d, i, s in extents if d != 1), start=lift(0))
