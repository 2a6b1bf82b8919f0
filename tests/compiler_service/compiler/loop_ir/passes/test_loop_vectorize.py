"""The vectorize pass: what each statement of a vectorized loop becomes, and what has no vector form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Buffer,
    BufferScope,
    If,
    Let,
    Statement,
)
from compiler_service.compiler.loop_ir.passes.vectorize import vectorize
from compiler_service.compiler.loop_ir.verify import verify
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Cast, Expr, Var, equal, lift, logical_and, maximum, minimum, select
from tests.compiler_service.compiler.loop_ir.loop_checks import (
    ONE,
    ZERO,
    K,
    N,
    T,
    V,
    X,
    Y,
    lines,
    outputs,
    over_x_and_y,
)
from tests.compiler_service.compiler.loop_ir.loop_programs import (
    FLOAT,
    SERIAL,
    VECTORIZED,
    load,
    loops,
    store,
)

# -- vectorize


def vectorized(body: Statement, lanes: int = 4) -> list[str]:
    """The printed body of ``for v in 0..lanes vectorized: body``, checked for form and meaning."""
    function = over_x_and_y(loops(body, (V, lanes, VECTORIZED)))
    verify(function)
    new = vectorize(function)
    verify(new)
    for before, after in zip(outputs(function, {"n": 3}), outputs(new, {"n": 3}), strict=True):
        np.testing.assert_array_equal(before, after)
    return lines(new)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (V, "x[t, 0:4]"),
        (T * 4 + V, "x[t, t * 4:+4]"),
        (V + T, "x[t, t:+4]"),
        (V * 3 + 1, "x[t, ramp(1, 3, 4)]"),
        (T - V + 4, "x[t, ramp(t + 4, -1, 4)]"),
        ((T + V) * 2, "x[t, ramp(t * 2, 2, 4)]"),
        ((T * 4 + V) % 4 + 3, "x[t, t * 4 % 4 + 3:+4]"),
        ((T * 4 + V) % 16, "x[t, t * 4 % 16:+4]"),
        ((V * 8 + T) // 4, "x[t, ramp(t // 4, 2, 4)]"),
        ((T + V) // 4, "x[t, ramp(t, 1, 4) // splat(4, 4)]"),
        (minimum(T + V, 5), "x[t, min(ramp(t, 1, 4), splat(5, 4))]"),
        ((T * 4 + V) // 4, "splat(x[t, t * 4 // 4], 4)"),
        ((T * 4 + V) // 16 + 1, "splat(x[t, t * 4 // 16 + 1], 4)"),
        ((V * 8 + T) % 4, "splat(x[t, t % 4], 4)"),
        (V * 0 + 2, "splat(x[t, 2], 4)"),
        (Cast(DType.INT64, load(X, T, V)) % 4, "x[t, int64(x[t, 0:4]) % splat(4, 4)]"),
    ],
)
def test_indices(index: Expr, text: str) -> None:
    assert vectorized(store(Y, [T, V], load(X, T, index))) == [f"y[t, 0:4] = {text}"]


def test_what_does_not_vary_stays_scalar() -> None:
    assert vectorized(store(Y, [T, V], load(X, T, V) * load(X, T, 2) + Cast(FLOAT, T))) == [
        "y[t, 0:4] = x[t, 0:4] * splat(x[t, 2], 4) + splat(float32(t), 4)"
    ]


def test_one_lane_is_the_scalar_statement() -> None:
    assert vectorized(store(Y, [T, V], load(X, T, V + 1)), lanes=1) == ["y[t, 0] = x[t, 1]"]


def test_guards_become_masks() -> None:
    body = If(V < N, store(Y, [T, V], load(X, T, V)), store(Y, [T, V], ONE))
    assert vectorized(body) == [
        "y[t, 0:4, mask=ramp(0, 1, 4) < splat(n, 4)] = x[t, 0:4, mask=ramp(0, 1, 4) < splat(n, 4)]",
        "y[t, 0:4, mask=not(ramp(0, 1, 4) < splat(n, 4))] = splat(1.0, 4)",
    ]


def test_a_scalar_load_under_a_guard_asks_whether_any_lane_is_on() -> None:
    body = If(T * 4 + V < N, store(Y, [T, V], load(X, T, V) * load(X, T, 2)))
    assert vectorized(body) == [
        "if reduce.or(ramp(t * 4, 1, 4) < splat(n, 4)):",
        "    y[t, 0:4, mask=ramp(t * 4, 1, 4) < splat(n, 4)] = "
        "x[t, 0:4, mask=ramp(t * 4, 1, 4) < splat(n, 4)] * splat(x[t, 2], 4)",
    ]


def test_a_condition_that_loads_is_evaluated_once() -> None:
    body = If(load(Y, T, V) < 0.0, Block((store(Y, [T, V], ONE), store(Y, [T, V + 4], ONE))))
    assert vectorized(body) == [
        "let v_mask = y[t, 0:4] < splat(0.0, 4)",
        "y[t, 0:4, mask=v_mask] = splat(1.0, 4)",
        "y[t, 4:8, mask=v_mask] = splat(1.0, 4)",
    ]


def test_padding_becomes_a_masked_load() -> None:
    inside = logical_and(V >= 1, V < 3)
    assert vectorized(store(Y, [T, V], select(inside, load(X, T, V - 1), ZERO))) == [
        "y[t, 0:4] = x[t, -1:3, mask=ramp(0, 1, 4) >= splat(1, 4) and ramp(0, 1, 4) < splat(3, 4)]"
    ]


@pytest.mark.parametrize(
    ("cond", "text"),
    [
        (T * 8 + V < 16, "t * 8 < 16"),
        (T * 8 + V >= 16, "t * 8 >= 16"),
        (T * 8 + V <= 15, "t * 8 <= 15"),
        (T * 8 + V > 15, "t * 8 > 15"),
        (T * 8 + 4 + V < 16, "t * 8 + 4 < 16"),
        (lift(16) > T * 8 + V, "16 > t * 8"),
        (T * 8 - V < 9, "t * 8 < 9"),
        (T * 8 + V < N * 4, "t * 8 < n * 4"),
        (T * 8 + V < 10, None),
        (T * 8 + V <= 16, None),
        (T * 8 + V < N, None),
        (T * 8 + 6 + V < 16, None),
        (equal(T * 8 + V, 8), None),
    ],
)
def test_a_condition_on_which_all_lanes_agree_is_scalar(cond: Expr, text: str | None) -> None:
    printed = vectorized(If(cond, store(Y, [T, V], load(X, T, V))))
    if text is None:
        assert printed[0].startswith("y[t, 0:4, mask=")
    else:
        assert printed == [f"if {text}:", "    y[t, 0:4] = x[t, 0:4]"]


def test_the_scalar_part_of_a_condition_is_asked_first() -> None:
    cond = logical_and(logical_and(T < 2, V < 3), N > 1)
    assert vectorized(store(Y, [T, V], select(cond, load(X, T, V), ONE))) == [
        "y[t, 0:4] = select(t < 2 and n > 1, select(ramp(0, 1, 4) < splat(3, 4), "
        "x[t, 0:4, mask=ramp(0, 1, 4) < splat(3, 4)], splat(1.0, 4)), splat(1.0, 4))"
    ]
    assert vectorized(If(cond, store(Y, [T, V], ONE))) == [
        "if t < 2 and n > 1:",
        "    y[t, 0:4, mask=ramp(0, 1, 4) < splat(3, 4)] = splat(1.0, 4)",
    ]


def test_what_a_condition_has_loaded_is_not_loaded_again_under_a_mask() -> None:
    """An index that counts from the end where it is negative; the positive part of a number."""
    x = load(X, T, V)
    loaded = "x[t, 0:4]"
    assert vectorized(store(Y, [T, V], select(x < ZERO, x + ONE, x))) == [
        f"y[t, 0:4] = select({loaded} < splat(0.0, 4), {loaded} + splat(1.0, 4), {loaded})"
    ]
    assert vectorized(store(Y, [T, V], select(x > ZERO, x, ZERO))) == [
        f"y[t, 0:4] = select({loaded} > splat(0.0, 4), {loaded}, splat(0.0, 4))"
    ]
    some = "x[t, 0:4, mask=ramp(0, 1, 4) < splat(3, 4)]"
    assert vectorized(If(V < 3, store(Y, [T, V], select(x > ZERO, x, ZERO)))) == [
        f"y[t, 0:4, mask=ramp(0, 1, 4) < splat(3, 4)] = select({some} > splat(0.0, 4), {some}, splat(0.0, 4))"
    ]


def test_both_branches_of_a_select_are_masked() -> None:
    chosen = select(V < 2, load(X, T, V + 14), load(X, T, V - 2))
    assert vectorized(store(Y, [T, V], chosen)) == [
        "y[t, 0:4] = select(ramp(0, 1, 4) < splat(2, 4), x[t, 14:18, mask=ramp(0, 1, 4) < splat(2, 4)], "
        "x[t, -2:2, mask=not(ramp(0, 1, 4) < splat(2, 4))])"
    ]


def test_a_scalar_condition_stays_scalar() -> None:
    chosen = select(T < 2, load(X, T + 2, V), ONE)
    assert vectorized(store(Y, [T, V], chosen)) == ["y[t, 0:4] = select(t < 2, x[t + 2, 0:4], splat(1.0, 4))"]


def test_a_scalar_load_in_a_lane_s_branch_is_guarded() -> None:
    chosen = select(T + V < 2, load(X, T + 2, 0), ONE)
    assert vectorized(store(Y, [T, V], chosen), lanes=2) == [
        "y[t, 0:2] = select(ramp(t, 1, 2) < splat(2, 2), "
        "splat(select(reduce.or(ramp(t, 1, 2) < splat(2, 2)), x[t + 2, 0], 0.0), 2), splat(1.0, 2))"
    ]


def test_lets_become_vectors_or_ramps() -> None:
    j, f = Var("j"), Var("f", FLOAT)
    body = Let(j, T + V, Let(f, load(X, T, j) * 2.0, store(Y, [T, j], f + f)))
    assert vectorized(body) == ["let f = x[t, t:+4] * splat(2.0, 4)", "y[t, t:+4] = f + f"]


def test_loops_inside_keep_their_scalar_variable() -> None:
    body = Block(
        (store(Y, [T, V], ZERO), loops(store(Y, [T, V], load(Y, T, V) + load(X, K, V) * load(X, T, K)), (K, 4, SERIAL)))
    )
    assert vectorized(body) == [
        "y[t, 0:4] = splat(0.0, 4)",
        "for k in 0..4:",
        "    y[t, 0:4] = y[t, 0:4] + x[k, 0:4] * splat(x[t, k], 4)",
    ]


@pytest.mark.parametrize(
    ("combine", "text"),
    [
        (lambda a, b: a + b, "y[t, 0] + reduce.sum(x[t, 0:4])"),
        (lambda a, b: b + a, "y[t, 0] + reduce.sum(x[t, 0:4])"),
        (lambda a, b: a - b, "y[t, 0] - reduce.sum(x[t, 0:4])"),
        (lambda a, b: a * b, "y[t, 0] * reduce.prod(x[t, 0:4])"),
        (maximum, "max(y[t, 0], reduce.max(x[t, 0:4]))"),
        (minimum, "min(y[t, 0], reduce.min(x[t, 0:4]))"),
    ],
)
def test_reductions_into_one_location(combine: Callable[[Expr, Expr], Expr], text: str) -> None:
    assert vectorized(store(Y, [T, 0], combine(load(Y, T, 0), load(X, T, V)))) == [f"y[t, 0] = {text}"]


def test_a_reduction_of_equal_lanes_counts_every_lane() -> None:
    assert vectorized(store(Y, [T, 0], load(Y, T, 0) + ONE)) == ["y[t, 0] = y[t, 0] + reduce.sum(splat(1.0, 4))"]


def test_a_guarded_reduction_takes_the_identity_where_it_is_off() -> None:
    assert vectorized(If(V < N, store(Y, [T, 0], maximum(load(Y, T, 0), load(X, T, V))))) == [
        "if reduce.or(ramp(0, 1, 4) < splat(n, 4)):",
        "    y[t, 0] = max(y[t, 0], reduce.max(select(ramp(0, 1, 4) < splat(n, 4), "
        "x[t, 0:4, mask=ramp(0, 1, 4) < splat(n, 4)], splat(-inf, 4))))",
    ]


def test_private_memory_gains_an_axis_of_lanes() -> None:
    local = Buffer("local", FLOAT, (2,), BufferScope.STACK)
    body = Allocate(local, Block((store(local, [1], load(X, T, V)), store(Y, [T, V], load(local, 1) * 2.0))))
    assert vectorized(body) == [
        "stack local: float32[2, 4]",
        "local[1, 0:4] = x[t, 0:4]",
        "y[t, 0:4] = local[1, 0:4] * splat(2.0, 4)",
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (store(Y, [T, 0], load(X, T, V)), "value stored to one location; at node 'kernel', field 'y[t, 0] = x[t, v]'"),
        (store(Y, [T, 0], load(Y, T, 0) / ONE), "value stored to one location; at node 'kernel'"),
        (loops(store(Y, [T, V], ONE), (K, V + 1, SERIAL)), "extent; at node 'kernel', field 'for k in 0..v + 1:'"),
        (loops(store(Y, [V, K], ONE), (K, 2, VECTORIZED)), "statement in the loop; at node 'kernel'"),
    ],
)
def test_what_has_no_vector_form(body: Statement, message: str) -> None:
    with pytest.raises(IngotError) as caught:
        vectorize(over_x_and_y(loops(body, (V, 4, VECTORIZED))))
    assert caught.value.code is ErrorCode.COMPILER_FAULT
    assert str(caught.value).startswith(f"vectorized over v: {message}")


def test_vectorize_needs_a_constant_extent() -> None:
    with pytest.raises(IngotError, match=r"extent of the vectorized loop v.* expected a constant, received n"):
        vectorize(over_x_and_y(loops(store(Y, [T, V], ONE), (V, N, VECTORIZED))))
