"""The loops of one stage as they are said: splits, the order, and which of them are vectors or repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.language.steps import PlainStep, Reorder, Split, Unroll, Vectorize
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.stage import ProgramStage
from shared_ir.expr.dim import Dim


@dataclass
class StageLoops:
    """Steps of a stage, in the making.

    Attributes:
        extents: of its axes; of one that is computed inside of another no more than what is read at once.
    """

    stage: ProgramStage
    extents: Mapping[str, Dim]
    steps: list[PlainStep] = field(default_factory=list)

    @classmethod
    def of(cls, stage: ProgramStage) -> StageLoops:
        return cls(stage, {a.name: a.extent for a in stage.definition.all_axes})

    def split(self, axis: str, factor: int) -> tuple[str, ...]:
        """The loop of tiles of ``factor``; none where one tile is all, or a tile is one element."""
        extent = self.extents[axis]
        name, step = f"{axis}.{factor}", Split(self.stage.name, axis, factor)
        if factor < 2 or (isinstance(extent, int) and factor >= extent):
            return ()
        if step not in self.steps:
            self.steps.append(step)
        return (name,)

    def order(self, names: Sequence[str]) -> None:
        self.steps.append(Reorder(self.stage.name, tuple(names)))

    def unroll(self, names: Iterable[str]) -> None:
        self.steps += [Unroll(self.stage.name, n) for n in names]

    def vectorize(self, name: str) -> None:
        self.steps.append(Vectorize(self.stage.name, name))

    def put_in(self, program: StagedProgram, tasks: tuple[str, ...] = ()) -> StagedProgram:
        """``program`` with the stage in these loops."""
        stage = program.stage(self.stage.name)
        return program.with_stage(replace(stage, steps=tuple(self.steps), tasks=tasks))


@dataclass(frozen=True)
class VectorLoops:
    """Loops of the axis that vectors lie along, outermost first: ``tiles`` of several vectors, ``vectors`` repeated, ``lane``."""

    tiles: tuple[str, ...]
    vectors: tuple[str, ...]
    lane: str
    is_vector: bool


def vector_loops(loops: StageLoops, axis: str, width: int, count: int) -> VectorLoops:
    """``count`` vectors of ``width`` lanes at a time; an extent of fewer lanes is one shorter vector."""
    extent = loops.extents[axis]
    if extent == 1 or width == 1:
        return VectorLoops((), (), axis, is_vector=False)
    if isinstance(extent, int) and extent <= width:
        return VectorLoops((), (), axis, is_vector=True)
    if count == 1:
        return VectorLoops(loops.split(axis, width), (), axis, is_vector=True)
    tiles = loops.split(axis, width * count)
    return VectorLoops(tiles, loops.split(axis, width), axis, is_vector=True)


_VECTORS = (1, 2, 3, 4, 6, 8)


def vectors_knob(knobs: Knobs, name: str, extent: Dim, width: int, default: int) -> int:
    """How many vectors of ``width`` are walked side by side along an axis of ``extent``."""
    most = -(-extent // width) if isinstance(extent, int) else _VECTORS[-1]
    return knobs.choice(name, [v for v in _VECTORS if v == 1 or v <= most], max(1, min(default, most)))
