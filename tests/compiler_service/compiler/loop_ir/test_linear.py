"""Proofs of inequalities by sums: what is proven holds of all numbers, and tails of blocks are proven."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_service.compiler.loop_ir.positions.linear import KnownFacts, is_contradiction, rows_of
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Expr, Var, lift, maximum, minimum
from shared_ir.expr.dim import as_dim
from shared_ir.expr.dim import evaluate as value_of
from shared_ir.expr.simplify import Simplifier

TASK, J, N = (Var(name, DType.INT64) for name in "ijn")
SIMPLIFIER = Simplifier({})


def evaluate(expr: Expr, numbers: Mapping[str, int]) -> int:
    return value_of(as_dim(expr), numbers)


def proves(goal: Expr, *facts: Expr) -> bool:
    return KnownFacts(facts, SIMPLIFIER).proves(goal)


REST = minimum(lift(640), N - TASK * 640)
"""What is left of a task's block of 640."""
IS_TASK = (N + 639) // 640 - 1 - TASK

TAILS: dict[str, tuple[Expr, tuple[Expr, ...]]] = {
    "the last row of a block": (N - 1 - (TASK * 640 + J), (REST - 1 - J,)),
    "a row of a whole tile": (N - 1 - (TASK * 640 + J), (REST // 64 * 64 - 1 - J,)),
    "a tile that a remainder has": (
        N - 1 - (TASK * 640 + REST // 64 * 64 + J),
        (REST % 64 // 32 - 1, lift(31) - J),
    ),
    "a row of the remainder": (N - 1 - (TASK * 640 + REST // 64 * 64 + J), (REST % 64 - 1 - J,)),
    "turned around": (TASK * 640 + REST // 64 * 64, (IS_TASK,)),
    "the larger of two": (maximum(TASK, J) - N, (TASK - N,)),
    "no more than the larger": (N - maximum(TASK, J), (N - TASK, N - J)),
    "an extremum on the other side": (minimum(TASK, J) - N, (TASK - N, J - N)),
}


@pytest.mark.parametrize("name", TAILS)
def test_tails_are_inside(name: str) -> None:
    goal, facts = TAILS[name]
    assert proves(goal, *facts)
    for at in range(len(facts)):
        assert not proves(goal, *facts[:at], *facts[at + 1 :]), "no fact is for nothing"
    assert not proves(goal - (640 + 1), *facts), "it says how far"


def test_a_contradiction_is_a_sum() -> None:
    x, y = (TASK,), (J,)
    assert is_contradiction([{x: 1, y: 1}, {x: -1, (): -1}, {y: -1}])
    assert not is_contradiction([{x: 1, y: 1}, {x: -1, (): 1}, {y: -1}])
    assert is_contradiction([{x: 2, (): -3}, {x: -2, (): 2}])
    assert not is_contradiction([{x: 2, (): -3}, {x: -1, (): 2}])
    assert not is_contradiction([])


def test_comparisons_are_rows() -> None:
    expected = {"<": -2, "<=": -1, ">": 0, ">=": 1}
    ops = {"<": BinaryOp.LT, "<=": BinaryOp.LE, ">": BinaryOp.GT, ">=": BinaryOp.GE}
    for name, value in expected.items():
        (row,) = rows_of(Binary(ops[name], lift(4), lift(3)))
        assert evaluate(row, {}) == value
    assert [evaluate(row, {}) for row in rows_of(Binary(BinaryOp.EQ, lift(4), lift(3)))] == [1, -1]
    assert rows_of(Binary(BinaryOp.NE, lift(4), lift(3))) == ()


def _grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    def both(make: Callable[[Expr, Expr], Expr]) -> st.SearchStrategy[Expr]:
        return st.tuples(inner, inner).map(lambda two: make(*two))

    divisors = st.integers(1, 5)
    return st.one_of(
        both(operator.add),
        both(operator.sub),
        both(minimum),
        both(maximum),
        st.tuples(inner, st.integers(-4, 4)).map(lambda two: two[0] * two[1]),
        st.tuples(inner, divisors).map(lambda two: two[0] // two[1]),
        st.tuples(inner, divisors).map(lambda two: two[0] % two[1]),
    )


SIZES = st.recursive(st.one_of(st.sampled_from([TASK, J, N]), st.integers(-6, 6).map(lift)), _grown, max_leaves=6)


@given(SIZES, st.lists(SIZES, max_size=4), st.integers(0, 12))
def test_what_is_proven_holds(goal: Expr, facts: list[Expr], slack: int) -> None:
    """For random goals and facts, of which some are proven: at all small numbers where the facts hold, the goal does."""
    related = [*facts, goal - slack]  # so that many are
    for known in (facts, related):
        if proves(goal, *known):
            for numbers in product(range(7), repeat=3):
                at = dict(zip("ijn", numbers, strict=True))
                if all(evaluate(fact, at) >= 0 for fact in known):
                    assert evaluate(goal, at) >= 0, (goal, known, at)
