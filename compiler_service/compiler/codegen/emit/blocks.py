"""Open blocks of a function under construction, and where in them a value is computed: as far out as it is known."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder, Lines, LlvmValue
from shared_ir.expr import Expr

Pointer = tuple[str, tuple[Expr, ...], int]
"""A pointer, index expressions to add to it, elements to add to it."""


class Keeps(enum.Enum):
    """What of the arithmetic in a block stays there although the block around it could do it."""

    NOTHING = enum.auto()  # loops; branches of a few statements, which share indices with their neighbours
    CHANGING = enum.auto()  # branches of expressions: what the block around would compute each time for naught
    EVERYTHING = enum.auto()  # branches with loops, lest much be computed that is never asked for


@dataclass
class CodeBlock:
    """A loop body or a branch that is being written.

    Attributes:
        before: instructions that run before it is entered.
    """

    before: Lines = field(default_factory=list)
    keeps: Keeps = Keeps.EVERYTHING
    known: list[Expr] = field(default_factory=list)
    pointers: list[Pointer] = field(default_factory=list)


class CodeBlocks:
    """The blocks open at this point, the function first, with the values known in each.

    A value lives in the block in which the last of its variables was bound; it is written before the block inside of that one is
    entered. Only integer arithmetic moves (:meth:`~compiler_service.compiler.codegen.emit.facts.Facts.moves`).
    """

    def __init__(self, builder: FunctionBuilder) -> None:
        self._builder = builder
        self._open = [CodeBlock()]
        self._levels: dict[str, int] = {}
        self._known: dict[Expr, LlvmValue] = {}
        self._pointers: dict[Pointer, str] = {}

    @property
    def innermost(self) -> int:
        return len(self._open) - 1

    @contextmanager
    def inside(self, before: Lines, keeps: Keeps) -> Iterator[None]:
        """A block that does not dominate what follows; ``before`` is where the builder was before branching to it."""
        self._open.append(CodeBlock(before, keeps))
        yield
        block = self._open.pop()
        for expr in block.known:
            del self._known[expr]
        for pointer in block.pointers:
            del self._pointers[pointer]

    @contextmanager
    def at(self, level: int) -> Iterator[None]:
        """Instructions go where what is known in block ``level`` may be used."""
        if level == self.innermost:
            yield
            return
        lines = self._builder.lines
        self._builder.lines = self._open[level + 1].before
        yield
        self._builder.lines = lines

    def bind(self, name: str, level: int) -> None:
        """The variable ``name`` is known in block ``level``."""
        self._levels[name] = level

    def level(self, expr: Expr) -> int:
        """The block in which integer arithmetic belongs."""
        level = 0
        for var in expr.variables:
            level = max(level, self._levels.get(var.name, 0))
        for inner in range(self.innermost, level, -1):
            keeps = self._open[inner].keeps
            if keeps is Keeps.EVERYTHING:
                return inner
            if keeps is Keeps.CHANGING and inner == level + 1:
                return self.innermost
        return level

    def known(self, expr: Expr) -> LlvmValue | None:
        return self._known.get(expr)

    def learn(self, expr: Expr, value: LlvmValue, level: int) -> None:
        self._known[expr] = value
        self._open[level].known.append(expr)

    def pointer(self, pointer: Pointer) -> str | None:
        return self._pointers.get(pointer)

    def learn_pointer(self, pointer: Pointer, text: str, level: int) -> None:
        self._pointers[pointer] = text
        self._open[level].pointers.append(pointer)
