"""Polynomials over expressions: sums of products with integer factors, by their monomials."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    binary,
    lift,
)

TEXT = attrgetter("text")
Monomial = tuple[Expr, ...]


Polynomial = dict[Monomial, int]


_MOST_IN_CHAIN = 64
_MOST_PRODUCTS = 1 << 20
_MOST_FACTORS = 1 << 10


def sum_of(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    total = dict(a)
    for monomial, coefficient in b.items():
        value = total.get(monomial, 0) + sign * coefficient
        if value:
            total[monomial] = value
        else:
            total.pop(monomial, None)
    return total


def product_of(a: Polynomial, b: Polynomial) -> Polynomial:
    """
    Raises:
        IngotError: LIMIT_EXCEEDED, it is larger than any arithmetic on sizes that means something.
    """
    degree = sum(max(map(len, side), default=0) for side in (a, b))
    if len(a) * len(b) > _MOST_PRODUCTS or degree > _MOST_FACTORS:
        raise IngotError(
            ErrorCode.LIMIT_EXCEEDED,
            "arithmetic on sizes is too large to be written out",
            expected=f"at most {_MOST_PRODUCTS} products of at most {_MOST_FACTORS} sizes",
            received=f"{len(a)} times {len(b)} terms, of up to {degree} sizes",
            remedy="Give sizes that are multiplied so often as numbers.",
        )
    total: Polynomial = {}
    for m, c in a.items():
        for n, d in b.items():
            key = tuple(sorted(m + n, key=TEXT)) if m and n else m or n
            value = total.get(key, 0) + c * d
            if value:
                total[key] = value
            else:
                total.pop(key, None)
    return total


def split_multiples(poly: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial | None]:
    """``poly = whole * divisor + rest`` taking whole terms only; ``rest`` is None when nothing is left.

    A divisor of several terms is handled when ``poly`` is an integer multiple of it.
    """
    if len(divisor) != 1:
        if divisor and poly and poly.keys() == divisor.keys():
            ratios = {c / divisor[m] for m, c in poly.items()}
            if len(ratios) == 1 and (ratio := ratios.pop()).is_integer():
                return {(): int(ratio)}, None
        return {}, poly or None
    ((atoms, factor),) = divisor.items()
    whole: Polynomial = {}
    rest: Polynomial = {}
    for monomial, coefficient in poly.items():
        left = _remove_atoms(monomial, atoms)
        if left is None:
            rest[monomial] = coefficient
            continue
        quotient, remainder = divmod(coefficient, factor)
        if quotient:
            whole[left] = quotient
        if remainder:
            rest[monomial] = remainder
    return whole, rest or None


def _remove_atoms(monomial: Monomial, atoms: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in atoms:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def expression_of(poly: Polynomial) -> Expr:
    """Terms in a fixed order: higher degree first, then by text, the constant last. Of many, sums are summed: what a size has to
    say of its parts would take the square of their number otherwise."""
    terms = sorted(poly.items(), key=lambda t: (-len(t[0]), [a.text for a in t[0]]))
    sums = [_chain(terms[i : i + _MOST_IN_CHAIN]) for i in range(0, len(terms), _MOST_IN_CHAIN)] or [Const(0)]
    while len(sums) > 1:
        pairs = [binary(BinaryOp.ADD, a, b) for a, b in zip(sums[::2], sums[1::2], strict=False)]
        sums = pairs + sums[len(sums) & ~1 :]
    return sums[0]


def _chain(terms: Sequence[tuple[Monomial, int]]) -> Expr:
    total: Expr = Const(0)
    for monomial, coefficient in terms:
        term = _term(monomial, abs(coefficient))
        if total == Const(0):
            total = term if coefficient > 0 else binary(BinaryOp.SUB, 0, term)
        else:
            total = binary(BinaryOp.ADD if coefficient > 0 else BinaryOp.SUB, total, term)
    return total


def _term(monomial: Monomial, coefficient: int) -> Expr:
    """``x * y * coefficient``"""
    term: Expr = Const(1)
    for atom in monomial:
        term = binary(BinaryOp.MUL, term, atom)
    return binary(BinaryOp.MUL, term, coefficient)


def with_remainders(terms: Polynomial) -> Expr:
    """The sum of ``terms`` with ``x - x % c`` in place of ``c * (x // c)``: a remainder has bounds where a difference of two sizes has
    none."""
    total = lift(0)
    for atoms, factor in terms.items():
        product = lift(1)
        for atom in atoms:
            match atom:
                case Binary(op=BinaryOp.FLOOR_DIV, lhs=x, rhs=Const(value=c)) if int(c) > 0 and factor % int(c) == 0:
                    product, factor = product * (x - x % int(c)), factor // int(c)
                case _:
                    product = product * atom
        total = total + product * factor
    return total
