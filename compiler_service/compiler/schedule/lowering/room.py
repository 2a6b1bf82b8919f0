"""How much memory an attached stage needs."""

from __future__ import annotations

from collections import Counter

from compiler_service.compiler.loop_ir.ir import Scope
from compiler_service.compiler.schedule.language.state import KernelStage, LoopKind, State
from compiler_service.compiler.schedule.lowering.faults import fault
from compiler_service.compiler.schedule.lowering.ranges import Ranges
from compiler_service.compiler.schedule.model.tiles import CACHE_LINE
from compiler_service.compiler.tensor_expr.tensor import axis_var, loads
from shared_ir.dtype import DType
from shared_ir.expr import Expr, substitute, variables
from shared_ir.expr.dim import Dim
from shared_ir.expr.simplify import Simplifier
from shared_ir.machine.target import Target

_SETS, _WAYS = 64, 4
"""How many sets the first-level cache has, and how many lines of a set are there for certain."""
_MOST_APART = 3
_SHORT = 1 << 31


class Room:
    """Sizes the buffers of attached stages."""

    def __init__(self, state: State, target: Target, simplify: Simplifier) -> None:
        self._state, self._target, self._simplify = state, target, simplify

    def extents(self, stage: KernelStage, ranges: Ranges) -> tuple[int, ...]:
        found = tuple(self._room(stage, a.name, ranges[a.name].extent) for a in stage.compute.axes)
        return found if stage.scope is not Scope.SCRATCH else self._apart(stage, found)

    def dtype(self, stage: KernelStage) -> DType:
        """int32 for whole numbers that are known to fit."""
        if stage.tensor.dtype is not DType.INT64 or stage.reduction is not None:
            return stage.tensor.dtype
        low, high = self._simplify.interval(stage.body)
        fits = low is not None and high is not None and low >= -_SHORT and high < _SHORT
        return DType.INT32 if fits else DType.INT64

    def _apart(self, stage: KernelStage, extents: tuple[int, ...]) -> tuple[int, ...]:
        """``extents`` with so many more elements in the last that vectors written side by side lie in different sets of the
        first-level cache: planes a multiple of a page apart would fill one set over and over."""
        *outer, last = extents
        line = CACHE_LINE // stage.tensor.dtype.itemsize
        unrolled = {o.axis for o in stage.loops if o.kind is LoopKind.UNROLLED and o.step == 1}
        if last % line or not unrolled:
            return extents

        def crowded(more: int) -> int:
            lines = [0]
            stride = last // line + more
            for axis, extent in zip(reversed(stage.compute.axes[:-1]), reversed(outer), strict=True):
                if axis.name in unrolled:
                    lines = [own + i * stride for own in lines for i in range(extent)]
                stride *= extent
            return max(Counter(own % _SETS for own in lines).values())

        more = min(range(_MOST_APART + 1), key=lambda more: max(crowded(more), _WAYS))
        return (*outer, last + more * line)

    def _room(self, stage: KernelStage, axis: str, extent: Dim) -> int:
        """Elements to allocate along ``axis``: a masked last vector writes, and its readers read, all of its lanes."""
        size = self._constant(stage, extent)
        if not self._target.masked:
            return size
        position = [a.name for a in stage.compute.axes].index(axis)
        uses: list[tuple[KernelStage, str, Expr]] = [(stage, axis, axis_var(axis))]
        for reader in self._state.consumers(stage.tensor):
            indices = dict.fromkeys(ld.indices[position] for ld in loads(reader.body) if ld.tensor is stage.tensor)
            for a in reader.compute.all_axes:
                uses += [(reader, a.name, i) for i in indices if a.var in variables(i)]
        lanes = max(_vector_lanes(user, name) for user, name, _ in uses)
        return -(-max(self._end(*use, size) for use in uses) // lanes) * lanes

    def _end(self, user: KernelStage, axis: str, index: Expr, size: int) -> int:
        """Where the last vector of ``user`` along its axis ends, given that its first lane is one of ``size`` elements."""
        lanes = _vector_lanes(user, axis)
        var = axis_var(axis)
        if index == var and all(o.step % lanes == 0 for o in user.loops if o.axis == axis and o.step > 1):
            return -(-size // lanes) * lanes
        reach = self._simplify.interval(self._simplify(substitute(index, {var: var + (lanes - 1)}) - index))[1]
        return size + max(reach or 0, 0)

    def _constant(self, stage: KernelStage, extent: Dim) -> int:
        high = extent if isinstance(extent, int) else self._simplify.interval(extent)[1]
        if high is None:
            raise fault(f"the part of stage {stage.name} to keep has no constant size: {extent}")
        return high


def _vector_lanes(stage: KernelStage, axis: str) -> int:
    """Lanes of the vectors along ``axis``, 1 when it is not vectorised."""
    own = [o for o in stage.loops if o.axis == axis]
    return own[-2].step if len(own) > 1 and own[-1].kind is LoopKind.VECTORIZED else 1
