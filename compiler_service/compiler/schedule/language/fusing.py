"""Two loops, one just inside of the other, as one."""

from __future__ import annotations

from dataclasses import replace

from compiler_service.compiler.schedule.language.state import KernelStage, StageLoop, misfit
from compiler_service.compiler.schedule.language.steps import FuseLoops
from shared_ir.expr.dim import as_dim


def fused(stage: KernelStage, step: FuseLoops) -> KernelStage:
    """``stage`` with one loop in the place of two.

    Raises:
        IngotError: INVALID_ARGUMENT, they cannot be fused.
    """
    outer, inner = stage.loop(step.outer), stage.loop(step.inner)
    at = stage.loops.index(outer)
    if stage.loops[at + 1 : at + 2] != (inner,):
        raise misfit(
            f"{stage.name}: {inner.name} does not stand just inside of {outer.name}", "loops without others between"
        )
    plain = StageLoop("")
    for part in (*outer.advanced, *inner.advanced):
        if replace(part, axis="", step=1) != plain:
            raise misfit(f"{stage.name}: loop {part.name} cannot be fused", "a serial loop without marks", part.name)
        extent = next(a.extent for a in stage.compute.all_axes if a.name == part.axis)
        if part.step > 1 and as_dim(extent % part.step) != 0:
            raise misfit(
                f"{stage.name}: tiles of {part.axis} that are fused must cover it", f"a tile that divides {extent}"
            )
    axes = [part.axis for part in (*outer.advanced, *inner.advanced)]
    if len(set(axes)) < len(axes) or stage.reduces(outer) != stage.reduces(inner):
        raise misfit(
            f"{stage.name}: {outer.name} and {inner.name} cannot be fused", "loops of two axes, reduced both or neither"
        )
    fused = StageLoop(f"{outer.name}.{inner.name}.fused", parts=(*outer.advanced, *inner.advanced))
    return replace(stage, loops=(*stage.loops[:at], fused, *stage.loops[at + 2 :]))
