"""The graph executor: interprets the plan, one native call per launch. For profiles and for finding faults."""

from __future__ import annotations

import ctypes
import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from runtime_service.arrays import Array, address_of, aligned_bytes
from runtime_service.executors.executor import LaunchProfile
from runtime_service.executors.library import Handle
from runtime_service.executors.objects import Objects
from runtime_service.executors.resources import Resources
from runtime_service.executors.signature import CallShapes, CallSignature, ShapeCache, Shapes, copy_memory
from runtime_service.executors.steps import BufferMemory, Resolved, Runner, Slots, StepInterpreter
from runtime_service.executors.stop import Stop
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import dim_symbols
from shared_ir.plan.program import ALIGNMENT_BYTES, Launch, Plan, Storage, launches
from shared_ir.sizes import Sizes

_CLOCK_SPAN_NANOSECONDS = 20_000.0
"""Nanoseconds of which two looks at the clock, some tens of nanoseconds, are no part worth mention."""


_NOWHERE, _ANYWHERE = BufferMemory(0, 0), BufferMemory(0, 1 << 63)


@dataclass(frozen=True)
class _Call:
    """What is known of a run from the shapes of its inputs. ``prepared`` launches still want their addresses."""

    shapes: CallShapes
    symbols: Mapping[str, int]
    arena_size: int
    prepared: Mapping[int, tuple[Launch, Resolved]]


@dataclass
class _Measured:
    """Executions of one launch in one run, added up."""

    nanoseconds: float = 0
    flops: int = 0
    bytes: int = 0


class GraphExecutor:
    """Runs the steps of a plan in order, each launch over the threads of the library's pool."""

    def __init__(
        self, plan: Plan, signature: CallSignature, handle: Handle, weights: Array, resources: Resources
    ) -> None:
        self._plan = plan
        self._resources = resources
        self._signature = signature
        self._handle = handle
        self._weights = _block(weights)
        self._arena = aligned_bytes(0, ALIGNMENT_BYTES)
        self._slots = Slots.of(plan, resources)
        self._calls = ShapeCache(self._prepare)

    def run(
        self,
        inputs: Sequence[Array],
        objects: Objects | None = None,
        stop: Stop | None = None,
        into: Sequence[Array] | None = None,
    ) -> list[Array]:
        run_launch = partial(self._launch, stop=0 if stop is None else stop.address)
        return self._execute(inputs, run_launch, objects, stop, into)

    def profile(
        self, inputs: Sequence[Array], repeat: int, objects: Objects | None = None, warm: int = 0
    ) -> tuple[LaunchProfile, ...]:
        """Run ``repeat`` times and give every launch its median time, in the order of the plan.

        With ``warm`` it is the mean time of at least so many further launches right after the one of the run, whose data is then
        in the caches that hold it; a launch shorter than what reading the clock costs is repeated until the clock does not count.
        One that writes over what it reads goes on from its own result; the run gets the first.
        A launch inside a loop has the time of all its executions in a run; one in a branch not taken has 0.
        """
        runs: list[dict[int, _Measured]] = []
        for _ in range(max(1, repeat)):
            seen: dict[int, _Measured] = {}

            def measure(step: Launch, resolved: Resolved, seen: dict[int, _Measured] = seen) -> None:
                found = seen.setdefault(id(step), _Measured())
                elapsed = self._time(step, resolved, 1)
                found.nanoseconds += self._again(step, resolved, _repeats(warm, elapsed)) if warm else elapsed
                found.flops += resolved.flops
                found.bytes += resolved.bytes

            self._execute(inputs, measure, objects)
            runs.append(seen)
        return tuple(
            self._profile(step, [r.get(id(step), _Measured()) for r in runs]) for step in launches(self._plan.steps)
        )

    def rest(self) -> None:
        self._handle.rest()

    def close(self) -> None:
        self._handle.close()

    def _profile(self, step: Launch, runs: Sequence[_Measured]) -> LaunchProfile:
        kernel = self._plan.kernels[step.kernel].name
        return LaunchProfile(
            label=step.label or kernel,
            kernel=kernel,
            seconds=statistics.median(r.nanoseconds for r in runs) / 1e9,
            flops=runs[-1].flops,
            bytes=runs[-1].bytes,
            nodes=step.nodes,
        )

    def _time(self, step: Launch, resolved: Resolved, times: int) -> float:
        """Nanoseconds of one of ``times`` launches in a row."""
        return self._handle.time_kernel(step.kernel, resolved.buffers, resolved.symbols, resolved.tasks, times)

    def _again(self, step: Launch, resolved: Resolved, times: int) -> float:
        """The same of a launch that has run once; memory is afterwards as it was."""
        written = self._writable(step, resolved)
        if not overlap(written):
            return self._time(step, resolved, times)
        saved = [ctypes.string_at(address, size) for address, size in written]
        self._time(step, resolved, 1)  # fetches again what the copies have driven out of the caches
        elapsed = self._time(step, resolved, times)
        for (address, size), data in zip(written, saved, strict=True):
            ctypes.memmove(address, data, size)
        return elapsed

    def _writable(self, step: Launch, resolved: Resolved) -> list[tuple[int, int]]:
        """Address and size of every buffer of a launch that is no input and no weight."""
        return [
            (resolved.buffers[i], resolved.sizes[i])
            for i, buffer in enumerate(step.buffers)
            if resolved.sizes[i] and self._plan.buffers[buffer].storage not in (Storage.INPUT, Storage.WEIGHT)
        ]

    def _launch(self, step: Launch, resolved: Resolved, stop: int = 0) -> None:
        self._handle.run_kernel(step.kernel, resolved.buffers, resolved.symbols, resolved.tasks, stop)

    def _execute(
        self,
        inputs: Sequence[Array],
        run_launch: Runner,
        objects: Objects | None,
        stop: Stop | None = None,
        into: Sequence[Array] | None = None,
    ) -> list[Array]:
        plan, call = self._plan, self._calls.of(inputs)
        outputs = call.shapes.allocate() if into is None else call.shapes.fitting(into, self._signature.outputs)
        self._reserve(call.arena_size)
        bases: dict[Storage, Sequence[BufferMemory]] = {
            Storage.INPUT: [_block(a) for a in inputs],
            Storage.OUTPUT: [_NOWHERE if a is None else _block(a) for a in outputs],
            Storage.WEIGHT: [self._weights],
            Storage.ARENA: [_block(self._arena)],
        }
        prepared = {key: resolved for key, (_, resolved) in call.prepared.items()}
        behind = objects or Objects(plan.strings, self._resources, stop)
        run = StepInterpreter(plan, self._slots, bases, dict(call.symbols), prepared, run_launch, behind, stop)
        for key, (step, resolved) in call.prepared.items():
            try:
                for slot, buffer in enumerate(step.buffers):
                    resolved.buffers[slot] = run.address(buffer)
            except (
                IngotError
            ):  # of a way that this run does not take, whose arena is smaller; where it is taken, it is refused
                del prepared[key]
        try:
            run.run(plan.steps)
            return [self._owned(run, i) if array is None else array for i, array in enumerate(outputs)]
        finally:
            self._give_back()

    def _give_back(self) -> None:
        if self._resources.is_more_than_kept(self._arena.nbytes + self._slots.size):
            self._arena = aligned_bytes(0, ALIGNMENT_BYTES)
            self._slots = Slots.of(self._plan, self._resources)

    def _owned(self, run: StepInterpreter, index: int) -> Array:
        """A copy of an output whose extents the run has defined."""
        shape = tuple(run.value(d) for d in self._plan.outputs[index].shape)
        block = run.slots.blocks[self._plan.output_slot(index)]
        dtype = self._signature.output_dtypes[index]
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > block.nbytes:
            raise IngotError(
                ErrorCode.ARTIFACT_CORRUPT,
                f"output {self._plan.outputs[index].name!r} is larger than what the run has made of it",
                expected=f"at most {block.nbytes} bytes",
                received=str(shape),
                remedy="Compile the model again.",
            )
        address = address_of(block)
        return copy_memory(address, shape, dtype, self._resources)

    def _prepare(self, shapes: Shapes) -> _Call:
        plan, call = self._plan, CallShapes.resolve(self._signature, self._handle, shapes, self._resources)
        symbols = {s.name: shapes[s.input][s.axis] for s in plan.symbols}
        value = Sizes(symbols).value
        most = max(len(plan.inputs), len(plan.outputs), 1)
        no_address: Mapping[Storage, Sequence[BufferMemory]] = {s: [_ANYWHERE] * most for s in Storage}
        resolver = StepInterpreter(
            plan, Slots([], self._resources), no_address, dict(symbols), {}, self._launch, Objects(())
        )
        prepared = {id(s): (s, resolver.resolve(s)) for s in launches(plan.steps) if self._is_fixed(s)}
        return _Call(call, symbols, value(plan.arena_size), prepared)

    def _is_fixed(self, step: Launch) -> bool:
        """Whether sizes and addresses follow from the inputs."""
        buffers = [self._plan.buffers[b] for b in step.buffers]
        if any(b.storage is Storage.SLOT for b in buffers):
            return False
        dims = [*step.symbols, step.tasks, step.flops, step.bytes, *(d for b in buffers for d in (b.offset, b.size))]
        return dim_symbols(dims).isdisjoint(self._plan.run_symbols)

    def _reserve(self, size: int) -> None:
        """One arena for all shapes, as large as the largest so far."""
        if size <= self._arena.nbytes:
            return
        self._resources.require(size, "intermediate values")
        try:
            self._arena = aligned_bytes(size, ALIGNMENT_BYTES)
        except (MemoryError, ValueError) as error:
            raise IngotError(
                ErrorCode.RESOURCE_EXHAUSTED,
                f"model {self._plan.name!r} needs {size} bytes for inputs of this size",
                remedy="Send a smaller batch or give the process more memory.",
            ) from error


def _block(array: Array) -> BufferMemory:
    return BufferMemory(address_of(array), array.nbytes)


def _repeats(warm: int, nanoseconds: float) -> int:
    """Launches in a row between two looks at the clock, where one took ``nanoseconds``."""
    return max(warm, math.ceil(_CLOCK_SPAN_NANOSECONDS / max(nanoseconds, 1.0)))


def overlap(blocks: Iterable[tuple[int, int]]) -> bool:
    """Whether two of ``(address, size)`` share memory."""
    ordered = sorted(blocks)
    return any(second < first + size for (first, size), (second, _) in itertools.pairwise(ordered))
