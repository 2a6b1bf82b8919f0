"""A place that others leave after some time."""

from __future__ import annotations


class Emptying:
    """Free after it has been looked at so often."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    @property
    def is_empty(self) -> bool:
        return self._looks <= 0

    @property
    def is_free(self) -> bool:
        self._looks -= 1
        return self.is_empty
