"""The passes: what they print, what they keep, what they refuse."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from compiler_service.compiler.loop_ir.ir import (
    Block,
    Buffer,
    For,
    Function,
    If,
    Let,
    Statement,
    Store,
    walk_statements,
)
from compiler_service.compiler.loop_ir.passes import LOOP_PASSES, run
from compiler_service.compiler.loop_ir.passes.flatten import flatten
from compiler_service.compiler.loop_ir.passes.simplify import simplify
from compiler_service.compiler.loop_ir.passes.unroll import unroll
from compiler_service.compiler.loop_ir.passes.vectorize import vectorize
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.loop_ir.verify import verify
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Const, Expr, Var, select
from tests.compiler_service.compiler.loop_ir.loop_checks import (
    I2,
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
    UNROLLED,
    VECTORIZED,
    convolution,
    guarded_scale,
    load,
    loops,
    padded_copy,
    register_tiled_matmul,
    row_sums,
    slice_copy,
    store,
)

Golden = Callable[..., None]
Program = Callable[[], Function]
PROGRAMS: list[tuple[Program, dict[str, int]]] = [
    (guarded_scale, {"n": 37}),
    (register_tiled_matmul, {"m": 2, "k": 3}),
    (lambda: convolution(rows=2, nr=8, lanes=4, height=4, channels=4, unrolled=2), {"n": 2}),
    (padded_copy, {"h": 3}),
    (row_sums, {"n": 9}),
    (slice_copy, {"n": 3, "w": 11}),
]
NAMES = ["guarded_scale", "register_tiled_matmul", "convolution", "padded_copy", "row_sums", "slice_copy"]


# -- all together


@pytest.mark.parametrize(("program", "symbols"), PROGRAMS, ids=NAMES)
def test_every_pass_keeps_the_meaning(program: Program, symbols: dict[str, int]) -> None:
    function = program()
    expected = outputs(function, symbols)
    flat = False
    for item in LOOP_PASSES:
        function = item.apply(function)
        flat = flat or item.name == "unroll"
        verify(function, flat)
        for before, after in zip(expected, outputs(function, symbols), strict=True):
            np.testing.assert_array_equal(before, after, err_msg=f"after {item.name}")


@pytest.mark.parametrize(("program", "symbols"), PROGRAMS, ids=NAMES)
def test_result(program: Program, symbols: dict[str, int], golden: Golden) -> None:
    golden(print_function(run(program())))


def test_stages_of_a_matmul(golden: Golden) -> None:
    stages: list[str] = []
    run(
        register_tiled_matmul(rows=2, vectors=1),
        lambda item, f: stages.append(f"-- {item.name}\n{print_function(f)}\n"),
    )
    golden("\n".join(stages))


def test_passes_return_what_they_do_not_change() -> None:
    flat = run(guarded_scale())
    assert unroll(flat) is flat
    assert vectorize(flat) is flat


def test_a_convolution_tile_is_rewritten_in_time() -> None:
    """14 x 32 tile, channels unrolled twice: 56 multiply-adds. 25 ms on an idle core; the bound leaves room for a busy one."""
    function = convolution(unrolled=2)
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        flat = run(function)
        best = min(best, time.perf_counter() - started)
    assert sum(isinstance(s, Store) for s in walk_statements(flat.body)) == 28 * 4
    assert best < 0.2


# -- unroll


def test_unroll_replicates_and_keeps_binders_distinct() -> None:
    inner = For(K, Const(3), SERIAL, Let(Var("j"), K * 2 + I2, store(Y, [I2, Var("j")], ONE)))
    function = unroll(over_x_and_y(loops(inner, (I2, 2, UNROLLED))))
    verify(function)
    assert lines(function) == [
        "for k in 0..3:",
        "    let j = k * 2",
        "    y[0, j] = 1.0",
        "for k_1 in 0..3:",
        "    let j_1 = k_1 * 2 + 1",
        "    y[1, j_1] = 1.0",
    ]


def test_unroll_takes_decided_branches() -> None:
    body = If(I2 < 1, store(Y, [I2, T], ONE), store(Y, [I2, T], ZERO))
    assert lines(unroll(over_x_and_y(loops(body, (I2, 2, UNROLLED))))) == ["y[0, t] = 1.0", "y[1, t] = 0.0"]


def test_copies_share_what_does_not_differ() -> None:
    j = Var("j")
    body = store(Y, [I2, j], load(X, I2, K + I2 * 2) * load(X, j, K + j))
    function = unroll(over_x_and_y(loops(body, (K, 4, SERIAL), (I2, 3, UNROLLED), (j, 3, UNROLLED))))
    stores = [s for s in walk_statements(function.body) if isinstance(s, Store)]
    assert len(stores) == 9
    assert len({id(s.value.children()[0]) for s in stores}) == 3
    assert len({id(s.value.children()[1]) for s in stores}) == 3


def test_unroll_needs_a_constant_extent() -> None:
    with pytest.raises(IngotError) as caught:
        unroll(over_x_and_y(loops(store(Y, [T, I2], ONE), (I2, N, UNROLLED))))
    assert caught.value.code is ErrorCode.COMPILER_FAULT
    assert str(caught.value) == (
        "extent of the unrolled loop i2; at node 'kernel', field 'for i2 in 0..n unrolled:'; expected a constant, received n."
    )


# -- flatten, simplify


def test_flatten_with_symbolic_extents() -> None:
    x, y = Buffer("x", FLOAT, (N, 3, N)), Buffer("y", FLOAT, ())
    i, j = Var("i"), Var("j")
    body = loops(store(y, [], load(y) + load(x, i, j, T)), (i, N, SERIAL), (j, 3, SERIAL))
    flat = simplify(flatten(Function("kernel", (x, y), (N,), T, N, body)))
    verify(flat, flat=True)
    assert print_function(flat).splitlines()[0] == "function kernel(x: float32[n * n * 3], out y: float32[1]; n: int64)"
    assert lines(flat)[-1] == "        y[0] = y[0] + x[i * n * 3 + j * n + t]"


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ((T, V), "x[t * 16:+4]"),
        ((T, V + 8), "x[t * 16 + 8:+4]"),
        ((V, T), "x[ramp(t, 16, 4)]"),
        ((T, V // 2), "x[splat(t * 16, 4) + ramp(0, 1, 4) // splat(2, 4)]"),
        (((T * 4 + V) // 16, (T * 4 + V) % 16), "x[t * 4:+4]"),
    ],
)
def test_flat_vector_accesses(indices: tuple[Expr, Expr], text: str) -> None:
    function = vectorize(over_x_and_y(loops(store(Y, [T, V], load(X, *indices)), (V, 4, VECTORIZED))))
    assert lines(simplify(flatten(function))) == [f"y[t * 16:+4] = {text}"]


def simplified(body: Statement) -> list[str]:
    function = over_x_and_y(body)
    verify(function)
    new = simplify(function)
    verify(new)
    for before, after in zip(outputs(function, {"n": 3}), outputs(new, {"n": 3}), strict=True):
        np.testing.assert_array_equal(before, after)
    return lines(new)


def test_simplify_uses_the_ranges_of_loops_tasks_and_lets() -> None:
    decided = If(K + 1 < 17, store(Y, [T % 4, (K * 4 + T) // 4], load(X, T // 4, K % 16)))
    assert simplified(loops(decided, (K, 16, SERIAL))) == ["for k in 0..16:", "    y[t, k] = x[0, k]"]
    j = Var("j")
    bound = Let(j, T % 2 + 3, If(j < 5, store(Y, [T, j // 8], ONE)))
    assert simplified(bound) == ["let j = t % 2 + 3", "y[t, 0] = 1.0"]
    shifted = Let(j, T - 8, If(j < 0, store(Y, [T, j + 8], ONE)))
    assert simplified(shifted) == ["let j = t - 8", "y[t, j + 8] = 1.0"]


def test_simplify_removes_what_does_nothing() -> None:
    never = loops(store(Y, [T, K], ONE), (K, 0, SERIAL))
    once = loops(store(Y, [T, I2 + 1], ONE), (I2, 1, SERIAL))
    undone = If(T < 0, store(Y, [T, 0], ONE), never)
    assert simplified(Block((never, once, undone))) == ["y[t, 1] = 1.0"]


def test_simplify_inlines_names_of_names() -> None:
    j, k = Var("j"), Var("k2")
    assert simplified(Let(j, T * 1, Let(k, j + 0, store(Y, [k, j], ONE)))) == ["y[t, t] = 1.0"]


def test_a_name_bound_twice_has_the_range_of_its_own_loop() -> None:
    first = loops(If(K < 4, store(Y, [T, K], ONE)), (K, 4, SERIAL))
    second = loops(If(K < 4, store(Y, [T, K], ZERO)), (K, 8, SERIAL))
    assert simplified(Block((first, second))) == [
        "for k in 0..4:",
        "    y[t, k] = 1.0",
        "for k_1 in 0..8:",
        "    if k_1 < 4:",
        "        y[t, k_1] = 0.0",
    ]


def test_masks_that_are_decided_disappear() -> None:
    whole = loops(If(T * 4 + V < 16, store(Y, [T, V], load(X, T, V))), (V, 4, VECTORIZED))
    never = loops(If(T * 4 + V < 0, store(Y, [T, V], ONE)), (V, 4, VECTORIZED))
    padded = loops(store(Y, [T, V], select(V + 1 >= 1, load(X, T, V), ONE)), (V, 4, VECTORIZED))
    function = vectorize(over_x_and_y(Block((whole, never, padded))))
    assert lines(simplify(function)) == ["y[t, 0:4] = x[t, 0:4]", "y[t, 0:4] = x[t, 0:4]"]


def test_vector_divisions_use_ranges() -> None:
    index = (K * 3 + V) // 12
    body = loops(store(Y, [T, V], load(X, T, index) + load(X, T, (K * 3 + V) % 12)), (K, 4, SERIAL), (V, 3, VECTORIZED))
    assert lines(simplify(vectorize(over_x_and_y(body))))[-1] == "    y[t, 0:3] = splat(x[t, 0], 3) + x[t, k * 3:+3]"
