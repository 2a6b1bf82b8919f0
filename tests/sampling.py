"""Which cases of a test marked ``sampled`` the default run makes; ``make test-all`` makes all of them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import combinations
from zlib import crc32

import pytest

Case = Sequence[Hashable]
"""The value that each parameter has."""
PART = 5
_TURN = (math.sqrt(5) - 1) / 2
"""The multiples of it are spread evenly, whatever period a list of cases has."""


def sampled(cases: Sequence[Case], quick: Collection[int] = (), name: str = "") -> frozenset[int]:
    """Numbers of the cases to make: one of ``PART`` of them, and so many that each parameter has each of its values, in many pairs.

    Where there is one parameter alone, every case has a value of its own, and it is just that part: for each ``name`` another one,
    so that tests that ask all of the same list have other parts of it. Those that are ``quick`` are made as well.
    """
    varied = [column for column in dict.fromkeys(zip(*cases, strict=True)) if len(set(column)) > 1]
    if len(varied) < 2:
        start = crc32(name.encode()) / 2**32
        evenly = sorted(range(len(cases)), key=lambda number: (start + number * _TURN) % 1)
        return frozenset(quick) | frozenset(evenly[: -(-len(cases) // PART)])
    return _spread(list(zip(*varied, strict=True)), quick)


def _spread(cases: Sequence[Case], quick: Collection[int]) -> frozenset[int]:
    """Those that are quick, then case by case the one with most values, then most pairs of them, that none before it had."""
    values: Counter[tuple[int, Hashable]] = Counter()
    pairs: Counter[tuple[tuple[int, Hashable], ...]] = Counter()
    missing = {value for case in cases for value in enumerate(case)}
    left = dict.fromkeys(range(len(cases)))

    def familiar(number: int) -> tuple[int, int, int]:
        own = list(enumerate(cases[number]))
        return -len(missing.intersection(own)), sum(pairs[p] for p in combinations(own, 2)), sum(values[v] for v in own)

    def take(number: int) -> None:
        own = list(enumerate(cases[number]))
        del left[number]
        missing.difference_update(own)
        values.update(own)
        pairs.update(combinations(own, 2))

    for number in quick:
        take(number)
    while missing or len(left) * PART > len(cases) * (PART - 1):
        take(min(left, key=familiar))
    return frozenset(range(len(cases))) - left.keys()


def mark_the_rest(items: Iterable[pytest.Item]) -> None:
    """Of tests marked ``sampled`` the cases that are not among the chosen ones become ``long``."""
    families: defaultdict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and item.get_closest_marker("sampled"):
            families[item.nodeid.partition("[")[0]].append(item)
    for family in families.values():
        cases = [_case(item) for item in family]
        quick = [number for number, item in enumerate(family) if not item.get_closest_marker("slow")]
        chosen = sampled(cases, quick if len(quick) < len(family) else (), family[0].originalname)
        for number, item in enumerate(family):
            if number not in chosen:
                item.add_marker(pytest.mark.long)


def _case(item: pytest.Function) -> Case:
    """What each decorator gives it: names that share one are one parameter. Objects, since not all of them can be compared."""
    params = item.callspec.params
    told = [mark.args[0] for mark in item.iter_markers("parametrize")]
    together = [names.replace(",", " ").split() if isinstance(names, str) else list(names) for names in told]
    alone = [[name] for name in params if not any(name in names for names in together)]
    return tuple(tuple(id(params[name]) for name in names) for names in [*together, *alone])
