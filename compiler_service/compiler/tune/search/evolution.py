"""Evolutionary search: points drawn at random, then changed and crossed, the faster ones more often.

Ansor searches its space so (Zheng et al., OSDI 2020, section 5.1); that parents are drawn by tournament is the usual way (Eiben and Smith,
"Introduction to Evolutionary Computing", 2015, section 5.2.4).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from compiler_service.compiler.schedule.language.knobs import Answer, Knob, Value
from compiler_service.compiler.tune.search.face import Rank
from compiler_service.compiler.tune.search.point import AskedPoint, Make, Point, asked_at


@dataclass(frozen=True)
class Breeding:
    """How points come about.

    Attributes:
        first: points drawn at random before any are bred.
        elite: how many of the fastest points are parents.
        drawn: part of the later points that are drawn at random.
        crossed: part of the bred points that have two parents.
        next_to: part of the changes that go to a neighbour; others go to any option.
        crowd: points that are bred for each one that is proposed, where a cost model ranks them.
        unranked: part of the proposed points that the cost model has no say in.
    """

    first: int = 24
    elite: int = 12
    drawn: float = 0.1
    crossed: float = 0.35
    next_to: float = 0.6
    crowd: int = 4
    unranked: float = 0.15


_DRAWS = 24
"""Draws for each point that is wanted, before a space is taken to be spent."""


class Evolution:
    """A :class:`~compiler_service.compiler.tune.search.face.Search` by evolution. The default comes first.

    Args:
        make: the template.
        seed: equal seeds and answers propose equal points.
        rank: a cost model; it may be put in its place later.
    """

    def __init__(self, make: Make, seed: int = 0, rank: Rank | None = None, breeding: Breeding | None = None) -> None:
        self.rank = rank
        self._make, self._random, self._breeding = make, random.Random(seed), breeding or Breeding()
        self._asked: dict[Point, AskedPoint] = {}
        self._seen: set[Point] = set()
        self._scored: list[tuple[float, AskedPoint]] = []

    def propose(self, count: int) -> Sequence[Point]:
        """See :class:`~compiler_service.compiler.tune.search.face.Search`. Raises what the cost model raises."""
        wanted = count if self.rank is None or not self._scored else count * self._breeding.crowd
        found: dict[Point, AskedPoint] = {}
        for _ in range(wanted * _DRAWS):
            if len(found) >= wanted:
                break
            drawn = self._draw(alone=not self._seen and not found)
            if drawn is not None and drawn.point not in self._seen:
                found.setdefault(drawn.point, drawn)
        chosen = self._chosen(list(found), count)
        self._asked |= {point: found[point] for point in chosen}
        self._seen |= set(chosen)
        return chosen

    def tell(self, point: Point, seconds: float | None) -> None:
        """See :class:`~compiler_service.compiler.tune.search.face.Search`."""
        self._seen.add(point)
        asked = self._asked.pop(point, None)
        if seconds is None:
            return
        asked = asked or asked_at(self._make, point.values)
        if asked is None:
            return
        self._scored.append((seconds, asked))
        self._scored.sort(key=lambda scored: scored[0])

    def _chosen(self, points: list[Point], count: int) -> list[Point]:
        """The ``count`` that the cost model likes best, some of them left to chance."""
        if self.rank is None or len(points) <= count:
            return points[:count]
        free = min(count - 1, round(count * self._breeding.unranked))
        costs = dict(zip(points, self.rank(points), strict=True))
        best = sorted(points, key=costs.__getitem__)
        return best[: count - free] + self._random.sample(best[count - free :], free)

    def _draw(self, *, alone: bool) -> AskedPoint | None:
        breeding, chance = self._breeding, self._random
        if alone:
            return asked_at(self._make, {})
        if len(self._scored) < 2 or len(self._seen) < breeding.first or chance.random() < breeding.drawn:
            return asked_at(self._make, {}, self._strayed(chance.random()))
        if chance.random() < breeding.crossed:
            return self._crossed(self._parent(), self._parent())
        return self._mutated(self._parent())

    def _strayed(self, often: float) -> Answer:
        """Answers that leave the model's ``often``: points around the default are drawn as well as points far from it."""
        return lambda knob: self._random.choice(knob.options) if self._random.random() < often else knob.default

    def _parent(self) -> AskedPoint:
        """The faster one of two of the elite."""
        elite = self._scored[: self._breeding.elite]
        return min(self._random.choices(elite, k=2), key=lambda scored: scored[0])[1]

    def _mutated(self, parent: AskedPoint) -> AskedPoint | None:
        """``parent`` with one answer changed, now and then more."""
        values: dict[str, Value] = dict(parent.point.values)
        open_knobs = [knob for knob in parent.knobs.values() if len(knob.options) > 1]
        while open_knobs:
            knob = self._random.choice(open_knobs)
            values[knob.name] = self._random.choice(self._others(knob))
            if self._random.random() < 0.7:
                break
        return asked_at(self._make, values)

    def _others(self, knob: Knob) -> Sequence[Value]:
        if self._random.random() < self._breeding.next_to:
            return knob.neighbours
        return [option for option in knob.options if option != knob.value]

    def _crossed(self, one: AskedPoint, other: AskedPoint) -> AskedPoint | None:
        """Each answer of one of the parents."""
        names = dict.fromkeys((*one.knobs, *other.knobs))
        parents = {name: self._random.choice([p for p in (one, other) if name in p.knobs]) for name in names}
        return asked_at(self._make, {name: parent.knobs[name].value for name, parent in parents.items()})
