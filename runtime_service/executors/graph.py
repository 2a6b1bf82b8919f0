"""The graph executor: interprets the plan, one native call per launch. For profiles and for finding faults."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runtime_service.executors.executor import Array, LaunchProfile, aligned_bytes
from runtime_service.executors.signature import CallShapes, ShapeCache, Shapes, Signature, allocate
from runtime_service.executors.sizes import Sizes
from runtime_service.library import Handle
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan import ALIGNMENT, Plan, Storage


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
    arena_size: int


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
        self._reserve(call.arena_size)
        addresses = self._addresses(call, inputs, outputs)
        for launch in call.launches:
            for slot, source in enumerate(launch.sources):
                launch.buffers[slot] = addresses[source]
        return call, outputs

    def _addresses(self, call: _Call, inputs: Sequence[Array], outputs: Sequence[Array]) -> list[int]:
        arrays = {Storage.INPUT: inputs, Storage.OUTPUT: outputs}
        bases = {Storage.WEIGHT: self._weights, Storage.ARENA: self._arena.ctypes.data}
        return [
            bases[buffer.storage] + offset
            if buffer.storage in bases
            else arrays[buffer.storage][buffer.index].ctypes.data
            for buffer, offset in zip(self._plan.buffers, call.offsets, strict=True)
        ]

    def _prepare(self, shapes: Shapes) -> _Call:
        plan, call = self._plan, CallShapes.resolve(self._signature, self._handle, shapes)
        value = Sizes({s.name: shapes[s.input][s.axis] for s in plan.symbols}).value
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
        return _Call(call, launches, tuple(value(b.offset) for b in plan.buffers), value(plan.arena_size))

    def _reserve(self, size: int) -> None:
        """One arena for all shapes, as large as the largest so far."""
        if size <= self._arena.nbytes:
            return
        try:
            self._arena = aligned_bytes(size, ALIGNMENT)
        except (MemoryError, ValueError) as error:
            raise IngotError(
                ErrorCode.RESOURCE_EXHAUSTED,
                f"model {self._plan.name!r} needs {size} bytes for inputs of this size",
                remedy="Send a smaller batch or give the process more memory.",
            ) from error
