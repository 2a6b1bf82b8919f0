"""Smaller cases that fail as a given one does.

A case is the choices that made it; fewer and smaller choices make a smaller model, as in hypothesis, which cannot begin with
a case that is already at hand.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from tests.oracle.case import Case
from tests.oracle.generate import replayed_case


def shrink(
    family: str, trail: Sequence[int], fails: Callable[[Case], bool], seconds: float = 20.0
) -> tuple[Case, list[int]]:
    """The smallest found in the time; ``fails`` says whether a case still shows the same."""
    best = list(trail)
    end = time.monotonic() + seconds
    improved = True
    while improved:
        improved = False
        for smaller in _smaller(best):
            if time.monotonic() > end:
                return replayed_case(family, best)
            used = _failing(family, smaller, fails)
            if used is not None and _size(used) < _size(best):
                best, improved = used, True
                break
    return replayed_case(family, best)


def _failing(family: str, trail: Sequence[int], fails: Callable[[Case], bool]) -> list[int] | None:
    """The choices that were used, if the case can be made and fails."""
    with contextlib.suppress(Exception):  # choices that make no model
        case, used = replayed_case(family, trail)
        if fails(case):
            return used
    return None


def _size(trail: Sequence[int]) -> tuple[int, int]:
    return len(trail), sum(trail)


def _smaller(trail: list[int]) -> Iterator[list[int]]:
    """The rest gone, stretches gone, stretches plain, single choices plain or halved."""
    length = len(trail)
    for keep in sorted({length // 2, 3 * length // 4, length - 1}):
        yield trail[:keep]
    for width in (8, 4, 2, 1):
        for start in range(0, length, width):
            yield trail[:start] + trail[start + width :]
    for width in (8, 4, 2, 1):
        for start in range(0, length, width):
            if any(trail[start : start + width]):
                yield trail[:start] + [0] * len(trail[start : start + width]) + trail[start + width :]
    for place, value in enumerate(trail):
        if value > 1:
            yield [*trail[:place], value // 2, *trail[place + 1 :]]
            yield [*trail[:place], value - 1, *trail[place + 1 :]]
