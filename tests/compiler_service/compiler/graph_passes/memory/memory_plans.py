"""Plans of graphs without their kernels, which may be spoilt before they are proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from compiler_service.compiler.graph_passes.memory.plan_memory import MemoryPlan, Placement, plan_memory
from compiler_service.compiler.graph_passes.memory.verify_memory import ProvedProgram, verify_memory
from compiler_service.compiler.program.definitions import define_kernels
from compiler_service.compiler.program.steps import StepBuilder
from compiler_service.compiler.program.variants import Variant
from compiler_service.compiler.tensor_expr.assumptions import Assumption
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition
from shared_ir.graph.ir import Graph, Module, Value, all_constants
from shared_ir.plan.program import BufferSpec, Launch, Step, Storage


@dataclass
class _Buffers:
    constants: Mapping[Value, np.ndarray]
    memory: MemoryPlan
    specs: list[BufferSpec] = field(default_factory=list)

    def launch(self, definition: KernelDefinition) -> Launch:
        values = (*definition.operands, definition.result)
        return Launch(0, tuple(map(self.buffer, values)), (), 1, nodes=definition.nodes)

    def assumptions(self, definition: KernelDefinition) -> tuple[Assumption, ...]:
        return definition.assumptions

    def buffer(self, value: Value) -> int:
        is_weight = value in self.constants
        return self.place(value, Placement(Storage.WEIGHT, 0) if is_weight else self.memory.buffers[value])

    def place(self, value: Value, placement: Placement) -> int:
        place = (placement.storage, value.dtype, value.shape, placement.size, placement.offset, placement.index)
        self.specs.append(BufferSpec(*place, value.name))
        return len(self.specs) - 1


@dataclass(frozen=True)
class Planned:
    """A fused graph, where its values live, and the steps that follow from that."""

    graph: Graph
    memory: MemoryPlan
    program: ProvedProgram

    @classmethod
    def of(cls, graph: Graph, memory: MemoryPlan | None = None) -> Planned:
        memory = plan_memory(graph) if memory is None else memory
        definitions = define_kernels(Variant(Module(graph))).definitions
        buffers = _Buffers(all_constants(graph), memory)
        builder = StepBuilder.of(graph, memory, definitions, buffers)
        steps = builder.steps(graph)
        slots = tuple(p.index if p.storage is Storage.SLOT else -1 for p in (memory.buffers[v] for v in graph.outputs))
        constraints = tuple(builder.constraints.values())
        return cls(graph, memory, ProvedProgram(graph, memory, definitions, steps, buffers.specs, constraints, slots))

    def named(self, name: str) -> Value:
        return next(v for v in self.memory.buffers if v.name == name)

    def place(self, name: str) -> Placement:
        return self.memory.buffers[self.named(name)]

    def moved(self, **places: Placement) -> Planned:
        """With values somewhere else, in an arena that has room for all of them."""
        buffers = dict(self.memory.buffers) | {self.named(n): p for n, p in places.items()}
        return Planned.of(self.graph, replace(self.memory, buffers=buffers, arena_size=1 << 30))

    def stepping(self, steps: Sequence[Step]) -> Planned:
        """With other steps."""
        return replace(self, program=replace(self.program, steps=steps))

    def verify(self) -> None:
        verify_memory(self.program)
