"""Loops of a sum in register tiles: over its terms, around rows and vectors that are repeated."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.stage import Inside
from compiler_service.compiler.tensor_expr.tensor import Axis
from compiler_service.compiler.tune.sketches.nesting import StageLoops, vector_loops

_MOST_UNROLLED_TERMS = 16
"""Largest extent of a reduced axis that may be written out."""
_MOST_OPERATIONS = 160
"""Operations on vectors of a body that is written out by default."""
_MOST_ORDERED = 4
"""Reduced axes whose order is a knob."""


def sum_loops(
    program: StagedProgram,
    name: str,
    chunk: str,
    names: Mapping[str, str],
    heights: Mapping[str, int],
    width: int,
    vectors: int,
    knobs: Knobs,
) -> StagedProgram:
    """``program`` with loops for the sum ``name``, and for the stage ``chunk`` of a part of its terms where there is one.

    Args:
        names: of its axes, by those of the root.
        heights: rows of the register tile by axes of the root; ``vectors`` of ``width`` lanes along the last axis.
    """
    rows = {names[axis]: height for axis, height in heights.items()}
    if not chunk:
        return _register_sum(program, name, rows, width, vectors, knobs)
    program = _sum_of_chunks(program, name, chunk, rows, width, vectors)
    return _register_sum(program, chunk, rows, width, vectors, knobs, kept=1)


def _register_sum(
    program: StagedProgram, name: str, rows: Mapping[str, int], width: int, vectors: int, knobs: Knobs, kept: int = 0
) -> StagedProgram:
    """``kept``: axes behind those of the results, which count chunks."""
    stage = program.stage(name)
    reduction = stage.definition.reduction
    assert reduction is not None
    axes = stage.definition.axes[: len(stage.definition.axes) - kept]
    loops, last = StageLoops.of(stage), axes[-1]
    lane = vector_loops(loops, last.name, width, vectors)
    tiled = [a.name for a in axes[:-1] if rows.get(a.name, 1) > 1]
    outer = [a.name for a in stage.definition.axes if a.name not in tiled and a is not last]
    size = max(1, vectors)
    for axis in tiled:
        size *= rows[axis]
    terms, unrolled = _term_order(loops, name, reduction.axes, size, knobs)
    loops.order((*outer, *lane.tiles, *terms, *tiled, *lane.vectors, lane.lane))
    loops.unroll((*unrolled, *tiled, *lane.vectors))
    if lane.is_vector:
        loops.vectorize(lane.lane)
    return loops.put_in(program)


def _term_order(
    loops: StageLoops, name: str, axes: tuple[Axis, ...], size: int, knobs: Knobs
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Loops over the terms, and those of them that are written out."""
    order = tuple(range(len(axes)))
    if 1 < len(axes) <= _MOST_ORDERED:
        order = knobs.choice(f"{name} order", itertools.permutations(order), order)
    found: list[str] = []
    unrolled: list[str] = []
    operations = size
    for number in reversed(order):
        axis = axes[number]
        extent = axis.extent if isinstance(axis.extent, int) else 0
        inner: tuple[str, ...] = (axis.name,)
        is_inner = len(unrolled) == len(found)
        if 1 < extent <= _MOST_UNROLLED_TERMS:
            default = is_inner and operations * extent <= _MOST_OPERATIONS
            if knobs.flag(f"{name}.{axis.name} written out", default=default):
                unrolled.append(axis.name)
                operations *= extent
        elif extent and is_inner:
            steps = knobs.choice(f"{name}.{axis.name} steps", (1, 2, 4, 8), 1)
            outer = loops.split(axis.name, steps)
            inner = (*outer, axis.name)
            unrolled += [axis.name] if outer else []
        found[:0] = inner
    return tuple(found), tuple(unrolled)


def _sum_of_chunks(
    program: StagedProgram, name: str, chunk: str, rows: Mapping[str, int], width: int, vectors: int
) -> StagedProgram:
    """The sum over chunks walks its block in register tiles, each of which takes in what the chunk adds."""
    stage = program.stage(name)
    reduction = stage.definition.reduction
    assert reduction is not None
    loops, last = StageLoops.of(stage), stage.definition.axes[-1]
    tiles = [loop for a in stage.definition.axes[:-1] for loop in loops.split(a.name, rows.get(a.name, 1))]
    lane = vector_loops(loops, last.name, width, vectors)
    serial = [a.name for a in stage.definition.axes[:-1] if rows.get(a.name, 1) < 2]
    tiled = [a.name for a in stage.definition.axes[:-1] if rows.get(a.name, 1) > 1]
    sequence = (*(a.name for a in reduction.axes), *lane.tiles, *serial, *tiles)
    loops.order((*sequence, *tiled, *lane.vectors, lane.lane))
    loops.unroll((*tiled, *lane.vectors))
    if lane.is_vector:
        loops.vectorize(lane.lane)
    program = loops.put_in(program)
    return program.with_stage(replace(program.stage(chunk), place=Inside(name, sequence[-1])))
