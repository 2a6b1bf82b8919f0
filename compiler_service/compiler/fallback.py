"""What becomes of faults of the compiler: an error of ours, and where an optimisation is at fault, code without it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.faults import causes, file_error, lacks_room, want_of_room

Result = TypeVar("Result")


class OptimisationFaultWarning(RuntimeWarning):
    """An optimisation failed, and the model is compiled at a lower level: right, but slower; a fault of the compiler."""


@contextmanager
def typed_faults() -> Iterator[None]:
    """Nothing but :class:`IngotError` leaves: what else is raised inside is a COMPILER_FAULT, but for memory and disks that are full."""
    try:
        yield
    except Warning:  # raised where whoever calls turns them into errors
        raise
    except Exception as error:
        if isinstance(error, IngotError) and error.code is not ErrorCode.COMPILER_FAULT:
            raise
        if (own := _of_the_machine(error)) is not None:
            raise own from error
        if isinstance(error, IngotError):
            raise
        raise IngotError(
            ErrorCode.COMPILER_FAULT,
            "the compiler failed",
            received=f"{type(error).__name__}: {error}"[:2000],
            remedy="Report the model.",
        ) from error


def _of_the_machine(error: Exception) -> IngotError | None:
    """What neither the model nor a pass is at fault for, whatever pass it came up in."""
    if (full := want_of_room(error)) is not None:
        return file_error(full, "the compiler cannot write its files")
    short = next((own for own in causes(error) if isinstance(own, MemoryError)), None)
    if short is None:
        return None
    return IngotError(
        ErrorCode.LIMIT_EXCEEDED,
        "the model takes more memory to compile than there is",
        received=f"{short}"[:2000],
        remedy="Give the process more memory, or make what the model holds smaller.",
    )


def at_a_level_that_works(attempt: Callable[[int], Result], level: int) -> tuple[Result, tuple[int, str]]:
    """What ``attempt`` makes at ``level``, or at the next lower one where it is at fault, with that level and what went wrong above.

    Raises:
        IngotError: of the model, or of the machine; the fault at ``level`` where every level has one.

    Warns:
        OptimisationFaultWarning: a level was at fault.
    """
    first: IngotError | None = None
    for lower in range(level, -1, -1):
        try:
            with typed_faults():
                made = attempt(lower)
        except IngotError as error:
            if error.code is not ErrorCode.COMPILER_FAULT:
                if first is None or lacks_room(error):
                    raise
                raise first from None
            first = first or error
            continue
        if first is not None:
            message = f"level {level} is at fault, and the model is compiled at level {lower}; report it: {first}"
            warnings.warn(message, OptimisationFaultWarning, stacklevel=3)
        return made, (lower, "" if first is None else str(first))
    assert first is not None
    raise first


__all__ = ["OptimisationFaultWarning", "at_a_level_that_works", "typed_faults"]
