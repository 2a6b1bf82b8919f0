"""The interpreter: lowered programs against numpy, and the rules of its machine."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.loop_ir.interpret import run
from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferScope,
    ForKind,
    Function,
    If,
    Let,
    Ramp,
    Statement,
    Store,
    VectorReduce,
    VectorVar,
)
from compiler_service.compiler.tensor_expr.tensor import ReduceOp
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Select, Unary, UnaryOp, Var, maximum, select
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

RANDOM = np.random.default_rng(7)
T, V = Var("t"), Var("v")
X, Y = Buffer("x", FLOAT, (8,)), Buffer("y", FLOAT, (8,))
LANES = Ramp(Const(0), Const(1), 4)
ONE = Const(1.0, FLOAT)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def run_one(body: Statement, x: np.ndarray | None = None) -> np.ndarray:
    """``y`` after one task of ``body``; it starts as -1."""
    y = np.full(8, -1, np.float32)
    run(Function("kernel", (X, Y), (), T, 1, body), [np.arange(8, dtype=np.float32) if x is None else x, y])
    return y


# -- programs against numpy


@pytest.mark.parametrize("n", [0, 1, 16, 37])
def test_guarded_scale(n: int) -> None:
    x, y = floats(n), np.full(n, np.nan, np.float32)
    run(guarded_scale(), [x, y], {"n": n})
    np.testing.assert_array_equal(y, x * 2)


def test_register_tiled_matmul() -> None:
    a, b = floats(6, 10), floats(10, 16)
    packed = np.ascontiguousarray(b.reshape(10, 2, 8).transpose(1, 0, 2))
    c = np.full((6, 16), np.nan, np.float32)
    run(register_tiled_matmul(), {"A": a, "B": packed, "C": c}, {"m": 2, "k": 5})
    np.testing.assert_allclose(c, np.maximum(a @ b, 0), rtol=1e-5, atol=1e-6)


def test_convolution() -> None:
    x, w, bias = floats(1, 6, 6, 3), floats(2, 3, 3, 3, 8), floats(16)
    y = np.full((1, 4, 4, 16), np.nan, np.float32)
    run(convolution(rows=2, nr=8, lanes=4, height=4, channels=3), [x, w, bias, y], {"n": 1})
    weights = w.transpose(1, 2, 3, 0, 4).reshape(3, 3, 3, 16)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    expected = np.maximum(np.einsum("nhwcij,ijco->nhwo", windows, weights) + bias, 0)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_padded_copy() -> None:
    x, y = floats(3, 14), np.full((5, 16), np.nan, np.float32)
    run(padded_copy(), [x, y], {"h": 3})
    np.testing.assert_array_equal(y, np.pad(x, 1))


def test_elements_between_those_of_a_slice_are_left_alone() -> None:
    x, y = floats(3, 8), np.full(2 * 11 + 8, np.nan, np.float32)
    run(slice_copy(), [x, y], {"n": 3, "w": 11})
    for row in range(3):
        np.testing.assert_array_equal(y[row * 11 : row * 11 + 8], x[row])
        assert np.isnan(y[row * 11 + 8 : row * 11 + 11]).all()


@pytest.mark.parametrize("n", [0, 3, 4, 9])
def test_row_sums(n: int) -> None:
    x, y = floats(7, n), np.full(7, np.nan, np.float32)
    run(row_sums(), [x, y], {"n": n})
    np.testing.assert_allclose(y, x.sum(axis=1), rtol=1e-5, atol=1e-6)


# -- rules of the machine


def test_only_the_given_tasks_run() -> None:
    x, y = floats(40), np.zeros(40, np.float32)
    run(guarded_scale(), [x, y], {"n": 40}, tasks=[1])
    np.testing.assert_array_equal(y[16:32], x[16:32] * 2)
    assert not y[:16].any()
    assert not y[32:].any()


@pytest.mark.parametrize("kind", [SERIAL, UNROLLED, VECTORIZED])
def test_every_kind_of_loop_means_the_same(kind: ForKind) -> None:
    body = loops(store(Y, [V], select(V < 6, load(X, V + 2), ONE)), (V, 8, kind))
    np.testing.assert_array_equal(run_one(body), [2, 3, 4, 5, 6, 7, 1, 1])


@pytest.mark.parametrize("kind", [SERIAL, VECTORIZED])
def test_accumulation_and_private_memory_in_a_vectorized_loop(kind: ForKind) -> None:
    local = Buffer("local", FLOAT, (1,), BufferScope.STACK)
    own = Allocate(local, Block((store(local, [0], load(X, V) + 1.0), store(Y, [V], load(local, 0) * 2.0))))
    total = store(Y, [7], load(Y, 7) + load(X, V))
    np.testing.assert_array_equal(run_one(loops(own, (V, 4, kind)))[:4], [2, 4, 6, 8])
    assert run_one(loops(total, (V, 7, kind)))[7] == -1 + sum(range(7))


def test_masked_lanes_neither_load_nor_store() -> None:
    mask = Binary(BinaryOp.LT, LANES, Broadcast(Const(2), 4))
    beyond = Ramp(Const(6), Const(1), 4)
    y = run_one(Store(Y, (beyond,), BufferLoad(X, (beyond,), mask), mask))
    np.testing.assert_array_equal(y, [-1, -1, -1, -1, -1, -1, 6, 7])
    y = run_one(store(Y, [LANES], BufferLoad(X, (beyond,), mask)))
    np.testing.assert_array_equal(y[:4], [6, 7, 0, 0])


def test_a_vector_condition_switches_lanes_off() -> None:
    cond = Binary(BinaryOp.GE, LANES, Broadcast(Const(2), 4))
    chosen = Select(cond, BufferLoad(X, (Ramp(Const(-2), Const(1), 4),)), Broadcast(ONE, 4))
    np.testing.assert_array_equal(run_one(store(Y, [LANES], chosen))[:4], [1, 1, 0, 1])


def test_vector_forms() -> None:
    vector = VectorVar("both", FLOAT, 4)
    value = Binary(BinaryOp.ADD, BufferLoad(X, (Ramp(Const(0), Const(2), 4),)), Broadcast(ONE, 4))
    sums = [store(Y, [i], VectorReduce(op, vector)) for i, op in enumerate((ReduceOp.SUM, ReduceOp.MAX, ReduceOp.PROD))]
    np.testing.assert_array_equal(run_one(Let(vector, value, Block(tuple(sums))))[:3], [16, 7, 105])


def test_conditions_choose_a_branch() -> None:
    body = If(load(X, 3) < 3.5, store(Y, [0], ONE), store(Y, [1], ONE))
    np.testing.assert_array_equal(run_one(body)[:2], [1, -1])
    np.testing.assert_array_equal(run_one(body, np.full(8, 9, np.float32))[:2], [-1, 1])


def test_integers_floor_and_float32_stays_float32() -> None:
    minus_seven = Cast(FLOAT, (T - 7) // 2)
    rest = Cast(FLOAT, (T - 7) % 4)
    tenth = Const(0.1, FLOAT)
    values = [
        minus_seven,
        rest,
        tenth + tenth + tenth,
        Unary(UnaryOp.EXP, tenth),
        maximum(ONE, load(X, 0) / load(X, 0)),
    ]
    y = run_one(Block(tuple(store(Y, [i], value) for i, value in enumerate(values))))
    third = np.float32(0.1)
    np.testing.assert_array_equal(y[:5], [-4, 1, third + third + third, np.exp(third), np.nan])


def test_uninitialised_memory_gives_itself_away() -> None:
    local = Buffer("local", FLOAT, (2,), BufferScope.SCRATCH)
    whole = Buffer("whole", DType.INT32, (2,), BufferScope.STACK)
    body = Block((store(Y, [0], load(local, 0)), store(Y, [1], Cast(FLOAT, load(whole, 1)))))
    y = run_one(Allocate(local, Allocate(whole, body)))
    assert np.isnan(y[0])
    assert y[1] == np.float32(np.int32(-0x5A5A5A5B))


# -- what it refuses


@pytest.mark.parametrize(
    ("body", "axis", "received"),
    [
        (store(Y, [T + 8], ONE), 0, "8"),
        (store(Y, [T - 1], ONE), 0, "-1"),
        (store(Y, [0], load(X, T + 8)), 0, "8"),
        (store(Y, [Ramp(Const(6), Const(1), 4)], Broadcast(ONE, 4)), 0, "[6 7 8 9]"),
        (loops(store(Y, [V], load(X, V + 2)), (V, 8, VECTORIZED)), 0, "[2 3 4 5 6 7 8 9]"),
    ],
)
def test_an_access_must_stay_in_its_buffer(body: Statement, axis: int, received: str) -> None:
    with pytest.raises(IngotError) as caught:
        run_one(body)
    assert caught.value.code is ErrorCode.COMPILER_FAULT
    assert caught.value.node == "kernel"
    assert f"along axis {axis}" in caught.value.message
    assert (caught.value.expected, caught.value.received) == ("an index in [0, 8)", received)


def test_an_index_must_stay_inside_its_own_axis() -> None:
    square = Buffer("square", FLOAT, (2, 4))
    body = store(square, [T, T + 4], ONE)  # element 4 of memory, but column 4 of a row of 4
    with pytest.raises(IngotError, match="leaves square along axis 1"):
        run(Function("kernel", (square,), (), T, 1, body), [np.zeros((2, 4), np.float32)])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([np.zeros(8, np.float32)], "number of arrays; at node 'kernel'; expected 2, received 1"),
        (
            [np.zeros(8), np.zeros(8, np.float32)],
            "dtype of the array for x; at node 'kernel'; expected float32, received float64",
        ),
        (
            [np.zeros(7, np.float32)] * 2,
            r"shape of the array for x; at node 'kernel'; expected \(8,\), received \(7,\)",
        ),
        ([np.zeros(16, np.float32)[::2]] * 2, "the array for x; at node 'kernel'; expected a C-contiguous array"),
        ({"x": np.zeros(8, np.float32)}, r"arrays by name; at node 'kernel'; expected x, y, received none for \['y'\]"),
    ],
)
def test_arrays_must_fit(arrays: list[np.ndarray], message: str) -> None:
    with pytest.raises(IngotError, match=message) as caught:
        run(Function("kernel", (X, Y), (), T, 1, store(Y, [T], ONE)), arrays)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_symbols_must_have_values() -> None:
    with pytest.raises(IngotError, match="symbol n has no value"):
        run(guarded_scale(), [floats(3), floats(3)])
