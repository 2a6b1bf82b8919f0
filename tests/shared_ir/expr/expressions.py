"""Random integer expressions, and what they mean: the oracle is Python's own arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from shared_ir.expr import Binary, BinaryOp, Const, Expr, Select, Var
from shared_ir.expr import binary as make_binary
from shared_ir.expr import select as make_select

NAMES = ("a", "b", "c", "d")
_MEANING: dict[BinaryOp, Callable[[int, int], int | bool]] = {
    BinaryOp.ADD: lambda x, y: x + y,
    BinaryOp.SUB: lambda x, y: x - y,
    BinaryOp.MUL: lambda x, y: x * y,
    BinaryOp.FLOOR_DIV: lambda x, y: x // y,
    BinaryOp.FLOOR_MOD: lambda x, y: x % y,
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
    BinaryOp.LT: lambda x, y: x < y,
    BinaryOp.LE: lambda x, y: x <= y,
    BinaryOp.GT: lambda x, y: x > y,
    BinaryOp.GE: lambda x, y: x >= y,
    BinaryOp.EQ: lambda x, y: x == y,
    BinaryOp.NE: lambda x, y: x != y,
    BinaryOp.AND: lambda x, y: x and y,
    BinaryOp.OR: lambda x, y: x or y,
}
_LINEAR = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL)
_DIVIDING = (BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD)
_COMPARING = (BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE, BinaryOp.EQ, BinaryOp.NE)


def value_of(expr: Expr, values: Mapping[str, int]) -> int | bool:
    """The mathematical value; ZeroDivisionError where there is none."""
    match expr:
        case Const(value=value):
            assert not isinstance(value, float)
            return value
        case Var(name=name):
            return values[name]
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return _MEANING[op](value_of(lhs, values), value_of(rhs, values))
        case Select(cond=cond, then=then, otherwise=otherwise):
            return value_of(then if value_of(cond, values) else otherwise, values)
    raise AssertionError(f"no meaning for {expr!r}")


def _grow(inner: st.SearchStrategy[Expr], raw: bool) -> st.SearchStrategy[Expr]:
    build = Binary if raw else make_binary
    positive = st.integers(1, 9).map(Const)
    condition = st.builds(build, st.sampled_from(_COMPARING), inner, inner)
    return st.one_of(
        st.builds(build, st.sampled_from((*_LINEAR, BinaryOp.MIN, BinaryOp.MAX)), inner, inner),
        st.builds(build, st.sampled_from(_DIVIDING), inner, st.one_of(positive, inner)),
        st.builds(Select if raw else make_select, condition, inner, inner),
    )


def expressions(raw: bool = False, max_leaves: int = 10) -> st.SearchStrategy[Expr]:
    """int64 expressions over :data:`NAMES`; ``raw`` ones are built without folding."""
    leaves = st.one_of(st.integers(-6, 12).map(Const), st.sampled_from(NAMES).map(Var))
    return st.recursive(leaves, lambda inner: _grow(inner, raw), max_leaves=max_leaves)


def dim_expressions(max_leaves: int = 8) -> st.SearchStrategy[Expr]:
    """Expressions of the kind that shape arithmetic gives: divisors are positive."""
    leaves = st.one_of(st.integers(-4, 9).map(Const), st.sampled_from(NAMES).map(Var))
    positive = st.one_of(st.integers(1, 9).map(Const), st.sampled_from(NAMES).map(lambda n: Var(n) + 1))

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(make_binary, st.sampled_from((*_LINEAR, BinaryOp.MIN, BinaryOp.MAX)), inner, inner),
            st.builds(make_binary, st.sampled_from(_DIVIDING), inner, positive),
        )

    return st.recursive(leaves, grow, max_leaves=max_leaves)


assignments = st.fixed_dictionaries({name: st.integers(0, 40) for name in NAMES})
