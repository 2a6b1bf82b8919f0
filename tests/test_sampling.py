"""The sample of cases that the default run makes."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.sampling import PART, mark_the_rest, sampled

pytest_plugins = "pytester"
MODULE = """
import pytest

@pytest.fixture(params=[{}, {}])
def fixture(request):
    return request.param

@pytest.mark.sampled
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize(("family", "kind"), [(n, f"kind{n % 2}") for n in range(12)])
def test_stacked(level, family, kind, fixture):
    pass

def test_whole(fixture):
    pass
"""


def test_each_value_of_each_decorator_is_there(pytester: pytest.Pytester) -> None:
    items = pytester.getitems(MODULE)
    mark_the_rest(items)
    left = [item for item in items if not item.get_closest_marker("long")]
    stacked = [item for item in left if isinstance(item, pytest.Function) and item.originalname == "test_stacked"]
    assert (len(items), len(left), len(stacked)) == (50, 14, 12)
    for name, values in (("level", {0, 3}), ("family", set(range(12)))):
        assert {item.callspec.params[name] for item in stacked} == values
    assert len({id(item.callspec.params["fixture"]) for item in stacked}) == 2


@pytest.mark.parametrize("extents", [(2, 3), (2, 10), (3, 3, 3), (2, 4, 5, 2), (2, 2), (7, 1, 2)])
def test_each_value_is_there(extents: tuple[int, ...]) -> None:
    cases = list(product(*map(range, extents)))
    chosen = [cases[number] for number in sampled(cases)]
    assert [len(set(column)) for column in zip(*chosen, strict=True)] == list(extents)
    assert len(chosen) <= max(max(extents), -(-len(cases) // PART))


def test_many_pairs_are_there() -> None:
    cases = list(product(range(3), repeat=4))
    chosen = [cases[number] for number in sampled(cases)]
    for one, other in combinations(range(4), 2):
        assert len({(case[one], case[other]) for case in chosen}) == 9


@pytest.mark.parametrize("period", [2, 3, 4, 5, 6, 8])
def test_a_list_that_repeats_itself_has_all_of_its_parts_there(period: int) -> None:
    """Cases that somebody has multiplied out are one parameter."""
    chosen = sampled([(number,) for number in range(120)])
    assert len(chosen) == 120 // PART
    assert {number % period for number in chosen} == set(range(period))


def test_parameters_that_go_together_are_one() -> None:
    assert sampled([(i, i) for i in range(30)]) == sampled([(i,) for i in range(30)])


def test_tests_of_the_same_list_have_other_parts_of_it() -> None:
    one, other = (sampled([(number,) for number in range(90)], name=name) for name in ("one", "other"))
    assert len(one | other) > 1.5 * 90 / PART


def test_few_cases() -> None:
    assert sampled([(0,)]) == {0}
    assert len(sampled([(0,), (1,)], name="one")) == len(sampled([(0,), (1,)], name="other")) == 1
    assert sampled([(0, 0)]) == {0}


def test_quick_cases_are_among_them() -> None:
    cases = list(product(range(4), range(3)))
    assert {5, 6, 7, 8, 9} <= sampled(cases, [5, 6, 7, 8, 9])
    assert len(sampled(cases, [5])) == 4
    assert {1, 2} <= sampled([(i,) for i in range(9)], [1, 2])
