"""Handles of loops, and the errors of what does not fit."""

from __future__ import annotations

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


def refuse(message: str, expected: str, received: str) -> NoReturn:
    raise misfit(message, expected, received)
