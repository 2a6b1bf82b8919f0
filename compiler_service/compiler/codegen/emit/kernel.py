"""Loop IR to LLVM IR: one module per kernel.

The module exports ``void @symbol(ptr buffers, ptr symbols, i64 begin, i64 end, ptr scratch, ptr stop)`` (see
``native/module.h``), which unpacks its arguments and calls the kernel proper. There every buffer is a ``noalias``
parameter: buffers of one launch must not overlap, but for an output that takes the place of an input read at the same
element only.
"""

from __future__ import annotations

import math
from typing import assert_never

from compiler_service.compiler.codegen.emit.blocks import Keeps
from compiler_service.compiler.codegen.emit.expressions import Expressions
from compiler_service.compiler.codegen.emit.lockstep import by_depth, side_by_side
from compiler_service.compiler.codegen.emit.memory import BufferPlace, element_size, place_of
from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder, Lines, LlvmModule, LlvmValue
from compiler_service.compiler.codegen.llvm.llvm_types import register_type
from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Buffer,
    BufferLoad,
    BufferScope,
    Checkpoint,
    For,
    ForKind,
    Function,
    If,
    Let,
    Prefetch,
    Statement,
    Store,
    expressions_of,
    stored_buffers,
    walk_statements,
)
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Const, Expr, Var
from shared_ir.machine.target import Target

_ALIGNMENT_BYTES = 64


def emit_kernel(function: Function, target: Target, symbol: str) -> str:
    """The LLVM IR of ``function`` as a module that exports ``symbol``.

    Args:
        function: flat loop IR: one index per access, only SERIAL loops.

    Raises:
        IngotError: UNSUPPORTED_DTYPE, a type or operator that no code is generated for; COMPILER_FAULT, the function
            is not flat. ``node`` is the function's name.
    """
    try:
        module = LlvmModule(target)
        module.define(symbol, _entry(function, symbol))
        module.define(f"{symbol}.body", _Kernel(module, function).write(symbol))
        return module.text()
    except IngotError as error:
        raise error.located(node=function.name) from error


def scratch_size(function: Function) -> int:
    """Bytes of scratch memory that one thread needs; allocations of disjoint scopes share."""
    return _scratch_size(function.body)


def _scratch_size(statement: Statement) -> int:
    match statement:
        case Allocate(buffer=buffer, body=body):
            own = _aligned_bytes(buffer) if buffer.scope is BufferScope.SCRATCH else 0
            return own + _scratch_size(body)
        case Block(statements=statements):
            return max(map(_scratch_size, statements), default=0)
        case For(body=body) | Let(body=body):
            return _scratch_size(body)
        case If(then=then, otherwise=otherwise):
            return max(_scratch_size(then), 0 if otherwise is None else _scratch_size(otherwise))
    return 0


def _elements(buffer: Buffer) -> int:
    extents = [e for e in buffer.shape if isinstance(e, int)]
    if len(extents) != len(buffer.shape):
        raise IngotError(ErrorCode.COMPILER_FAULT, f"the {buffer.scope} buffer {buffer.name!r} has a symbolic shape")
    return math.prod(extents)


def _aligned_bytes(buffer: Buffer) -> int:
    return -(-_elements(buffer) * element_size(buffer) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _entry(function: Function, symbol: str) -> str:
    """The exported function: unpacks pointers and symbols."""
    lines: list[str] = []
    arguments: list[str] = []
    for kind, base, count in (("ptr", "%buffers", len(function.buffers)), ("i64", "%symbols", len(function.symbols))):
        for i in range(count):
            lines.append(f"  {base}.{i}.at = getelementptr inbounds {kind}, ptr {base}, i64 {i}")
            lines.append(f"  {base}.{i} = load {kind}, ptr {base}.{i}.at")
            arguments.append(f"{kind} {base}.{i}")
    arguments += ["i64 %begin", "i64 %end", "ptr %scratch", "ptr %stop"]
    return (
        f"define void @{symbol}(ptr %buffers, ptr %symbols, i64 %begin, i64 %end, ptr %scratch, ptr %stop) #0 {{\nentry:\n"
        + "\n".join([*lines, f"  call void @{symbol}.body({', '.join(arguments)})", "  ret void\n}"])
    )


class _Kernel:
    """The kernel proper: statements of one function."""

    def __init__(self, module: LlvmModule, function: Function) -> None:
        self.function = function
        self.builder = FunctionBuilder(module)
        self.expressions = Expressions(self.builder)
        self.scratch_offset = 0

    def write(self, symbol: str) -> str:
        function, builder = self.function, self.builder
        parameters = self._parameters()
        exit_label, loop = builder.label("exit"), builder.label("task")
        first = builder.emit("icmp slt i64 %begin, %end")
        before = builder.place()
        builder.branch_if(first, loop, exit_label)
        self._loop(function.task, ("%begin", "%end"), function.body, (loop, exit_label), before)
        builder.line("ret void")
        # not inlined: the parameters of a call of their own are where LLVM keeps noalias
        return f"define internal void @{symbol}.body({parameters}) noinline #0 {{\n{builder.body()}\n}}"

    def _parameters(self) -> str:
        function = self.function
        stored = stored_buffers(function.body)
        loaded = loaded_buffers(function.body)
        parameters = []
        for i, buffer in enumerate(function.buffers):
            use = "" if buffer in stored and buffer in loaded else "writeonly " if buffer in stored else "readonly "
            parameters.append(f"ptr noalias {use}%buffer{i}")
            register_type(buffer.dtype, 1)
            self.expressions.places[buffer] = place_of(buffer, f"%buffer{i}")
        for i, var in enumerate(function.symbols):
            parameters.append(f"i64 %symbol{i}")
            self.expressions.bind(var.name, LlvmValue(f"%symbol{i}", DType.INT64), nonnegative=True)
        return ", ".join(
            [*parameters, "i64 %begin", "i64 %end", f"ptr noalias align {_ALIGNMENT_BYTES} %scratch", "ptr %stop"]
        )

    # -- statements

    def statement(self, statement: Statement) -> None:
        match statement:
            case Store():
                self.expressions.store(statement)
            case Prefetch():
                self.expressions.prefetch(statement)
            case Checkpoint():
                self._leave_if_stopped()
            case Block(statements=statements):
                for group in side_by_side(statements, self.builder.module.target.vector_registers // 4):
                    self._group(group)
            case Let(var=var, value=value, body=body):
                self.expressions.let(var, value)
                self.statement(body)
            case For():
                self._for(statement)
            case If(cond=cond, then=then, otherwise=otherwise):
                self._if(cond, then, otherwise)
            case Allocate(buffer=buffer, body=body):
                self._allocate(buffer, body)
            case _:
                raise IngotError(
                    ErrorCode.COMPILER_FAULT, f"no code is generated for the statement {type(statement).__name__}"
                )

    def _leave_if_stopped(self) -> None:
        builder = self.builder
        leave, stay = builder.label("leave"), builder.label("stay")
        flag = builder.emit("load volatile i32, ptr %stop, align 4")
        builder.branch_if(builder.emit(f"icmp ne i32 {flag}, 0"), leave, stay)
        builder.start(leave)
        builder.line("ret void")
        builder.start(stay)

    def _group(self, group: tuple[Statement, ...]) -> None:
        lines = self.builder.lines
        first = len(lines)
        for statement in group:
            self.statement(statement)
        if len(group) > 1:
            lines[first:] = by_depth(lines[first:])

    def _for(self, loop: For) -> None:
        if loop.kind is not ForKind.SERIAL:
            raise IngotError(
                ErrorCode.COMPILER_FAULT,
                f"the {loop.kind} loop {loop.var.name!r} has not been lowered",
                expected="serial loops",
                remedy="Run the loop passes before code generation.",
            )
        match loop.extent:
            case Const(value=extent) if extent <= 0:
                return
            case Const(value=1):
                self.expressions.let(loop.var, Const(0))
                self.statement(loop.body)
                return
        builder = self.builder
        extent_value = self.expressions.emit(loop.extent).text
        body, exit_label = builder.label("loop"), builder.label("done")
        before = builder.place()
        if isinstance(loop.extent, Const):
            builder.branch(body)
        else:
            builder.branch_if(builder.emit(f"icmp sgt i64 {extent_value}, 0"), body, exit_label)
        self._loop(loop.var, ("0", extent_value), loop.body, (body, exit_label), before)

    def _loop(self, var: Var, range_: tuple[str, str], body: Statement, labels: tuple[str, str], before: Lines) -> None:
        """``do body while (++var < stop)``, entered from the block before; ends in the second of ``labels``."""
        builder = self.builder
        entered_from, lines = builder.block, builder.lines
        (start, stop), (label, exit_label) = range_, labels
        builder.start(label)
        at = len(lines)
        index = builder.emit("phi")
        with self.expressions.scope(before, Keeps.NOTHING):
            self.expressions.bind(var.name, LlvmValue(index, DType.INT64), nonnegative=True)
            self.statement(body)
        following = builder.emit(f"add nuw nsw i64 {index}, 1")
        lines[at] = f"  {index} = phi i64 [ {start}, %{entered_from} ], [ {following}, %{builder.block} ]"
        builder.branch_if(builder.emit(f"icmp slt i64 {following}, {stop}"), label, exit_label)
        builder.start(exit_label)

    def _if(self, cond: Expr, then: Statement, otherwise: Statement | None) -> None:
        builder = self.builder
        condition = self.expressions.emit(cond).text
        yes, join = builder.label("if"), builder.label("endif")
        no = join if otherwise is None else builder.label("else")
        before = builder.place()
        builder.branch_if(condition, yes, no)
        for label, arm in ((yes, then), (no, otherwise)):
            if arm is not None:
                builder.start(label)
                loops = any(isinstance(s, For) for s in walk_statements(arm))
                with self.expressions.scope(before, Keeps.EVERYTHING if loops else Keeps.NOTHING):
                    self.statement(arm)
                builder.branch(join)
        builder.start(join)

    def _allocate(self, buffer: Buffer, body: Statement) -> None:
        register_type(buffer.dtype, 1)
        match buffer.scope:
            case BufferScope.STACK:
                element = place_of(buffer, "").element
                place = place_of(buffer, self.builder.alloca(element, _elements(buffer)))
                self._with_place(buffer, place, body)
            case BufferScope.SCRATCH:
                offset = self.scratch_offset
                pointer = "%scratch"
                if offset:
                    pointer = self.builder.at_entry(f"getelementptr inbounds i8, ptr %scratch, i64 {offset}")
                self.scratch_offset += _aligned_bytes(buffer)
                self._with_place(buffer, place_of(buffer, pointer), body)
                self.scratch_offset = offset
            case BufferScope.ARGUMENT:
                raise IngotError(ErrorCode.COMPILER_FAULT, f"the argument {buffer.name!r} is allocated")
            case _:
                assert_never(buffer.scope)

    def _with_place(self, buffer: Buffer, place: BufferPlace, body: Statement) -> None:
        self.expressions.places[buffer] = place
        self.statement(body)
        del self.expressions.places[buffer]


def loaded_buffers(root: Statement) -> frozenset[Buffer]:
    """The buffers that ``root`` loads from."""
    seen: set[Expr] = set()
    found: set[Buffer] = set()
    for statement in walk_statements(root):
        for expr in expressions_of(statement):
            _collect(expr, seen, found)
    return frozenset(found)


def _collect(expr: Expr, seen: set[Expr], found: set[Buffer]) -> None:
    if expr in seen:
        return
    seen.add(expr)
    if isinstance(expr, BufferLoad):
        found.add(expr.buffer)
    for child in expr.children():
        _collect(child, seen, found)
