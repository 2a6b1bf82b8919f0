"""Whether an inequality of sizes and loop variables follows from what holds where it is asked: linear arithmetic over the rationals.

By contradiction. ``goal >= 0`` follows from rows ``r_i >= 0`` where they and ``-goal - 1 >= 0`` (these are integers) have no solution; and
by Farkas' lemma a system of rows has none exactly when some sum of them, each with a factor of at least 0, is a number below 0. Such
factors are looked for with the simplex method in exact numbers; by Bland's rule it ends. Products are unknowns of their own, and so
are quotients, remainders and extrema, of which their definitions are added as rows: ``c * (x // c) <= x < c * (x // c) + c``,
``x % c = x - c * (x // c)``, ``min(a, b) <= a`` and ``<= b``. That an extremum is one of its sides is looked at by cases, and that
``x // c`` is at least 0 where ``x`` is, which holds of integers alone, by a proof of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from shared_ir.expr import Binary, BinaryOp, Const, Expr, lift
from shared_ir.expr.polynomials import Monomial, Polynomial, sum_of
from shared_ir.expr.simplify import Simplifier

_MOST_CASES = 4
"""Extrema that are told apart within each other."""
_MOST_ROWS = 120
_MOST_PIVOTS = 500


def is_sum(expr: Expr) -> bool:
    return isinstance(expr, Binary) and expr.op in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL)


def rows_of(fact: Binary) -> tuple[Expr, ...]:
    """What is at least 0 where a comparison of integers holds."""
    lhs, rhs = fact.lhs, fact.rhs
    match fact.op:
        case BinaryOp.LT:
            return (rhs - lhs - 1,)
        case BinaryOp.LE:
            return (rhs - lhs,)
        case BinaryOp.GT:
            return (lhs - rhs - 1,)
        case BinaryOp.GE:
            return (lhs - rhs,)
        case BinaryOp.EQ:
            return (lhs - rhs, rhs - lhs)
    return ()


class KnownFacts:
    """What holds at a place.

    Args:
        facts: each is at least 0, an integer that does not wrap.
    """

    def __init__(self, facts: Sequence[Expr], simplifier: Simplifier) -> None:
        self._simplifier = simplifier
        self._facts = [self._with_definitions(simplifier.polynomial(fact)) for fact in facts]
        self._naturals: dict[Binary, bool] = {}
        """Quotients that were looked at, and whether they are at least 0."""

    def proves(self, goal: Expr) -> bool:
        """Whether ``goal >= 0`` follows; False says nothing."""
        rows = self._against(goal)
        if is_contradiction(rows):
            return True
        for quotient in sorted(_atoms(rows, BinaryOp.FLOOR_DIV), key=lambda e: e.depth):
            if quotient not in self._naturals:  # those within it are known by now
                self._naturals[quotient] = _divisor(quotient) > 0 and self._is_refuted(self._against(quotient.lhs))
        return self._is_refuted(rows)

    def _against(self, goal: Expr) -> list[Polynomial]:
        """Rows without a solution where ``goal`` is at least 0: that it is not, the facts that have to do with it, and definitions."""
        found, unknowns = self._with_definitions(sum_of({(): -1}, self._simplifier.polynomial(goal), -1))
        rows, count = dict.fromkeys(map(_key, found)), 0
        while count < len(unknowns):
            count = len(unknowns)
            for own, others in self._facts:
                if not unknowns.isdisjoint(others):
                    rows.update(dict.fromkeys(map(_key, own)))
                    unknowns |= others
        return [dict(row) for row in rows]

    def _with_definitions(self, row: Polynomial) -> tuple[list[Polynomial], set[Monomial]]:
        """``row`` and what defines its unknowns and theirs; and all of them."""
        rows, unknowns = [row], set[Monomial]()
        for each in rows:  # which grow meanwhile
            for monomial in each:
                if monomial and monomial not in unknowns and len(rows) <= _MOST_ROWS:
                    unknowns.add(monomial)
                    rows += self._definition(monomial)
        return rows, unknowns

    def _definition(self, monomial: Monomial) -> Iterator[Polynomial]:
        polynomial, bounds = self._simplifier.polynomial, [self._simplifier.interval(atom) for atom in monomial]
        if len(monomial) > 1:
            if all(low is not None and low >= 0 for low, _ in bounds):
                yield {monomial: 1}
            return
        ((low, high),) = bounds
        if low is not None:
            yield sum_of({monomial: 1}, {(): low}, -1) if low else {monomial: 1}
        if high is not None:
            yield sum_of({(): high} if high else {}, {monomial: 1}, -1)
        match monomial[0]:
            case Binary(op=BinaryOp.FLOOR_DIV, lhs=lhs) as atom if (divisor := _divisor(atom)) > 0:
                rest = sum_of(polynomial(lhs), {monomial: divisor}, -1)
                yield rest
                yield sum_of({(): divisor - 1}, rest, -1)
            case Binary(op=BinaryOp.FLOOR_MOD, lhs=lhs, rhs=rhs) as atom if (divisor := _divisor(atom)) > 0:
                multiple = polynomial(Binary(BinaryOp.FLOOR_DIV, lhs, rhs) * lift(divisor))
                whole = sum_of(multiple, {monomial: 1}, 1)
                yield sum_of(polynomial(lhs), whole, -1)
                yield sum_of(whole, polynomial(lhs), -1)
            case Binary(op=BinaryOp.MIN, lhs=lhs, rhs=rhs):
                yield from (sum_of(polynomial(side), {monomial: 1}, -1) for side in (lhs, rhs))
            case Binary(op=BinaryOp.MAX, lhs=lhs, rhs=rhs):
                yield from (sum_of({monomial: 1}, polynomial(side), -1) for side in (lhs, rhs))

    def _is_refuted(self, rows: list[Polynomial]) -> bool:
        naturals: list[Polynomial] = [{(q,): 1} for q in _atoms(rows, BinaryOp.FLOOR_DIV) if self._naturals.get(q)]
        rows = [*rows, *naturals]
        return self._has_none(rows, _atoms(rows, BinaryOp.MIN, BinaryOp.MAX), _MOST_CASES)

    def _has_none(self, rows: list[Polynomial], extrema: list[Binary], cases: int) -> bool:
        """Whether nothing is a solution of ``rows``, in which ``extrema`` may be either side."""
        if is_contradiction(rows):
            return True
        if not extrema or not cases:
            return False
        first, rest = extrema[0], extrema[1:]
        for side in (first.lhs, first.rhs):  # beside its definition one row more says that it is this one
            beyond = sum_of(self._simplifier.polynomial(side), {(first,): 1}, -1)
            row = beyond if first.op is BinaryOp.MAX else sum_of({}, beyond, -1)
            if not self._has_none([*rows, row], rest, cases - 1):
                return False
        return True


def _key(row: Polynomial) -> tuple[tuple[Monomial, int], ...]:
    """Rows that follow from several facts are taken once."""
    return tuple(row.items())


def _divisor(expr: Binary) -> int:
    """What is divided by; 0 where that is no number."""
    return int(expr.rhs.value) if isinstance(expr.rhs, Const) else 0


def _atoms(rows: Sequence[Polynomial], *ops: BinaryOp) -> list[Binary]:
    found = dict.fromkeys(monomial[0] for row in rows for monomial in row if len(monomial) == 1)
    return [e for e in found if isinstance(e, Binary) and e.op in ops]


def is_contradiction(rows: Sequence[Polynomial]) -> bool:
    """Whether a sum of ``rows``, each taken at least 0 times, is a number below 0: then not all of them are at least 0."""
    if len(rows) > _MOST_ROWS:
        return False
    unknowns = dict.fromkeys(monomial for row in rows for monomial in row if monomial)
    # One equation for each unknown, which must vanish, and one for the number, which must be -1; an unknown factor for each row.
    table = [[row.get(monomial, 0) for row in rows] + [0] for monomial in unknowns]
    table.append([-row.get((), 0) for row in rows] + [1])
    return _is_solvable(table)


def _is_solvable(table: list[list[int]]) -> bool:
    """Whether ``A x = b`` has a solution ``x >= 0``, of rows ``(*A_i, b_i)`` with ``b_i >= 0``: the first phase of the simplex method,
    which takes the sum of what each equation lacks to 0. A row stands for itself times any positive number, so that all are integers."""
    columns = len(table[0]) - 1
    lacking = [sum(column) for column in zip(*table, strict=True)]
    basis = [-1] * len(table)
    for _ in range(_MOST_PIVOTS):
        if lacking[-1] == 0:
            return True
        entering = next((j for j in range(columns) if lacking[j] > 0), None)
        if entering is None:
            return False
        ratios = [(Fraction(row[-1], row[entering]), basis[i], i) for i, row in enumerate(table) if row[entering] > 0]
        _, _, leaving = min(ratios)  # of equals the first, as Bland's rule says, but what is lacked before all
        pivot = table[leaving]
        table = [row if row is pivot else _cleared(row, pivot, entering) for row in table]
        lacking = _cleared(lacking, pivot, entering)
        basis[leaving] = entering
    return False


def _cleared(row: list[int], pivot: list[int], column: int) -> list[int]:
    """``row`` without ``column``, by a multiple of ``pivot``."""
    factor, own = row[column], pivot[column]
    if not factor:
        return row
    cleared = [value * own - factor * other for value, other in zip(row, pivot, strict=True)]
    common = math.gcd(*cleared)
    return [value // common for value in cleared] if common > 1 else cleared
