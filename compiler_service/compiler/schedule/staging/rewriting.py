"""Stages put in the place of others: copies of what is read or written, and sums in two steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from compiler_service.compiler.schedule.language.state import misfit
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.schedule.staging.stage import ProgramStage
from compiler_service.compiler.tensor_expr.tensor import (
    Axis,
    Compute,
    Load,
    Reduction,
    Tensor,
    identity_of,
    placeholder,
    varies,
)
from shared_ir.expr import Expr, ceil_div, lift, select, substitute, transform
from shared_ir.expr.dim import as_dim


def cache_write(program: StagedProgram, name: str) -> tuple[StagedProgram, str]:
    """With ``name`` as a copy of a new stage, which computes what it did; the name of the new stage.

    before: ``T[i] += f(i, k)``
    after:  ``T.acc[i] += f(i, k); T[i] = T.acc[i]``

    Raises:
        IngotError: INVALID_ARGUMENT, loops of the stage are scheduled already.
    """
    stage = _untouched(program, name, "cache_write")
    value = replace(stage.value, name=program.fresh(f"{name}.acc"))
    copied = Compute(stage.definition.axes, value[tuple(a.var for a in stage.definition.axes)])
    program = program.before(name, ProgramStage(value, stage.definition))
    return program.with_stage(replace(stage, definition=copied)), value.name


def cache_read(
    program: StagedProgram,
    source: Tensor,
    readers: Collection[str],
    order: Sequence[int] | None = None,
    along: str = "",
) -> tuple[StagedProgram, str]:
    """With a copy of ``source``, which ``readers`` read in its place; the name of the copy.

    before: ``T[i] = f(A[g(i)])``
    after:  ``A.local[j] = A[j]; T[i] = f(A.local[g(i)])``

    Args:
        order: of the axes of ``source`` in the copy, outermost first; as they are by default.
        along: an axis of the readers; what else they read of ``source`` than along it stays as it is.

    Raises:
        IngotError: INVALID_ARGUMENT, a stage of ``readers`` does not read ``source``, or ``order`` is none of its axes.
    """
    _require_readers(program, source, readers, "cache_read")
    order = tuple(range(source.rank)) if order is None else tuple(order)
    if sorted(order) != list(range(source.rank)):
        raise misfit(f"{source.name} cannot be copied so", f"an order of {source.rank} axes", str(list(order)))
    axes = tuple(Axis(f"{source.name}_{number}", extent) for number, extent in enumerate(source.shape))
    copy = placeholder(
        program.fresh(f"{source.name}.local"), tuple(source.shape[number] for number in order), source.dtype
    )
    copied = Compute(tuple(axes[number] for number in order), source[tuple(a.var for a in axes)])

    def read(load: Load) -> Expr | None:
        if load.tensor is not source or (along and not varies(load, along)):
            return None
        return copy[tuple(load.indices[number] for number in order)]

    return _through(program, ProgramStage(copy, copied), readers, read)


def pack(
    program: StagedProgram, source: Tensor, readers: Collection[str], axis: int, tile: int
) -> tuple[StagedProgram, str]:
    """With a copy of ``source`` in tiles of ``axis``, which ``readers`` read in its place; the name of the copy.

    before: ``T[i, j] = f(A[k, j])``
    after:  ``A.packed[o, k, r] = A[k, o * F + r]; T[i, j] = f(A.packed[j // F, k, j % F])``

    Raises:
        IngotError: INVALID_ARGUMENT, a stage of ``readers`` does not read ``source``, there is no such axis or tile.
    """
    _require_readers(program, source, readers, "pack")
    if not 0 <= axis < source.rank or tile < 2:
        expected = f"an axis below {source.rank}, and a tile of at least 2"
        raise misfit(f"{source.name} cannot be packed so", expected, f"axis {axis}, tile {tile}")
    length = source.shape[axis]
    others = tuple(Axis(f"{source.name}_{n}", d) for n, d in enumerate(source.shape) if n != axis)
    tiles, places = Axis(f"{source.name}_tile", as_dim(ceil_div(length, tile))), Axis(f"{source.name}_place", tile)
    axes = (tiles, *others, places)
    at = tiles.var * tile + places.var
    indices: list[Expr] = [a.var for a in others]
    indices.insert(axis, at)
    element: Expr = source[tuple(indices)]
    if not (isinstance(length, int) and length % tile == 0):
        element = select(at < lift(length), element, lift(0, source.dtype))
    value = placeholder(program.fresh(f"{source.name}.packed"), tuple(a.extent for a in axes), source.dtype)

    def read(load: Load) -> Expr | None:
        if load.tensor is not source:
            return None
        outer = (i for n, i in enumerate(load.indices) if n != axis)
        return value[(load.indices[axis] // tile, *outer, load.indices[axis] % tile)]

    return _through(program, ProgramStage(value, Compute(axes, element)), readers, read)


def _through(
    program: StagedProgram, copied: ProgramStage, readers: Collection[str], read: Callable[[Load], Expr | None]
) -> tuple[StagedProgram, str]:
    """With a new stage ahead of ``readers``, which read it by ``read``."""
    first = next(n for n in program.stages if n in readers)
    program = program.before(first, copied)
    for name in readers:
        stage = program.stage(name)
        body = transform(stage.definition.body, lambda node: read(node) if isinstance(node, Load) else None)
        program = program.with_stage(replace(stage, definition=replace(stage.definition, body=body)))
    return program, copied.name


def _require_readers(program: StagedProgram, source: Tensor, readers: Collection[str], step: str) -> None:
    reading = program.readers(source)
    unknown = [n for n in readers if n not in reading]
    if unknown or not readers:
        raise misfit(f"{step} of {source.name} for stages that do not read it", ", ".join(reading), ", ".join(unknown))


def rfactor(program: StagedProgram, name: str, axis: str, factor: int, *, outer: bool) -> tuple[StagedProgram, str]:
    """With the reduction ``name`` in two steps: one that reduces part of ``axis``, and one that reduces its results.

    ``axis`` is cut in tiles of ``factor``; the part that the second step is left with are the tiles where ``outer``, else the places
    within a tile. Sums of floats are added in another order.

    before: ``T[i] = sum over k < n of f(i, k)``
    after:  ``T.rf[i, o] = sum over r < F of f(i, o * F + r); T[i] = sum over o < ceil(n / F) of T.rf[i, o]``   (outer)
            ``T.rf[i, r] = sum over o < ceil(n / F) of f(i, o * F + r); T[i] = sum over r < F of T.rf[i, r]``   (inner)

    Raises:
        IngotError: INVALID_ARGUMENT, the stage is no reduction over ``axis``, or its loops are scheduled otherwise.
    """
    stage = _untouched(program, name, "rfactor")
    own, found = stage.definition, stage.definition.reduction
    reduced = {} if found is None else {a.name: a for a in found.axes}
    if found is None or axis not in reduced:
        raise misfit(f"{name} is not reduced over {axis}", ", ".join(reduced) or "a reduction", axis)
    length = reduced[axis].extent
    tiles = Axis(f"{axis}_outer", as_dim(ceil_div(length, factor)))
    places = Axis(f"{axis}_inner", factor)
    kept, summed = (tiles, places) if outer else (places, tiles)
    at = tiles.var * factor + places.var
    element: Expr = substitute(own.body, {reduced[axis].var: at})
    divides = isinstance(length, int) and length % factor == 0
    if not divides:
        element = select(at < lift(length), element, lift(identity_of(found.op, element.dtype), element.dtype))
    inner = tuple(summed if a.name == axis else a for a in found.axes)
    value = replace(stage.value, name=program.fresh(f"{name}.rf"), shape=(*stage.value.shape, kept.extent))
    first = Compute((*own.axes, kept), element, Reduction(found.op, inner, found.exact))
    second = Compute(own.axes, value[(*(a.var for a in own.axes), kept.var)], Reduction(found.op, (kept,), found.exact))
    program = program.before(name, ProgramStage(value, first))
    return program.with_stage(replace(stage, definition=second)), value.name


def _untouched(program: StagedProgram, name: str, step: str) -> ProgramStage:
    stage = program.stage(name)
    if not stage.is_untouched:
        raise misfit(
            f"{step} of {name} must come before steps of its loops", f"{step} first", f"{len(stage.steps)} steps"
        )
    return stage
