"""The searches one after the other: what is known first, then downhill, then further away and downhill from there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from compiler_service.compiler.tune.search.descent import Descent
from compiler_service.compiler.tune.search.evolution import Evolution
from compiler_service.compiler.tune.search.face import Rank
from compiler_service.compiler.tune.search.point import Make, Point


class Phases:
    """A :class:`~compiler_service.compiler.tune.search.face.Search` by descent and, where that has come to an end, by evolution.

    Args:
        make: the template.
        seeds: points to begin with, besides the default: those of records of other sizes, other rules.
        seed, rank: of the evolution.
    """

    def __init__(self, make: Make, seeds: Iterable[Point] = (), seed: int = 0, rank: Rank | None = None) -> None:
        self._seeds = deque(dict.fromkeys(seeds))
        self._descent, self._evolution = Descent(make), Evolution(make, seed, rank)
        self._seen: set[Point] = set()

    @property
    def rank(self) -> Rank | None:
        """The cost model of the evolution; None where nothing is ranked."""
        return self._evolution.rank

    @rank.setter
    def rank(self, rank: Rank | None) -> None:
        self._evolution.rank = rank

    def propose(self, count: int) -> Sequence[Point]:
        """See :class:`~compiler_service.compiler.tune.search.face.Search`."""
        found: list[Point] = []
        while self._seeds and len(found) < count:
            found += self._unseen([self._seeds.popleft()])
        for search in (self._descent, self._evolution):
            while len(found) < count and (proposed := search.propose(count - len(found))):
                found += self._unseen(proposed)
        return found

    def tell(self, point: Point, seconds: float | None) -> None:
        """See :class:`~compiler_service.compiler.tune.search.face.Search`."""
        self._seen.add(point)
        self._descent.tell(point, seconds)
        self._evolution.tell(point, seconds)

    def _unseen(self, points: Sequence[Point]) -> list[Point]:
        fresh = [point for point in points if point not in self._seen]
        self._seen |= set(fresh)
        return fresh
