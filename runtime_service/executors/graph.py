"""The graph executor: interprets the plan, one native call per launch. For profiles and for finding faults."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime_service.executors.executor import Array, LaunchProfile, aligned_bytes
from runtime_service.executors.signature import CallShapes, ShapeCache, Shapes, Signature, allocate
from runtime_service.library import Handle
from shared_ir.dim import Dim
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Var, to_text
from shared_ir.plan import ALIGNMENT, Plan, Storage

_ARITHMETIC: Mapping[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.FLOOR_DIV: lambda a, b: a // (b or 1),  # as the generated entry divides by an extent of 0
    BinaryOp.FLOOR_MOD: lambda a, b: a % (b or 1),
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
}


@dataclass(frozen=True)
class _LaunchCall:
    """A launch with every size known; ``buffers`` still wants its addresses."""

    kernel: int
    buffers: ctypes.Array[Any]
    sources: tuple[int, ...]
    symbols: ctypes.Array[Any]
    tasks: int
    flops: int
    bytes: int


@dataclass(frozen=True)
class _Call:
    shapes: CallShapes
    launches: tuple[_LaunchCall, ...]
    offsets: tuple[int, ...]  # of each buffer, in its storage
    arena: Array


class GraphExecutor:
    """Runs the launches of a plan in order, each over the threads of the library's pool."""

    def __init__(self, plan: Plan, signature: Signature, handle: Handle, weights_address: int) -> None:
        self._plan = plan
        self._signature = signature
        self._handle = handle
        self._weights = weights_address
        self._arena = aligned_bytes(0, ALIGNMENT)
        self._calls = ShapeCache(self._prepare)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        call, outputs = self._bind(inputs)
        for launch in call.launches:
            self._handle.run_kernel(launch.kernel, launch.buffers, launch.symbols, launch.tasks)
        return outputs

    def profile(self, inputs: Sequence[Array], repeat: int) -> tuple[LaunchProfile, ...]:
        """Run ``repeat`` times and give every launch its median time, in the order of the plan."""
        call, _outputs = self._bind(inputs)
        times: list[list[int]] = [[] for _ in call.launches]
        for _ in range(max(1, repeat)):
            for launch, seen in zip(call.launches, times, strict=True):
                start = time.perf_counter_ns()
                self._handle.run_kernel(launch.kernel, launch.buffers, launch.symbols, launch.tasks)
                seen.append(time.perf_counter_ns() - start)
        return tuple(
            LaunchProfile(
                label=step.label or self._plan.kernels[step.kernel].name,
                kernel=self._plan.kernels[step.kernel].name,
                seconds=statistics.median(seen) / 1e9,
                flops=launch.flops,
                bytes=launch.bytes,
                nodes=step.nodes,
            )
            for step, launch, seen in zip(self._plan.steps, call.launches, times, strict=True)
        )

    def close(self) -> None:
        self._handle.close()

    def _bind(self, inputs: Sequence[Array]) -> tuple[_Call, list[Array]]:
        """The prepared call with the addresses of this run's arrays in every launch."""
        call = self._calls.of(inputs)
        outputs = allocate(call.shapes.output_shapes, self._signature.output_dtypes)
        addresses = self._addresses(call, inputs, outputs)
        for launch in call.launches:
            for slot, source in enumerate(launch.sources):
                launch.buffers[slot] = addresses[source]
        return call, outputs

    def _addresses(self, call: _Call, inputs: Sequence[Array], outputs: Sequence[Array]) -> list[int]:
        arrays = {Storage.INPUT: inputs, Storage.OUTPUT: outputs}
        bases = {Storage.WEIGHT: self._weights, Storage.ARENA: call.arena.ctypes.data}
        return [
            bases[buffer.storage] + offset
            if buffer.storage in bases
            else arrays[buffer.storage][buffer.index].ctypes.data
            for buffer, offset in zip(self._plan.buffers, call.offsets, strict=True)
        ]

    def _prepare(self, shapes: Shapes) -> _Call:
        plan, call = self._plan, CallShapes.resolve(self._signature, self._handle, shapes)
        value = _Evaluator({s.name: shapes[s.input][s.axis] for s in plan.symbols}).value
        launches = tuple(
            _LaunchCall(
                kernel=step.kernel,
                buffers=(ctypes.c_void_p * max(1, len(step.buffers)))(),
                sources=step.buffers,
                symbols=(ctypes.c_int64 * max(1, len(step.symbols)))(*(value(d) for d in step.symbols)),
                tasks=value(step.tasks),
                flops=value(step.flops),
                bytes=value(step.bytes),
            )
            for step in plan.steps
        )
        return _Call(
            call, launches, tuple(value(b.offset) for b in plan.buffers), self._reserve(value(plan.arena_size))
        )

    def _reserve(self, size: int) -> Array:
        """One arena for all shapes, as large as the largest so far; earlier calls keep theirs until they are evicted."""
        if size > self._arena.nbytes:
            try:
                self._arena = aligned_bytes(size, ALIGNMENT)
            except (MemoryError, ValueError) as error:
                raise IngotError(
                    ErrorCode.RESOURCE_EXHAUSTED,
                    f"model {self._plan.name!r} needs {size} bytes for inputs of this size",
                    remedy="Send a smaller batch or give the process more memory.",
                ) from error
        return self._arena


class _Evaluator:
    """Dims as integers; equal subexpressions are evaluated once."""

    def __init__(self, symbols: Mapping[str, int]) -> None:
        self._symbols = symbols
        self._known: dict[Expr, int] = {}

    def value(self, dim: Dim) -> int:
        if isinstance(dim, int):
            return dim
        found = self._known.get(dim)
        if found is None:
            self._known[dim] = found = self._compute(dim)
        return found

    def _compute(self, expr: Expr) -> int:
        match expr:
            case Const(value=number):
                return int(number)
            case Var(name=name):
                return self._symbols[name]
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _ARITHMETIC:
                return _ARITHMETIC[op](self.value(lhs), self.value(rhs))
        raise IngotError(ErrorCode.ARTIFACT_CORRUPT, f"the plan has a size that cannot be evaluated: {to_text(expr)}")
