"""Is a plan one that an executor can run? Asked of every plan that is read, signed or not: what it names exists, what it counts is
bounded, and no size that is known beforehand leaves its memory.

What depends on a run is checked by the run: the graph executor asks for every address whether the bytes behind it are there
(:mod:`runtime_service.executors.steps`). That a kernel touches no more than the buffers of its launches is the compiler's to prove;
a library says which plan it was made for, and runs with no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim, dim_symbols
from shared_ir.plan.program import (
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
    TensorSpec,
)
from shared_ir.types import ValueKind

MAX_RANK = 16
"""``INGOT_MAX_RANK`` of ``ingot.h``."""
MAX_DEPTH = 100
"""Branches and loops inside one another."""
MAX_STEPS = 1 << 22
_LARGEST = 1 << 63
_READABLE = (DType.BOOL, DType.INT32, DType.INT64)
_OBJECT = "object"


def validate_plan(plan: Plan) -> None:
    """Raises IngotError ARTIFACT_CORRUPT naming the first thing that is wrong."""
    _Validator(plan).run()


class _Validator:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._inputs = frozenset(source.name for source in plan.symbols)
        self._symbols = self._inputs | set(plan.run_symbols)
        self._arguments: dict[int, int] = {}
        self._steps = 0
        self._rows: dict[int, bool] = {}

    def run(self) -> None:
        plan = self._plan
        _text(plan.name, "the name")
        _number(plan.weights_size, "the size of the weights")
        _require(all(isinstance(text, str) for text in plan.strings), "the strings", "a string that is none")
        known = all(isinstance(text, str) for pair in plan.metadata.items() for text in pair)
        _require(known, "the metadata", "a text that is none")
        self._tensors()
        self._sources()
        self._batch()
        self._slots()
        for number, buffer in enumerate(plan.buffers):
            self._buffer(buffer, f"buffer {number}")
        for number, kernel in enumerate(plan.kernels):
            _text(kernel.name, f"kernel {number}")
            _number(kernel.scratch, f"the scratch memory of kernel {number}")
            _text(kernel.part, f"the code generator of kernel {number}")
            _number(kernel.constants, f"the constants of kernel {number}")
        for constraint in plan.constraints:
            self._constraint(constraint, self._inputs)
        self._dims([plan.arena_size], "the size of the arena", self._symbols)
        self._program(plan.steps, 0)

    def _tensors(self) -> None:
        plan = self._plan
        for spec in (*plan.inputs, *plan.outputs):
            where = f"tensor {spec.name!r}"
            _text(spec.name, where)
            _require(len(spec.shape) <= MAX_RANK, where, f"a rank of {len(spec.shape)}")
            _require(spec.kind is ValueKind.TENSOR or not spec.shape, where, "the shape of what is no tensor")
            self._dims(spec.shape, where, self._symbols)
        for spec in plan.inputs:
            _number(spec.default, f"the default of input {spec.name!r}", -1, len(plan.buffers) - 1)
            if spec.is_optional:
                self._default(spec)

    def _default(self, spec: TensorSpec) -> None:
        buffer = self._plan.buffers[spec.default]
        fits = buffer.storage is Storage.WEIGHT and buffer.dtype is spec.dtype and len(buffer.shape) == len(spec.shape)
        _require(fits, f"the default of input {spec.name!r}", "a buffer that is no weight of its type and rank")

    def _sources(self) -> None:
        plan = self._plan
        for source in plan.symbols:
            where = f"symbol {source.name!r}"
            _number(source.input, where, 0, len(plan.inputs) - 1)
            _number(source.axis, where, 0, len(plan.inputs[source.input].shape) - 1)
        names = [*(source.name for source in plan.symbols), *plan.run_symbols]
        for name in names:
            _require(isinstance(name, str) and name.isidentifier(), "the symbols", f"{name!r}, which is no name")
        _require(len(set(names)) == len(names), "the symbols", "a name that is there twice")

    def _batch(self) -> None:
        plan = self._plan
        _require(isinstance(plan.batch, str), "the batch", "a symbol that is no text")
        if plan.batch:
            firsts = [spec.shape[0] if spec.shape else 0 for spec in (*plan.inputs, *plan.outputs)]
            _require(
                all(d == Var(plan.batch) for d in firsts),
                "the batch",
                f"{plan.batch[:40]!r}, which is not every first axis",
            )

    def _slots(self) -> None:
        plan, used = self._plan, {b.index for b in self._plan.buffers if b.storage is Storage.SLOT}
        _number(plan.slots, "the number of slots", 0, 2 * len(plan.buffers))
        if plan.output_slots:
            count = len(plan.output_slots)
            _require(count == len(plan.outputs), "the slots of the outputs", f"{count} of {len(plan.outputs)}")
        for slot in plan.output_slots:
            _number(slot, "the slot of an output", -1, plan.slots - 1)
            _require(slot < 0 or slot in used, "the slot of an output", f"{slot}, which no buffer is in")

    def _buffer(self, buffer: BufferSpec, where: str) -> None:
        plan = self._plan
        places = {Storage.INPUT: len(plan.inputs), Storage.OUTPUT: len(plan.outputs), Storage.SLOT: plan.slots}
        _number(buffer.index, where, 0, places.get(buffer.storage, 1) - 1)
        _text(buffer.name, where)
        self._dims((*buffer.shape, buffer.size, buffer.offset), where, self._symbols)
        whole = {Storage.WEIGHT: plan.weights_size, Storage.ARENA: plan.arena_size}.get(buffer.storage)
        offset, size = buffer.offset, buffer.size
        if isinstance(offset, int) and isinstance(size, int) and isinstance(whole, int):
            inside = offset + size <= whole
            _require(inside, where, f"{size} bytes at {offset} of {whole} of the {buffer.storage}")

    # ---- steps

    def _program(self, steps: Sequence[Step], depth: int) -> None:
        _require(depth <= MAX_DEPTH, "the steps", f"more than {MAX_DEPTH} inside one another")
        self._steps += len(steps)
        _require(self._steps <= MAX_STEPS, "the steps", f"more than {MAX_STEPS}")
        for step in steps:
            self._step(step, depth)

    def _step(self, step: Step, depth: int) -> None:
        match step:
            case Launch():
                self._launch(step)
            case Copy() | Reserve() | Swap():
                self._move(step)
            case Define(symbols=names, values=values):
                _require(len(names) == len(values), "a definition", f"{len(names)} names for {len(values)} values")
                for name in names:
                    self._defined(name)
                self._dims(values, "a definition", self._symbols, least=None)
            case Read():
                self._read(step)
            case Check(constraint=constraint):
                self._constraint(constraint, self._symbols)
            case Branch(condition=condition, then=then, otherwise=otherwise):
                self._dims([condition], "a branch", self._symbols, least=None)
                self._program(then, depth + 1)
                self._program(otherwise, depth + 1)
            case Repeat(counter=counter, limit=limit, condition=condition_name, body=body):
                self._defined(counter)
                _require(condition_name == "" or condition_name in self._symbols, "a loop", repr(condition_name))
                self._dims([limit], "a loop", self._symbols, least=None)
                self._program(body, depth + 1)
            case Call():
                self._call(step)

    def _launch(self, step: Launch) -> None:
        where = f"launch {step.label[:80]!r}" if isinstance(step.label, str) else "a launch"
        _text(step.label, where)
        _number(step.kernel, where, 0, len(self._plan.kernels) - 1)
        self._buffers(step.buffers, where)
        kernel = self._plan.kernels[step.kernel]
        _require(
            len(step.symbols) == len(kernel.symbols), where, f"{len(step.symbols)} of {len(kernel.symbols)} symbols"
        )
        before = self._arguments.setdefault(step.kernel, len(step.buffers))
        _require(before == len(step.buffers), where, f"{len(step.buffers)} buffers where another launch has {before}")
        self._dims(step.symbols, where, self._symbols, least=None)
        self._dims((step.tasks, step.flops, step.bytes), where, self._symbols)
        _names(step.nodes, where)

    def _move(self, step: Copy | Reserve | Swap) -> None:
        match step:
            case Copy(source=source, target=target):
                self._buffers((source, target), "a copy")
                written = self._plan.buffers[target].storage
                _require(written not in (Storage.INPUT, Storage.WEIGHT), "a copy", f"a target in the {written}")
            case Reserve(buffer=number):
                self._buffers((number,), "a reservation")
                storage = self._plan.buffers[number].storage
                _require(storage is Storage.SLOT, "a reservation", f"a buffer in the {storage}")
            case Swap(first=first, second=second):
                for slot in (first, second):
                    _number(slot, "an exchange of slots", 0, self._plan.slots - 1)

    def _read(self, step: Read) -> None:
        self._defined(step.symbol)
        self._buffers((step.buffer,), "a read")
        buffer = self._plan.buffers[step.buffer]
        _require(buffer.dtype in _READABLE, "a read", f"an element of type {buffer.dtype}")
        _number(step.index, "a read")
        if isinstance(buffer.size, int):
            _require((step.index + 1) * buffer.dtype.bits // 8 <= buffer.size, "a read", f"element {step.index}")

    def _call(self, step: Call) -> None:
        where = f"a call of {step.function!r:.80}"
        _text(step.function, where)
        _names(step.nodes, where)
        for buffers, kinds in ((step.inputs, step.takes), (step.outputs, step.gives)):
            _require(len(buffers) == len(kinds), where, f"{len(buffers)} buffers for {len(kinds)} types")
            self._buffers(buffers, where, least=-1)
            for buffer, kind in zip(buffers, kinds, strict=True):
                fits = kind == _OBJECT or kind in DType.__members__.values() if buffer >= 0 else kind == ""
                _require(fits, where, f"the type {kind!r:.80}")
        known = isinstance(step.attributes, Mapping) and all(isinstance(name, str) for name in step.attributes)
        _require(known, where, "attributes that have no names")
        dtype = step.attributes.get("dtype", DType.BOOL)
        _require(dtype in DType.__members__.values(), where, f"the type {dtype!r:.80}")

    # ---- parts

    def _constraint(self, constraint: Constraint, symbols: frozenset[str]) -> None:
        _text(constraint.message, "a constraint")
        _require(type(constraint.lower) is bool, "a constraint", repr(constraint.lower)[:80])
        self._dims((constraint.actual, constraint.expected), "a constraint", symbols, least=None)

    def _buffers(self, numbers: Iterable[int], where: str, least: int = 0) -> None:
        for number in numbers:
            _number(number, where, least, len(self._plan.buffers) - 1)

    def _defined(self, name: str) -> None:
        _require(name in self._plan.run_symbols, "a definition", f"{name!r:.80}, which is no symbol of the run")

    def _dims(self, dims: Iterable[Dim], where: str, symbols: frozenset[str], least: int | None = 0) -> None:
        for dim in dims:
            if isinstance(dim, int):
                _number(dim, where, -_LARGEST if least is None else least, _LARGEST - 1)
            elif not self._known(dim, symbols):
                strange = ", ".join(sorted(dim_symbols([dim]) - symbols))
                _require(False, where, f"the symbols {strange}, which nothing defines")

    def _known(self, dim: Any, symbols: frozenset[str]) -> bool:
        if symbols is not self._symbols:
            return dim_symbols([dim]) <= symbols
        known = self._rows.get(id(dim))
        if known is None:
            known = self._rows[id(dim)] = dim_symbols([dim]) <= symbols
        return known


def _number(value: Any, where: str, least: int = 0, most: int = _LARGEST - 1) -> None:
    if type(value) is not int or not least <= value <= most:
        _corrupt(where, f"a whole number from {least} to {most}", repr(value)[:80])


def _text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        _corrupt(where, "a text", repr(value)[:80])


def _names(values: Iterable[Any], where: str) -> None:
    for value in values:
        _text(value, where)


def _require(holds: bool, where: str, received: str) -> None:
    if not holds:
        _corrupt(where, "", received)


def _corrupt(where: str, expected: str, received: str) -> NoReturn:
    raise IngotError(
        ErrorCode.ARTIFACT_CORRUPT,
        f"the plan cannot be run: {where} is wrong",
        expected=expected,
        received=received,
        remedy="Compile the model again.",
    )
