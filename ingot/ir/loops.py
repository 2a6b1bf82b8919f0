"""Loop programs: one nest of loops over typed memory, whose tasks may run side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from compiler_service.compiler.loop_ir.interpret import run
from compiler_service.compiler.loop_ir.ir import Buffer, Function, stored_buffers
from compiler_service.compiler.loop_ir.parse import parse_function
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.loop_ir.verify import verify
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import dim_symbols, evaluate

Array = np.ndarray[Any, Any]
"""An array of numpy, of any element type."""


@dataclass(frozen=True)
class LoopFunction:
    """A loop program: ``str()`` prints it, :meth:`parse` reads it back, :meth:`interpret` runs it.

    Attributes:
        function: its nodes, of :mod:`ingot.codegen`.
    """

    function: Function

    @property
    def name(self) -> str:
        """What a module, a program and their calls name it by."""
        return self.function.name

    def __str__(self) -> str:
        return print_function(self.function)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The program that prints as ``text``.

        Raises:
            IngotError: INVALID_ARGUMENT, with the line that is no program.
        """
        return cls(parse_function(text))

    def verify(self) -> None:
        """Check that the program is well formed.

        Raises:
            IngotError: INVALID_ARGUMENT, a name is not defined where it is read, types do not fit, or a loop has a length that it must
                not have.
        """
        try:
            verify(self.function)
        except IngotError as error:
            raise replace(error, code=ErrorCode.INVALID_ARGUMENT) from error

    def interpret(self, *arrays: Array) -> tuple[Array, ...]:
        """What it stores for ``arrays``, one for each buffer that it only reads; every access is checked.

        Raises:
            IngotError: INVALID_ARGUMENT, arrays do not fit; COMPILER_FAULT, an access leaves its buffer.
        """
        stored = stored_buffers(self.function.body)
        inputs = [b for b in self.function.buffers if b not in stored]
        if len(arrays) != len(inputs):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"the program reads {len(inputs)} buffers",
                expected=", ".join(b.name for b in inputs),
                received=f"{len(arrays)} arrays",
            )
        given = dict(zip(inputs, arrays, strict=True))
        extents = extents_of(given.items())
        memory = [
            memory_of(b, extents) if b in stored else np.ascontiguousarray(given[b]) for b in self.function.buffers
        ]
        run(self.function, memory, extents)
        return tuple(array for buffer, array in zip(self.function.buffers, memory, strict=True) if buffer in stored)


def extents_of(given: Iterable[tuple[Buffer, Array]]) -> dict[str, int]:
    """Symbols by name, as far as extents of ``given`` arrays say what they are: those of which an extent is a multiple, and more."""
    found: dict[str, int] = {}
    for buffer, array in given:
        for dim, extent in zip(buffer.shape, array.shape, strict=False):
            names = tuple(dim_symbols((dim,)))
            if len(names) != 1 or names[0] in found:
                continue
            start, after = (evaluate(dim, {names[0]: value}) for value in (0, 1))
            value = (extent - start) // (after - start) if after != start else -1
            if value >= 0 and evaluate(dim, {names[0]: value}) == extent:
                found[names[0]] = value
    return found


def memory_of(buffer: Buffer, extents: Mapping[str, int]) -> Array:
    """Memory for ``buffer`` that nothing was stored to: NaN, or a number that gives itself away."""
    shape = [evaluate(d, extents) for d in buffer.shape]
    return np.full(shape, np.nan if buffer.dtype.is_float else 85, buffer.dtype.numpy)
