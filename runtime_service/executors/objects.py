"""What stands behind numbers in memory for the time of one run: strings, and the objects that are sequences and optionals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from runtime_service.arrays import Array
from runtime_service.executors.resources import Resources
from runtime_service.executors.stop import Stop
from shared_ir.errors import ErrorCode, IngotError

Room = Callable[[int], None]
"""Raises IngotError RESOURCE_EXHAUSTED where a run may not take so many bytes more, CANCELLED where it is to end."""
_TOGETHER = 1024
"""Elements between two questions whether the run is to end."""
_STRING_BYTES = 128
"""What a string takes beside its characters, and its place in the table."""
EMPTY = 0
"""The number of an empty optional."""


def in_parts(items: list[Any], room: Room) -> Iterator[list[Any]]:
    """``items``, some at a time: the run may end between them."""
    for start in range(0, len(items), _TOGETHER):
        room(0)
        yield items[start : start + _TOGETHER]


class Objects:
    """The tables of one run, which end with it. Equal strings have one number, so kernels compare numbers.

    Args:
        strings: those of the model, in the order of their numbers.

    Attributes:
        resources: what the run may use. Strings that it makes, sequences and what they are made of may take as much as its
            intermediate values.
        stop: what ends it, also in the middle of making them.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        self.resources = Resources()
        self.stop: Stop | None = None
        self._held = 0
        self._texts = list(strings)
        self._numbers = {text: number for number, text in enumerate(self._texts)}
        self._objects: list[Any] = [None]

    def require(self, size: int) -> None:
        """Raises IngotError RESOURCE_EXHAUSTED: ``size`` bytes beside what is held are too much for a run; CANCELLED."""
        if self.stop is not None:
            self.stop.check()
        self.resources.require(self._held + size, "strings and sequences")

    def hold(self, size: int) -> None:
        """Count ``size`` bytes that stay until the end of the run; raises as :meth:`require`."""
        self.require(size)
        self._held += size

    def numbers(self, texts: Array) -> Array:
        """int64, of the shape of ``texts``; bytes count as UTF-8.

        Raises:
            IngotError: INVALID_ARGUMENT, an element is no string.
        """
        found = [self._number(text) for some in in_parts(texts.reshape(-1).tolist(), self.require) for text in some]
        return np.array(found, np.int64).reshape(texts.shape)

    def texts(self, numbers: Array) -> Array:
        """An object array of strings, of the shape of ``numbers``."""
        found = np.empty(numbers.size, object)
        try:
            found[:] = [self._texts[number] for number in numbers.reshape(-1).tolist()]
        except IndexError as error:
            raise _no_such("string") from error
        return found.reshape(numbers.shape)

    def keep(self, thing: Any) -> int:
        """The number of a list of arrays, or of an array; of None it is :data:`EMPTY`."""
        if thing is None:
            return EMPTY
        self._objects.append(thing)
        return len(self._objects) - 1

    def get(self, number: int) -> Any:
        """The object with this number, None for an empty optional."""
        if not 0 <= number < len(self._objects):
            raise _no_such("object")
        return self._objects[number]

    def _number(self, text: object) -> int:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogateescape")
        if not isinstance(text, str):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "an element of a tensor of strings is no string",
                expected="str, or bytes in UTF-8",
                received=type(text).__name__,
            )
        number = self._numbers.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self.hold(len(text) + _STRING_BYTES)
            self._texts.append(text)
        return number


def _no_such(what: str) -> IngotError:
    return IngotError(
        ErrorCode.ARTIFACT_CORRUPT, f"the plan uses a {what} that there is none of", remedy="Compile the model again."
    )
