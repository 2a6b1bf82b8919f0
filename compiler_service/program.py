"""The plan and the weights: graph + memory plan + built kernels -> what an artifact holds beside its code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler_service.graph_passes.plan_memory import MemoryPlan, Placement
from compiler_service.kernels import BuiltKernel
from compiler_service.schedule.packing import Preparation
from compiler_service.schedule.steps import to_json
from compiler_service.tensor_expr.group import KernelDefinition
from compiler_service.tensor_expr.tensor import Tensor
from shared_ir.dim import Dim, as_dim, dim_text, product
from shared_ir.expr import Var, lift
from shared_ir.graph import Module, Value
from shared_ir.plan import (
    ALIGNMENT,
    BufferSpec,
    Constraint,
    KernelSpec,
    Launch,
    Plan,
    Storage,
    SymbolSource,
    TensorSpec,
)


@dataclass
class Weights:
    """Prepared constants laid out one after the other, each 64-byte aligned; equal ones are kept once."""

    size: int = 0
    _offsets: dict[tuple[Value, Preparation], int] = field(default_factory=dict)
    _arrays: list[tuple[int, np.ndarray, Tensor, Preparation]] = field(default_factory=list)

    def place(self, value: Value, array: np.ndarray, argument: Tensor, preparation: Preparation) -> int:
        """Offset in bytes of ``array`` as ``preparation`` makes it."""
        key = (value, preparation)
        if key not in self._offsets:
            self.size = -(-self.size // ALIGNMENT) * ALIGNMENT
            self._offsets[key] = self.size
            self._arrays.append((self.size, array, argument, preparation))
            self.size += _prepared_size(array, argument, preparation)
        return self._offsets[key]

    def to_bytes(self) -> bytes:
        """The contents of ``weights.bin``."""
        blob = bytearray(self.size)
        view = np.frombuffer(blob, np.uint8)
        for offset, array, argument, preparation in self._arrays:
            flat = np.ascontiguousarray(preparation.apply(array, argument)).reshape(-1).view(np.uint8)
            view[offset : offset + flat.size] = flat
        return bytes(blob)


def _prepared_size(array: np.ndarray, argument: Tensor, preparation: Preparation) -> int:
    if preparation == Preparation():
        return array.size * array.itemsize
    return math.prod(int(str(d)) for d in preparation.shape(argument.shape)) * array.itemsize


@dataclass(frozen=True)
class Program:
    plan: Plan
    weights: Weights


def build_program(
    module: Module,
    memory: MemoryPlan,
    definitions: Sequence[KernelDefinition],
    numbers: Sequence[int],
    built: Sequence[BuiltKernel],
    scratch: Sequence[int],
    name: str,
) -> Program:
    """The plan that runs ``definitions`` in order; ``numbers[i]`` is the kernel of definition i, ``scratch`` bytes by kernel."""
    buffers = _Buffers(module, memory)
    steps = tuple(buffers.launch(d, n, built[n]) for d, n in zip(definitions, numbers, strict=True))
    graph = module.graph
    plan = Plan(
        name=name,
        inputs=_specs(module.input_names, graph.inputs),
        outputs=_specs(module.output_names, graph.outputs),
        symbols=_symbol_sources(graph.inputs),
        constraints=_constraints(definitions),
        buffers=tuple(buffers.specs),
        kernels=tuple(
            KernelSpec(b.kernel.name, tuple(s.name for s in b.function.symbols), size, tuple(to_json(b.schedule)))
            for b, size in zip(built, scratch, strict=True)
        ),
        steps=steps,
        arena_size=memory.arena_size,
        weights_size=buffers.weights.size,
        metadata=dict(module.metadata),
    )
    return Program(plan, buffers.weights)


class _Buffers:
    """Numbers the buffers of the plan as launches ask for them."""

    def __init__(self, module: Module, memory: MemoryPlan) -> None:
        self.specs: list[BufferSpec] = []
        self.weights = Weights()
        self._constants: Mapping[Value, np.ndarray] = module.graph.constants
        self._memory = memory
        self._numbers: dict[tuple[Value, int], int] = {}

    def launch(self, definition: KernelDefinition, number: int, built: BuiltKernel) -> Launch:
        prepared = built.kernel.preparations(built.schedule)
        arguments = [
            self._argument(value, argument, preparation)
            for value, argument, preparation in zip(definition.operands, definition.arguments, prepared, strict=True)
        ]
        moved = as_dim(sum((lift(_bytes(v)) for v in (*definition.operands, definition.result)), start=lift(0)))
        return Launch(
            kernel=number,
            buffers=(*arguments, self._number(definition.result, self._memory.buffers[definition.result], -1)),
            symbols=definition.parameters,
            tasks=built.tasks(definition),
            flops=definition.flops,
            bytes=moved,
            nodes=definition.nodes,
            label=definition.label,
        )

    def _argument(self, value: Value, argument: Tensor, preparation: Preparation) -> int:
        if value not in self._constants:
            return self._number(value, self._memory.buffers[value], -1)
        offset = self.weights.place(value, self._constants[value], argument, preparation)
        size = _prepared_size(self._constants[value], argument, preparation)
        return self._number(value, Placement(Storage.WEIGHT, size, offset), offset)

    def _number(self, value: Value, placement: Placement, offset: int) -> int:
        key = (value, offset)
        if key not in self._numbers:
            self._numbers[key] = len(self.specs)
            self.specs.append(
                BufferSpec(
                    storage=placement.storage,
                    dtype=value.dtype,
                    shape=value.shape,
                    size=placement.size,
                    offset=placement.offset,
                    index=placement.index,
                    name=value.name,
                )
            )
        return self._numbers[key]


def _bytes(value: Value) -> Dim:
    return as_dim(lift(product(value.shape)) * value.dtype.itemsize)


def _specs(names: Sequence[str], values: Sequence[Value]) -> tuple[TensorSpec, ...]:
    names = names or [v.name for v in values]
    return tuple(TensorSpec(n, v.dtype, v.shape) for n, v in zip(names, values, strict=True))


def _constraints(definitions: Sequence[KernelDefinition]) -> tuple[Constraint, ...]:
    """What the definitions take for granted about extents, for the run to check; each once."""
    found: dict[tuple[Dim, Dim, bool], Constraint] = {}
    for definition in definitions:
        where = ", ".join(n for n in definition.nodes if n) or definition.label
        for a in definition.assumptions:
            message = f"node '{where}': {dim_text(a.actual)} must be {'at least ' if a.lower else ''}{dim_text(a.expected)}"
            found.setdefault((a.actual, a.expected, a.lower), Constraint(a.actual, a.expected, message, a.lower))
    return tuple(found.values())


def _symbol_sources(inputs: Sequence[Value]) -> tuple[SymbolSource, ...]:
    """Each symbol is read from the first axis that it is the extent of."""
    found: dict[str, SymbolSource] = {}
    for i, value in enumerate(inputs):
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, Var) and dim.name not in found:
                found[dim.name] = SymbolSource(dim.name, i, axis)
    return tuple(found.values())
