"""Nests in tiles: tiles for the caches around a register tile of results, inside of which the sum keeps its accumulators.

Loops, outermost first (S: of results, R: reduced), as Ansor's multi-level tiling has them (Zheng et al., OSDI 2020, section 4.1)::

    S blocks    tasks, and blocks that lie in the second-level cache
    R chunks    where the sum is cut: its accumulators wait in memory from one chunk to the next
    S tiles     register tiles of a block
    R terms
    S           rows, repeated; vectors, repeated; a vector
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.model.tasks import TASKS_PER_CORE
from compiler_service.compiler.schedule.model.tiles import chunk, lanes, register_tiles
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.rewriting import cache_write, rfactor
from compiler_service.compiler.schedule.staging.stage import Inside, ProgramStage
from compiler_service.compiler.tensor_expr.tensor import Axis, Compute, varies
from compiler_service.compiler.tune.sketches.facts import distinct_loads, readers_of, reused_axis, turned_axis, unknown
from compiler_service.compiler.tune.sketches.members import member_loops, place_members
from compiler_service.compiler.tune.sketches.nesting import StageLoops, VectorLoops, vector_loops, vectors_knob
from compiler_service.compiler.tune.sketches.operands import operand, packed, packs_columns, packs_rows
from compiler_service.compiler.tune.sketches.placing import NestGroup
from compiler_service.compiler.tune.sketches.sums import sum_loops
from shared_ir.machine.target import Target

_HEIGHTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
_MOST_REPEATED = 64
"""Largest number of vectors of a register tile: twice what any machine has registers for."""
_LONG_SUM = 64
"""Terms along an axis from which on a sum is long."""
_SHARE_OF_L2 = 0.5
"""Part of the second-level cache that the rows of a block may fill."""


@dataclass(frozen=True)
class RegisterTile:
    """Elements of each axis of the root in the registers at once.

    Attributes:
        heights: by axis, without the last one.
        vectors: of ``width`` lanes, along the last one.
        rows: the axis of several rows; empty where nothing is read again along any.
    """

    heights: dict[str, int]
    width: int
    vectors: int
    rows: str


@dataclass(frozen=True)
class RootLoops:
    """Loops of the root, outermost first: ``blocks``, ``tiles``, and the register tile."""

    blocks: tuple[str, ...]
    tiles: tuple[str, ...]
    rows: tuple[str, ...]
    lane: VectorLoops

    @property
    def inner(self) -> tuple[str, ...]:
        return (*self.rows, *self.lane.vectors, self.lane.lane)


def in_tiles(program: StagedProgram, group: NestGroup, target: Target, knobs: Knobs) -> StagedProgram:
    """``program`` with the nest ``group`` in tiles; with or without a sum inside."""
    product = group.product
    if product == group.root:
        program, product = cache_write(program, group.root)
    root = program.stage(group.root)
    names = _names_in(root, program.stage(product)) if product else {}
    tile = _register_tile(program, root, product, names, target, knobs)
    chunked = ""
    if product:
        program = _with_copies(program, group, product, names, tile, target, knobs)
        program, chunked = _in_chunks(program, product, names, tile, knobs)
    loops = StageLoops.of(root)
    waiting = unknown(root.definition.axes[-1].extent, 1024) if chunked else 0  # accumulators of a row
    parts = _loops_of_root(loops, root, tile, max(waiting, _terms(program, chunked or product)), target, knobs)
    sequence = (*parts.blocks, *parts.tiles)
    loops.order((*sequence, *parts.inner))
    _mark_tile(loops, parts, tile)
    most = len(parts.blocks) if chunked else max(1, len(parts.blocks))  # all chunks of a block are one task's
    program = loops.put_in(program, _tasks(root, parts, most, knobs))
    if product:
        level = len(parts.blocks) if chunked else len(sequence)
        program = program.with_stage(replace(program.stage(product), place=Inside(root.name, _loop(sequence, level))))
        program = sum_loops(program, product, chunked, names, tile.heights, tile.width, tile.vectors, knobs)
        known = {product: level}
    else:
        known = {}
    members = [n for n in group.members if n != product]
    defaults = {n: _level_of(program, n, product, len(parts.blocks), len(sequence)) for n in members}
    reading = {**known, **({chunked: known[product]} if chunked else {})}
    program = place_members(program, root.name, members, sequence, defaults, reading, knobs)
    for name in members:
        program = member_loops(program, name, target, knobs)
    return program


def _loop(sequence: Sequence[str], level: int) -> str:
    return sequence[level - 1] if level else ""


def _level_of(program: StagedProgram, name: str, product: str, blocks: int, tiles: int) -> int:
    """What the sum reads is made for a block, what reads the sum for a register tile."""
    feeds = product and product in readers_of(program, program.stage(name).value)
    return blocks if feeds else tiles


def _names_in(root: ProgramStage, product: ProgramStage) -> dict[str, str]:
    """Axes of ``product`` by the axes of ``root``, which reads it element by element."""
    load = next(ld for ld in distinct_loads(root.definition) if ld.tensor is product.value)
    by_var = {a.var: a.name for a in root.definition.axes}
    return {by_var[i]: a.name for a, i in zip(product.definition.axes, load.indices, strict=True)}  # type: ignore[index]


def _register_tile(
    program: StagedProgram, root: ProgramStage, product: str, names: dict[str, str], target: Target, knobs: Knobs
) -> RegisterTile:
    *others, last = root.definition.axes
    summed = program.stage(product).definition if product else None
    dtype = (program.stage(product) if product else root).value.dtype
    width = lanes(target, dtype)
    reused = reused_axis(summed) if summed else None
    rows = next((a for a in others if reused is not None and names[a.name] == reused.name), None)
    height, vectors = 1, _vectors_of_sum(summed)
    if rows is not None:
        tiles = register_tiles(rows.extent, last.extent, target, dtype)
        height, vectors = min(tiles, key=lambda tile: (tile[0] + tile[1]) / (tile[0] * tile[1]))  # loads for a product
    if rows is not None and summed is not None and all(varies(ld, names[last.name]) for ld in distinct_loads(summed)):
        height, vectors = (
            max(1, target.vector_registers // 2 - 2),
            1,
        )  # nothing is broadcast: what windows share is kept too
    turned = None if product else turned_axis(root.definition)
    if turned is not None:
        rows, height, vectors = turned, width, 1  # squares, which are turned in registers
    vectors = vectors_knob(knobs, f"{root.name} vectors", last.extent, width, vectors)
    heights = {a.name: 1 for a in others}
    left = max(1, _MOST_REPEATED // vectors)
    others.reverse()
    for axis in sorted(others, key=lambda a: a is not rows):
        default = height if axis is rows else 1
        options = [h for h in _HEIGHTS if h <= min(left, unknown(axis.extent, 16))]
        default = min(default, options[-1])
        found = knobs.choice(f"{root.name}.{axis.name} rows", sorted({*options, default}), default)
        heights[axis.name] = found
        left //= found
    return RegisterTile(heights, width, vectors, "" if rows is None else rows.name)


def _vectors_of_sum(summed: Compute | None) -> int:
    """Vectors side by side where there are no rows: long sums go down columns, and should read whole pieces of the rows that they cross."""
    if summed is None or summed.reduction is None:
        return 2
    return 8 if any(unknown(a.extent, 256) >= _LONG_SUM for a in summed.reduction.axes) else 4


def _with_copies(
    program: StagedProgram,
    group: NestGroup,
    product: str,
    names: dict[str, str],
    tile: RegisterTile,
    target: Target,
    knobs: Knobs,
) -> StagedProgram:
    """``program`` with copies of what the sum reads from outside of its nest, in tiles of the register tile."""
    stage = program.stage(product)
    columns = stage.definition.axes[-1]
    rows = names.get(tile.rows)
    width, height = tile.width * tile.vectors, tile.heights.get(tile.rows, 1)
    across = operand(stage, columns.name, rows)
    inside = {program.stage(n).value for n in group.members}
    fits = across is not None and width <= unknown(columns.extent, width) and across.load.tensor not in inside
    if across is not None and fits and packs_columns(stage, across, height, width, knobs):
        program = packed(program, product, across, width, target)
    down = operand(stage, rows, columns.name) if rows else None
    if down is not None and down.load.tensor not in inside and packs_rows(stage, down, height, target, knobs):
        program = packed(program, product, down, height, target)
    return program


def _in_chunks(
    program: StagedProgram, product: str, names: dict[str, str], tile: RegisterTile, knobs: Knobs
) -> tuple[StagedProgram, str]:
    """``program`` with the sum cut along its longest axis, as the knob ``NAME chunk`` says, and the stage of one chunk."""
    found = program.stage(product).definition.reduction
    assert found is not None
    axis = max(found.axes, key=lambda a: unknown(a.extent, 0))
    if not tile.rows or unknown(axis.extent, 0) < 256:
        return program, ""
    options = [
        0,
        *(
            n
            for n in (64, 128, 192, 256, 384, 512, 1024)
            if unknown(axis.extent, 0) % n == 0 and n < unknown(axis.extent, 0)
        ),
    ]
    size = knobs.choice(f"{product} chunk", options, 0)
    return rfactor(program, product, axis.name, size, outer=True) if size else (program, "")


def _terms(program: StagedProgram, product: str) -> int:
    """Elements of one row that the sum reads."""
    reduction = program.stage(product).definition.reduction if product else None
    count = 1
    for axis in reduction.axes if reduction else ():
        count *= unknown(axis.extent, 256)
    return count


def _loops_of_root(
    loops: StageLoops, root: ProgramStage, tile: RegisterTile, terms: int, target: Target, knobs: Knobs
) -> RootLoops:
    *others, last = root.definition.axes
    blocks: list[str] = []
    tiles: list[str] = []
    rows: list[str] = []
    for number, axis in enumerate(others):
        height = tile.heights[axis.name]
        default = _block(axis, height, number, tile, terms * root.value.dtype.itemsize, target)
        block = knobs.split(f"{root.name}.{axis.name} block", axis.extent, default, multiple=height)
        outer = loops.split(axis.name, block) if block > height else ()
        tiled = loops.split(axis.name, height)
        if height > 1:
            blocks += outer
            tiles += tiled
            rows.append(axis.name)
        elif outer or axis.name == tile.rows or (number == len(others) - 1 and not tile.rows):
            blocks += outer
            tiles.append(axis.name)
        else:
            blocks.append(axis.name)
    step = tile.width * tile.vectors
    whole = unknown(last.extent, 1 << 20)
    wide = knobs.split(f"{root.name}.{last.name} block", last.extent, max(whole, step), multiple=step)
    outer = loops.split(last.name, wide) if wide > step else ()
    lane = vector_loops(loops, last.name, tile.width, tile.vectors)
    if outer and lane.tiles == outer:
        outer = ()
    place = _place_of_columns(root, blocks, tiles, tile, knobs)
    order = [*blocks, *tiles]
    order[place:place] = lane.tiles
    count = len(blocks) + (len(lane.tiles) if place < len(blocks) else 0)
    return RootLoops((*outer, *order[:count]), tuple(order[count:]), tuple(rows), lane)


def _block(axis: Axis, height: int, number: int, tile: RegisterTile, row_bytes: int, target: Target) -> int:
    """Elements of a block of ``axis`` as the model has it; all of them where nothing is gained."""
    whole = unknown(axis.extent, 1 << 20)
    if axis.name == tile.rows:
        fitting = max(1, int(target.l2 * _SHARE_OF_L2) // max(1, row_bytes) // height) * height
        return chunk(axis.extent, height, -(-whole // fitting)) if whole >= 2 * fitting else whole
    if number == 0 and target.cores > 1 and not tile.rows:
        return chunk(axis.extent, height, TASKS_PER_CORE * target.cores)
    return whole


def _place_of_columns(root: ProgramStage, blocks: list[str], tiles: list[str], tile: RegisterTile, knobs: Knobs) -> int:
    """How many loops stand outside of the tiles of the last axis: none of those of a block, so that what the tile reads stays near."""
    default = len(blocks) if tile.rows else len(blocks) + len(tiles)
    return knobs.range(f"{root.name} columns after", 0, len(blocks) + len(tiles), default)


def _mark_tile(loops: StageLoops, parts: RootLoops, tile: RegisterTile) -> None:
    loops.unroll(parts.rows)
    loops.unroll(parts.lane.vectors)
    if parts.lane.is_vector:
        loops.vectorize(parts.lane.lane)


def _tasks(root: ProgramStage, parts: RootLoops, most: int, knobs: Knobs) -> tuple[str, ...]:
    """The outermost loops that are tasks: by default all blocks."""
    possible: list[str] = []
    axes: set[str] = set()
    for name in (*parts.blocks, *parts.tiles):
        axis = next(a.name for a in root.definition.axes if name == a.name or name.startswith(f"{a.name}."))
        if axis in axes:
            break
        axes.add(axis)
        possible.append(name)
    most = min(len(possible), most)
    return tuple(possible[: knobs.range(f"{root.name} tasks", 0, most, most)])
