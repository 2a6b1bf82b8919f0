"""Copies of a statement with a long chain of dependent operations, written step by step side by side.

::

    t0 = x0 - m;  r0 = t0 * c;  y0 = f(r0)              t0 = x0 - m;  t1 = x1 - m
    t1 = x1 - m;  r1 = t1 * c;  y1 = f(r1)      ->      r0 = t0 * c;  r1 = t1 * c
                                                        y0 = f(r0);   y1 = f(r1)

A core that computes out of order sees a few hundred operations ahead. One chain after the other, most of those are waiting
ones: a row of softmax takes 50 cycles so and 40 side by side on Zen 5. LLVM keeps to the order it is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from compiler_service.compiler.codegen.emit.facts import logistic_argument
from compiler_service.compiler.codegen.llvm.builder import Lines
from compiler_service.compiler.loop_ir.ir import BufferLoad, Statement, Store
from shared_ir.expr import Binary, BinaryOp, Expr, Unary, UnaryOp, walk

_DEFINITION = re.compile(r"\s*(%[\w.]+) = (.*)", re.DOTALL)
_NAME = re.compile(r"%[\w.]+")


def side_by_side(statements: Sequence[Statement], most: int) -> Iterator[tuple[Statement, ...]]:
    """``statements`` in groups: stores with long chains of at most ``most`` vectors, which do not read what they write; all
    others alone."""
    group: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Store) and _is_chain(statement):
            if len(group) == most or (group and not _is_copy(group[0], statement)):
                yield tuple(group)
                group = []
            group.append(statement)
            continue
        if group:
            yield tuple(group)
            group = []
        yield (statement,)
    if group:
        yield tuple(group)


def _is_copy(first: Statement, other: Store) -> bool:
    return isinstance(first, Store) and first.buffer is other.buffer and type(first.value) is type(other.value)


def _is_chain(store: Store) -> bool:
    """An exponential function is written out in it."""
    parts = list(walk(store.value))
    reads_own = any(isinstance(e, BufferLoad) and e.buffer is store.buffer for e in parts)
    return not reads_own and any(map(_is_written_out, parts))


def _is_written_out(expr: Expr) -> bool:
    match expr:
        case Unary(op=UnaryOp.EXP, x=Binary(op=BinaryOp.SUB)):
            return True
        case Binary(op=BinaryOp.DIV, rhs=rhs):
            return logistic_argument(rhs) is not None
    return False


def by_depth(lines: Lines) -> Lines:
    """Instructions of one block, those that depend on nothing before them first, then those that depend on them; unchanged
    where there are blocks or places among them."""
    depths: dict[str, int] = {}
    order: list[tuple[int, str]] = []
    for line in lines:
        if not isinstance(line, str) or line.endswith(":") or line.startswith("  br "):
            return lines
        found = _DEFINITION.match(line)
        used = _NAME.findall(found[2] if found else line)
        depth = 1 + max((depths.get(name, -1) for name in used), default=-1)
        if found:
            depths[found[1]] = depth
        order.append((depth, line))
    order.sort(key=lambda entry: entry[0])
    return [line for _, line in order]
