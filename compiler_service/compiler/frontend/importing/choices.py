"""Ifs whose branches differ in their number of axes, where the condition is an equality of dims, and Squeeze without axes.

``squeeze`` of an axis whose extent is a symbol is exported so. What follows has one number of axes or the other, so a graph holds one
of the two, and the run checks that it may. A model can be imported once for every way to choose (:mod:`variants`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared_ir.expr import equal, lift, select
from shared_ir.expr.dim import Dim, as_dim, dim_symbols

Pair = tuple[Dim, Dim]


@dataclass
class Choices:
    """Which of these dims are taken to be equal; who asks says what is taken of those that ``given`` does not name.

    Attributes:
        symbols: those of the inputs of the model; about others there is no choice before the run.
        met: the dims that were asked about, and what was chosen.
    """

    given: Mapping[Pair, bool] = field(default_factory=dict)
    symbols: frozenset[str] = frozenset()
    met: dict[Pair, bool] = field(default_factory=dict)

    def equals(self, pair: Pair, usual: bool) -> bool:
        """What is chosen for ``pair``: ``usual`` where there is no choice, or none was made."""
        if not dim_symbols(pair) <= self.symbols:
            return usual
        return self.met.setdefault(pair, self.given.get(pair, usual))


def chosen(pair: Pair, equals: bool) -> Dim:
    """1 where the dims are equal, or where they are not, if that is what was chosen; else 0."""
    return as_dim(select(equal(lift(pair[0]), lift(pair[1])), lift(int(equals)), lift(int(not equals))))
