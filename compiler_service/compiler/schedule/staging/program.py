"""A program of stages: what is computed from given tensors, cut into the kernels that its schedule asks for.

A stage at the root is a kernel: it and all that is computed inside of it. What a kernel reads of another one is an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.state import misfit
from compiler_service.compiler.schedule.language.steps import (
    Alias,
    ComputeAt,
    Inline,
    Parallel,
    PlainStep,
    StorageAlign,
)
from compiler_service.compiler.schedule.staging.stage import AtRoot, InPlace, Inside, ProgramStage, stage_value
from compiler_service.compiler.tensor_expr.kernel.group import known_element
from compiler_service.compiler.tensor_expr.tensor import Compute, Load, Placeholder, Tensor, loads, topological
from shared_ir.expr import Expr, transform
from shared_ir.expr.dim import dim_symbols

Nest: TypeAlias = tuple[ProgramStage, ...]
"""A stage at the root, which is the last one, and all that is computed inside of it, producers first."""


@dataclass(frozen=True)
class ProgramKernel:
    """What one nest computes.

    Attributes:
        stage: whose values it fills.
        output: the stage as a tensor of its arguments.
        schedule: of ``output``.
        movable: stages inside of it that may be on the stack or in scratch memory.
    """

    stage: ProgramStage
    output: Tensor
    arguments: tuple[Tensor, ...]
    schedule: Schedule
    movable: frozenset[str] = frozenset()

    @classmethod
    def of(cls, members: Nest) -> Self:
        root = members[-1]
        tensors: dict[Tensor, Tensor] = {}
        for stage in members:
            body = redirected(stage.definition.body, tensors)
            op = replace(stage.definition, body=body)
            tensors[stage.value] = replace(stage.value, op=op)
        output = tensors[root.value]
        arguments = tuple(t for t in topological(output) if isinstance(t.op, Placeholder))
        movable = frozenset(s.name for s in members if isinstance(s.place, Inside) and not s.place.scope)
        return cls(root, output, arguments, tuple(_steps(root, members)), movable)

    @property
    def symbols(self) -> tuple[str, ...]:
        """What extents depend on, in order."""
        return tuple(sorted(dim_symbols(d for t in (*self.arguments, self.output) for d in t.shape)))


@dataclass(frozen=True)
class StagedProgram:
    """Stages by name, producers first.

    Attributes:
        values: what others read each tensor by that the program was made of: arguments, and values of stages.
        outputs: names of the stages whose values are results.
    """

    stages: Mapping[str, ProgramStage]
    values: Mapping[Tensor, Tensor]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, outputs: Sequence[Tensor]) -> Self:
        """Every computed tensor is a stage at the root, with one loop for each axis."""
        order = list(dict.fromkeys(t for output in outputs for t in topological(output)))
        values: dict[Tensor, Tensor] = {}
        stages: dict[str, ProgramStage] = {}
        for tensor in order:
            name = _unique(tensor.name, {v.name for v in values.values()})
            values[tensor] = stage_value(name, tensor)
            if isinstance(tensor.op, Compute):
                stages[name] = ProgramStage(values[tensor], replace(tensor.op, body=redirected(tensor.op.body, values)))
        return cls(stages, values, tuple(values[t].name for t in outputs))

    def stage(self, name: str) -> ProgramStage:
        if name not in self.stages:
            raise misfit("no such stage", ", ".join(self.stages), name)
        return self.stages[name]

    def with_stage(self, stage: ProgramStage) -> Self:
        return replace(self, stages={**self.stages, stage.name: stage})

    def before(self, name: str, stage: ProgramStage) -> Self:
        """With a new stage, just before the one called ``name``."""
        stages: dict[str, ProgramStage] = {}
        for own, found in self.stages.items():
            if own == name:
                stages[stage.name] = stage
            stages[own] = found
        return replace(self, stages=stages)

    def fresh(self, wanted: str) -> str:
        """A name like ``wanted`` that no tensor has."""
        return _unique(wanted, {v.name for v in self.values.values()} | set(self.stages))

    def readers(self, value: Tensor) -> tuple[str, ...]:
        """Names of the stages that read ``value``."""
        return tuple(n for n, s in self.stages.items() if any(ld.tensor is value for ld in loads(s.definition.body)))

    def nests(self) -> tuple[Nest, ...]:
        """The stages of each kernel, in the order in which the kernels run; those whose results nobody reads are left out.

        Raises:
            IngotError: INVALID_ARGUMENT, a stage is computed inside of one kernel and read by another one.
        """
        found = {n: self._members(s) for n, s in self.stages.items() if isinstance(s.place, AtRoot)}
        wanted = set(self.outputs)
        for name, members in reversed(found.items()):
            if name in wanted:
                wanted |= {ld.tensor.name for s in members for ld in loads(s.definition.body)}
        return tuple(members for name, members in found.items() if name in wanted)

    def kernels(self) -> tuple[ProgramKernel, ...]:
        """What :meth:`nests` compute."""
        return tuple(map(ProgramKernel.of, self.nests()))

    def _members(self, root: ProgramStage) -> Nest:
        """``root`` and the stages that are computed inside of it, producers first."""
        by_value = {s.value: s for s in self.stages.values()}
        found: dict[str, ProgramStage] = {}

        def visit(stage: ProgramStage) -> None:
            for load in dict.fromkeys(ld.tensor for ld in loads(stage.definition.body)):
                producer = by_value.get(load)
                if producer is not None and producer.name not in found and not isinstance(producer.place, AtRoot):
                    visit(producer)
            found[stage.name] = stage

        visit(root)
        for stage in found.values():
            if isinstance(stage.place, Inside) and stage.place.consumer not in found:
                raise misfit(
                    f"{stage.name} is computed inside of {stage.place.consumer}, and read outside of it",
                    "a stage that all of its readers are, or are computed inside of",
                    f"{root.name} reads it too",
                )
        order = {name: number for number, name in enumerate(self.stages)}
        return tuple(sorted(found.values(), key=lambda s: order[s.name]))


def redirected(body: Expr, values: Mapping[Tensor, Tensor]) -> Expr:
    """``body``, which reads ``values`` in the place of tensors, and holds the elements that are known."""

    def read(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.tensor.value is not None and (element := known_element(node)) is not None:
            return element
        if isinstance(node, Load) and node.tensor in values:
            return Load(values[node.tensor], node.indices)
        return None

    return transform(body, read)


def _steps(root: ProgramStage, members: Sequence[ProgramStage]) -> Iterator[PlainStep]:
    yield from (Inline(s.name) for s in reversed(members) if isinstance(s.place, InPlace))
    for stage in members:
        if not isinstance(stage.place, InPlace):
            yield from stage.steps
    for stage in members:
        if isinstance(stage.place, Inside):
            place = stage.place
            if stage.in_result:
                yield Alias(stage.name)
            yield ComputeAt(stage.name, place.consumer, place.loop, place.scope or "stack")
            if stage.align is not None:
                yield StorageAlign(stage.name, *stage.align)
    if root.tasks:
        yield Parallel(root.name, root.tasks)


def _unique(wanted: str, taken: set[str]) -> str:
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    return name
