"""Extents that broadcasting joins: what the run finds is what numpy gives."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_service.compiler.tensor_expr.assumptions import Assumption
from compiler_service.compiler.tensor_expr.extents import (
    Agreement,
    agreeing,
    all_equal,
    fitting,
    is_stretched,
    joint_extent,
    may_be_one,
)
from shared_ir.expr.dim import Dim, as_dim, dim_text, evaluate, parse_dim, symbol

A, B, C = symbol("a"), symbol("b"), symbol("c")
SIZES = st.sampled_from([0, 1, 2, 3])


def numpy_extent(*sizes: int) -> int | None:
    try:
        return int(np.broadcast_shapes(*((n,) for n in sizes))[0])
    except ValueError:
        return None


@given(order=st.permutations([A, B, C]), a=SIZES, b=SIZES, c=SIZES)
def test_joint_extent_is_what_numpy_gives(order: list[Dim], a: int, b: int, c: int) -> None:
    values = {"a": a, "b": b, "c": c}
    joint = joint_extent(joint_extent(order[0], order[1]), order[2])
    fits = all(evaluate(x, values) == evaluate(y, values) for x, y in (fitting(d, joint) for d in order))
    expected = numpy_extent(a, b, c)
    assert fits == (expected is not None)
    if expected is not None:
        assert evaluate(joint, values) == expected


def test_joint_extents_are_one_dim_in_any_order() -> None:
    joints = {joint_extent(joint_extent(x, y), joint_extent(z, x)) for x, y, z in itertools.permutations([A, B, C])} | {
        joint_extent(x, joint_extent(y, joint_extent(z, y))) for x, y, z in itertools.permutations([A, B, C])
    }
    assert len(joints) == 1
    assert parse_dim(dim_text(joints.pop())) in {joint_extent(A, joint_extent(B, C))}


def test_joint_extent_grows_with_the_number_of_extents() -> None:
    joint: Dim = symbol("n0")
    for i in range(1, 100):
        joint = joint_extent(joint, symbol(f"n{i}"))
    assert len(dim_text(joint)) < 100 * 40


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        (1, True),
        (7, False),
        (A, True),
        (as_dim(A * 2), False),
        (as_dim(A * 2 + 1), True),
        (as_dim(A + 2), False),
        (as_dim(A * 6 - B * 4 + 3), True),
        (as_dim(A * 6 - B * 4 + 2), False),
        (as_dim((A + 1) // 2), True),
    ],
)
def test_may_be_one(dim: Dim, expected: bool) -> None:
    assert may_be_one(dim) is expected


def test_what_cannot_be_one_is_the_common_extent() -> None:
    assert joint_extent(A, as_dim(B + 2)) == as_dim(B + 2)
    assert joint_extent(as_dim(B + 2), A) == as_dim(B + 2)
    assert joint_extent(A, 7) == 7
    assert joint_extent(as_dim(A * 2), as_dim(B + 2)) == as_dim(A * 2)
    assert is_stretched(A, 7)
    assert not is_stretched(as_dim(A * 2), as_dim(B + 2))


def test_agreement_makes_extents_equal_and_remembers_them() -> None:
    agreement = Agreement(frozenset({"a", "b"}))
    with agreeing(agreement):
        assert joint_extent(A, B) == A
        assert not is_stretched(B, A)
        assert fitting(B, A) == (B, A)
        assert is_stretched(C, A), "c is no symbol of the agreement"
    condition = all_equal(agreement.pairs)
    assert evaluate(condition, {"a": 3, "b": 3}) == 1
    assert evaluate(condition, {"a": 3, "b": 1}) == 0


def test_all_equal_of_many_pairs_is_flat() -> None:
    condition = all_equal([(symbol(f"a{i}"), symbol(f"b{i}")) for i in range(1000)])
    same = {f"{s}{i}": i for i in range(1000) for s in "ab"}
    assert evaluate(condition, same) == 1
    assert evaluate(condition, same | {"b999": 0}) == 0


def test_a_stretched_extent_is_named_in_words() -> None:
    assert str(Assumption(*fitting(A, 7))) == "a must be 1 or 7"
    assert str(Assumption(*fitting(A, joint_extent(B, A)))) == "a and b must be equal or 1"
    assert str(Assumption(A, B)) == "a must be b"
    assert str(Assumption(A, 2, lower=True)) == "a must be at least 2"


def test_long_conditions_are_told_in_a_sentence() -> None:
    size: Dim = 0
    for number in range(20):
        size = as_dim((symbol(f"s{number}") + size) // 2)
    told = str(Assumption(size, 7))
    assert len(told) < 200
    assert told.startswith("an extent computed from s0, ")
    assert told.endswith(" more must be 7")
