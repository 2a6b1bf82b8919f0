"""Bounding symbolic sizes by ``c * unit``, so that buffers of different symbolic sizes can be packed like constant ones.

A feature map of a picture is ``batch * ((h + 1) // 2) * ((w + 1) // 2) * 64`` bytes, the next one halves both again.
With ``q = max(1, ceil(h / 32))`` every one of them is at most a number times ``batch * q(h) * q(w)``: the sizes grow with ``h``, so
each is at most its value at ``32 * q``, where the floor divisions come out even.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared_ir.expr import Binary, BinaryOp, Const, Expr, Var, ceil_div, lift, maximum
from shared_ir.expr.dim import Dim, as_dim, bind, dim_symbols
from shared_ir.expr.polynomials import Polynomial
from shared_ir.expr.simplify import unbounded

STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Multiples to which symbols may be rounded up, tried in order: products of strides and the odd pooling by three."""

Powers = tuple[tuple[str, int], ...]
"""A product of powers of symbols, ``(("batch", 1), ("h", 2))``."""


@dataclass(frozen=True)
class Bound:
    """``size <= count * unit`` where ``unit`` is the product of ``powers`` of rounded symbols."""

    count: int
    powers: Powers


@dataclass(frozen=True)
class Units:
    """How the symbols of a model are rounded.

    ``rounded`` maps a symbol to the expression that stands for it in units: itself, or ``max(1, ceil(s / step))``.
    """

    rounded: Mapping[str, Expr]

    def expression(self, powers: Powers) -> Expr:
        total: Expr = lift(1)
        for name, power in powers:
            for _ in range(power):
                total = total * self.rounded[name]
        return total


def bound_sizes(sizes: Sequence[Dim]) -> tuple[Units, tuple[Bound, ...]] | None:
    """A bound for every size, in common units; ``None`` when a size may shrink as a symbol grows, or rounds unevenly."""
    distinct = tuple(dict.fromkeys(sizes))
    found = _bound_distinct(distinct) if all(_grows(lift(s)) for s in distinct) else None
    if found is None:
        return None
    units, bounds = found
    by_size = dict(zip(distinct, bounds, strict=True))
    return units, tuple(by_size[s] for s in sizes)


def _bound_distinct(sizes: Sequence[Dim]) -> tuple[Units, tuple[Bound, ...]] | None:
    rounded: dict[str, Expr] = {}
    exact: set[str] = set()
    left = list(sizes)
    for name in sorted(dim_symbols(sizes)):
        if _is_plain_factor(name, left):
            rounded[name] = Var(name)
            exact.add(name)
            continue
        step = next((s for s in STEPS if _is_even(name, s, left)), None)
        if step is None:
            return None
        left = [bind(s, {name: Var(name) * step}) for s in left]
        rounded[name] = maximum(ceil_div(Var(name), step), 1)
    bounds = [_bound(s, exact) for s in left]
    found = tuple(b for b in bounds if b is not None)
    return (Units(rounded), found) if len(found) == len(sizes) else None


def _grows(root: Expr) -> bool:
    """Whether it never shrinks as a symbol grows, as far as its form tells; it is then >= 0 as well, or a constant."""
    pending, seen = [root], {root}
    while pending:
        parts = _growing_parts(pending.pop())
        if parts is None:
            return False
        pending += [part for part in parts if part not in seen]
        seen.update(parts)
    return True


def _growing_parts(expr: Expr) -> tuple[Expr, ...] | None:
    """What must grow for ``expr`` to grow; None where that is not enough."""
    match expr:
        case Const() | Var():
            return ()
        case Binary(op=BinaryOp.MUL, lhs=lhs, rhs=rhs):
            return None if _is_negative(lhs) or _is_negative(rhs) else (lhs, rhs)
        case Binary(op=BinaryOp.ADD | BinaryOp.MIN | BinaryOp.MAX, lhs=lhs, rhs=rhs):
            return lhs, rhs
        case Binary(op=BinaryOp.SUB, lhs=lhs, rhs=Const()):
            return (lhs,)
        case Binary(op=BinaryOp.FLOOR_DIV, lhs=lhs, rhs=Const(value=value)) if int(value) > 0:
            return (lhs,)
    return None


def _is_negative(expr: Expr) -> bool:
    low, _ = unbounded().interval(expr)
    return low is None or low < 0


def _polynomial(size: Dim) -> Polynomial:
    return unbounded().polynomial(lift(size))


def _is_plain_factor(name: str, sizes: Sequence[Dim]) -> bool:
    """Whether every size is either free of the symbol, or the product of a power of it with something free of it."""
    for size in sizes:
        powers = set()
        for monomial in _polynomial(size):
            if any(not isinstance(a, Var) and name in dim_symbols([a]) for a in monomial):
                return False
            powers.add(sum(a == Var(name) for a in monomial))
        if len(powers) > 1:
            return False
    return True


def _is_even(name: str, step: int, sizes: Sequence[Dim]) -> bool:
    """Whether no division or extremum over the symbol is left when it is a multiple of ``step``."""
    bound = (bind(s, {name: Var(name) * step}) for s in sizes)
    atoms = (a for s in bound for monomial in _polynomial(s) for a in monomial)
    return not any(not isinstance(a, Var) and name in dim_symbols([a]) for a in atoms)


def _bound(size: Dim, exact: set[str]) -> Bound | None:
    """Terms with negative coefficients are dropped; missing factors that are at least 1 are filled in."""
    terms = {m: c for m, c in _polynomial(size).items() if c > 0}
    powers: Counter[str] = Counter()
    for monomial in terms:
        own = Counter(a.name for a in monomial if isinstance(a, Var))
        if sum(own.values()) != len(monomial):
            return None
        powers |= own
    if any(own[s] != powers[s] for own in map(_names, terms) for s in exact):
        return None
    return Bound(sum(terms.values()), tuple(sorted(powers.items())))


def _names(monomial: Sequence[Expr]) -> Counter[str]:
    return Counter(a.name for a in monomial if isinstance(a, Var))


def covers(large: Powers, small: Powers, exact: set[str]) -> bool:
    """Whether ``unit(small) <= unit(large)`` for all sizes: rounded symbols are at least 1, exact ones may be 0."""
    big, little = dict(large), dict(small)
    names = big.keys() | little.keys()
    return all(big.get(n, 0) == little.get(n, 0) if n in exact else big.get(n, 0) >= little.get(n, 0) for n in names)


def exact_symbols(units: Units) -> set[str]:
    return {n for n, e in units.rounded.items() if as_dim(e) == Var(n)}
