"""How many connections each of several processes has that accept from the same sockets, in memory that all of them see."""

from __future__ import annotations

import mmap
import os
from typing import Final

_BYTES_OF_A_COUNT: Final = 8


def shared_counts(processes: int) -> int:
    """The descriptor of memory for the counts of so many processes, all 0; the caller closes it."""
    descriptor = os.memfd_create("connections")
    os.ftruncate(descriptor, _BYTES_OF_A_COUNT * processes)
    return descriptor


class ConnectionCounts:
    """The counts behind ``descriptor``, for process ``number``. Each process writes one word, its own, so that nothing is locked; that of a
    process that has ended stands until the next one begins in its place."""

    def __init__(self, descriptor: int, number: int) -> None:
        self.descriptor = descriptor
        self._counts = memoryview(mmap.mmap(descriptor, 0)).cast("q")
        self._number = number

    def tell(self, connections: int) -> None:
        """How many this process has now."""
        self._counts[self._number] = connections

    @property
    def is_ahead(self) -> bool:
        """Whether another process has fewer connections than this one."""
        return self._counts[self._number] > min(self._counts)
