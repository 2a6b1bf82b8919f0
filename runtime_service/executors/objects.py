"""What stands behind numbers in memory for the time of one run: strings, and the objects that are sequences and optionals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from runtime_service.arrays import Array
from runtime_service.executors.resources import UNBOUNDED, Resources
from runtime_service.executors.stop import Stop
from shared_ir.errors import ErrorCode, IngotError

_ELEMENTS_TOGETHER = 1024
"""Elements between two questions whether the run is to end."""
_STRING_BYTES = 128
"""What a string takes beside its characters, and its place in the table."""
_PLACE_BYTES = 24
"""Of an element in an array of objects, and in lists on the way."""
EMPTY = 0
"""The number of an empty optional."""


def characters(text: str) -> int:
    """Bytes that the characters of ``text`` take at most."""
    return len(text) if text.isascii() else 4 * len(text)


class ObjectAllowance:
    """What one function of the executor may make. It takes the bytes before it makes something, and looks in between whether the run
    is to end: whoever goes through elements does so by :meth:`each`."""

    def __init__(self, require: Callable[[int], None]) -> None:
        """``require`` raises IngotError RESOURCE_EXHAUSTED where a run may not take so many bytes more, CANCELLED where it is to end."""
        self._require = require
        self.taken = 0

    def take(self, size: int) -> None:
        """``size`` bytes more, for the time of the call; raises as ``require``."""
        self._require(self.taken + size)
        self.taken += size

    def each(self, items: Array | Iterable[Any]) -> Iterator[list[Any]]:
        """The elements of ``items``, some at a time; raises CANCELLED between them."""
        if isinstance(items, np.ndarray):
            flat = items.reshape(-1)
            for start in range(0, flat.size, _ELEMENTS_TOGETHER):
                self.take(0)
                yield flat[start : start + _ELEMENTS_TOGETHER].tolist()
            return
        left = iter(items)
        while some := list(itertools.islice(left, _ELEMENTS_TOGETHER)):
            self.take(0)
            yield some

    def made(self, items: Array, make: Callable[[list[Any]], Iterable[str]], size: Callable[[Any], int]) -> Array:
        """An array of as many strings as there are ``items``: ``make`` makes them, some at a time, of at most ``size`` bytes each."""
        self.take(_PLACE_BYTES * items.size)
        found, at = np.empty(items.size, object), 0
        for some in self.each(items):
            self.take(sum(map(size, some)))
            found[at : at + len(some)] = list(make(some))
            at += len(some)
        return found.reshape(items.shape)


class Objects:
    """The tables of one run, which end with it. Equal strings have one number, so kernels compare numbers.

    Args:
        strings: those of the model, in the order of their numbers.
        resources: what the run may use. Strings that it takes and makes, sequences and what they are made of may take as much as its
            intermediate values.
        stop: what ends it, also in the middle of making them.
    """

    def __init__(self, strings: Iterable[str], resources: Resources = UNBOUNDED, stop: Stop | None = None) -> None:
        self.resources = resources
        self.stop = stop
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
        found, at = np.empty(texts.size, np.int64), 0
        for some in ObjectAllowance(self.require).each(texts):
            found[at : at + len(some)] = [self._number(text) for text in some]
            at += len(some)
        return found.reshape(texts.shape)

    def texts(self, numbers: Array, room: ObjectAllowance) -> Array:
        """An object array of strings, of the shape of ``numbers``."""
        try:
            return room.made(numbers, lambda some: [self._texts[number] for number in some], lambda _: 0)
        except IndexError as error:
            raise _no_such("string") from error

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
