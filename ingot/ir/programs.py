"""Several loop functions that a call runs one after the other.

::

    program main(x) -> (total):
        doubled(x, doubled)
        summed(doubled, total)

    function doubled(x: float32[n], out doubled: float32[n]; n: int64)
    ...

A name that is no argument is memory of the function that stores to it: it has the type that this function declares. Symbols of one
name are one extent in the whole program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Self

import numpy as np

from compiler_service.compiler.loop_ir.interpret import run
from compiler_service.compiler.loop_ir.ir import Buffer, Function, stored_buffers
from ingot.ir.loops import Array, LoopFunction, extents_of, memory_of
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import lift

_HEADER = re.compile(r"program\s++(\w++)\s*+\(([\w\s,]*+)\)\s*+->\s*+\(([\w\s,]*+)\)\s*+:")
_CALL = re.compile(r"    (\w++)\(([\w\s,]*+)\)")


@dataclass(frozen=True)
class LoopCall:
    """A run of ``function`` on ``buffers``, by their names in the program, in the order of its own."""

    function: str
    buffers: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(self.buffers)})"


@dataclass(frozen=True)
class LoopProgram:
    """Loop functions and the calls of one run; ``str()`` prints it, :meth:`parse` reads it back, :meth:`interpret` runs it.

    Attributes:
        arguments: names of the buffers that a caller gives, in order.
        results: of those that he gets.
    """

    name: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    calls: tuple[LoopCall, ...]
    functions: Mapping[str, LoopFunction]

    def __getitem__(self, name: str) -> LoopFunction:
        """The function of this name.

        Raises:
            IngotError: NOT_FOUND, there is none.
        """
        if name not in self.functions:
            known = ", ".join(self.functions)
            raise IngotError(ErrorCode.NOT_FOUND, "the program has no such function", expected=known, received=name)
        return self.functions[name]

    def __str__(self) -> str:
        head = f"program {self.name}({', '.join(self.arguments)}) -> ({', '.join(self.results)}):"
        calls = "".join(f"\n    {call}" for call in self.calls)
        return "\n\n".join((head + calls, *map(str, self.functions.values())))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The program that prints as ``text``.

        Raises:
            IngotError: INVALID_ARGUMENT, with the line that is no program.
        """
        lines = [line.partition("#")[0].rstrip() for line in text.splitlines()]
        starts = [number for number, line in enumerate(lines) if line.startswith("function")]
        first = starts[0] if starts else len(lines)
        head, *calls = [(number, line) for number, line in enumerate(lines[:first], 1) if line] or [(1, "")]
        found = _HEADER.fullmatch(head[1])
        if found is None:
            _no_program(*head, "program NAME(ARGUMENTS) -> (RESULTS):")
        functions: dict[str, LoopFunction] = {}
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            function = LoopFunction.parse("\n" * start + "\n".join(lines[start:end]))
            if function.name in functions:
                _no_program(start + 1, lines[start], "a function of a name of its own")
            functions[function.name] = function
        arguments, results = (_names(*head, names) for names in found.groups()[1:])
        made = cls(found[1], arguments, results, tuple(_call(*line) for line in calls), functions)
        made.verify()
        return made

    def verify(self) -> None:
        """Check every function, and that the calls fit.

        Raises:
            IngotError: INVALID_ARGUMENT, a call does not fit its function, or a buffer is read before it is stored to; what
                :meth:`LoopFunction.verify` raises.
        """
        for each in self.functions.values():
            each.verify()
        types: dict[str, tuple[object, ...]] = {}
        filled = set(self.arguments)
        for call, function in self._resolved():
            stored = stored_buffers(function.body)
            for name, buffer in zip(call.buffers, function.buffers, strict=True):
                if types.setdefault(name, _type(buffer)) != _type(buffer):
                    self._misfit(call, f"{name} has another type where it is used before")
                if buffer not in stored and name not in filled:
                    self._misfit(call, f"{name} is read before anything is stored to it")
                if buffer in stored and name in filled:
                    self._misfit(call, f"{name} is filled already")
            filled |= {n for n, b in zip(call.buffers, function.buffers, strict=True) if b in stored}
        missing = [name for name in self.results if name not in filled]
        if missing:
            expected = "results that a call stores"
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "nothing is stored", expected=expected, received=missing[0])

    def interpret(self, *arrays: Array, symbols: Mapping[str, int] | None = None) -> tuple[Array, ...]:
        """The results for ``arrays``, one for each argument; every access is checked, and memory begins as NaN.

        Args:
            symbols: extents that no argument shows.

        Raises:
            IngotError: INVALID_ARGUMENT, arrays do not fit; COMPILER_FAULT, an access leaves its buffer.
        """
        if len(arrays) != len(self.arguments):
            expected, received = ", ".join(self.arguments), f"{len(arrays)} arrays"
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"the program takes {len(self.arguments)} arguments",
                expected=expected,
                received=received,
            )
        memory = {name: np.ascontiguousarray(a) for name, a in zip(self.arguments, arrays, strict=True)}
        uses = [pair for call, f in self._resolved() for pair in zip(call.buffers, f.buffers, strict=True)]
        known = [(buffer, memory[name]) for name, buffer in uses if name in memory]
        extents = extents_of(known) | dict(symbols or {})
        for call, function in self._resolved():
            for name, buffer in zip(call.buffers, function.buffers, strict=True):
                if name not in memory:
                    memory[name] = memory_of(buffer, extents)
            run(function, [memory[name] for name in call.buffers], extents)
        return tuple(memory[name] for name in self.results)

    def _resolved(self) -> Iterator[tuple[LoopCall, Function]]:
        for call in self.calls:
            if call.function not in self.functions:
                self._misfit(call, "there is no such function")
            function = self.functions[call.function].function
            if len(function.buffers) != len(call.buffers):
                self._misfit(call, f"the function has {len(function.buffers)} buffers")
            yield call, function

    def _misfit(self, call: LoopCall, why: str) -> NoReturn:
        raise IngotError(ErrorCode.INVALID_ARGUMENT, f"a call does not fit: {why}", node=self.name, received=str(call))


def _type(buffer: Buffer) -> tuple[object, ...]:
    return buffer.dtype, tuple(map(lift, buffer.shape))


def _names(number: int, line: str, text: str) -> tuple[str, ...]:
    """The names that stand between commas in ``text``, a part of ``line``."""
    found = tuple(name.strip() for name in text.split(",")) if text.strip() else ()
    if not all(name.isidentifier() for name in found):
        _no_program(number, line, "names, with commas between them")
    return found


def _call(number: int, line: str) -> LoopCall:
    found = _CALL.fullmatch(line)
    if found is None:
        _no_program(number, line, "FUNCTION(BUFFERS)")
    return LoopCall(found[1], _names(number, line, found[2]))


def _no_program(number: int, line: str, expected: str) -> NoReturn:
    raise IngotError(
        ErrorCode.INVALID_ARGUMENT, f"the text is no program, line {number}", expected=expected, received=line
    )


__all__: Sequence[str] = ("LoopCall", "LoopProgram")
