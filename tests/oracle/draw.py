"""A source of choices that can be written down, replayed and made smaller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class Draw:
    """Every choice is one number below a bound; ``trail`` holds those made, and a trail given beforehand is followed.

    Where a trail ends, every further choice is the first option, so the first option of each choice should be the plainest.
    """

    def __init__(self, seed: Sequence[int] | int = 0, trail: Sequence[int] | None = None) -> None:
        self._random = np.random.default_rng(seed)
        self._given = None if trail is None else list(trail)
        self.trail: list[int] = []

    def below(self, bound: int) -> int:
        if self._given is None:
            found = int(self._random.integers(bound))
        else:
            place = len(self.trail)
            found = self._given[place] % bound if place < len(self._given) else 0
        self.trail.append(found)
        return found

    def integer(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both included."""
        return low + self.below(high - low + 1)

    def choose(self, options: Sequence[Any]) -> Any:
        return options[self.below(len(options))]

    def rarely(self, one_of: int = 4) -> bool:
        """True once in ``one_of`` times."""
        return self.below(one_of) == one_of - 1

    def flag(self) -> bool:
        return self.below(2) == 1

    def some(self, options: Sequence[Any], least: int = 0) -> list[Any]:
        """Some of the options, in their order."""
        kept = [o for o in options if self.flag()]
        return kept if len(kept) >= least else list(options[:least])

    def order(self, count: int) -> list[int]:
        """A permutation of ``range(count)``."""
        left, found = list(range(count)), []
        while left:
            found.append(left.pop(self.below(len(left))))
        return found

    def numbers(self) -> np.random.Generator:
        """A generator for the elements of one array; they count as one choice."""
        return np.random.default_rng(self.below(2**16))
