"""Coordinate descent: from the best point to a neighbour that is faster, until none is.

That such a descent from a good start finds what long searches find is Droplet's result (Canesche et al., "The Droplet Search Algorithm for
Kernel Scheduling", and arXiv 2406.20037 for descents from the best of a few samples).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler_service.compiler.schedule.language.knobs import Knob, Value
from compiler_service.compiler.tune.search.point import DEFAULT, AskedPoint, Make, Point, asked_at


class Descent:
    """A :class:`~compiler_service.compiler.tune.search.face.Search` around the fastest point that it was told; done when none of its
    neighbours is left that was not tried.

    Args:
        make: the template.
        start: where to begin: it is proposed first, unless it has been told.
    """

    def __init__(self, make: Make, start: Point = DEFAULT) -> None:
        self._make = make
        self._seen: set[Point] = set()
        self._ways: dict[Point, tuple[str, Value]] = {}
        self._best: tuple[float, Point] | None = None
        self._around: AskedPoint | None = None
        self._walk: Iterator[Point] | None = None
        self._left: Iterator[Point] = iter((start,))
        self._last: tuple[str, int] | None = None

    @property
    def best(self) -> Point | None:
        """The fastest point so far."""
        return self._best[1] if self._best else None

    def propose(self, count: int) -> Sequence[Point]:
        """See :class:`~compiler_service.compiler.tune.search.face.Search`."""
        found: list[Point] = []
        while len(found) < count and (point := next(self._left, None)) is not None:
            if point not in self._seen:
                self._seen.add(point)
                found.append(point)
        return found

    def tell(self, point: Point, seconds: float | None) -> None:
        """See :class:`~compiler_service.compiler.tune.search.face.Search`."""
        self._seen.add(point)
        way = self._ways.pop(point, None)
        if seconds is None or (self._best is not None and seconds >= self._best[0]):
            return
        self._last, self._best = self._direction(way), (seconds, point)
        self._around = asked_at(self._make, point.values)
        self._left = iter(()) if self._around is None else self._neighbours(self._around)

    def _neighbours(self, around: AskedPoint) -> Iterator[Point]:
        """One answer changed; first the way that the last step went, on which the next gain is likely."""
        for knob, value in sorted(_changes(around), key=lambda change: not self._goes_on(*change)):
            asked = asked_at(self._make, {**around.point.values, knob.name: value})
            if asked is not None:
                self._ways[asked.point] = knob.name, value
                yield asked.point

    def _goes_on(self, knob: Knob, value: Value) -> bool:
        return self._last == (knob.name, _side(knob, value))

    def _direction(self, way: tuple[str, Value] | None) -> tuple[str, int] | None:
        """The knob that changed, and to which side."""
        if way is None or self._around is None:
            return None
        knob = self._around.knobs.get(way[0])
        return None if knob is None or way[1] not in knob.options else (way[0], _side(knob, way[1]))


def _changes(around: AskedPoint) -> Iterator[tuple[Knob, Value]]:
    """To neighbours; of what has no order (names, flags) to every other option."""
    for knob in around.knobs.values():
        unordered = any(isinstance(option, str) for option in knob.options)
        others = (o for o in knob.options if o != knob.value) if unordered else knob.neighbours
        yield from ((knob, value) for value in others)


def _side(knob: Knob, value: Value) -> int:
    return 1 if knob.options.index(value) > knob.options.index(knob.value) else -1
