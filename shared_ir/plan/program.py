"""The plan: the program that both executors run, as data (``plan.json`` of an artifact).

The graph executor interprets these steps one by one; the AOT entry of ``model.so`` is generated from the same steps.
Every size, offset and task count is a :data:`shared_ir.expr.dim.Dim` over the symbols of the model. :mod:`shared_ir.plan.json_form` is
its form in files.

Grammar of a program::

    Step = Launch(kernel, buffers, symbols, tasks)    run a kernel
         | Copy(source, target)                       bytes of one buffer to another
         | Reserve(buffer, keep)                      the slot of a buffer holds it from now on
         | Swap(first, second)                        two slots exchange their memory
         | Define(symbols, values)                    give symbols the values of dims, all at once
         | Read(symbol, buffer, index)                give a symbol the value of an element in memory
         | Check(constraint)                          end the run with an error unless it holds
         | Branch(condition, then, otherwise)         steps by a dim: 0 is false
         | Repeat(counter, limit, condition, body)    for (counter = 0; counter < limit && condition; counter++)
         | Call(function, inputs, outputs)            a function of the executor, for strings, sequences and optionals

Symbols of inputs keep their value throughout a run; Plan.run_symbols are defined by Define, Read and Repeat, and may change.
Control flow depends on symbols alone: Read is the one way from memory to them.

In memory a string is its number (int64) in a table that begins with Plan.strings and grows as a run makes strings; a sequence or
optional is the number (int64) of an object of the run, 0 for an empty optional. Kernels move and compare such numbers; only calls
look behind them. A plan with calls needs the graph executor.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim
from shared_ir.types import ValueKind

ALIGNMENT_BYTES = 64
"""Alignment in bytes of every weight, and of every buffer in the arena that is not part of a larger one."""


class Storage(enum.StrEnum):
    """Where a buffer lives."""

    INPUT = "input"  # `index` is the position in Plan.inputs
    OUTPUT = "output"  # `index` is the position in Plan.outputs
    WEIGHT = "weight"  # `offset` bytes into weights.bin
    ARENA = "arena"  # `offset` bytes into the arena of the run
    SLOT = "slot"  # `offset` bytes into slot `index`: memory that the run sizes and the model keeps for later runs


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of the model.

    Attributes:
        name: as users call it.
        dtype: of its elements; of a sequence or optional, of those of its tensors.
        shape: an extent for each axis, a number or an expression over symbols; empty of a sequence or optional.
        kind: a tensor, a sequence, an optional.
        default: the number in Plan.buffers of the weight that an input has where the caller gives none, else -1.
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    kind: ValueKind = ValueKind.TENSOR
    default: int = -1

    @property
    def is_optional(self) -> bool:
        """Whether it is an input that need not be given."""
        return self.default >= 0

    @property
    def memory_dtype(self) -> DType:
        """The element type of its buffer."""
        return DType.INT64 if self.dtype is DType.STRING or self.kind is not ValueKind.TENSOR else self.dtype


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """Memory that launches read and write. ``size`` and ``offset`` are in bytes.

    An offset counts from the start of the input, output, weights, arena or slot; it may change as symbols do. A buffer may be
    a slice of a larger one: the kernels that read and write it know its strides, and ``size`` is that of the memory from its
    first element to its last.
    """

    storage: Storage
    dtype: DType
    shape: tuple[Dim, ...]
    size: Dim
    offset: Dim = 0
    index: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One native function; several launches may share it.

    ``symbols`` names its integer parameters, for reading only: launches give their values by position.
    ``scratch`` is the private memory in bytes that each thread needs. ``schedule`` is the tuple of steps in its JSON form.
    ``part`` names the code generator, other than that of the target, that made a part of the model; the last ``constants`` of its
    arguments are then weights that it is handed when a model is loaded.
    """

    name: str
    symbols: tuple[str, ...] = ()
    scratch: int = 0
    schedule: tuple[dict[str, Any], ...] = ()
    part: str = ""
    constants: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """Run ``kernels[kernel]`` over ``tasks`` independent tasks, then wait for all of them.

    ``buffers`` are indices into Plan.buffers, ``symbols`` the integer arguments. ``flops`` and ``bytes`` (moved at least
    once) serve profiles, ``nodes`` are the names of the ONNX nodes that this launch computes.
    """

    kernel: int
    buffers: tuple[int, ...]
    symbols: tuple[Dim, ...]
    tasks: Dim
    flops: Dim = 0
    bytes: Dim = 0
    nodes: tuple[str, ...] = ()
    label: str = ""


@dataclass(frozen=True, slots=True)
class SymbolSource:
    """Symbol ``name`` is the extent of axis ``axis`` of input ``input``."""

    name: str
    input: int
    axis: int


@dataclass(frozen=True, slots=True)
class Constraint:
    """At run time ``actual == expected`` must hold, or the request is refused with ``message``.

    ``lower`` makes it ``actual >= expected`` instead.
    """

    actual: Dim
    expected: Dim
    message: str
    lower: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy the bytes of ``buffers[target].size`` from ``source`` to ``target``; they do not overlap."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Reserve:
    """Make the slot of ``buffer`` large enough for ``offset + size`` bytes; with ``keep`` what is in the slot stays."""

    buffer: int
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Swap:
    """The slots ``first`` and ``second`` exchange their memory."""

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Define:
    """``symbols[i] = values[i]`` for all i at once: values are computed before any symbol changes."""

    symbols: tuple[str, ...]
    values: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """``symbol`` is element ``index`` of ``buffer``, whose dtype is bool, int32 or int64."""

    symbol: str
    buffer: int
    index: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    """Unless ``constraint`` holds now, the run ends with its message."""

    constraint: Constraint


@dataclass(frozen=True, slots=True)
class Branch:
    """Run ``then`` where ``condition`` is not 0, else ``otherwise``."""

    condition: Dim
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Run ``body`` for ``counter`` = 0, 1, ... while ``counter < limit`` and the symbol ``condition`` is not 0.

    ``limit`` is evaluated once, before the first iteration; an empty ``condition`` always holds. Afterwards ``counter`` is
    the number of iterations.
    """

    counter: str
    limit: Dim
    condition: str
    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Run ``function`` of the executor on ``inputs``, which writes ``outputs``; buffers, -1 where one is absent.

    ``takes`` and ``gives`` are the element types of inputs and outputs, or ``object``. ``attributes`` are numbers, strings and
    lists of them.
    """

    function: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()


Step: TypeAlias = Launch | Copy | Reserve | Swap | Define | Read | Check | Branch | Repeat | Call


def walk_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """Every step, those inside branches and loops after the step that holds them."""
    for step in steps:
        yield step
        if isinstance(step, Branch):
            yield from walk_steps((*step.then, *step.otherwise))
        elif isinstance(step, Repeat):
            yield from walk_steps(step.body)


def launches(steps: Iterable[Step]) -> tuple[Launch, ...]:
    """Every launch, in the order of the text of the program."""
    return tuple(s for s in walk_steps(steps) if isinstance(s, Launch))


@dataclass(frozen=True)
class Plan:
    """A compiled model, but for its code and weights.

    Attributes:
        name: of the model.
        inputs: in order.
        outputs: in order.
        symbols: where each symbol is read off the inputs.
        constraints: what must hold of the extents of inputs.
        buffers: memory by number, of the arena, the weights, the inputs and the outputs.
        kernels: by number.
        steps: what a run does, in order.
        arena_size: bytes that a run needs for what lies between the kernels.
        weights_size: bytes.
        metadata: what the model came with.
        run_symbols: the symbols that the run defines.
        output_slots: for each output its slot where only the run knows its extents, else -1; empty when all extents follow from the
            inputs.
        slots: how many there are.
        strings: those that the model holds.
        batch: the symbol of the first axis of every input and output along which the compiler has proven that rows do not see each
            other, empty without a proof.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: tuple[SymbolSource, ...]
    constraints: tuple[Constraint, ...]
    buffers: tuple[BufferSpec, ...]
    kernels: tuple[KernelSpec, ...]
    steps: tuple[Step, ...]
    arena_size: Dim = 0
    weights_size: int = 0
    metadata: dict[str, str] = field(default_factory=dict)
    run_symbols: tuple[str, ...] = ()
    output_slots: tuple[int, ...] = ()
    slots: int = 0
    strings: tuple[str, ...] = ()
    batch: str = ""

    def output_slot(self, output: int) -> int:
        """The slot of an output whose extents only the run knows, else -1."""
        return self.output_slots[output] if self.output_slots else -1
