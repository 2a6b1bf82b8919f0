"""The things of a page as messages: made once, when they are weighed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from shared_ir.registry.pages import Page

T = TypeVar("T")


class Messages(Generic[T]):
    """``convert`` makes a message of a thing."""

    def __init__(self, convert: Callable[[T], Any]) -> None:
        self._convert = convert
        self._made: list[Any] = []

    def weigh(self, item: T) -> int:
        """Its bytes; as :class:`shared_ir.registry.pages.PageRoom` asks for them, of each in its order."""
        self._made.append(self._convert(item))
        return int(self._made[-1].ByteSize())

    def of(self, page: Page[T]) -> Sequence[Any]:
        """Those of the things that had room."""
        return self._made[: len(page.items)]
