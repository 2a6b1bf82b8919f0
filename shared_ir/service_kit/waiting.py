"""What is tried without waiting."""

from __future__ import annotations

from typing import Protocol


class Place(Protocol):
    """Somewhere that others are."""

    @property
    def is_free(self) -> bool:
        """Whether nobody is there any more, or waits to be."""


class WouldWait(Exception):
    """Who must not wait would have to; nothing was done. ``place`` is what others have to leave, where it is that."""

    def __init__(self, place: Place | None = None) -> None:
        super().__init__()
        self.place = place
