"""What a search is to the tuner: it proposes points, and is told what came of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from compiler_service.compiler.tune.search.point import Point

Rank: TypeAlias = Callable[[Sequence[Point]], Sequence[float]]
"""What a cost model expects of points, one number for each: the smaller, the faster."""


class Search(Protocol):
    """A way through a space. Points may be told that it did not propose (those of records, or of another search)."""

    def propose(self, count: int) -> Sequence[Point]:
        """Up to ``count`` points to measure next, none of which was proposed or told before. Empty: there are none left, unless what
        is still measured brings some."""

    def tell(self, point: Point, seconds: float | None) -> None:
        """That ``point`` took so long; None: it is no candidate (it was refused, crashed, was wrong or late)."""
