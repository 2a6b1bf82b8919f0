"""Searches over spaces that are functions: what is proposed, in which order, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from compiler_service.compiler.schedule.language.knobs import Knobs
from compiler_service.compiler.tune.search.descent import Descent
from compiler_service.compiler.tune.search.evolution import Breeding, Evolution
from compiler_service.compiler.tune.search.face import Search
from compiler_service.compiler.tune.search.point import DEFAULT, Point, asked_at
from shared_ir.errors import ErrorCode, IngotError


def bowl(knobs: Knobs) -> float:
    """Least, 0, at x=9, y=4, fast; one knob is asked for where another one has a value, and one corner is no schedule."""
    x, y = knobs.range("x", 0, 15, default=2), knobs.choice("y", (1, 2, 4, 8, 16), default=16)
    cost = abs(x - 9) + abs((1, 2, 4, 8, 16).index(y) - 2)
    if knobs.flag("fast", default=False):
        cost += knobs.choice("mode", ("a", "b", "c"), default="b") != "c"
    else:
        cost += 3
    if x == 15 and y == 16:
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "no schedule")
    return float(cost)


def cost_of(point: Point) -> float:
    return bowl(Knobs(point.values))


def run(search: Search, most: int, batch: int = 4, cost: Callable[[Point], float | None] = cost_of) -> list[Point]:
    tried: list[Point] = []
    while len(tried) < most and (points := search.propose(batch)):
        for point in points:
            search.tell(point, cost(point))
        tried += points
    return tried


@pytest.fixture(params=[lambda: Evolution(bowl, seed=3), lambda: Descent(bowl)], ids=["evolution", "descent"])
def search(request: pytest.FixtureRequest) -> Search:
    made: Search = request.param()
    return made


def test_it_begins_with_the_default_and_finds_the_least(search: Search) -> None:
    tried = run(search, 150)
    assert tried[0] == DEFAULT
    assert min(map(cost_of, tried)) == 0


def test_no_point_comes_twice_and_each_is_a_schedule(search: Search) -> None:
    tried = run(search, 150)
    assert len(set(tried)) == len(tried)
    assert all(asked_at(bowl, point.values) is not None for point in tried)


def test_what_others_measured_is_not_proposed(search: Search) -> None:
    known = [DEFAULT, Point.of({"x": 3}), Point.of({"x": 1})]
    for point in known:
        search.tell(point, cost_of(point))
    assert not set(run(search, 60)) & set(known)


def test_points_that_failed_are_no_candidates(search: Search) -> None:
    """Those with x above 8 fail: the search stays below, and goes on."""
    limited: Callable[[Point], float | None] = lambda p: None if int(str(p.values.get("x", 2))) > 8 else cost_of(p)
    tried = run(search, 150, cost=limited)
    assert min(cost for p in tried if (cost := limited(p)) is not None) == 1


def test_equal_seeds_propose_equal_points() -> None:
    first, again = (run(Evolution(bowl, seed=5), 60) for _ in range(2))
    assert first == again != run(Evolution(bowl, seed=6), 60)


def test_evolution_ends_where_the_space_is_spent() -> None:
    def small(knobs: Knobs) -> None:
        knobs.flag("a", default=True), knobs.choice("b", (1, 2, 3), default=1)

    assert len(run(Evolution(small), 100, cost=lambda p: 1.0)) == 6


def test_evolution_beats_drawing_at_random() -> None:
    """In a space of 16^5 points, whose cost is a sum: the medians over seeds."""

    def wide(knobs: Knobs) -> None:
        for name in "abcde":
            knobs.range(name, 0, 15, default=8)

    def far(point: Point) -> float:
        return float(
            sum(abs(Knobs(point.values).range(name, 0, 15, default=8) - 2 * at) for at, name in enumerate("abcde"))
        )

    def least(breeding: Breeding) -> list[float]:
        return sorted(min(map(far, run(Evolution(wide, seed, breeding=breeding), 150, cost=far))) for seed in range(5))

    assert least(Breeding())[2] < least(Breeding(drawn=1.0))[2]


def test_a_cost_model_chooses_among_what_is_bred() -> None:
    asked: list[int] = []

    def rank(points: Sequence[Point]) -> Sequence[float]:
        asked.append(len(points))
        return [cost_of(p) for p in points]

    blind, led = (sum(map(cost_of, run(Evolution(bowl, 1, r), 60)[24:])) for r in (None, rank))
    assert led < blind
    assert max(asked) > 4


def test_descent_ends_with_all_neighbours_of_the_best_tried() -> None:
    search = Descent(bowl)
    tried = run(search, 1000)
    assert search.best is not None
    assert cost_of(search.best) == 0
    assert search.propose(4) == []
    assert len(tried) < 80  # of 160 points
    around = asked_at(bowl, search.best.values)
    assert around is not None
    for knob in around.knobs.values():
        for value in knob.neighbours:
            near = asked_at(bowl, {**search.best.values, knob.name: value})
            assert near is None or near.point in tried


def test_descent_goes_on_from_what_it_is_told() -> None:
    search = Descent(bowl)
    best = Point.of({"x": 9, "y": 4, "fast": True})
    search.tell(best, 1.0)
    first = search.propose(20)
    assert DEFAULT not in first
    assert Point.of({"x": 9, "y": 4, "fast": True, "mode": "c"}) in first


def test_equal_answers_are_one_point() -> None:
    one, other = Point.of({"a": (1, (2, 3)), "b": True}), Point.of({"b": True, "a": [1, [2, 3]]})  # type: ignore[dict-item]
    assert one == other
    assert (hash(one), one.digest) == (hash(other), other.digest)
    assert one.values["a"] == (1, (2, 3))
    assert Point.of({"a": 1}) != Point.of({"a": 2})
    with pytest.raises(TypeError):
        one.values["a"] = 1  # type: ignore[index]
