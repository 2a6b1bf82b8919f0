"""Handles of loops, and the errors of what does not fit."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import NoReturn

from shared_ir.errors import ErrorCode, IngotError


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of a stage, as :meth:`Stage.split` returns it.

    Attributes:
        stage: the name of the tensor.
        name: of the loop, such as ``i.64``.
    """

    stage: str
    name: str

    def __str__(self) -> str:
        return self.name


LoopLike = Loop | str
"""A loop, or its name."""


def misfit(message: str, expected: str, received: str) -> IngotError:
    return IngotError(ErrorCode.INVALID_ARGUMENT, f"schedule: {message}", expected=expected, received=received)


def whole_number(value: int, what: str) -> int:
    """``value``, also of numpy, as an int. Raises IngotError INVALID_ARGUMENT."""
    try:
        return operator.index(value)
    except TypeError:
        raise misfit(f"{what} is no whole number", "an int", repr(value)[:80]) from None


def refuse(message: str, expected: str, received: str) -> NoReturn:
    raise misfit(message, expected, received)
