"""Which stages are computed where they are read, and which stages become one nest."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.model.analysis import depends, is_expensive
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.stage import InPlace, ProgramStage
from compiler_service.compiler.tensor_expr.tensor import Load
from compiler_service.compiler.tune.sketches.facts import (
    Along,
    distinct_loads,
    lanes_along,
    operations,
    read_at,
    readers_of,
    reads_at_own_index,
)
from shared_ir.expr import Expr, substitute, transform
from shared_ir.machine.target import Target

_MOST_REPEATED_OPERATIONS = 6
"""Operations of an element from which on it is kept, where more than one element reads it."""
_MOST_OPERATIONS = 2000
"""Operations of a body, above which nothing more is computed in it: what reads itself doubled ten times over is long."""


@dataclass(frozen=True)
class NestGroup:
    """Stages that become one nest.

    Attributes:
        root: the stage that the others are computed inside of.
        members: the others, producers first.
        product: the member, or the root, that is summed in a register tile of results; empty where there is none.
    """

    root: str
    members: tuple[str, ...]
    product: str


def inlined(program: StagedProgram, knobs: Knobs) -> StagedProgram:
    """``program``, of whose stages some are computed where they are read, as the knobs ``NAME in place`` say: by default what costs
    little or is read once."""
    for name in tuple(program.stages):
        stage = program.stage(name)
        readers = readers_of(program, stage.value)
        if name in program.outputs or stage.definition.reduction is not None or not readers:
            continue
        largest = sum(operations(program.stage(r).definition) for r in readers)
        if largest + 8 * operations(stage.definition) > _MOST_OPERATIONS:
            continue
        if knobs.flag(f"{name} in place", default=_is_better_in_place(program, stage, readers)):
            program = _expanded(program, stage, readers)
    return program


def _is_better_in_place(program: StagedProgram, stage: ProgramStage, readers: tuple[str, ...]) -> bool:
    reads = tuple(read_at(program, stage.value, readers))
    once = len(reads) == 1 and reads[0][0].definition.reduction is None
    if is_expensive(stage.definition.body):
        return once and len(reads[0][1].indices) >= len(reads[0][0].definition.axes)
    return once or operations(stage.definition) * len(reads) <= _MOST_REPEATED_OPERATIONS or _moves_only(stage)


def _moves_only(stage: ProgramStage) -> bool:
    """Whether it is a copy of elements from other places."""
    return isinstance(stage.definition.body, Load)


def _expanded(program: StagedProgram, stage: ProgramStage, readers: tuple[str, ...]) -> StagedProgram:
    """``program`` with the body of ``stage`` in the place of what ``readers`` read of it."""
    axes = [a.var for a in stage.definition.axes]

    def expand(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.tensor is stage.value:
            return substitute(stage.definition.body, dict(zip(axes, node.indices, strict=True)))
        return None

    for name in readers:
        reader = program.stage(name)
        body = transform(reader.definition.body, expand)
        program = program.with_stage(replace(reader, definition=replace(reader.definition, body=body)))
    return program.with_stage(replace(stage, place=InPlace()))


def sums_in_tiles(stage: ProgramStage, target: Target, knobs: Knobs) -> bool:
    """Whether the lanes of a reduction lie along its results, as the knob ``NAME lanes`` says; False of what is none."""
    if stage.definition.reduction is None:
        return False
    ways = [along.value for along in lanes_along(stage.definition, target)]
    return knobs.choice(f"{stage.name} lanes", ways, ways[0]) == Along.RESULTS.value


def groups(program: StagedProgram, apart: frozenset[str], target: Target, knobs: Knobs) -> tuple[NestGroup, ...]:
    """The nests, the last one first. A stage joins the nest that all of its readers are in, as the knobs ``NAME inside`` say; those that
    are to be ``apart`` do not."""
    nests: dict[str, list[str]] = {}
    product: dict[str, str] = {}
    nest_of: dict[str, str] = {}
    for name in reversed(tuple(program.stages)):
        stage = program.stage(name)
        readers = readers_of(program, stage.value)
        if isinstance(stage.place, InPlace) or (name not in program.outputs and not readers):
            continue
        in_tiles = sums_in_tiles(stage, target, knobs)
        homes = {nest_of.get(r, "") for r in readers}
        root = homes.pop() if len(homes) == 1 and name not in (*program.outputs, *apart) else ""
        if root and _joins(program, stage, root, nests[root], product.get(root, ""), in_tiles, knobs):
            nest_of[name] = root
            nests[root].append(name)
        else:
            root = nest_of[name] = name
            nests[name] = []
        if in_tiles and (root == name or _holds_product(program, stage, root, readers)):
            product.setdefault(root, name)
    return tuple(NestGroup(root, tuple(reversed(found)), product.get(root, "")) for root, found in nests.items())


def _holds_product(program: StagedProgram, stage: ProgramStage, root: str, readers: tuple[str, ...]) -> bool:
    """Whether the root can be walked in the register tiles of ``stage``."""
    reader = program.stage(root)
    if readers != (root,) or reader.definition.reduction is not None:
        return False
    return reads_at_own_index(reader, stage.value) and len(stage.definition.axes) == len(reader.definition.axes)


def _joins(
    program: StagedProgram,
    stage: ProgramStage,
    root: str,
    members: list[str],
    product: str,
    in_tiles: bool,
    knobs: Knobs,
) -> bool:
    readers = readers_of(program, stage.value)
    reductions = [n for n in (*members, root) if program.stage(n).definition.reduction is not None]
    if not _is_bounded(program, stage, readers, bool(reductions) and not product):
        return False
    if product:
        feeds = product in readers or any(r in members for r in readers)
        if stage.definition.reduction is not None:
            return False
        return knobs.flag(f"{stage.name} inside", default=not (feeds and is_expensive(stage.definition.body)))
    if in_tiles and not reductions and _holds_product(program, stage, root, readers):
        return knobs.flag(f"{stage.name} inside", default=True)
    if in_tiles and _is_heavy(stage):
        return False
    return knobs.flag(f"{stage.name} inside", default=True)


def _is_bounded(program: StagedProgram, stage: ProgramStage, readers: tuple[str, ...], in_rows: bool) -> bool:
    """Whether what is kept of ``stage`` inside of a nest has a constant size, though only a call knows some of its extents."""
    unsized = [n for n, a in enumerate(stage.definition.axes) if not isinstance(a.extent, int)]
    if in_rows and unsized and stage.definition.reduction is None:
        return False
    for reader, load in read_at(program, stage.value, readers):
        reduced = () if reader.definition.reduction is None else reader.definition.reduction.axes
        if any(depends(load.indices[n], a.name) for n in unsized for a in reduced if not isinstance(a.extent, int)):
            return False
    return True


def _is_heavy(stage: ProgramStage) -> bool:
    """Whether it reads something again for other results, so that it is worth a nest of its own."""
    axes = [a.name for a in stage.definition.axes]
    return any(sum(1 for i in ld.indices) < len(axes) for ld in distinct_loads(stage.definition)) and len(axes) > 1
