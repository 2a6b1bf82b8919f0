"""The state of a schedule: the stages of a kernel with their loops and places."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from compiler_service.compiler.loop_ir.ir import BufferScope
from compiler_service.compiler.schedule.language.steps import Pack
from compiler_service.compiler.tensor_expr.strides import Strides
from compiler_service.compiler.tensor_expr.tensor import (
    Compute,
    Load,
    ReduceOp,
    Reduction,
    Tensor,
    loads,
    topological,
)
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Cast, Expr


class LoopKind(enum.StrEnum):
    SERIAL = "serial"
    UNROLLED = "unrolled"
    VECTORIZED = "vectorized"
    PARALLEL = "parallel"


@dataclass(frozen=True, slots=True)
class StageLoop:
    """Advance ``axis`` by ``step`` elements; ``overlap``, ``peel`` and ``staggered``, the rows of a turn: see the steps of these
    names. One that loops were fused to advances those, its ``parts``, the last one fastest."""

    axis: str
    step: int = 1
    kind: LoopKind = LoopKind.SERIAL
    guarded: bool = False
    overlap: bool = False
    peel: bool = False
    staggered: int = 0
    parts: tuple[StageLoop, ...] = ()

    @property
    def advanced(self) -> tuple[StageLoop, ...]:
        """The loops that it is made of: itself, where it was not fused."""
        return self.parts or (self,)

    @property
    def name(self) -> str:
        return self.axis if self.step == 1 else f"{self.axis}.{self.step}"


@dataclass(frozen=True)
class KernelStage:
    """One computed tensor of the kernel.

    Attributes:
        body: the compute body after inlining.
        attach: (consumer stage, loop) inside which it is computed; None for the output.
        alias: it lives in the output's memory.
        align: factor and offset of the distance between its rows, see :class:`StorageAlign`.
        unread: pairs of axes; the last element of the first is not read where the second is at its last.
    """

    name: str
    tensor: Tensor
    body: Expr
    loops: tuple[StageLoop, ...]
    attach: tuple[str, str] | None = None
    scope: BufferScope = BufferScope.STACK
    alias: bool = False
    align: tuple[int, int] | None = None
    unread: tuple[tuple[str, str], ...] = ()

    @property
    def compute(self) -> Compute:
        assert isinstance(self.tensor.op, Compute)
        return self.tensor.op

    @property
    def reduction(self) -> Reduction | None:
        return self.compute.reduction

    def reads_rows(self, load: Load) -> bool:
        """Whether the stage sums over whole rows, of known length, of what ``load`` reads, and another of its axes counts them."""
        if self.reduction is None or len(load.indices) < 2:
            return False
        *_, row, element = load.indices
        summed, last = self.reduction.axes, load.tensor.shape[-1]
        sized = len(summed) == 1 and isinstance(summed[0].extent, int) and isinstance(last, int)
        return sized and element == summed[0].var and row in {a.var for a in self.compute.axes}

    def adds_products_of(self, tensor: Tensor) -> bool:
        """Whether the stage sums products with elements of ``tensor``, so that zeros among them add nothing."""
        body, summed = self.body, self.reduction is not None and self.reduction.op is ReduceOp.SUM
        if not summed or not isinstance(body, Binary) or body.op is not BinaryOp.MUL:
            return False
        factors = (factor.x if isinstance(factor, Cast) else factor for factor in body.children())
        return any(isinstance(factor, Load) and factor.tensor is tensor for factor in factors)

    def reduces(self, loop: StageLoop) -> bool:
        """Whether ``loop`` goes along an axis that the stage is reduced over."""
        reduced = {a.name for a in self.reduction.axes} if self.reduction else set()
        return any(part.axis in reduced for part in loop.advanced)

    def loop(self, name: str) -> StageLoop:
        for candidate in self.loops:
            if candidate.name == name:
                return candidate
        raise misfit(f"stage {self.name} has no loop {name}", ", ".join(entry.name for entry in self.loops), name)


@dataclass(frozen=True)
class Ahead:
    """The argument whose next tile is asked for, and along which axes the present one is read again (see PrefetchTile)."""

    tensor: Tensor
    sweeps: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Further:
    """The argument that is asked for where ``axis`` of the stage ``reader`` is ``distance`` further (see FetchNext)."""

    tensor: Tensor
    axis: str
    distance: int
    reader: str
    sweeps: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class ScheduleState:
    """All stages, producers first; the last one is the output.

    Attributes:
        packs: how arguments are laid out.
        prefetches: what the loop of a stage asks memory for, by the names of both.
        skips: padded stages, with the axis of each, whose padding the loop of a stage leaves out, by the names of both.
        transformed: arguments that another tensor takes the place of: computed from them at compile time, or the same memory.
        strides: where the elements of the output lie (see :mod:`strides`).
    """

    stages: Mapping[str, KernelStage]
    packs: Mapping[Tensor, Pack]
    prefetches: Mapping[tuple[str, str], tuple[Ahead | Further, ...]]
    transformed: Mapping[Tensor, Tensor]
    skips: Mapping[tuple[str, str], tuple[tuple[str, str], ...]] = field(default_factory=dict)
    strides: Strides | None = None

    @property
    def output(self) -> KernelStage:
        return list(self.stages.values())[-1]

    def stage(self, name: str) -> KernelStage:
        if name not in self.stages:
            raise misfit("no such stage", ", ".join(self.stages), name)
        return self.stages[name]

    def with_stage(self, stage: KernelStage) -> ScheduleState:
        return replace(self, stages={**self.stages, stage.name: stage})

    def stage_of(self, tensor: Tensor) -> KernelStage | None:
        return next((s for s in self.stages.values() if s.tensor is tensor), None)

    def argument(self, tensor: Tensor) -> Tensor:
        """The argument that ``tensor`` takes the place of; itself if it takes none."""
        return next((a for a, other in self.transformed.items() if other is tensor), tensor)

    def consumers(self, tensor: Tensor) -> tuple[KernelStage, ...]:
        return tuple(s for s in self.stages.values() if any(ld.tensor is tensor for ld in loads(s.body)))


def misfit(message: str, expected: str = "", received: str = "") -> IngotError:
    """The error of a step that does not fit."""
    return IngotError(ErrorCode.INVALID_ARGUMENT, f"schedule: {message}", expected=expected, received=received)


def stage_names(output: Tensor) -> dict[Tensor, str]:
    """A unique name for every tensor of a kernel, placeholders too, producers first."""
    names: dict[Tensor, str] = {}
    used: set[str] = set()
    for tensor in topological(output):
        name, i = tensor.name, 1
        while name in used:
            i += 1
            name = f"{tensor.name}_{i}"
        used.add(name)
        names[tensor] = name
    return names
