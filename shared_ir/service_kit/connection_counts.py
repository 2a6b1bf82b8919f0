"""Which of several processes that accept from the same sockets takes the next connection, in memory that all of them see: of those that
have come farthest, the one that has fewest connections."""

from __future__ import annotations

import mmap
import os
from typing import Final

_BYTES_OF_A_WORD: Final = 8
_ENDED: Final = -1
"""The rank of a process that is no more."""


def shared_counts(processes: int) -> int:
    """The descriptor of memory for the ranks and counts of so many processes, all 0; the caller closes it."""
    descriptor = os.memfd_create("connections")
    os.ftruncate(descriptor, 2 * _BYTES_OF_A_WORD * processes)
    return descriptor


class ConnectionCounts:
    """The ranks and counts behind ``descriptor``, for process ``number``. Each process writes two words, its own, so that nothing is
    locked; who has started it says when it has ended."""

    def __init__(self, descriptor: int, number: int) -> None:
        self.descriptor = descriptor
        words = memoryview(mmap.mmap(descriptor, 0)).cast("q")
        half = len(words) // 2
        self._counts, self._ranks = words[:half], words[half:]
        self._number = number

    def tell(self, connections: int) -> None:
        """How many this process has now."""
        self._counts[self._number] = connections

    def tell_rank(self, rank: int) -> None:
        """How far this process has come, from 0: as long as another one has come farther, that one takes the connections."""
        self._ranks[self._number] = rank

    def tell_end(self) -> None:
        """The process is no more: nobody leaves it anything."""
        self.tell_rank(_ENDED)
        self.tell(0)

    @property
    def is_outranked(self) -> bool:
        """Whether another process has come farther than this one, and is to take what comes."""
        return self._ranks[self._number] < max(self._ranks)

    @property
    def is_ahead(self) -> bool:
        """Whether another process that has come as far has fewer connections than this one."""
        rank, count = self._ranks[self._number], self._counts[self._number]
        return any(other < count for other, of in zip(self._counts, self._ranks, strict=True) if of >= rank)
