"""Bytes of a connection as they come. Who reads them is a generator that stops where it needs more: no thread waits for a client."""

from __future__ import annotations

import enum
import select
from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Need(enum.Enum):
    """What a reader waits for."""

    BYTES = enum.auto()
    ROOM = enum.auto()  # for what is to be read
    TURN = enum.auto()  # others have waited for long enough


Reading = Generator[Need, None, T]
"""Of something, which it returns."""


class ByteSource:
    """``target``, where there is one, is what the next bytes are to be written to, instead of :meth:`feed`."""

    __slots__ = ("_data", "_start", "fed", "has_ended", "target")

    def __init__(self) -> None:
        self._data: bytes = b""
        self._start = self.fed = 0
        """Bytes that have come by :meth:`feed` in all."""
        self.has_ended = False
        """No others come."""
        self.target: memoryview | None = None

    def __len__(self) -> int:
        """Bytes that have come and were not read."""
        return len(self._data) - self._start

    def clear(self) -> None:
        """What has come is let go of, since it may be large."""
        self._data, self._start, self.target = b"", 0, None

    @property
    def read(self) -> int:
        """Bytes that were read of those that were fed."""
        return self.fed - len(self)

    def feed(self, data: bytes) -> None:
        self.fed += len(data)
        self._data = self._data[self._start :] + data if len(self) else data
        self._start = 0

    def filled(self, count: int) -> None:
        """So many bytes were written to ``target``."""
        assert self.target is not None
        rest = self.target[count:]
        self.target = rest if rest else None

    def until(self, mark: bytes) -> bytes | None:
        """What has come up to ``mark`` and with it, which stays; ``None`` where that has not come."""
        end = self._data.find(mark, self._start)
        return None if end < 0 else self._data[self._start : end + len(mark)]

    def starts_with(self, text: bytes) -> bool:
        return self._data.startswith(text, self._start)

    def take(self, count: int) -> bytes:
        """Up to so many bytes of those that have come."""
        found = self._data[self._start : self._start + count]
        self._start += len(found)
        if self._start == len(self._data):  # it may be much, of a connection that is idle from here on
            self._data, self._start = b"", 0
        return found

    def line(self, most: int) -> Reading[bytes]:
        """Up to the next LF and with it; shorter where the stream ends, or after ``most`` bytes."""
        while True:
            end = self._data.find(b"\n", self._start, self._start + most)
            if end >= 0:
                return self.take(end + 1 - self._start)
            if len(self) >= most or self.has_ended:
                return self.take(most)
            yield Need.BYTES

    def read_into(self, view: memoryview) -> Reading[bool]:
        """Fill ``view``; whether there was enough."""
        have = self.take(len(view))
        view[: len(have)] = have
        if len(have) == len(view):
            return True
        self.target = view[len(have) :]
        while self.target is not None:
            if self.has_ended:
                self.target = None
                return False
            yield Need.BYTES
        return True


def has_hung_up(transport: Any) -> bool:
    """Whether the client of ``transport`` has closed its side; for where nothing is read, and so no end of it."""
    poll = select.poll()
    try:
        poll.register(transport.get_extra_info("socket"), select.POLLRDHUP)
        return bool(poll.poll(0))
    except (OSError, ValueError, TypeError):  # it is closed already
        return True
