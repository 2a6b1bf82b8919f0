"""Kernels that a code generator other than the target's makes: a part of the model as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim, bind
from shared_ir.graph.ir import Graph, Node, Value
from shared_ir.graph.text import parse_graph


@dataclass(frozen=True)
class ExternalDefinition(KernelDefinition):
    """As a :class:`KernelDefinition`, but ``output`` is a placeholder.

    Attributes:
        codegen: the name of the code generator.
        program: the text of the part, whose inputs are the arguments.
        constants: how many of the arguments, the last ones, are its constants.
    """

    codegen: str = ""
    program: str = ""
    constants: int = 0

    @cached_property
    def text(self) -> str:
        """Of parts, no two are one kernel: each names its function."""
        return f"ingot.External {self.codegen}\n{self.program}"

    def part(self, elements: Sequence[np.ndarray]) -> Graph:
        """The graph, with ``elements`` as its constants."""
        graph = parse_graph(self.program, {})
        inputs = graph.inputs[: len(graph.inputs) - self.constants]
        constants = dict(zip(graph.inputs[len(inputs) :], elements, strict=True))
        return graph.with_(inputs=inputs, constants={**graph.constants, **constants})


def external_kernel(node: Node) -> ExternalDefinition:
    """The kernel of a node whose operator is ``ingot.External``.

    Raises:
        IngotError: COMPILER_FAULT, its result has an extent that its operands do not tell.
    """
    (result,) = node.results
    codegen, program, constants = (node.attributes[k] for k in ("codegen", "program", "constants"))
    assert isinstance(constants, int)
    codegen, program = str(codegen), str(program)
    graph = parse_graph(program, {})
    symbols: dict[str, Dim] = {}
    for own, given in zip(graph.inputs, node.operands, strict=True):
        for dim, extent in zip(own.shape, given.shape, strict=True):
            if isinstance(dim, Var):
                symbols.setdefault(dim.name, extent)
    numbered = {name: Var(f"d{i}") for i, name in enumerate(symbols)}

    def canonical(name: str, value: Value) -> Tensor:
        return placeholder(name, tuple(bind(d, numbered) for d in value.shape), value.dtype)

    (own_result,) = graph.outputs
    if tuple(bind(d, symbols) for d in own_result.shape) != result.shape:
        raise IngotError(
            ErrorCode.COMPILER_FAULT,
            f"the part {graph.name!r} of {codegen!r} has extents that its operands do not tell",
            node=str(node),
            expected=str(own_result),
            received=str(result),
        )
    return ExternalDefinition(
        output=canonical("y", own_result),
        arguments=tuple(canonical(f"x{i}", v) for i, v in enumerate(graph.inputs)),
        operands=node.operands,
        result=result,
        parameters=tuple(symbols.values()),
        nodes=tuple(n.name for n in graph.nodes if n.name) or ((node.name,) if node.name else ()),
        label=graph.name,
        flops=0,
        codegen=codegen,
        program=program,
        constants=constants,
    )
