"""Loop functions that a graph calls: their text, read and bound to the buffers of a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Buffer,
    BufferLoad,
    For,
    Function,
    Let,
    Prefetch,
    Statement,
    Store,
    VectorVar,
    stored_buffers,
    substatements,
)
from compiler_service.compiler.loop_ir.parse import parse_function
from compiler_service.compiler.loop_ir.passes.rewrite import with_expressions, with_substatements
from shared_ir.expr import Expr, Var, lift, transform
from shared_ir.expr.dim import Dim, bind
from shared_ir.graph.ir import Attribute


def called_loops(
    inputs: Sequence[Buffer], out: Buffer, task: Var, attributes: Mapping[str, Attribute]
) -> tuple[Dim, Statement]:
    """One task of the function for each of its own, over the memory of this launch."""
    function = parse_function(str(attributes["program"]))
    arguments, result = arguments_of(function)
    symbols: dict[str, Dim] = {}
    for own, given in zip(arguments, inputs, strict=True):
        for dim, extent in zip(own.shape, given.shape, strict=True):
            if isinstance(dim, Var):
                symbols.setdefault(dim.name, extent)
    buffers = dict(zip((*arguments, *result), (*inputs, out), strict=True))
    bound = _Binding(buffers, {n: lift(d) for n, d in symbols.items()} | {function.task.name: task})
    return bind(function.tasks, symbols), bound.statement(function.body)


def arguments_of(function: Function) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """The buffers that ``function`` only reads, and those that it stores to, in order."""
    stored = stored_buffers(function.body)
    return tuple(b for b in function.buffers if b not in stored), tuple(b for b in function.buffers if b in stored)


@dataclass
class _Binding:
    """``values`` of free variables by name; every other variable gets a name that none of them has."""

    buffers: Mapping[Buffer, Buffer]
    values: Mapping[str, Expr]
    memo: dict[Expr, Expr] = field(default_factory=dict)

    def statement(self, statement: Statement) -> Statement:
        parts = tuple(self.statement(part) for part in substatements(statement))
        statement = with_expressions(with_substatements(statement, parts), self.expr)
        match statement:
            case For(var=var, extent=extent, kind=kind, body=body):
                return For(self.own(var), extent, kind, body)
            case Let(var=var, value=value, body=body):
                return Let(self.own(var), value, body)
            case Allocate(buffer=buffer, body=body):
                return Allocate(self.buffer(buffer), body)
            case Store(buffer=buffer, indices=indices, value=value, mask=mask):
                return Store(self.buffer(buffer), indices, value, mask)
            case Prefetch(buffer=buffer, indices=indices, level=level):
                return Prefetch(self.buffer(buffer), indices, level)
        return statement

    def expr(self, expr: Expr) -> Expr:
        return transform(expr, self.replaced, self.memo)

    def replaced(self, expr: Expr) -> Expr | None:
        match expr:
            case BufferLoad(buffer=buffer, indices=indices, mask=mask):
                return BufferLoad(self.buffer(buffer), indices, mask)
            case Var(name=name):
                return self.values[name] if name in self.values else self.own(expr)
        return None

    def own(self, var: Var) -> Var:
        name = f"own_{var.name}"
        return VectorVar(name, var.type, var.lanes) if isinstance(var, VectorVar) else Var(name, var.type)

    def buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)
