"""How much memory an attached stage needs."""

from __future__ import annotations

from compiler_service.schedule.faults import fault
from compiler_service.schedule.ranges import Ranges
from compiler_service.schedule.state import LoopKind, Stage, State
from compiler_service.tensor_expr.tensor import axis_var, loads
from shared_ir.dim import Dim
from shared_ir.expr import Expr, substitute, variables
from shared_ir.simplify import Simplifier
from shared_ir.target import Target


class Room:
    """Sizes the buffers of attached stages."""

    def __init__(self, state: State, target: Target, simplify: Simplifier) -> None:
        self._state, self._target, self._simplify = state, target, simplify

    def extents(self, stage: Stage, ranges: Ranges) -> tuple[int, ...]:
        return tuple(self._room(stage, a.name, ranges[a.name].extent) for a in stage.compute.axes)

    def _room(self, stage: Stage, axis: str, extent: Dim) -> int:
        """Elements to allocate along ``axis``: a masked last vector writes, and its readers read, all of its lanes."""
        size = self._constant(stage, extent)
        if not self._target.masked:
            return size
        position = [a.name for a in stage.compute.axes].index(axis)
        uses: list[tuple[Stage, str, Expr]] = [(stage, axis, axis_var(axis))]
        for reader in self._state.consumers(stage.tensor):
            indices = dict.fromkeys(ld.indices[position] for ld in loads(reader.body) if ld.tensor is stage.tensor)
            for a in reader.compute.all_axes:
                uses += [(reader, a.name, i) for i in indices if a.var in variables(i)]
        lanes = max(_vector_lanes(user, name) for user, name, _ in uses)
        return -(-max(self._end(*use, size) for use in uses) // lanes) * lanes

    def _end(self, user: Stage, axis: str, index: Expr, size: int) -> int:
        """Where the last vector of ``user`` along its axis ends, given that its first lane is one of ``size`` elements."""
        lanes = _vector_lanes(user, axis)
        var = axis_var(axis)
        if index == var and all(o.step % lanes == 0 for o in user.loops if o.axis == axis and o.step > 1):
            return -(-size // lanes) * lanes
        reach = self._simplify.interval(self._simplify(substitute(index, {var: var + (lanes - 1)}) - index))[1]
        return size + max(reach or 0, 0)

    def _constant(self, stage: Stage, extent: Dim) -> int:
        high = extent if isinstance(extent, int) else self._simplify.interval(extent)[1]
        if high is None:
            raise fault(f"the part of stage {stage.name} to keep has no constant size: {extent}")
        return high


def _vector_lanes(stage: Stage, axis: str) -> int:
    """Lanes of the vectors along ``axis``, 1 when it is not vectorised."""
    own = [o for o in stage.loops if o.axis == axis]
    return own[-2].step if len(own) > 1 and own[-1].kind is LoopKind.VECTORIZED else 1
