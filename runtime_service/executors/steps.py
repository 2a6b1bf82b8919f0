"""The steps of a plan as the graph executor runs them: symbols, memory that the run sizes, branches and loops."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime_service.arrays import Array, address_of, aligned_bytes
from runtime_service.executors.calls import run_call, view
from runtime_service.executors.library import unequal
from runtime_service.executors.objects import Objects
from runtime_service.executors.resources import Resources
from runtime_service.executors.signature import array_dtype
from runtime_service.executors.stop import Stop
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim
from shared_ir.plan.program import (
    ALIGNMENT_BYTES,
    Branch,
    BufferSpec,
    Call,
    Check,
    Constraint,
    Copy,
    Define,
    Launch,
    Plan,
    Read,
    Repeat,
    Reserve,
    Step,
    Storage,
    Swap,
)
from shared_ir.sizes import Sizes

_READ: Mapping[DType, Any] = {DType.BOOL: ctypes.c_bool, DType.INT32: ctypes.c_int32, DType.INT64: ctypes.c_int64}
_LARGEST = 1 << 63


@dataclass
class Slots:
    """Memory that runs size; kept between runs."""

    blocks: list[Any]
    resources: Resources

    @classmethod
    def of(cls, plan: Plan, resources: Resources) -> Slots:
        return cls([aligned_bytes(0, ALIGNMENT_BYTES) for _ in range(plan.slots)], resources)

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(block.nbytes for block in self.blocks)

    def reserve(self, slot: int, size: int, keep: bool) -> None:
        """Raises IngotError RESOURCE_EXHAUSTED."""
        old = self.blocks[slot]
        if 0 <= size <= old.nbytes:
            return
        self.resources.require(self.size - old.nbytes + size, "intermediate values")
        try:
            if not 0 <= size < _LARGEST:
                raise MemoryError(f"{size} bytes")
            self.blocks[slot] = aligned_bytes(max(size, 2 * old.nbytes) if keep else size, ALIGNMENT_BYTES)
        except (MemoryError, ValueError) as error:
            raise IngotError(
                ErrorCode.RESOURCE_EXHAUSTED,
                "the model needs more memory than there is for these inputs",
                remedy="Send a smaller batch or give the process more memory.",
            ) from error
        if keep:
            self.blocks[slot][: old.nbytes] = old


@dataclass(frozen=True, slots=True)
class BufferMemory:
    """Memory that buffers lie in; ``size`` in bytes."""

    address: int
    size: int


@dataclass(frozen=True)
class Resolved:
    """A launch with every size known; ``sizes`` are the bytes of ``buffers``."""

    buffers: ctypes.Array[Any]
    symbols: ctypes.Array[Any]
    tasks: int
    flops: int
    bytes: int
    sizes: tuple[int, ...]


Runner = Callable[[Launch, Resolved], None]


@dataclass
class StepInterpreter:
    """One run.

    Attributes:
        bases: the memory of each storage; for inputs and outputs, of each index.
        symbols: by name; those of the inputs to begin with.
        prepared: launches whose sizes and addresses do not change during the run, by identity.
        run_launch: does the work of a launch.
        objects: what is behind the numbers of strings, sequences and optionals.
        stop: asked before every step.
    """

    plan: Plan
    slots: Slots
    bases: Mapping[Storage, Sequence[BufferMemory]]
    symbols: dict[str, int]
    prepared: Mapping[int, Resolved]
    run_launch: Runner
    objects: Objects
    stop: Stop | None = None
    _sizes: Sizes = field(init=False)

    def __post_init__(self) -> None:
        self._sizes = Sizes(self.symbols)

    def run(self, steps: Iterable[Step]) -> None:
        """Raises IngotError INVALID_ARGUMENT (a constraint does not hold), RESOURCE_EXHAUSTED, CANCELLED."""
        for step in steps:
            if self.stop is not None:
                self.stop.check()
            self.step(step)

    def step(self, step: Step) -> None:
        match step:
            case Launch():
                self.run_launch(step, self.prepared.get(id(step)) or self.resolve(step))
            case Copy() | Reserve() | Swap():
                self.move(step)
            case Define(symbols=names, values=values):
                self.assign(dict(zip(names, [self.value(v) for v in values], strict=True)))
            case Read():
                self.assign({step.symbol: self.element(step)})
            case Check(constraint=constraint):
                self.check(constraint)
            case Branch(condition=condition, then=then, otherwise=otherwise):
                self.run(then if self.value(condition) else otherwise)
            case Repeat():
                self.repeat(step)
            case Call():
                run_call(step, self.views(step.inputs), self.views(step.outputs), self.objects)

    def move(self, step: Copy | Reserve | Swap) -> None:
        """Memory changes hands, or bytes their place."""
        match step:
            case Copy(source=source, target=target):
                size = self.value(self.plan.buffers[target].size)
                ctypes.memmove(self.address(target), self.address(source, size), size)
            case Reserve(buffer=number, keep=keep):
                buffer = self.plan.buffers[number]
                self.slots.reserve(buffer.index, self.value(buffer.offset) + self.value(buffer.size), keep)
            case Swap(first=a, second=b):
                blocks = self.slots.blocks
                blocks[a], blocks[b] = blocks[b], blocks[a]

    def resolve(self, step: Launch) -> Resolved:
        """Sizes and addresses of a launch as they are now."""
        return Resolved(
            (ctypes.c_void_p * max(1, len(step.buffers)))(*(self.address(b) for b in step.buffers)),
            (ctypes.c_int64 * max(1, len(step.symbols)))(*(self.value(d) for d in step.symbols)),
            self.value(step.tasks),
            self.value(step.flops),
            self.value(step.bytes),
            tuple(self.value(self.plan.buffers[b].size) for b in step.buffers),
        )

    def value(self, dim: Dim) -> int:
        return self._sizes.value(dim)

    def assign(self, values: Mapping[str, int]) -> None:
        self.symbols.update(values)
        self._sizes = Sizes(self.symbols)

    def address(self, number: int, size: int | None = None) -> int:
        """Where a buffer begins; so many bytes, by default those of the buffer, are there.

        Raises:
            IngotError: ARTIFACT_CORRUPT, they are not.
        """
        buffer = self.plan.buffers[number]
        offset, wanted = self.value(buffer.offset), self.value(buffer.size) if size is None else size
        block = self.block(buffer)
        if offset < 0 or wanted < 0 or (wanted and offset + wanted > block.size):
            raise _outside(buffer, f"{wanted} bytes at {offset}", block.size)
        return block.address + offset

    def block(self, buffer: BufferSpec) -> BufferMemory:
        if buffer.storage is not Storage.SLOT:
            return self.bases[buffer.storage][buffer.index]
        memory = self.slots.blocks[buffer.index]  # it lies elsewhere when it has grown
        return BufferMemory(address_of(memory), memory.nbytes)

    def views(self, buffers: Iterable[int]) -> list[Array | None]:
        """The memory of buffers as arrays; None for those that are absent (-1)."""
        return [None if number < 0 else self.view(number) for number in buffers]

    def view(self, number: int) -> Array:
        buffer = self.plan.buffers[number]
        shape, dtype = tuple(map(self.value, buffer.shape)), array_dtype(buffer.dtype)
        if min(shape, default=0) < 0:
            raise _outside(buffer, f"an extent of {min(shape)}", self.block(buffer).size)
        return view(self.address(number, math.prod(shape) * dtype.itemsize), shape, dtype)

    def element(self, step: Read) -> int:
        kind = _READ[self.plan.buffers[step.buffer].dtype]
        start = step.index * ctypes.sizeof(kind)
        return int(kind.from_address(self.address(step.buffer, start + ctypes.sizeof(kind)) + start).value)

    def check(self, constraint: Constraint) -> None:
        actual, expected = self.value(constraint.actual), self.value(constraint.expected)
        if actual == expected or (constraint.lower and actual > expected):
            return
        wanted = f"at least {expected}" if constraint.lower else str(expected)
        raise unequal(constraint.message.rstrip("."), wanted, str(actual))

    def repeat(self, step: Repeat) -> None:
        limit, counter = self.value(step.limit), 0
        self.assign({step.counter: 0})
        while counter < limit and (not step.condition or self.symbols[step.condition]):
            if self.stop is not None:
                self.stop.check()
            self.run(step.body)
            counter += 1
            self.assign({step.counter: counter})


def _outside(buffer: BufferSpec, what: str, size: int) -> IngotError:
    return IngotError(
        ErrorCode.ARTIFACT_CORRUPT,
        f"a buffer of the plan lies outside of the {buffer.storage} {buffer.name!r}".rstrip(" '"),
        expected=f"at most {size} bytes",
        received=what,
        remedy="Compile the model again.",
    )
