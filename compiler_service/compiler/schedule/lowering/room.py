"""How much memory an attached stage needs."""

from __future__ import annotations

from collections import Counter

from compiler_service.compiler.loop_ir.ir import BufferScope
from compiler_service.compiler.schedule.language.state import KernelStage, LoopKind, ScheduleState
from compiler_service.compiler.schedule.lowering.faults import fault
from compiler_service.compiler.schedule.lowering.ranges import Ranges
from compiler_service.compiler.schedule.lowering.values import memory_order
from compiler_service.compiler.schedule.model.tiles import CACHE_LINE_BYTES
from compiler_service.compiler.tensor_expr.tensor import axis_var, loads
from shared_ir.dtype import DType
from shared_ir.expr import Expr, substitute, variables
from shared_ir.expr.dim import Dim
from shared_ir.expr.simplify import Simplifier
from shared_ir.machine.target import Target

_SETS_OF_L1, _LINES_OF_SET = 64, 4
"""Number of sets of the first-level cache, and of lines that a set has for certain."""
_MOST_LINES_BETWEEN_PLANES = 3
"""Largest number of cache lines that are left between planes so that they lie in different sets."""
_FIRST_BEYOND_INT32 = 1 << 31
"""The first integer that int32 does not hold."""


class BufferSizing:
    """Sizes the buffers of attached stages."""

    def __init__(self, state: ScheduleState, target: Target, simplify: Simplifier) -> None:
        self._state, self._target, self._simplify = state, target, simplify

    def extents(self, stage: KernelStage, ranges: Ranges) -> tuple[int, ...]:
        found = tuple(self._room(stage, a.name, ranges[a.name].extent) for a in stage.compute.axes)
        if stage.align is not None:
            return _aligned(found, memory_order(stage)[-1], *stage.align)
        return found if stage.scope is not BufferScope.SCRATCH else self._apart(stage, found)

    def dtype(self, stage: KernelStage) -> DType:
        """int32 for whole numbers that are known to fit."""
        if stage.tensor.dtype is not DType.INT64 or stage.reduction is not None:
            return stage.tensor.dtype
        low, high = self._simplify.interval(stage.body)
        fits = low is not None and high is not None and low >= -_FIRST_BEYOND_INT32 and high < _FIRST_BEYOND_INT32
        return DType.INT32 if fits else DType.INT64

    def _apart(self, stage: KernelStage, extents: tuple[int, ...]) -> tuple[int, ...]:
        """``extents`` with so many more elements in the last that vectors written side by side lie in different sets of the
        first-level cache: planes a multiple of a page apart would fill one set over and over."""
        *outer, last = extents
        line = CACHE_LINE_BYTES // stage.tensor.dtype.itemsize
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
            return max(Counter(own % _SETS_OF_L1 for own in lines).values())

        more = min(range(_MOST_LINES_BETWEEN_PLANES + 1), key=lambda more: max(crowded(more), _LINES_OF_SET))
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


def _aligned(extents: tuple[int, ...], axis: int, factor: int, offset: int) -> tuple[int, ...]:
    """``extents`` with the fewest more elements along ``axis`` that leave ``offset`` when divided by ``factor``."""
    more = (offset - extents[axis]) % factor
    return tuple(extent + more if number == axis else extent for number, extent in enumerate(extents))


def _vector_lanes(stage: KernelStage, axis: str) -> int:
    """Lanes of the vectors along ``axis``, 1 when it is not vectorised."""
    own = [o for o in stage.loops if o.axis == axis]
    return own[-2].step if len(own) > 1 and own[-1].kind is LoopKind.VECTORIZED else 1
