"""Kernels that a loop function defines: what one launch of a sequential operator computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from compiler_service.compiler.tensor_expr.assumptions import Assumption
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.expr import Expr, Var
from shared_ir.expr.dim import Dim, dims_text
from shared_ir.graph.ir import Attribute, Node, Value
from shared_ir.types import TensorType


@dataclass(frozen=True)
class AlgorithmDefinition(KernelDefinition):
    """As a :class:`KernelDefinition`, but ``output`` is a placeholder, and ``algorithm`` names the loop function."""

    algorithm: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """Equal for kernels that differ only in names."""
        types = ", ".join(f"{t.dtype}[{dims_text(t.shape)}]" for t in (*self.arguments, self.output))
        numbers = {k: v for k, v in sorted(self.attributes.items()) if not isinstance(v, Expr | TensorType)}
        return f"{self.algorithm}({types}) {numbers}"


def algorithm_kernel(node: Node) -> AlgorithmDefinition:
    """The kernel of a node whose operator is in :data:`operators.sequential.SEQUENTIAL`."""
    (result,) = node.results
    parameters: dict[Expr, Var] = {}

    def dim(value: Dim) -> Dim:
        return value if isinstance(value, int) else parameters.setdefault(value, Var(f"d{len(parameters)}"))

    def canonical(name: str, value: Value) -> Tensor:
        return placeholder(name, tuple(dim(d) for d in value.shape), value.dtype)

    arguments = tuple(canonical(f"x{i}", v) for i, v in enumerate(node.operands))
    return AlgorithmDefinition(
        output=canonical("y", result),
        arguments=arguments,
        operands=node.operands,
        result=result,
        parameters=tuple(parameters),
        nodes=(node.name,) if node.name else (),
        label=node.op.removeprefix("ingot."),
        flops=0,
        assumptions=_assumptions(node),
        algorithm=node.op,
        attributes=node.attributes,
    )


def _assumptions(node: Node) -> tuple[Assumption, ...]:
    """``ingot.Best`` has ``count`` elements to choose from."""
    count, extent = node.attributes.get("count"), node.operands[0].shape[-1]
    if node.op != "ingot.Best" or not isinstance(count, int) or isinstance(extent, int):
        return ()
    return (Assumption(extent, count, lower=True),)
