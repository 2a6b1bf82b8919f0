"""The requests that wait: by priority, in the order in which they came; of a long one a piece at a time.

What is left of a request whose piece was computed stands behind those that came meanwhile, so a neighbour waits for one piece of it
at most, and not for all.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from runtime_service.batching.work import Key, RequestRows, Work


class Waiting:
    """Not safe to be used by several threads at once.

    Args:
        limit: rows of one execution; 0 where each request is one.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._levels: dict[int, deque[Work]] = {}
        self._rows: Counter[Key] = Counter()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Work]:
        """In the order in which they are computed, were all alike."""
        for level in sorted(self._levels):
            yield from self._levels[level]

    @property
    def head(self) -> Work | None:
        """The request that the next execution begins with."""
        return next(iter(self), None)

    @property
    def oldest(self) -> float | None:
        """When the one that waits for longest came."""
        return min((work.since for work in self), default=None)

    def of_level(self, level: int) -> int:
        """How many wait with this priority."""
        return len(self._levels.get(level, ()))

    def rows(self, key: Key) -> int:
        """That wait and may be merged."""
        return self._rows[key]

    def add(self, work: Work) -> None:
        self._levels.setdefault(work.level, deque()).append(work)
        self._rows[work.key] += work.left
        self._count += 1

    def remove(self, work: Work) -> bool:
        """Whether it was there."""
        level = self._levels.get(work.level, deque())
        if work not in level:
            return False
        level.remove(work)
        self._forget(work)
        return True

    def take(self, now: float, most: int) -> tuple[list[RequestRows], list[Work]]:
        """Remove the head and what fits beside it: at most ``most`` rows, or one request. Also what is too late to be computed."""
        late = [work for work in self if work.is_late(now)]
        for work in late:
            self.remove(work)
        head = self.head
        if head is None:
            return [], late
        chosen = [work for work in self if work.key == head.key] if self._limit else [head]
        pieces: list[RequestRows] = []
        room = most
        for work in chosen:
            if not self._limit or self._fits(work, room, most):
                self.remove(work)
                left = work.left
                pieces.append(work.cut(room))
                room -= left - work.left
        return pieces, late

    def _fits(self, work: Work, room: int, most: int) -> bool:
        """Only what is too long for any execution is cut."""
        return work.left <= room or (room > 0 and work.left > most)

    def _forget(self, work: Work) -> None:
        self._count -= 1
        self._rows[work.key] -= work.left
        if not self._rows[work.key]:
            del self._rows[work.key]
        if not self._levels[work.level]:
            del self._levels[work.level]
