"""What loops of a stage must be like so that they can be vectors, and be repeated; said when it is asked for, and not at lowering."""

from __future__ import annotations

from compiler_service.compiler.schedule.language.state import KernelStage, LoopKind, ScheduleState, misfit
from compiler_service.compiler.tensor_expr.tensor import Load, loads
from shared_ir.expr import walk

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
        done = _OF_CONSTANT_LENGTH[loop.kind]
        if loop.kind is LoopKind.VECTORIZED and loop.parts:
            raise misfit(
                f"the fused loop {loop.name} of {stage.name} cannot be vectorized", "a loop of one axis", loop.name
            )
        follows = stage.attach is not None and not stage.reduces(loop)  # its turns are those that the reader asks for
        for part in () if follows else loop.advanced:
            is_tile = any(o.axis == part.axis for other in stage.loops[:at] for o in other.advanced)
            if not is_tile and not isinstance(extents[part.axis], int):
                raise misfit(
                    f"loop {loop.name} of {stage.name} cannot be {done}: only the call knows its length",
                    "a loop of constant length, such as the inner one of a split",
                    f"{extents[part.axis]} turns",
                )
        if loop.kind is LoopKind.VECTORIZED and loop is not stage.loops[-1]:
            inside = ", ".join(o.name for o in stage.loops[at + 1 :])
            raise misfit(f"the vector loop {loop.name} of {stage.name} has loops inside", "the innermost loop", inside)
    _check_vector_sum(stage)


def check_prefetches(state: ScheduleState) -> None:
    """
    Raises:
        IngotError: INVALID_ARGUMENT, memory is asked for in a loop that is gone or has no turns, or where only data says what is read.
    """
    for (name, loop), asked in state.prefetches.items():
        stage = state.stage(name)
        found = next((o for o in stage.loops if o.name == loop), None)
        if found is None or found.parts or found.kind is LoopKind.VECTORIZED:
            raise misfit(f"prefetch in {loop} of {name}, which is a vector or fused", "a loop of its own turns", loop)
        for each in asked:
            places = (i for ld in loads(stage.body) if ld.tensor is each.tensor for i in ld.indices)
            if any(isinstance(part, Load) for place in places for part in walk(place)):
                raise misfit(f"only data says what {name} reads of {each.tensor.name}", "positions that loops give")


def _check_vector_sum(stage: KernelStage) -> None:
    last = stage.loops[-1] if stage.loops else None
    if last is None or last.kind is not LoopKind.VECTORIZED or not stage.reduces(last):
        return
    first = next(i for i, o in enumerate(stage.loops) if stage.reduces(o))
    between = [o.name for o in stage.loops[first:] if not stage.reduces(o)]
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
        raise misfit(
            f"loop {last.name} of {stage.name} is reduced as one vector", "the inner loop of a split", last.name
        )
