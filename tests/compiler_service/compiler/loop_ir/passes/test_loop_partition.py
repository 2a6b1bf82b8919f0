"""Conditions leave the loops: steps of reductions that add nothing, loops cut where a condition changes."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from compiler_service.compiler.loop_ir.ir import Block, Buffer, Function, If, Let, Statement, walk_statements
from compiler_service.compiler.loop_ir.passes.partition import partition
from compiler_service.compiler.loop_ir.passes.simplify import simplify
from compiler_service.compiler.loop_ir.passes.skip import skip
from compiler_service.compiler.loop_ir.passes.unroll import unroll
from compiler_service.compiler.loop_ir.verify import verify
from shared_ir.expr import Expr, Var, lift, logical_and, maximum, select
from tests.compiler_service.compiler.loop_ir.loop_checks import ZERO, K, N, T, V, X, Y, lines, outputs, over_x_and_y
from tests.compiler_service.compiler.loop_ir.loop_programs import (
    FLOAT,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    load,
    loops,
    store,
)

C, J, P = Var("i"), Var("j"), Var("p")


def padded(place: Expr, extent: Expr | int, value: Expr) -> Expr:
    return select(logical_and(place >= 0, place < extent), value, ZERO)


def test_a_zero_factor_skips_its_product() -> None:
    total = load(Y, T, C)
    step = store(Y, [T, C], total + padded(C + K - 1, 16, load(X, T, C + K - 1)) * load(X, T, K))
    function = over_x_and_y(loops(step, (C, 16, SERIAL), (K, 3, SERIAL)))
    assert lines(skip(function)) == [
        "for i in 0..16:",
        "    for k in 0..3:",
        "        if i + k - 1 >= 0:",
        "            if i + k - 1 < 16:",
        "                y[t, i] = y[t, i] + x[t, i + k - 1] * x[t, k]",
    ]


def test_conditions_move_out_to_where_they_are_known() -> None:
    total = load(Y, T, V)
    step = store(Y, [T, V], maximum(total, select(T + K >= 2, load(X, T, V), lift(float("-inf"), FLOAT))))
    function = over_x_and_y(loops(step, (K, 3, SERIAL), (J, 2, UNROLLED), (V, 16, VECTORIZED)))
    assert lines(skip(function)) == [
        "for k in 0..3:",
        "    if t + k >= 2:",
        "        for j in 0..2 unrolled:",
        "            for v in 0..16 vectorized:",
        "                y[t, v] = max(y[t, v], x[t, v])",
    ]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(select(load(X, T, V) >= ZERO, load(X, T, V), ZERO), id="a condition on data"),
        pytest.param(select(V >= 2, load(X, T, V), ZERO), id="a condition on the lane"),
        pytest.param(select(K >= 2, load(X, T, V), lift(1.0, FLOAT)), id="a value that is not the identity"),
        pytest.param(ZERO - select(K >= 2, load(X, T, V), ZERO), id="a difference"),
    ],
)
def test_other_reductions_are_left_alone(value: Expr) -> None:
    step = store(Y, [T, V], load(Y, T, V) + value)
    function = over_x_and_y(loops(step, (K, 3, SERIAL), (V, 16, VECTORIZED)))
    assert skip(function) is function


def test_a_loop_is_cut_at_the_edges_of_an_image() -> None:
    place = C * 4 + J + K - 1
    step = store(Y, [T, C * 4 + J], padded(place, 16, load(X, T, place)))
    function = over_x_and_y(loops(step, (C, 4, SERIAL), (J, 4, UNROLLED), (K, 3, UNROLLED)))
    inside = simplify(unroll(partition(function)))
    selects = [line for line in lines(inside) if "select" in line]
    assert not selects
    assert [line for line in lines(inside) if line.startswith("for")] == ["for i in 0..2:"]
    for before, after in zip(outputs(function, {"n": 1}), outputs(inside, {"n": 1}), strict=True):
        np.testing.assert_array_equal(before, after)


def test_bounds_of_a_window_become_bounds_of_its_loop() -> None:
    step = If(T + K >= 1, If(T + K < 5, store(Y, [T, 0], load(Y, T, 0) + load(X, T + K - 1, 0))))
    function = over_x_and_y(loops(step, (K, 3, SERIAL)))
    cut = partition(function)
    head, inner = lines(cut)
    assert head.startswith("for k in ")
    assert inner.startswith("    y[t, 0] = y[t, 0] + x[")
    for before, after in zip(outputs(function, {"n": 1}), outputs(cut, {"n": 1}), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("n", range(9))
def test_loops_of_unknown_length_are_cut_too(n: int) -> None:
    x, y = Buffer("x", FLOAT, (N,)), Buffer("y", FLOAT, (N * 4,))
    place = C * 4 + J - 2
    step = store(y, [C * 4 + J], padded(place, N, load(x, place)))
    function = Function("kernel", (x, y), (N,), T, 1, loops(step, (C, N, SERIAL), (J, 4, UNROLLED)))
    cut = partition(function)
    verify(cut)
    assert len(lines(cut)) > len(lines(function))
    for before, after in zip(outputs(function, {"n": n}), outputs(simplify(cut), {"n": n}), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("n", range(8))
@pytest.mark.parametrize("low", [0, 1, 3, 9])
def test_pads_that_only_the_run_knows_make_seven_pieces(low: int, n: int) -> None:
    """Of nine: what is before the first element is not behind the last."""
    before, column = Var("low"), C * 4 + V
    x, y = Buffer("x", FLOAT, (N,)), Buffer("y", FLOAT, (N * 4,))
    step = store(y, [column], padded(column - before, N, load(x, column - before)))
    function = Function("kernel", (x, y), (N, before), T, 1, loops(step, (C, N, SERIAL), (V, 4, VECTORIZED)))
    cut = partition(function)
    verify(cut)
    assert sum("for i" in line for line in lines(cut)) == 7
    sizes = {"n": n, "low": low}
    for asked, told in zip(outputs(function, sizes), outputs(simplify(cut), sizes), strict=True):
        np.testing.assert_array_equal(asked, told)


def test_operands_of_a_concatenation_become_loops_of_their_own() -> None:
    column = C * 4 + V
    value = select(column < 4, load(X, T, column), select(column < 12, load(X, T, column - 4), ZERO))
    function = over_x_and_y(loops(store(Y, [T, column], value), (C, 4, SERIAL), (V, 4, VECTORIZED)))
    assert lines(simplify(partition(function))) == [
        "for v in 0..4 vectorized:",
        "    y[t, v] = x[t, v]",
        "for i in 0..2:",
        "    for v_1 in 0..4 vectorized:",
        "        y[t, i * 4 + v_1 + 4] = x[t, i * 4 + v_1]",
        "for v_2 in 0..4 vectorized:",
        "    y[t, v_2 + 12] = 0.0",
    ]


@pytest.mark.parametrize(
    "cond",
    [
        pytest.param(load(X, T, C) >= ZERO, id="data"),
        pytest.param(C * N >= 3, id="unknown slope"),
        pytest.param(C % 3 >= 1, id="periodic"),
        pytest.param(J >= 1, id="another loop"),
    ],
)
def test_conditions_that_do_not_change_once_are_left_alone(cond: Expr) -> None:
    body: Statement = store(Y, [T, C], select(cond, load(X, T, C), ZERO))
    function = over_x_and_y(Let(J, T - 2, loops(body, (C, 16, SERIAL))))
    assert partition(function) is function


def test_large_bodies_are_not_repeated() -> None:
    step = store(Y, [T, J], padded(C + J - 1, 16, load(X, T, C + J - 1)))
    function = over_x_and_y(loops(step, (C, 4, SERIAL), (J, 16, UNROLLED), (P, 64, UNROLLED)))
    assert partition(function) is function


def test_variables_of_lets_may_be_negative() -> None:
    body = Let(J, T - 8, Block((loops(store(Y, [T, C], padded(C + J, 16, load(X, T, C + J))), (C, 16, SERIAL)),)))
    function = over_x_and_y(body)
    cut = partition(function)
    assert sum(1 for s in walk_statements(cut.body)) > 3
    for before, after in zip(outputs(function, {"n": 1}), outputs(cut, {"n": 1}), strict=True):
        np.testing.assert_array_equal(before, after)


def test_bounds_that_nobody_can_order_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands of a concatenation of unknown extents: two to three times as many pieces with every one."""
    tried: list[int] = []
    module = sys.modules[partition.__module__]
    plain = module._is_empty

    def counted(*given: object) -> object:
        tried.append(1)
        return plain(*given)

    monkeypatch.setattr(module, "_is_empty", counted)
    for count in (5, 20, 80):
        value: Expr = ZERO
        for i in range(count):
            value = select(Var(f"n{i}") > C * 4 + J, load(X, T, C), value)
        step = loops(store(Y, [T, C * 4 + J], value), (C, N, SERIAL), (J, 4, UNROLLED))
        tried.clear()
        function = over_x_and_y(step)
        assert partition(function) is function
        assert len(tried) <= 300


def test_loops_in_each_other_share_what_a_function_may_grow_by() -> None:
    """Each loop alone would be cut in three, and its pieces repeat the loops inside: 3 ** 4 times 16 stores."""
    outer = [Var(f"o{i}") for i in range(4)]
    value: Expr = load(X, T, J)
    for var in outer:
        value = value + padded(var - 2, 3, load(X, T, J))
    step = store(Y, [T, J], value + load(Y, T, J))
    function = over_x_and_y(loops(step, *((var, 6, SERIAL) for var in outer), (J, 16, UNROLLED)))
    cut = partition(function)
    stores = lines(unroll(simplify(cut)))
    assert 16 < sum("y[" in line.split("=")[0] for line in stores) <= 1000
    for before, after in zip(outputs(function, {"n": 1}), outputs(simplify(cut), {"n": 1}), strict=True):
        np.testing.assert_array_equal(before, after)
