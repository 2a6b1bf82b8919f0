"""Text form of loop programs, printed like a small program.

::

    function scale(x: float32[n], out y: float32[n]; n: int64)
    for task t in 0..(n + 15) // 16:
        stack acc: float32[16]
        for i in 0..16 vectorized:
            if t * 16 + i < n:
                acc[i] = x[t * 16 + i] * 2.0
        y[t * 16:+16, mask=m] = acc[0:16]

Literals carry their type (``1`` int64, ``1.0`` float32, ``1i32``, ``1.0f64``); ``base:+lanes`` is a stride-1 vector
index, ``ramp(base, stride, lanes)``, ``splat(x, lanes)`` and ``reduce.sum(x)`` are the other vector forms. A buffer with gaps is
declared with its strides, ``x: float32[n, 32] by [64, 1]``, one that is fetched ahead with the distance in bytes,
``w: float32[k, 64] prefetch 1024``. Every binder has a name of its own: where two share one, later ones get ``_1``, ``_2``, ...

A ``let``, a ``stack`` and a ``scratch`` last as long as the block that they stand in; one that ends before its block stands in a
``scope:`` of its own. :mod:`compiler_service.compiler.loop_ir.parse` reads it all back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Broadcast,
    Buffer,
    BufferLoad,
    Checkpoint,
    For,
    ForKind,
    Function,
    If,
    Let,
    Prefetch,
    Ramp,
    Shuffle,
    Statement,
    Store,
    VectorReduce,
    stored_buffers,
)
from shared_ir.dtype import DType
from shared_ir.expr import (
    COMPARISONS,
    INFIX,
    MOST_PRINTED_NODES,
    Binary,
    Cast,
    Const,
    Expr,
    Reinterpret,
    Select,
    Unary,
    Var,
    lift,
)
from shared_ir.expr.dim import Dim

SHORT_KINDS = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u"}
"""How the kind of a type is written behind a literal: ``1.0f64``."""
_NOT_IN_NAMES = re.compile(r"\W")
_INDENT = "    "
_FIRST_BEYOND_INT64 = 1 << 63
_FAR_POSITION = 10**17
"""From here on a range of positions is written with its length, as an end would be beyond int64, or longer than what is read."""
_RESERVED = frozenset({"inf", "nan", "true", "false", "and", "or"})
"""Words that would be read as something else than a name."""


def print_function(function: Function) -> str:
    """The whole function; equal programs print equal texts, which :func:`parse_function` reads back."""
    return "\n".join(_Printer().function(function))


def statement_head(statement: Statement) -> str:
    """The first line of a statement, for messages; names are as they stand in the program."""
    return next(iter(_Printer(is_brief=True).statement(statement)), "")


def expression_text(expr: Expr) -> str:
    """One expression, for messages; names are as they stand in the program."""
    return _Printer(is_brief=True).expr(expr)


@dataclass
class _Printer:
    """Names given so far, and the expressions in their terms."""

    taken: set[str] = field(default_factory=lambda: set(_RESERVED))
    variables: dict[str, str] = field(default_factory=dict)
    buffers: dict[Buffer, str] = field(default_factory=dict)
    is_brief: bool = False
    """Expressions that nobody reads are left out: where parts are shared, a text may be as long as two to the power of the depth."""

    def fresh(self, wanted: str) -> str:
        base = _NOT_IN_NAMES.sub("_", wanted)
        name = base = f"_{base}" if not base or base[0].isdigit() else base
        count = 0
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name

    # -- statements

    def function(self, function: Function) -> Iterator[str]:
        outputs = stored_buffers(function.body)
        symbols = [self.bind(symbol) for symbol in function.symbols]
        arguments = [f"{'out ' if buffer in outputs else ''}{self.declaration(buffer)}" for buffer in function.buffers]
        names = "; ".join(filter(None, (", ".join(arguments), ", ".join(f"{s}: int64" for s in symbols))))
        yield f"function {_NOT_IN_NAMES.sub('_', function.name) or '_'}({names})"
        tasks = self.dim(function.tasks)
        yield f"for task {self.bind(function.task)} in 0..{tasks}:"
        yield from self.indented(function.body)

    def statement(self, statement: Statement) -> Iterator[str]:
        match statement:
            case Block():
                *first, last = _flat(statement) or (statement,)
                for inner in first:
                    yield from self.closed(inner)
                yield from () if last is statement else self.statement(last)
            case For(var=var, extent=extent, kind=kind, body=body):
                limit = self.expr(extent)
                suffix = "" if kind is ForKind.SERIAL else f" {kind}"
                outer = dict(self.variables)
                yield f"for {self.bind(var)} in 0..{limit}{suffix}:"
                yield from self.indented(body)
                self.variables = outer
            case If():
                yield from self.branch(statement)
            case Let(var=var, value=value, body=body):
                text = self.expr(value)
                outer = dict(self.variables)
                yield f"let {self.bind(var)} = {text}"
                yield from self.statement(body)
                self.variables = outer
            case Allocate(buffer=buffer, body=body):
                yield f"{buffer.scope} {self.declaration(buffer)}"
                yield from self.statement(body)
            case Store(buffer=buffer, indices=indices, value=value, mask=mask):
                yield f"{self.access(buffer, indices, mask)} = {self.expr(value)}"
            case Prefetch(buffer=buffer, indices=indices, level=level):
                yield f"prefetch.l{level} {self.access(buffer, indices, None)}"
            case Checkpoint():
                yield "checkpoint"
            case _:
                raise TypeError(f"no text for {type(statement).__name__}")

    def closed(self, statement: Statement) -> Iterator[str]:
        """A statement that others follow, which are no part of it."""
        if isinstance(statement, Let | Allocate):
            yield "scope:"
            yield from self.indented(statement)
        else:
            yield from self.statement(statement)

    def branch(self, statement: If) -> Iterator[str]:
        yield f"if {self.expr(statement.cond)}:"
        yield from self.indented(statement.then)
        if statement.otherwise is not None:
            yield "else:"
            yield from self.indented(statement.otherwise)

    def indented(self, body: Statement) -> Iterator[str]:
        empty = True
        for line in self.statement(body):
            empty = False
            yield _INDENT + line
        if empty:
            yield _INDENT + "pass"

    def bind(self, var: Var) -> str:
        self.variables[var.name] = self.fresh(var.name)
        return self.variables[var.name]

    def declaration(self, buffer: Buffer) -> str:
        if buffer not in self.buffers:
            self.buffers[buffer] = self.fresh(buffer.name)
        strides = "" if buffer.strides is None else f" by [{', '.join(map(self.dim, buffer.strides))}]"
        ahead = f" prefetch {buffer.prefetch}" if buffer.prefetch else ""
        return f"{self.buffers[buffer]}: {buffer.dtype}[{', '.join(map(self.dim, buffer.shape))}]{strides}{ahead}"

    # -- expressions

    def dim(self, dim: Dim) -> str:
        return self.expr(lift(dim))

    def access(self, buffer: Buffer, indices: Iterable[Expr], mask: Expr | None) -> str:
        parts = [self.index(index) for index in indices]
        if mask is not None:
            parts.append(f"mask={self.expr(mask)}")
        return f"{self.buffers.get(buffer, buffer.name)}[{', '.join(parts)}]"

    def index(self, index: Expr) -> str:
        match index:
            case Ramp(base=Const(value=base), stride=Const(value=1), lanes=lanes) if abs(int(base)) < _FAR_POSITION:
                return f"{base}:{int(base) + lanes}"
            case Ramp(base=base, stride=Const(value=1), lanes=lanes):
                return f"{self.expr(base)}:+{lanes}"
        return self.expr(index)

    def expr(self, expr: Expr, precedence: int = 0) -> str:
        if self.is_brief and expr.length >= MOST_PRINTED_NODES:
            return "..."
        match expr:
            case Const():
                return _literal(expr) if self.is_brief else _literal(_wrapped(expr))
            case Var(name=name):
                return self.variables.get(name, name)
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in INFIX:
                sign, level = INFIX[op]
                left = level + 1 if op in COMPARISONS else level  # a < b < c would not say which is compared first
                text = f"{self.expr(lhs, left)} {sign} {self.expr(rhs, level + 1)}"
                return f"({text})" if level < precedence else text
            case BufferLoad(buffer=buffer, indices=indices, mask=mask):
                return self.access(buffer, indices, mask)
        return f"{_call_name(expr)}({', '.join(self.arguments(expr))})"

    def arguments(self, expr: Expr) -> Iterator[str]:
        yield from map(self.expr, expr.children())
        if isinstance(expr, Ramp | Broadcast):
            yield str(expr.lanes)
        if isinstance(expr, Shuffle):
            yield str(list(expr.order))


def _flat(block: Block) -> tuple[Statement, ...]:
    """The statements of ``block`` and of the blocks in it."""
    found: list[Statement] = []
    for statement in block.statements:
        found.extend(_flat(statement) if isinstance(statement, Block) else (statement,))
    return tuple(found)


def _call_name(expr: Expr) -> str:
    match expr:
        case Binary(op=op) | Unary(op=op):
            return op.value
        case Cast(type=dtype):
            return dtype.value
        case Reinterpret(type=dtype):
            return f"bits.{dtype}"
        case Select():
            return "select"
        case Ramp():
            return "ramp"
        case Broadcast():
            return "splat"
        case Shuffle():
            return "shuffle"
        case VectorReduce(op=reduce):
            return f"reduce.{reduce}"
    return type(expr).__name__


def _wrapped(const: Const) -> Const:
    """``const``, or what it is modulo 2^64: code computes sums and products of int64 so, and passes leave numbers in them that int64
    does not hold."""
    if const.type is not DType.INT64 or -_FIRST_BEYOND_INT64 <= const.value < _FIRST_BEYOND_INT64:
        return const
    return Const((int(const.value) + _FIRST_BEYOND_INT64) % (1 << 64) - _FIRST_BEYOND_INT64)


def _literal(const: Const) -> str:
    dtype = const.type
    if dtype is DType.BOOL:
        return str(bool(const.value)).lower()
    value = repr(float(const.value)) if dtype.is_float else str(int(const.value))
    if dtype in (DType.INT64, DType.FLOAT32):
        return value
    kind = dtype.value.rstrip("0123456789")
    return value + (f"{SHORT_KINDS[kind]}{dtype.bits}" if kind in SHORT_KINDS and value[-1].isdigit() else f":{dtype}")
