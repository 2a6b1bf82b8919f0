"""``execute`` of the generated entry: the steps of a plan as LLVM IR, branches and loops included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from compiler_service.compiler.codegen.entry.dim_code import Body, DimCode
from shared_ir.dtype import DType
from shared_ir.expr import Expr, lift
from shared_ir.expr.dim import Dim, dim_symbols
from shared_ir.plan.program import (
    Branch,
    BufferSpec,
    Check,
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
    launches,
    walk_steps,
)

EXECUTE_TYPES = """\
%slot = type { ptr, i64 }
%frame = type { ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, ptr, i32 }
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"""

_INPUTS, _OUTPUTS, _WEIGHTS, _ARENA, _SYMBOLS, _LAUNCH = range(6)
_SLOTS, _RESERVE, _EXPECTED, _RECEIVED, _STOP, _FAILED = range(6, 12)
DONE, NO_MEMORY, LEFT = -1, -2, -3
"""What functions of the entry return instead of the number of a constraint that does not hold."""
_READ_TYPES = {DType.BOOL: "i8", DType.INT32: "i32", DType.INT64: "i64"}


MOST_TOGETHER = 256
"""Largest number of steps, or of symbols, checks or outputs, of one function. Time and memory of LLVM grow with the square of a
function's length: long plans are functions that call each other."""


def emit_execute(plan: Plan, first_check: int) -> dict[str, Body]:
    """Bodies of ``i32 execute(ptr %frame)`` and of the parts that it calls, by name. Constraints that they check are numbered
    from ``first_check`` in the order of their text."""
    functions = {"execute": Body()}
    execute = _Execute(functions, "execute", plan, first_check)
    execute.steps(plan.steps)
    execute.body.add(f"ret i32 {DONE}")
    return functions


def _parts(steps: Iterable[Step]) -> list[list[Step]]:
    """``steps`` in parts of at most ``MOST_TOGETHER``, nested ones included, or of one step."""
    parts: list[list[Step]] = [[]]
    length = 0
    for step in steps:
        own = sum(1 for _ in walk_steps([step]))
        if parts[-1] and length + own > MOST_TOGETHER:
            parts.append([])
            length = 0
        parts[-1].append(step)
        length += own
    return parts


class _Execute:
    """What is in registers is kept between steps: pointers of buffers, dims, and what the argument arrays hold."""

    def __init__(self, functions: dict[str, Body], name: str, plan: Plan, first_check: int) -> None:
        self._functions = functions
        self.body = body = functions[name]
        self._plan = plan
        self._checks = first_check
        self._positions = {name: i for i, name in enumerate([*(s.name for s in plan.symbols), *plan.run_symbols])}
        self._fields: dict[int, str] = {}
        self._pointers: dict[int, str] = {}
        self._stored: dict[tuple[str, int], str] = {}
        self._code = DimCode(body, self._load_symbol, f"ret i32 {NO_MEMORY}")
        most_buffers = max((len(s.buffers) for s in launches(plan.steps)), default=0)
        most_symbols = max((len(s.symbols) for s in launches(plan.steps)), default=0)
        body.add(f"%buffers = alloca [{max(most_buffers, 1)} x ptr]")
        body.add(f"%arguments = alloca [{max(most_symbols, 1)} x i64]")

    def steps(self, steps: Iterable[Step]) -> None:
        parts = _parts(steps)
        for part in parts:
            if len(parts) > 1:
                self._apart(part)
            else:
                self._inline(part)

    def _apart(self, steps: Sequence[Step]) -> None:
        """``steps`` in a function of their own. What ends the run there ends it here."""
        body, name = self.body, f"execute_{len(self._functions)}"
        self._functions[name] = Body()
        part = _Execute(self._functions, name, self._plan, self._checks)
        part._inline(steps)
        part.body.add(f"ret i32 {DONE}")
        self._checks = part._checks
        found = body.value(f"call i32 @{name}(ptr %frame)")
        done, ended = body.fresh_label("done"), body.fresh_label("ended")
        body.add(f"br i1 {body.value(f'icmp eq i32 {found}, {DONE}')}, label %{done}, label %{ended}")
        body.label(ended)
        body.add(f"ret i32 {found}")
        body.label(done)
        self._forget(steps)

    def _inline(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self._step(step)

    def _step(self, step: Step) -> None:
        match step:
            case Launch():
                self._launch(step)
            case Copy():
                self._copy(step)
            case Reserve():
                self._reserve(step)
            case Swap():
                self._swap(step)
            case Define(symbols=symbols, values=values):
                self._assign(symbols, [self._code.operand(v) for v in values])
            case Read():
                self._assign([step.symbol], [self._element(step)])
            case Check():
                self._check(step)
            case Branch():
                self._branch(step)
            case Repeat():
                self._repeat(step)

    # -- work

    def _launch(self, step: Launch) -> None:
        for slot, buffer in enumerate(step.buffers):
            self._store("%buffers", slot, "ptr", self._pointer(buffer))
        for slot, dim in enumerate(step.symbols):
            self._store("%arguments", slot, "i64", self._code.operand(dim))
        tasks = self._code.operand(step.tasks)
        function = self._field(_LAUNCH)
        arguments = f"ptr %frame, i32 {step.kernel}, ptr %buffers, ptr %arguments, i64 {tasks}"
        self.body.add(f"call void {function}({arguments})")
        if self._plan.kernels[step.kernel].part:
            failed = self.body.value(f"load i32, ptr {self._field_address(_FAILED)}")
            self.body.leave_if(self.body.value(f"icmp ne i32 {failed}, 0"), f"ret i32 {LEFT}")

    def _store(self, base: str, slot: int, kind: str, operand: str) -> None:
        if self._stored.get((base, slot)) == operand:
            return  # kernels read these arrays and never write them
        self._stored[base, slot] = operand
        self.body.add(f"store {kind} {operand}, ptr {self.body.address(base, slot, kind)}")

    def _copy(self, step: Copy) -> None:
        source, target = self._pointer(step.source), self._pointer(step.target)
        size = self._code.operand(self._plan.buffers[step.target].size)
        self.body.add(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    # -- memory

    def _reserve(self, step: Reserve) -> None:
        body, buffer = self.body, self._plan.buffers[step.buffer]
        size = self._code.operand(_end(buffer))
        arguments = f"ptr %frame, ptr {self._slot(buffer.index)}, i64 {size}, i32 {int(step.keep)}"
        found = body.value(f"call i32 {self._field(_RESERVE)}({arguments})")
        body.leave_if(body.value(f"icmp eq i32 {found}, 0"), f"ret i32 {NO_MEMORY}")
        self._forget_slots({buffer.index})

    def _swap(self, step: Swap) -> None:
        first, second = self._slot(step.first), self._slot(step.second)
        a, b = self.body.value(f"load %slot, ptr {first}"), self.body.value(f"load %slot, ptr {second}")
        self.body.add(f"store %slot {b}, ptr {first}")
        self.body.add(f"store %slot {a}, ptr {second}")
        self._forget_slots({step.first, step.second})

    def _slot(self, index: int) -> str:
        return self.body.address(self._field(_SLOTS), index, "%slot")

    def _pointer(self, index: int) -> str:
        if index not in self._pointers:
            buffer = self._plan.buffers[index]
            base = self._base(buffer)
            if buffer.offset != 0:
                base = self.body.value(f"getelementptr i8, ptr {base}, i64 {self._code.operand(buffer.offset)}")
            self._pointers[index] = base
        return self._pointers[index]

    def _base(self, buffer: BufferSpec) -> str:
        match buffer.storage:
            case Storage.INPUT:
                return self.body.element(self._field(_INPUTS), buffer.index, "ptr")
            case Storage.OUTPUT:
                return self.body.element(self._field(_OUTPUTS), buffer.index, "ptr")
            case Storage.SLOT:
                return self.body.value(f"load ptr, ptr {self._slot(buffer.index)}")
            case Storage.WEIGHT:
                return self._field(_WEIGHTS)
            case Storage.ARENA:
                return self._field(_ARENA)

    # -- symbols

    def _load_symbol(self, name: str) -> str:
        return self.body.element(self._field(_SYMBOLS), self._positions[name])

    def _assign(self, symbols: Iterable[str], operands: Iterable[str]) -> None:
        symbols = tuple(symbols)
        for name, operand in zip(symbols, operands, strict=True):
            address = self.body.address(self._field(_SYMBOLS), self._positions[name])
            self.body.add(f"store i64 {operand}, ptr {address}")
        self._forget_symbols(set(symbols))

    def _leave_if_stopped(self) -> None:
        """Somebody may have asked for an end: the kernels before may then not have run, and a loop need not go on."""
        flag = self.body.value(f"load volatile i32, ptr {self._field(_STOP)}")
        self.body.leave_if(self.body.value(f"icmp ne i32 {flag}, 0"), f"ret i32 {LEFT}")

    def _element(self, step: Read) -> str:
        body = self.body
        self._leave_if_stopped()
        kind = _READ_TYPES[self._plan.buffers[step.buffer].dtype]
        found = body.element(self._pointer(step.buffer), step.index, kind)
        if kind == "i64":
            return found
        if kind == "i32":
            return body.value(f"sext i32 {found} to i64")
        return body.value(f"zext i1 {body.value(f'icmp ne i8 {found}, 0')} to i64")

    def _check(self, step: Check) -> None:
        body, constraint = self.body, step.constraint
        received, expected = self._code.operand(constraint.actual), self._code.operand(constraint.expected)
        verdict = body.value(f"icmp {'sge' if constraint.lower else 'eq'} i64 {received}, {expected}")
        holds, broken = body.fresh_label("holds"), body.fresh_label("broken")
        body.add(f"br i1 {verdict}, label %{holds}, label %{broken}")
        body.label(broken)
        for index, operand in ((_EXPECTED, expected), (_RECEIVED, received)):
            body.add(f"store i64 {operand}, ptr {self._field_address(index)}")
        body.add(f"ret i32 {self._checks}")
        body.label(holds)
        self._checks += 1

    # -- control flow

    def _branch(self, step: Branch) -> None:
        body = self.body
        condition = body.value(f"icmp ne i64 {self._code.operand(step.condition)}, 0")
        then, otherwise, join = (body.fresh_label(n) for n in ("then", "else", "join"))
        body.add(f"br i1 {condition}, label %{then}, label %{otherwise}")
        for label, steps in ((then, step.then), (otherwise, step.otherwise)):
            with self._scope(steps):
                body.label(label)
                self.steps(steps)
                body.add(f"br label %{join}")
        body.label(join)
        self._forget((*step.then, *step.otherwise))

    def _repeat(self, step: Repeat) -> None:
        body = self.body
        limit = self._code.operand(step.limit)
        self._assign([step.counter], ["0"])
        head, inside, after = (body.fresh_label(n) for n in ("head", "body", "after"))
        with self._scope(step.body):
            self._forget((step,))
            body.add(f"br label %{head}")
            body.label(head)
            counter = self._load_symbol(step.counter)
            goes_on = body.value(f"icmp slt i64 {counter}, {limit}")
            if step.condition:
                wanted = body.value(f"icmp ne i64 {self._load_symbol(step.condition)}, 0")
                goes_on = body.value(f"and i1 {goes_on}, {wanted}")
            body.add(f"br i1 {goes_on}, label %{inside}, label %{after}")
            body.label(inside)
            self._leave_if_stopped()
            self.steps(step.body)
            self._assign([step.counter], [body.value(f"add i64 {counter}, 1")])
            body.add(f"br label %{head}")
        body.label(after)
        self._forget((step,))

    @contextmanager
    def _scope(self, steps: Iterable[Step]) -> Iterator[None]:
        """Registers that are set inside do not dominate what follows."""
        saved = dict(self._fields), dict(self._pointers), dict(self._code.known)
        self._stored.clear()
        yield
        self._fields, self._pointers, self._code.known = saved
        self._stored.clear()

    def _forget(self, steps: Iterable[Step]) -> None:
        """``steps`` may have run or not: what they change is no longer known."""
        symbols: set[str] = set()
        slots: set[int] = set()
        for step in walk_steps(steps):
            match step:
                case Define(symbols=defined):
                    symbols.update(defined)
                case Read(symbol=name) | Repeat(counter=name):
                    symbols.add(name)
                case Reserve(buffer=buffer):
                    slots.add(self._plan.buffers[buffer].index)
                case Swap(first=first, second=second):
                    slots |= {first, second}
        self._forget_symbols(symbols)
        self._forget_slots(slots)

    def _forget_symbols(self, symbols: set[str]) -> None:
        self._code.forget(symbols)
        stale = [i for i in self._pointers if not dim_symbols([self._plan.buffers[i].offset]).isdisjoint(symbols)]
        for index in stale:
            del self._pointers[index]

    def _forget_slots(self, slots: set[int]) -> None:
        for index in list(self._pointers):
            buffer = self._plan.buffers[index]
            if buffer.storage is Storage.SLOT and buffer.index in slots:
                del self._pointers[index]

    # -- the frame

    def _field(self, index: int) -> str:
        if index not in self._fields:
            self._fields[index] = self.body.value(f"load ptr, ptr {self._field_address(index)}")
        return self._fields[index]

    def _field_address(self, index: int) -> str:
        return self.body.value(f"getelementptr inbounds %frame, ptr %frame, i32 0, i32 {index}")


def _end(buffer: BufferSpec) -> Dim:
    """Bytes from the start of the slot to the end of the buffer."""
    end: Expr = lift(buffer.offset) + lift(buffer.size)
    return end
