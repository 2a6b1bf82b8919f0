"""A staged program as a graph: a group for each of its kernels, whose definition is the tensor that the schedule is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler_service.compiler.graph_passes.memory.plan_memory import plan_memory
from compiler_service.compiler.program.implied import ImpliedSymbols
from compiler_service.compiler.program.kernels import Kernel, kernel_of, linker_name
from compiler_service.compiler.program.variants import Variant
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.staging.lowered import LoweredKernel
from compiler_service.compiler.schedule.staging.program import ProgramKernel, StagedProgram
from compiler_service.compiler.tensor_expr.assumptions import requirements
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition, canonical, flops_of
from compiler_service.compiler.tensor_expr.tensor import Tensor
from compiler_service.compiler.tensor_expr.text import print_tensors
from shared_ir.expr.dim import Dim, bind
from shared_ir.graph.ir import GROUP_OP, Graph, Module, Node, Value
from shared_ir.types import TensorType

_STAGES_OP = "ingot.Stages"
"""What stands in the body of a group for stages: an operator that no pass knows anything about."""


@dataclass(frozen=True)
class StagedKernel:
    """A kernel and its schedule."""

    kernel: Kernel
    schedule: Schedule


def staged_variant(
    program: StagedProgram, lowered: Sequence[LoweredKernel], arguments: Sequence[Tensor], name: str
) -> tuple[Variant, tuple[StagedKernel, ...]]:
    """The graph of ``program``, called with ``arguments`` in this order, and its kernels, which were ``lowered``, in the order in
    which they run."""
    given = [program.values[a] for a in arguments]
    needed = (d for own in lowered for t in (*own.kernel.arguments, own.kernel.output) for d in t.shape)
    implied = ImpliedSymbols.of([(t.name, t.shape) for t in given], needed)
    values = {t.name: _value(t, implied.argument(number, t.shape)) for number, t in enumerate(given)}
    inputs = tuple(values.values())
    nodes, definitions, staged = [], [], []
    for number, own in enumerate(lowered):
        kernel = own.kernel
        operands = tuple(values[a.name] for a in kernel.arguments)
        result = values[kernel.stage.name] = _value(kernel.stage.value, implied.shape(kernel.stage.value.shape))
        nodes.append(_group(kernel.stage.name, operands, result))
        definition = _definition(kernel, operands, result, implied)
        definitions.append(definition)
        key = f"{number}: {print_tensors(definition.output)}"
        constant = (False,) * len(operands)
        staged.append(
            StagedKernel(
                kernel_of(f"k{number}_{linker_name(kernel.stage.name)}", key, definition, constant), own.schedule
            )
        )
    outputs = tuple(values[o] for o in program.outputs)
    graph = Graph(name, inputs, outputs, tuple(nodes))
    names = tuple(v.name for v in inputs)
    module = Module(graph, metadata={"graph": name}, input_names=names, output_names=program.outputs)
    variant = Variant(module, memory=plan_memory(graph, in_place=False), definitions=tuple(definitions))
    return variant, tuple(staged)


def _definition(
    kernel: ProgramKernel, operands: tuple[Value, ...], result: Value, implied: ImpliedSymbols
) -> KernelDefinition:
    output, arguments, parameters = canonical(kernel.output, kernel.arguments)
    name = kernel.stage.name
    return KernelDefinition(
        output,
        arguments,
        operands,
        result,
        implied.shape(parameters),
        (name,),
        name,
        bind(flops_of(kernel.output), implied.values),
        (*implied.assumptions, *map(implied.assumed, requirements([kernel.output], fused=True))),
    )


def _group(name: str, operands: tuple[Value, ...], result: Value) -> Node:
    body = Graph(name, operands, (result,), (Node(_STAGES_OP, operands, (result,), {}, name),))
    return Node(GROUP_OP, operands, (result,), {"body": body, "nodes": (name,)}, name)


def _value(tensor: Tensor, shape: tuple[Dim, ...]) -> Value:
    return Value(tensor.name, TensorType(tensor.dtype, shape))
