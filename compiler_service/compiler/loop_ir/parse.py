"""Reads the text form of loop programs (:mod:`compiler_service.compiler.loop_ir.text`).

What is printed is read as the same program: statements, expressions and buffers, under the names that they have in the text.
``#`` begins a comment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler_service.compiler.loop_ir.expression_parser import LineParser
from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Buffer,
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
    VectorVar,
    lanes_of,
    stored_buffers,
)
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr, Var, lift

_INDENT = 4
_HEADER = re.compile(r"function\s+(\w+)\s*\(")
_TASKS = re.compile(r"for\s+task\s+([^\W\d]\w*)\s+in\s+0\.\.")
_LOOP = re.compile(r"for\s+([^\W\d]\w*)\s+in\s+0\.\.")
_KIND = re.compile(r"unrolled|vectorized")
_BRANCH = re.compile(r"if\b(?!\s*\[)")
_LET = re.compile(r"let\s+([^\W\d]\w*)\s*=(?!=)")
_ALLOCATE = re.compile(r"(stack|scratch)\s+(?=[^\W\d])")
_PREFETCH = re.compile(r"prefetch\.l(\d{1,2})\s")
_SYMBOLS = re.compile(r"[(;,]\s*([^\W\d]\w*)\s*:\s*int64\s*(?=[,;)])")


def parse_function(text: str) -> Function:
    """The function that :func:`compiler_service.compiler.loop_ir.text.print_function` printed.

    Raises:
        IngotError: INVALID_ARGUMENT, saying the line, the column and what should stand there.
    """
    try:
        return _Parser(_lines(text)).function()
    except RecursionError as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT, "the loop IR text is nested too deeply", remedy="Name parts of it with let."
        ) from error


@dataclass(frozen=True)
class _Line:
    number: int
    indent: int
    text: str


def _lines(text: str) -> list[_Line]:
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.partition("#")[0].rstrip()
        if content:
            found.append(_Line(number, len(content) - len(content.lstrip(" ")), content))
    return found


@dataclass(frozen=True)
class _Binding:
    """A ``let``, or memory, that lasts to the end of the block around it."""

    var: Var | None = None
    value: Expr | None = None
    buffer: Buffer | None = None

    def around(self, body: Statement) -> Statement:
        if self.buffer is not None:
            return Allocate(self.buffer, body)
        assert self.var is not None
        assert self.value is not None
        return Let(self.var, self.value, body)


@dataclass
class _Parser:
    """``place`` is the line that is read next; ``names`` are those that are bound there, ``memory`` what has been declared anywhere:
    a buffer that is allocated in several places is one."""

    lines: Sequence[_Line]
    place: int = 0
    names: dict[str, Var | Buffer] = field(default_factory=dict)
    memory: dict[str, Buffer] = field(default_factory=dict)

    def function(self) -> Function:
        line = self.line("function NAME(...)", 0)
        header = line.match(_HEADER)
        if header is None:
            raise line.error("function NAME(")
        symbols = tuple(self.bind(line, name, Var(name)) for name in _SYMBOLS.findall(line.text))
        buffers, outputs = self.arguments(line)
        line = self.line("for task NAME in 0..TASKS:", 0)
        found = line.match(_TASKS)
        if found is None:
            raise line.error("for task NAME in 0..TASKS:")
        tasks = line.dim()
        line.take(":")
        line.end()
        task = self.bind(line, found[1], Var(found[1]))
        body = self.block(_INDENT)
        if self.place < len(self.lines):
            raise self.line("the end of the function", None).error("the end of the function")
        self.check_outputs(header[1], body, buffers, outputs)
        return Function(header[1], buffers, symbols, task, tasks, body)

    def check_outputs(self, name: str, body: Statement, buffers: Sequence[Buffer], outputs: frozenset[Buffer]) -> None:
        stored = stored_buffers(body) & set(buffers)
        for buffer in sorted(stored ^ outputs, key=lambda b: b.name):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"argument {buffer.name} of {name} is {'not ' if buffer in outputs else ''}stored to",
                expected=f"{'' if buffer in stored else 'no '}'out' before {buffer.name}",
                received=f"{'out ' if buffer in outputs else ''}{buffer.name}",
            )

    # -- lines

    def line(self, expected: str, indent: int | None) -> LineParser:
        """The next line, which must stand ``indent`` columns in."""
        if self.place == len(self.lines):
            number = self.lines[-1].number + 1 if self.lines else 1
            raise LineParser("", number, {}).error(expected)
        line = self.lines[self.place]
        parser = LineParser(line.text, line.number, self.names)
        if indent is not None and line.indent != indent:
            raise parser.error(f"{expected}, {indent} columns in")
        self.place += 1
        return parser

    def is_next(self, indent: int) -> bool:
        return self.place < len(self.lines) and self.lines[self.place].indent >= indent

    def bind(self, line: LineParser, name: str, value: Var) -> Var:
        if name in self.names:
            raise line.error("a name of its own", f"the name {name!r} is bound already")
        self.names[name] = value
        return value

    # -- declarations

    def arguments(self, line: LineParser) -> tuple[tuple[Buffer, ...], frozenset[Buffer]]:
        """What stands between the brackets: buffers, and symbols, which are bound already."""
        buffers: list[Buffer] = []
        outputs: set[Buffer] = set()
        while not line.accept(")"):
            if buffers or line.text[line.position - 1] != "(":
                line.take(";" if line.text[line.position : line.position + 1] == ";" else ",")
            is_output = line.match(re.compile(r"out\s+(?=[^\W\d])")) is not None
            start = line.position
            if line.match(re.compile(r"[^\W\d]\w*\s*:\s*int64\s*(?=[,;)])")):
                continue
            line.position = start
            buffers.append(self.declaration(line, BufferScope.ARGUMENT))
            outputs.update(buffers[-1:] if is_output else ())
        line.end()
        return tuple(buffers), frozenset(outputs)

    def declaration(self, line: LineParser, scope: BufferScope) -> Buffer:
        """``x: float32[n, 32] by [64, 1] prefetch 1024``"""
        name = line.name("the name of a buffer")
        if name in self.names:
            raise line.error("a name of its own", f"the name {name!r} is bound already")
        line.take(":")
        dtype, shape = line.dtype(), line.dims()
        strides = line.dims() if line.match(re.compile(r"by\b")) else None
        ahead = line.integer() if line.match(re.compile(r"prefetch\b")) else 0
        buffer = Buffer(name, dtype, shape, scope, ahead, strides)
        known = self.memory.setdefault(name, buffer)
        if _declared(known) != _declared(buffer):
            known = buffer
        self.names[name] = known
        return known

    # -- statements

    def block(self, indent: int) -> Statement:
        """The lines that stand at least ``indent`` columns in."""
        outer = dict(self.names)
        parts: list[Statement | _Binding] = []
        while self.is_next(indent):
            parts.append(self.statement(indent))
        if not parts:
            raise self.line("a statement, or pass", indent).error("a statement, or pass")
        self.names = outer
        rest: list[Statement] = []
        for part in reversed(parts):
            rest = [part.around(_block(rest))] if isinstance(part, _Binding) else [part, *rest]
        return _block(rest)

    def statement(self, indent: int) -> Statement | _Binding:
        line = self.line("a statement", indent)
        found = line.match(_LOOP)
        if found is not None:
            return self.loop(line, found[1], indent)
        if line.match(_BRANCH):
            return self.branch(line, indent)
        found = line.match(_LET)
        if found is not None:
            return self.let(line, found[1])
        found = line.match(_ALLOCATE)
        if found is not None:
            buffer = self.declaration(line, BufferScope(found[1]))
            line.end()
            return _Binding(buffer=buffer)
        if line.match(re.compile(r"scope\s*:$")):
            return self.block(indent + _INDENT)
        if line.match(re.compile(r"pass$")):
            return Block(())
        if line.match(re.compile(r"checkpoint$")):
            return Checkpoint()
        return self.accessed(line)

    def loop(self, line: LineParser, name: str, indent: int) -> Statement:
        extent = line.expr()
        kind = line.match(_KIND)
        line.take(":")
        line.end()
        outer = dict(self.names)
        var = self.bind(line, name, Var(name))
        body = self.block(indent + _INDENT)
        self.names = outer
        return For(var, extent, ForKind.SERIAL if kind is None else ForKind(kind[0]), body)

    def branch(self, line: LineParser, indent: int) -> Statement:
        cond = line.expr()
        line.take(":")
        line.end()
        then = self.block(indent + _INDENT)
        following = self.lines[self.place] if self.place < len(self.lines) else None
        if following is None or following.indent != indent or not re.match(r"\s*else\s*:$", following.text):
            return If(cond, then)
        self.place += 1
        return If(cond, then, self.block(indent + _INDENT))

    def let(self, line: LineParser, name: str) -> _Binding:
        value = line.expr()
        line.end()
        lanes = lanes_of(value)
        var = Var(name, value.dtype) if lanes == 1 else VectorVar(name, value.dtype, lanes)
        return _Binding(self.bind(line, name, var), value)

    def accessed(self, line: LineParser) -> Statement:
        found = line.match(_PREFETCH)
        buffer, indices, mask = line.access()
        if found is not None:
            if mask is not None:
                raise line.error("a prefetch without a mask")
            line.end()
            return Prefetch(buffer, indices, int(found[1]))
        line.take("=")
        value = line.expr()
        line.end()
        return Store(buffer, indices, value, mask)


def _block(statements: Sequence[Statement]) -> Statement:
    return statements[0] if len(statements) == 1 else Block(tuple(statements))


def _declared(buffer: Buffer) -> tuple[object, ...]:
    strides = None if buffer.strides is None else tuple(map(lift, buffer.strides))
    return buffer.dtype, tuple(map(lift, buffer.shape)), buffer.scope, buffer.prefetch, strides


__all__ = ("parse_function",)
