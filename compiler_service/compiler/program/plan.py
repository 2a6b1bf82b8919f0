"""The plan and the weights: graph + memory plan + built kernels -> what an artifact holds beside its code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler_service.compiler.graph_passes.memory.plan_memory import MemoryPlan, Placement
from compiler_service.compiler.graph_passes.memory.verify_memory import ProvedProgram, verify_memory
from compiler_service.compiler.program.kernels import BuiltKernel
from compiler_service.compiler.program.steps import ConstraintKey, StepBuilder
from compiler_service.compiler.program.variants import Variant
from compiler_service.compiler.program.weights import Weights, prepared_size
from compiler_service.compiler.schedule.language.packing import Preparation
from compiler_service.compiler.schedule.records import to_json
from compiler_service.compiler.tensor_expr.assumptions import Assumption
from compiler_service.compiler.tensor_expr.kernel.external import ExternalDefinition
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.expr import Var, lift, not_equal, select
from shared_ir.expr.dim import Dim, as_dim, product
from shared_ir.graph.ir import Module, Value
from shared_ir.plan.program import (
    Branch,
    BufferSpec,
    Check,
    Constraint,
    KernelSpec,
    Launch,
    Plan,
    Step,
    Storage,
    SymbolSource,
    TensorSpec,
)
from shared_ir.types import ObjectType, TensorType


@dataclass(frozen=True)
class BuiltProgram:
    plan: Plan
    weights: Weights


def build_program(
    variants: Sequence[Variant],
    numbers: Sequence[int],
    built: Sequence[BuiltKernel],
    scratch: Sequence[int],
    name: str,
    batch: str = "",
    *,
    proves: bool = False,
) -> BuiltProgram:
    """The plan that runs the first of ``variants`` that is open to a run; the last one is to all.

    ``numbers[i]`` is the kernel of definition i, counted over all variants; ``scratch`` is bytes by kernel. ``batch``: see
    :class:`Plan`. ``proves``: each way is proved to read what it means to read.
    """
    weights, specs = Weights(by_content=len(variants) > 1), list[BufferSpec]()
    left = iter(numbers)
    ways = [
        _way(v, [built[n] for n in own], own, specs, weights)
        for v in variants
        for own in [[next(left) for _ in v.definitions]]
    ]
    general, module = ways[-1], variants[-1].module
    if proves:
        for variant, way in zip(variants, ways, strict=True):
            verify_memory(way.proved(variant, specs))
    common = _common(variants, ways)
    steps: tuple[Step, ...] = (*general.checks(variants[-1], common), *general.steps)
    arena_size = general.arena_size
    for variant, way in zip(reversed(variants[:-1]), reversed(ways[:-1]), strict=True):
        steps = (Branch(variant.condition, (*way.checks(variant, common), *way.steps), steps),)
        arena_size = as_dim(select(not_equal(lift(variant.condition), 0), lift(way.arena_size), lift(arena_size)))
    inputs = _inputs(module, specs, weights)
    plan = Plan(
        name=name,
        inputs=inputs,
        outputs=_specs(module, module.output_names, _outputs(variants)),
        symbols=_symbol_sources(module.graph.inputs),
        constraints=tuple(common.values()),
        buffers=tuple(specs),
        kernels=tuple(_kernel_spec(b, size) for b, size in zip(built, scratch, strict=True)),
        steps=steps,
        arena_size=arena_size,
        weights_size=weights.size,
        metadata=dict(module.metadata),
        run_symbols=tuple(dict.fromkeys(s for way in ways for s in way.run_symbols)),
        output_slots=general.output_slots,
        slots=max(way.slots for way in ways),
        strings=module.strings,
        batch=batch,
    )
    return BuiltProgram(plan, weights)


def _kernel_spec(built: BuiltKernel, scratch: int) -> KernelSpec:
    symbols, schedule = tuple(s.name for s in built.function.symbols), tuple(to_json(built.schedule))
    spec, definition = KernelSpec(built.kernel.name, symbols, scratch, schedule), built.kernel.definition
    if isinstance(definition, ExternalDefinition):
        return replace(spec, part=definition.codegen, constants=definition.constants)
    return spec


def _inputs(module: Module, buffers: list[BufferSpec], weights: Weights) -> tuple[TensorSpec, ...]:
    """The inputs; what is taken where the caller gives none is a weight, in a buffer of its own."""
    found = []
    for spec, given in zip(_specs(module, module.input_names, module.graph.inputs), module.graph.inputs, strict=True):
        array = module.defaults.get(spec.name)
        if array is not None:
            argument = placeholder(given.name, array.shape, given.dtype)
            value = Value(given.name, TensorType(given.dtype, array.shape))
            offset = weights.place(value, array, argument, Preparation())
            spec = replace(spec, default=len(buffers))
            shape, size = array.shape, array.nbytes
            buffers.append(BufferSpec(Storage.WEIGHT, given.dtype, shape, size, offset, name=given.name))
        found.append(spec)
    return tuple(found)


@dataclass(frozen=True)
class _Way:
    """What one variant makes of a plan."""

    steps: tuple[Step, ...]
    constraints: Mapping[ConstraintKey, Constraint]
    arena_size: Dim
    run_symbols: tuple[str, ...]
    output_slots: tuple[int, ...]
    slots: int

    def checks(self, variant: Variant, common: Mapping[ConstraintKey, Constraint]) -> list[Check]:
        """The constraints that neither hold where this way is taken nor are checked for all."""
        agreed = {} if variant.agreement is None else variant.agreement.pairs
        known = {*common, *((*pair, False) for pair in agreed)}
        return [Check(c) for key, c in self.constraints.items() if key not in known]

    def proved(self, variant: Variant, specs: Sequence[BufferSpec]) -> ProvedProgram:
        """What is to be proved of it: dims that agree, or were chosen to, are equal here."""
        agreed = {} if variant.agreement is None else variant.agreement.pairs
        chosen = [pair for pair, equals in variant.choices.items() if equals]
        equal = [Constraint(*pair, "") for pair in (*agreed, *chosen)]
        constraints = (*self.constraints.values(), *equal)
        return ProvedProgram(
            variant.module.graph, variant.memory, variant.definitions, self.steps, specs, constraints, self.output_slots
        )


def _common(variants: Sequence[Variant], ways: Sequence[_Way]) -> Mapping[ConstraintKey, Constraint]:
    """The constraints of every run. Where extents agree, those of the way without the agreement hold by themselves."""
    shared = [way.constraints for variant, way in zip(variants, ways, strict=True) if variant.agreement is None]
    return {key: c for key, c in shared[-1].items() if all(key in constraints for constraints in shared)}


def _outputs(variants: Sequence[Variant]) -> tuple[Value, ...]:
    """The outputs, with the shapes that they have in all ways; those of a way with an agreement follow from it."""
    outputs = variants[-1].module.graph.outputs
    for variant in reversed([v for v in variants[:-1] if v.agreement is None]):
        outputs = tuple(
            _either(variant.condition, own, other)
            for own, other in zip(variant.module.graph.outputs, outputs, strict=True)
        )
    return outputs


def _either(condition: Dim, own: Value, other: Value) -> Value:
    """An output that has the shape of ``own`` where ``condition`` is not 0."""
    shape = tuple(
        a if a == b else as_dim(select(not_equal(lift(condition), 0), lift(a), lift(b)))
        for a, b in zip(own.shape, other.shape, strict=True)
    )
    return Value(other.name, TensorType(other.dtype, shape))


def _way(
    variant: Variant, built: Sequence[BuiltKernel], numbers: Sequence[int], specs: list[BufferSpec], weights: Weights
) -> _Way:
    results = [d.result for d in variant.definitions]
    by_result, kernels = dict(zip(results, built, strict=True)), dict(zip(results, numbers, strict=True))
    buffers = _Buffers(specs, weights, variant.constants, variant.memory, by_result, kernels)
    graph, memory = variant.module.graph, variant.memory
    builder = StepBuilder.of(graph, memory, variant.definitions, buffers)
    with variant.within():
        steps = builder.steps(graph)
    return _Way(
        steps,
        builder.constraints,
        memory.arena_size,
        tuple(builder.run_symbols),
        _output_slots(graph.outputs, memory),
        memory.slots,
    )


def _output_slots(outputs: Sequence[Value], memory: MemoryPlan) -> tuple[int, ...]:
    places = [memory.buffers[v] for v in outputs]
    slots = tuple(p.index if p.storage is Storage.SLOT else -1 for p in places)
    return slots if any(s >= 0 for s in slots) else ()


class _Buffers:
    """Numbers the buffers of the plan as steps ask for them."""

    def __init__(
        self,
        specs: list[BufferSpec],
        weights: Weights,
        constants: Mapping[Value, np.ndarray],
        memory: MemoryPlan,
        built: Mapping[Value, BuiltKernel],
        kernels: Mapping[Value, int],
    ) -> None:
        self.specs = specs
        self.weights = weights
        self._constants = constants
        self._memory = memory
        self._built = built
        self._kernels = kernels
        self._numbers: dict[tuple[Value, Placement], int] = {}

    def launch(self, definition: KernelDefinition) -> Launch:
        built = self._built[definition.result]
        prepared = built.kernel.preparations(built.schedule)
        arguments = [
            self._argument(value, argument, preparation)
            for value, argument, preparation in zip(definition.operands, definition.arguments, prepared, strict=True)
        ]
        moved = as_dim(sum((lift(_bytes(v)) for v in (*definition.operands, definition.result)), start=lift(0)))
        return Launch(
            kernel=self._kernels[definition.result],
            buffers=(*arguments, self.buffer(definition.result)),
            symbols=definition.parameters,
            tasks=built.tasks(definition),
            flops=_at_most(definition.flops, _LARGEST_COUNT),
            bytes=moved,
            nodes=definition.nodes,
            label=definition.label,
        )

    def assumptions(self, definition: KernelDefinition) -> tuple[Assumption, ...]:
        """What the launch of ``definition`` takes for granted about extents."""
        return (*definition.assumptions, *self._built[definition.result].assumptions(definition))

    def buffer(self, value: Value) -> int:
        """The buffer of a value, constants included."""
        if value in self._constants:
            return self._argument(value, placeholder(value.name, value.shape, value.dtype), Preparation())
        return self.place(value, self._memory.buffers[value])

    def _argument(self, value: Value, argument: Tensor, preparation: Preparation) -> int:
        if value not in self._constants:
            return self.buffer(value)
        offset = self.weights.place(value, self._constants[value], argument, preparation)
        size = prepared_size(self._constants[value], argument, preparation)
        return self.place(value, Placement(Storage.WEIGHT, size, offset))

    def place(self, value: Value, placement: Placement) -> int:
        """A buffer for ``value`` in some memory."""
        key = (value, placement)
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


_LARGEST_COUNT = (1 << 63) - 1
"""A plan holds no larger number. A kernel with more operations than that ends with the deadline of its run."""


def _at_most(dim: Dim, most: int) -> Dim:
    return min(dim, most) if isinstance(dim, int) else dim


def _bytes(value: Value) -> Dim:
    return as_dim(lift(product(value.shape)) * value.dtype.itemsize)


def _specs(module: Module, names: Sequence[str], values: Sequence[Value]) -> tuple[TensorSpec, ...]:
    names = names or [v.name for v in values]
    return tuple(_spec(n, v, module.objects.get(n)) for n, v in zip(names, values, strict=True))


def _spec(name: str, value: Value, own: ObjectType | None) -> TensorSpec:
    return (
        TensorSpec(name, value.dtype, value.shape)
        if own is None
        else TensorSpec(name, own.dtype, value.shape, own.kind)
    )


def _symbol_sources(inputs: Sequence[Value]) -> tuple[SymbolSource, ...]:
    """Each symbol is read from the first axis that it is the extent of."""
    found: dict[str, SymbolSource] = {}
    for i, value in enumerate(inputs):
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, Var) and dim.name not in found:
                found[dim.name] = SymbolSource(dim.name, i, axis)
    return tuple(found.values())
