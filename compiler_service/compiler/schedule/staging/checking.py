"""What loops of a stage must be like so that they can be vectors, and be repeated; said when it is asked for, and not at lowering."""

from __future__ import annotations

from compiler_service.compiler.schedule.language.state import KernelStage, LoopKind, misfit

_OF_CONSTANT_LENGTH = {LoopKind.VECTORIZED: "vectorized", LoopKind.UNROLLED: "unrolled"}


def check_loops(stage: KernelStage) -> None:
    """
    Raises:
        IngotError: INVALID_ARGUMENT, a vector has loops inside, or a loop is vectorized or unrolled whose length is not known.
    """
    extents = {a.name: a.extent for a in stage.compute.all_axes}
    for at, loop in enumerate(stage.loops):
        if loop.kind not in _OF_CONSTANT_LENGTH:
            continue
        is_tile = any(o.axis == loop.axis for o in stage.loops[:at])
        if not is_tile and not isinstance(extents[loop.axis], int):
            done = _OF_CONSTANT_LENGTH[loop.kind]
            raise misfit(
                f"loop {loop.name} of {stage.name} cannot be {done}: only the call knows its length",
                "a loop of constant length, such as the inner one of a split",
                f"{extents[loop.axis]} turns",
            )
        if loop.kind is LoopKind.VECTORIZED and loop is not stage.loops[-1]:
            inside = ", ".join(o.name for o in stage.loops[at + 1 :])
            raise misfit(f"the vector loop {loop.name} of {stage.name} has loops inside", "the innermost loop", inside)
    _check_vector_sum(stage)


def _check_vector_sum(stage: KernelStage) -> None:
    reduced = {a.name for a in stage.reduction.axes} if stage.reduction else set()
    last = stage.loops[-1] if stage.loops else None
    if last is None or last.kind is not LoopKind.VECTORIZED or last.axis not in reduced:
        return
    first = next(i for i, o in enumerate(stage.loops) if o.axis in reduced)
    between = [o.name for o in stage.loops[first:] if o.axis not in reduced]
    if between:
        raise misfit(
            f"{stage.name} is summed over {last.axis} in vectors, inside of which other loops stand",
            "loops that are not reduced outside of those that are",
            ", ".join(between),
        )
    tiles = [o for o in stage.loops[:-1] if o.axis == last.axis]
    if tiles and tiles[0].kind is LoopKind.UNROLLED:
        raise misfit(
            f"loop {tiles[0].name} of {stage.name}, which is summed in vectors, cannot be unrolled",
            "an unrolled loop inside of a serial one of the same axis",
            tiles[0].name,
        )
    if not tiles:
        raise misfit(f"loop {last.name} of {stage.name} is reduced as one vector", "the inner loop of a split", last.name)
