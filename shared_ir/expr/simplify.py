"""Normal form of integer expressions: one simplifier for symbolic dims and loop indices.

An int64 expression is brought to a polynomial, ``sum(coefficient * product(atoms)) + constant``, where an atom is
a variable, a floor division, a modulo, a min/max, or anything opaque (loads, casts). Equal polynomials print
equal, so the difference of two dims is the constant 0 exactly when they are equal as polynomials.
Variables stand for integers >= 0 unless ``ranges`` says otherwise.

Sizes and indices do not overflow; elements of tensors may, and then wrap. Sums and products of them are still equal modulo
2 ** 64, but quotients and orders are not those of the integers: what is read is left as it is written there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from shared_ir.dtype import DType
from shared_ir.expr import (
    COMPARISONS,
    RECURSIVE_LEVELS,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    UnaryOp,
    Var,
    binary,
    landings,
    select,
)
from shared_ir.expr.polynomials import TEXT, Monomial, Polynomial, expression_of, product_of, split_multiples, sum_of

Interval = tuple[int | None, int | None]
"""Inclusive bounds; ``None`` is unbounded."""


_MOST_REMEMBERED = 1 << 17
_BEYOND = 1 << 63
"""More than int64 holds: divisors stay below."""

_EQUALITIES = (BinaryOp.EQ, BinaryOp.NE)
_LINEAR = frozenset({BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL})


def simplify(expr: Expr, ranges: Mapping[str, Interval] | None = None) -> Expr:
    """``expr`` in normal form, using ``ranges`` (inclusive bounds of variables) where they help."""
    return Simplifier(ranges)(expr) if ranges else unbounded()(expr)


def unbounded() -> Simplifier:
    """The one simplification that knows nothing of variables but that they are >= 0. Sizes are made of sizes, layer by layer:
    it remembers what it has seen, but for what is long ago."""
    global _unbounded
    if len(_unbounded._memo) + len(_unbounded._polynomials) > _MOST_REMEMBERED:
        _unbounded = Simplifier({})
    return _unbounded


def total(sizes: Iterable[Expr | int]) -> Expr:
    """Their sum in normal form."""
    simplifier, terms = unbounded(), Counter[Monomial]()
    for size, times in Counter(sizes).items():
        if isinstance(size, int):
            terms[()] += size * times
            continue
        for monomial, coefficient in simplifier.polynomial(size).items():
            terms[monomial] += coefficient * times
    return expression_of({m: c for m, c in terms.items() if c})


@dataclass
class Simplifier:
    """A simplification under fixed variable ranges; remembers what it has already simplified."""

    ranges: Mapping[str, Interval]
    _memo: dict[Expr, Expr] = field(default_factory=dict)
    _bounds: dict[Expr, Interval] = field(default_factory=dict)
    _polynomials: dict[Expr, Polynomial] = field(default_factory=dict)

    # What is called from outside is prepared for expressions that are deeper than Python's stack.

    def __call__(self, expr: Expr) -> Expr:
        found = self._memo.get(expr)
        if found is None:
            for part in landings(expr, self._memo):
                self._simplified(part)
            found = self._simplified(expr)
        return found

    def polynomial(self, expr: Expr) -> Polynomial:
        """The terms of an int64 expression. The result must not be changed."""
        found = self._polynomials.get(expr)
        if found is None:
            for part in landings(expr, self._polynomials):
                self._simplified(part) if part.dtype is not DType.INT64 else self._terms(part)
            found = self._terms(expr)
        return found

    def interval(self, expr: Expr) -> Interval:
        """Inclusive bounds of an int64 expression under the ranges of its variables."""
        found = self._bounds.get(expr)
        if found is None:
            if expr.depth > RECURSIVE_LEVELS:
                self.polynomial(expr)
                for part in landings(expr, self._bounds):
                    self._interval_of(part)
            found = self._interval_of(expr)
        return found

    def _simplified(self, expr: Expr) -> Expr:
        found = self._memo.get(expr)
        if found is None:
            found = self._memo[expr] = self._rewrite(expr)
            self._memo[found] = found
        return found

    def _rewrite(self, expr: Expr) -> Expr:
        if isinstance(expr, (Const, Var)):
            return expr
        if expr.dtype is DType.INT64 and isinstance(expr, Binary):
            if expr.op in _LINEAR:
                return self._normal(self._terms(expr))
            return self._division_or_extremum(expr.op, self._simplified(expr.lhs), self._simplified(expr.rhs))
        node = expr.with_children(tuple(self._simplified(c) for c in expr.children()))
        match node:
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in COMPARISONS and lhs.dtype is DType.INT64:
                return self._comparison(op, lhs, rhs)
            case Unary(op=UnaryOp.NOT, x=Const(value=value)):
                return Const(not value, DType.BOOL)
            case Select(cond=cond, then=then, otherwise=otherwise):
                return select(cond, then, otherwise)
        return node

    # -- polynomials

    def _normal(self, terms: Polynomial) -> Expr:
        """The expression of ``terms``, which are remembered as its own."""
        found = expression_of(terms)
        self._polynomials.setdefault(found, terms)
        return found

    def _terms(self, expr: Expr) -> Polynomial:
        found = self._polynomials.get(expr)
        if found is None:
            found = self._polynomials[expr] = self._polynomial(expr)
        return found

    def _polynomial(self, expr: Expr) -> Polynomial:
        match expr:
            case Const(value=value):
                return {(): int(value)} if value else {}
            case Binary(op=BinaryOp.ADD, lhs=lhs, rhs=rhs):
                return sum_of(self._terms(lhs), self._terms(rhs), 1)
            case Binary(op=BinaryOp.SUB, lhs=lhs, rhs=rhs):
                return sum_of(self._terms(lhs), self._terms(rhs), -1)
            case Binary(op=BinaryOp.MUL, lhs=lhs, rhs=rhs):
                return product_of(self._terms(lhs), self._terms(rhs))
            case Var():
                return {(expr,): 1}
        atom = self._simplified(expr)
        if isinstance(atom, Const) or (isinstance(atom, Binary) and atom.op in _LINEAR and atom.dtype is DType.INT64):
            return self._terms(atom)
        return {(atom,): 1}

    def _division_or_extremum(self, op: BinaryOp, lhs: Expr, rhs: Expr) -> Expr:
        match op:
            case BinaryOp.FLOOR_DIV:
                return self._floor_div(lhs, rhs)
            case BinaryOp.FLOOR_MOD:
                return self._floor_mod(lhs, rhs)
            case BinaryOp.MIN | BinaryOp.MAX:
                return self._extremum(op, lhs, rhs)
        return binary(op, lhs, rhs)

    def _floor_div(self, lhs: Expr, rhs: Expr) -> Expr:
        if self._may_wrap(lhs) or self._may_wrap(rhs):
            return binary(BinaryOp.FLOOR_DIV, lhs, rhs)
        whole, rest = split_multiples(self._terms(lhs), self._terms(rhs))
        if rest is None:
            return self._normal(whole)
        remainder = self._normal(rest)
        if self._within(remainder, rhs):  # (q*c + r) // c -> q when 0 <= r < c
            return self._normal(whole)
        if isinstance(rhs, Const) and int(rhs.value) > 0:
            quotient = self._reduced_quotient(rest, int(rhs.value))
        else:
            quotient = binary(BinaryOp.FLOOR_DIV, remainder, rhs)
        return self._normal(sum_of(whole, self._atom_terms(quotient), 1))

    def _reduced_quotient(self, rest: Polynomial, divisor: int) -> Expr:
        """``rest // divisor`` with the common factor of the variable terms taken out."""
        factor = math.gcd(divisor, *(c for m, c in rest.items() if m))
        if factor > 1:  # (g*x + k) // (g*d) -> (x + k // g) // d
            rest = {m: c // factor for m, c in rest.items() if m or c // factor}
            divisor //= factor
        if divisor == 1:
            return self._normal(rest)
        numerator = self._normal(rest)
        match numerator:
            case Binary(op=BinaryOp.FLOOR_DIV, lhs=inner, rhs=Const(value=first)) if (
                0 < int(first) < _BEYOND // divisor
            ):
                return self._simplified(
                    binary(BinaryOp.FLOOR_DIV, inner, Const(int(first) * divisor))
                )  # x//a//b -> x//(a*b)
        low, high = self._interval_of(numerator)
        if low is not None and high is not None and low // divisor == high // divisor:
            return Const(low // divisor)
        return binary(BinaryOp.FLOOR_DIV, numerator, Const(divisor))

    def _floor_mod(self, lhs: Expr, rhs: Expr) -> Expr:
        if self._may_wrap(lhs) or self._may_wrap(rhs):
            return binary(BinaryOp.FLOOR_MOD, lhs, rhs)
        _, rest = split_multiples(self._terms(lhs), self._terms(rhs))
        if rest is None:
            return Const(0)
        remainder = self._normal(rest)
        if self._within(remainder, rhs):  # r % c -> r when 0 <= r < c
            return remainder
        return binary(BinaryOp.FLOOR_MOD, remainder, rhs)

    def _atom_terms(self, expr: Expr) -> Polynomial:
        return self._terms(expr) if _is_linear(expr) else {(expr,): 1}

    def _may_wrap(self, expr: Expr) -> bool:
        """Whether an element of a tensor is a term of it."""
        return any(_is_element(atom) for monomial in self._terms(expr) for atom in monomial)

    def _extremum(self, op: BinaryOp, lhs: Expr, rhs: Expr) -> Expr:
        low, high = (None, None) if self._wraps_apart(lhs, rhs) else self._difference(lhs, rhs)
        smaller, larger = (lhs, rhs) if op is BinaryOp.MIN else (rhs, lhs)
        if high is not None and high <= 0:  # lhs <= rhs
            return smaller
        if low is not None and low >= 0:
            return larger
        return binary(op, *sorted((lhs, rhs), key=TEXT))

    def _wraps_apart(self, lhs: Expr, rhs: Expr) -> bool:
        """Whether the order of two expressions is not that of their difference."""
        return lhs != rhs and (self._may_wrap(lhs) or self._may_wrap(rhs))

    def _comparison(self, op: BinaryOp, lhs: Expr, rhs: Expr) -> Expr:
        if op not in _EQUALITIES and self._wraps_apart(lhs, rhs):
            return binary(op, lhs, rhs)
        low, high = self._difference(lhs, rhs)
        verdict = _COMPARE[op](low, high)
        if verdict is not None:
            return Const(verdict, DType.BOOL)
        return binary(op, lhs, rhs)

    def _within(self, value: Expr, divisor: Expr) -> bool:
        low, _ = self._interval_of(value)
        _, above = self._difference(value, divisor)
        return low is not None and low >= 0 and above is not None and above < 0

    def _difference(self, lhs: Expr, rhs: Expr) -> Interval:
        return self._polynomial_interval(sum_of(self._terms(lhs), self._terms(rhs), -1))

    # -- intervals

    def _interval_of(self, expr: Expr) -> Interval:
        found = self._bounds.get(expr)
        if found is None:
            found = self._bounds[expr] = self._interval(expr)
        return found

    def _interval(self, expr: Expr) -> Interval:
        match expr:
            case Const(value=value):
                return int(value), int(value)
            case Var(name=name):
                return self.ranges.get(name, (0, None))
            case Binary(op=op) if op in _LINEAR:
                return self._polynomial_interval(self._terms(expr))
            case Binary(op=BinaryOp.FLOOR_DIV, lhs=lhs, rhs=Const(value=c)) if int(c) > 0:
                low, high = self._interval_of(lhs)
                return None if low is None else low // int(c), None if high is None else high // int(c)
            case Binary(op=BinaryOp.FLOOR_DIV, lhs=lhs, rhs=rhs):
                (low, high), (least, _) = self._interval_of(lhs), self._interval_of(rhs)
                known = low is not None and low >= 0 and least is not None and least >= 0
                return (0, high) if known else (None, None)
            case Binary(op=BinaryOp.FLOOR_MOD, rhs=rhs):
                return _remainders(self._interval_of(rhs))
            case Binary(op=BinaryOp.MIN, lhs=lhs, rhs=rhs):
                first, second = self._interval_of(lhs), self._interval_of(rhs)
                return _least(first[0], second[0]), _tightest(min, first[1], second[1])
            case Binary(op=BinaryOp.MAX, lhs=lhs, rhs=rhs):
                first, second = self._interval_of(lhs), self._interval_of(rhs)
                return _tightest(max, first[0], second[0]), _greatest(first[1], second[1])
            case Select(then=then, otherwise=otherwise):
                first, second = self._interval_of(then), self._interval_of(otherwise)
                return _least(first[0], second[0]), _greatest(first[1], second[1])
        return None, None

    def _polynomial_interval(self, poly: Polynomial) -> Interval:
        low: int | None = 0
        high: int | None = 0
        for monomial, coefficient in poly.items():
            a, b = _scale(self._monomial_interval(monomial), coefficient)
            low = None if low is None or a is None else low + a
            high = None if high is None or b is None else high + b
        return low, high

    def _monomial_interval(self, monomial: Monomial) -> Interval:
        low: int | None = 1
        high: int | None = 1
        for atom in monomial:
            a, b = self._interval_of(atom)
            if a is None or a < 0 or low is None:
                if len(monomial) == 1:
                    return a, b
                return None, None
            low = low * a
            high = None if high is None or b is None else high * b
        return low, high


_unbounded = Simplifier({})


def _is_element(atom: Expr) -> bool:
    """Whether ``atom`` is read from a tensor as it is, or made of what is: any number of 64 bits."""
    if isinstance(atom, Cast):
        return atom.x.dtype.bits == 64
    return not isinstance(atom, (Var, Binary, Select))


def _is_linear(expr: Expr) -> bool:
    return isinstance(expr, Const) or (isinstance(expr, Binary) and expr.op in _LINEAR)


def _remainders(divisor: Interval) -> Interval:
    """Bounds of ``x % d``, which takes the sign of the divisor."""
    low, high = divisor
    return (
        0 if low is not None and low >= 0 else None if low is None else low + 1,
        0 if high is not None and high <= 0 else None if high is None else high - 1,
    )


def _least(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(a, b)


def _greatest(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(a, b)


def _tightest(pick: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else pick(a, b)


def _scale(interval: Interval, factor: int) -> Interval:
    low, high = interval if factor >= 0 else (interval[1], interval[0])
    return None if low is None else low * factor, None if high is None else high * factor


_COMPARE: dict[BinaryOp, Callable[[int | None, int | None], bool | None]] = {
    BinaryOp.LT: lambda lo, hi: True if hi is not None and hi < 0 else False if lo is not None and lo >= 0 else None,
    BinaryOp.LE: lambda lo, hi: True if hi is not None and hi <= 0 else False if lo is not None and lo > 0 else None,
    BinaryOp.GT: lambda lo, hi: True if lo is not None and lo > 0 else False if hi is not None and hi <= 0 else None,
    BinaryOp.GE: lambda lo, hi: True if lo is not None and lo >= 0 else False if hi is not None and hi < 0 else None,
    BinaryOp.EQ: lambda lo, hi: _equality(lo, hi),
    BinaryOp.NE: lambda lo, hi: None if _equality(lo, hi) is None else not _equality(lo, hi),
}
"""Verdict on ``lhs op rhs`` from the bounds of ``lhs - rhs``; ``None`` when they do not decide it."""


def _equality(low: int | None, high: int | None) -> bool | None:
    if low == 0 and high == 0:
        return True
    return False if (low is not None and low > 0) or (high is not None and high < 0) else None
