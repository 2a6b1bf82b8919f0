"""Accesses: strides, gathers, masks, guarded loads, loops, scratch; nothing outside a mask is touched."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_service.compiler.codegen.emit.kernel import emit_kernel, scratch_size
from compiler_service.compiler.codegen.toolchain.jit import JitKernel
from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferScope,
    For,
    ForKind,
    Function,
    If,
    Let,
    Ramp,
    Statement,
    Store,
    VectorReduce,
)
from compiler_service.compiler.tensor_expr.tensor import ReduceOp
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Select, Unary, UnaryOp, Var
from shared_ir.machine.target import Target, parse_target
from tests.compiler_service.compiler.codegen.loop_kernels import COUNT, TASK, lane_index

Array = np.ndarray[Any, Any]
F32 = DType.FLOAT32
LANES = 8
LIBC = ctypes.CDLL(None, use_errno=True)

X = Buffer("x", F32, (COUNT,))
Y = Buffer("y", F32, (COUNT,))


def kernel(body: Statement, *buffers: Buffer, tasks: int = 1) -> Function:
    return Function("kernel", buffers, (COUNT,), TASK, tasks, body)


def run(function: Function, target: Target, *arrays: Array, n: int = 0) -> None:
    JitKernel(function, target)(list(arrays), {"n": n})


@pytest.fixture(params=["host", "x86-64-v3", "x86-64-v2"])
def target(request: pytest.FixtureRequest, host: Target) -> Target:
    if request.param == "host":
        return host
    if host.architecture != "x86_64":
        pytest.skip("runs code of an older x86-64 level")
    return parse_target(request.param)


@pytest.fixture
def page() -> Iterator[tuple[Array, Array]]:
    """A page of floats and the page before it ends: both neighbours fault when touched."""
    size = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for offset in (0, 2 * size):
        if LIBC.mprotect(ctypes.c_void_p(address + offset), ctypes.c_size_t(size), 0):
            pytest.fail("mprotect refused")
    whole = np.frombuffer(memoryview((ctypes.c_byte * size).from_address(address + size)), np.float32)
    yield whole[: size // 8], whole[size // 8 :]
    for offset in (0, 2 * size):
        LIBC.mprotect(ctypes.c_void_p(address + offset), ctypes.c_size_t(size), 3)


@pytest.mark.slow
@pytest.mark.parametrize("stride", [-2, -1, 0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("dtype", [F32, DType.FLOAT64, DType.UINT8, DType.BOOL, DType.FLOAT16])
def test_strided_loads(stride: int, lanes: int, dtype: DType, host: Target) -> None:
    x, y = Buffer("x", dtype, (COUNT,)), Buffer("y", dtype, (lanes,))
    start = 40 if stride < 0 else 3
    body = Store(y, (lane_index(lanes, Const(0)),), BufferLoad(x, (Ramp(Const(start), Const(stride), lanes),)))
    source = np.random.default_rng(0).integers(0, 100, 128).astype(storage_dtype(dtype))
    result = np.zeros(lanes, storage_dtype(dtype))
    run(kernel(body, x, y), host, source, result, n=128)
    np.testing.assert_array_equal(result, source[start + stride * np.arange(lanes)])


def test_strided_load_ends_with_its_last_element(page: tuple[Array, Array], target: Target) -> None:
    _, last = page
    last[:] = np.arange(len(last))
    for stride in (2, 3, 4):
        start = len(last) - 1 - stride * (LANES - 1)
        body = Store(Y, (lane_index(LANES, Const(0)),), BufferLoad(X, (Ramp(Const(start), Const(stride), LANES),)))
        result = np.zeros(LANES, np.float32)
        run(kernel(body, X, Y), target, last, result, n=len(last))
        np.testing.assert_array_equal(result, last[start::stride])


@pytest.mark.parametrize("stride", [-1, 1, 3])
def test_strided_stores(stride: int, target: Target) -> None:
    index = Ramp(Const(40), Const(stride), LANES)
    body = Store(Y, (index,), BufferLoad(X, (lane_index(LANES, Const(0)),)))
    source, result = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    run(kernel(body, X, Y), target, source, result, n=64)
    expected = np.zeros(64, np.float32)
    expected[40 + stride * np.arange(LANES)] = source[:LANES]
    np.testing.assert_array_equal(result, expected)


def test_gather_and_scatter(target: Target) -> None:
    where = Buffer("where", DType.INT64, (LANES,))
    index = BufferLoad(where, (lane_index(LANES, Const(0)),))
    body = Store(Y, (index,), BufferLoad(X, (index,)))
    positions = np.array([5, 0, 31, 7, 8, 2, 30, 1])
    source, result = np.arange(32, dtype=np.float32), np.full(32, -1, np.float32)
    run(kernel(body, X, where, Y), target, source, positions, result, n=32)
    expected = np.full(32, -1, np.float32)
    expected[positions] = source[positions]
    np.testing.assert_array_equal(result, expected)


def within(lanes: int, base: Expr, limit: Expr | int) -> Expr:
    end = Broadcast(Const(limit) if isinstance(limit, int) else limit, lanes)
    return Binary(BinaryOp.LT, Ramp(base, Const(1), lanes), end)


@pytest.mark.parametrize("valid", [0, 1, 5, 8])
def test_masked_access_at_the_end_of_memory(valid: int, page: tuple[Array, Array], target: Target) -> None:
    _, last = page
    start = len(last) - valid
    index = lane_index(LANES, COUNT)
    mask = within(LANES, Const(0), valid)
    loaded = BufferLoad(X, (index,), mask)
    body = Block((Store(Y, (lane_index(LANES, Const(0)),), loaded), Store(X, (index,), loaded + loaded, mask)))
    last[:] = 3.0
    result = np.full(LANES, -1, np.float32)
    run(kernel(body, X, Y), target, last, result, n=start)
    np.testing.assert_array_equal(result, np.where(np.arange(LANES) < valid, 3.0, 0.0).astype(np.float32))
    np.testing.assert_array_equal(last[start:], np.full(valid, 6.0, np.float32))
    assert (last[:start] == 3.0).all()


@pytest.mark.parametrize("dtype", [DType.INT8, DType.FLOAT16, DType.INT64, DType.BOOL])
def test_masked_access_of_other_types(dtype: DType, target: Target) -> None:
    x, y = Buffer("x", dtype, (16,)), Buffer("y", dtype, (16,))
    index, mask = lane_index(16, Const(0)), within(16, Const(0), 11)
    body = Store(y, (index,), BufferLoad(x, (index,), mask), within(16, Const(0), 13))
    source, result = np.ones(16, storage_dtype(dtype)), np.ones(16, storage_dtype(dtype))
    run(kernel(body, x, y), target, source, result, n=0)
    np.testing.assert_array_equal(result.astype(int), [1] * 11 + [0] * 2 + [1] * 3)


def test_select_between_lanes_guards_its_loads(page: tuple[Array, Array], target: Target) -> None:
    """``i + n < len ? x[i + n] : i >= 1 ? x[0 - far - i] : 2`` reads only lanes that are in bounds."""
    first, last = page
    first[:], last[:] = 5.0, 7.0
    lane = Ramp(Const(0), Const(1), LANES)
    inside = Binary(BinaryOp.LT, lane, Broadcast(Const(3), LANES))
    ahead = BufferLoad(X, (Ramp(COUNT, Const(1), LANES),))
    scalar_ahead = Broadcast(BufferLoad(X, (COUNT + 2,)), LANES)
    never = Binary(BinaryOp.LT, lane, Broadcast(Const(-1), LANES))
    outside = Broadcast(BufferLoad(X, (COUNT + 100,)), LANES)
    value = Select(
        inside,
        ahead + scalar_ahead,
        Select(never, outside, Broadcast(Const(2.0, F32), LANES)),
    )
    body = Store(Y, (lane_index(LANES, Const(0)),), value)
    result = np.zeros(LANES, np.float32)
    run(kernel(body, X, Y), target, last, result, n=len(last) - 3)
    np.testing.assert_array_equal(result, [14, 14, 14, 2, 2, 2, 2, 2])


def test_scalar_select_branches_around_its_loads(page: tuple[Array, Array], target: Target) -> None:
    _, last = page
    last[:] = 9.0
    for cond in (TASK < COUNT, Broadcast(TASK < COUNT, LANES)):
        lanes = LANES if isinstance(cond, Broadcast) else 1
        index = lane_index(lanes, TASK)
        zero: Expr = Const(-1.0, F32) if lanes == 1 else Broadcast(Const(-1.0, F32), lanes)
        body = Store(Y, (lane_index(lanes, TASK * lanes),), Select(cond, BufferLoad(X, (index,)), zero))
        tasks = len(last) + 1
        result = np.zeros(tasks * lanes, np.float32)
        inside = len(last) - lanes + 1
        run(kernel(body, X, Y, tasks=tasks), target, last, result, n=inside)
        np.testing.assert_array_equal(result[: inside * lanes], 9.0)
        np.testing.assert_array_equal(result[inside * lanes :], -1.0)


def test_loops_ifs_lets_and_scratch(host: Target) -> None:
    """Row sums of a triangle, kept in scratch memory, doubled on even rows."""
    row, column = Var("row"), Var("column")
    sums = Buffer("sums", F32, (16,), BufferScope.SCRATCH)
    other = Buffer("other", F32, (3,), BufferScope.SCRATCH)
    at = BufferLoad(sums, (row,))
    add = Store(sums, (row,), at + BufferLoad(X, (Var("base") + column,)))
    inner = Let(Var("base"), row * 16, For(column, row + 1, ForKind.SERIAL, add))
    fill = For(row, Const(16), ForKind.SERIAL, Block((Store(sums, (row,), Const(0.0, F32)), inner)))
    even = Binary(BinaryOp.EQ, row % 2, Const(0))
    write = If(even, Store(Y, (row,), at + at), Store(Y, (row,), at))
    spare = Allocate(other, Store(other, (Const(0),), Const(1.0, F32)))
    body = Allocate(sums, Block((fill, spare, For(row, COUNT, ForKind.SERIAL, write))))
    function = kernel(body, X, Y)
    assert scratch_size(function) == 64 + 64
    x = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    for n in (0, 1, 16):
        y = np.full(16, -1, np.float32)
        run(function, host, x, y, n=n)
        sums_of = np.array([x[r, : r + 1].sum() * (2 if r % 2 == 0 else 1) for r in range(16)])
        np.testing.assert_allclose(y[:n], sums_of[:n], rtol=1e-5)
        assert (y[n:] == -1).all()


REDUCTIONS = [
    *((op, DType.INT32) for op in ReduceOp),
    *((op, DType.BOOL) for op in (ReduceOp.AND, ReduceOp.OR)),
    *(
        (op, dtype)
        for op in (ReduceOp.SUM, ReduceOp.PROD, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.MAX_NUMBER)
        for dtype in (F32, DType.FLOAT16)
    ),
]


@pytest.mark.parametrize("lanes", [2, 3, 8, 16])
@pytest.mark.parametrize(("op", "dtype"), REDUCTIONS)
def test_horizontal_reductions(op: ReduceOp, lanes: int, dtype: DType, host: Target) -> None:
    x, y = Buffer("x", dtype, (lanes,)), Buffer("y", dtype, (1,))
    body = Store(y, (Const(0),), VectorReduce(op, BufferLoad(x, (lane_index(lanes, Const(0)),))))
    source = np.random.default_rng(lanes).integers(0, 4, lanes).astype(storage_dtype(dtype))
    result = np.zeros(1, storage_dtype(dtype))
    run(kernel(body, x, y), host, source, result)
    ufunc = {
        ReduceOp.SUM: np.add,
        ReduceOp.PROD: np.multiply,
        ReduceOp.MIN: np.minimum,
        ReduceOp.MAX: np.maximum,
        ReduceOp.MAX_NUMBER: np.fmax,
        ReduceOp.AND: np.bitwise_and,
        ReduceOp.OR: np.bitwise_or,
    }[op]
    assert result[0] == ufunc.reduce(source)


def test_negative_index_arithmetic_floors(host: Target) -> None:
    """Variables are >= 0 but differences are not."""
    out = Buffer("out", DType.INT64, (40,))
    shifted = TASK - 20
    body = Block((Store(out, (TASK * 2,), shifted // 3), Store(out, (TASK * 2 + 1,), shifted % 3)))
    result = np.zeros(80, np.int64)
    run(kernel(body, out, tasks=40), host, result)
    np.testing.assert_array_equal(result[::2], (np.arange(40) - 20) // 3)
    np.testing.assert_array_equal(result[1::2], (np.arange(40) - 20) % 3)


def test_bfloat_accumulator_on_the_stack(host: Target) -> None:
    dtype = DType.BFLOAT16
    x, y = Buffer("x", dtype, (64,)), Buffer("y", dtype, (1,))
    total = Buffer("total", dtype, (1,), BufferScope.STACK)
    k = Var("k")
    step = Store(total, (Const(0),), BufferLoad(total, (Const(0),)) + BufferLoad(x, (k,)))
    body = Allocate(
        total,
        Block(
            (
                Store(total, (Const(0),), Const(0.0, dtype)),
                For(k, Const(64), ForKind.SERIAL, step),
                Store(y, (Const(0),), BufferLoad(total, (Const(0),))),
            )
        ),
    )
    source = np.random.default_rng(1).standard_normal(64).astype(ml_dtypes.bfloat16)
    result = np.zeros(1, ml_dtypes.bfloat16)
    run(kernel(body, x, y), host, source, result)
    expected = ml_dtypes.bfloat16(0)
    for value in source:
        expected = ml_dtypes.bfloat16(np.float32(expected) + np.float32(value))
    assert result[0] == expected


def test_stores_are_seen_by_later_loads(host: Target) -> None:
    body = Block(
        (
            Store(X, (Const(0),), BufferLoad(X, (Const(0),)) + 1.0),
            Store(X, (Const(0),), BufferLoad(X, (Const(0),)) + 1.0),
            Store(Y, (Const(0),), BufferLoad(X, (Const(0),))),
        )
    )
    x, y = np.zeros(1, np.float32), np.zeros(1, np.float32)
    run(kernel(body, X, Y), host, x, y)
    assert (x[0], y[0]) == (2.0, 2.0)


def test_symbols_and_task_ranges(host: Target) -> None:
    body = Store(Y, (TASK,), BufferLoad(X, (TASK,)) * 2.0)
    function = Function("ranges", (X, Y), (COUNT,), TASK, COUNT, body)
    compiled = JitKernel(function, host)
    x, y = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    compiled([x, y], {"n": 10}, (3, 3))
    assert not y.any()
    compiled([x, y], {"n": 10}, (3, 6))
    np.testing.assert_array_equal(y, [0, 0, 0, 6, 8, 10, 0, 0, 0, 0])
    compiled([x, y], {"n": 10})
    np.testing.assert_array_equal(y, 2 * x)


@pytest.mark.parametrize("lanes", [4, 16])
@pytest.mark.parametrize("op", [BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE])
def test_bounds_of_lanes(op: BinaryOp, lanes: int, host: Target) -> None:
    """Both ways round, on both sides of zero, with bounds inside the vector and far from it."""
    out = Buffer("out", DType.BOOL, (1,))
    ramp, bound = Ramp(TASK * 3 - 20, Const(1), lanes), Broadcast(COUNT - 7, lanes)
    body = Block(
        (
            Store(out, (lane_index(lanes, TASK * 2 * lanes),), Binary(op, ramp, bound)),
            Store(out, (lane_index(lanes, (TASK * 2 + 1) * lanes),), Binary(op, bound, ramp)),
        )
    )
    function = kernel(body, out, tasks=20)
    numpy_op = {
        BinaryOp.LT: np.less,
        BinaryOp.LE: np.less_equal,
        BinaryOp.GT: np.greater,
        BinaryOp.GE: np.greater_equal,
    }[op]
    index = np.arange(20)[:, None] * 3 - 20 + np.arange(lanes)
    for n in (0, 7, 12, 100, 1 << 40):
        result = np.zeros((20, 2, lanes), bool)
        run(function, host, result, n=n)
        np.testing.assert_array_equal(result[:, 0], numpy_op(index, n - 7))
        np.testing.assert_array_equal(result[:, 1], numpy_op(n - 7, index))


def test_maximum_with_a_constant_keeps_nan(host: Target) -> None:
    zero = Broadcast(Const(0.0, F32), 16)
    index = lane_index(16)
    for value in (
        Binary(BinaryOp.MAX, BufferLoad(X, (index,)), zero),
        Binary(BinaryOp.MAX, zero, BufferLoad(X, (index,))),
    ):
        function = kernel(Store(Y, (index,), value), X, Y)
        x, y = np.resize(np.array([1, -1, np.nan, np.inf, -np.inf], np.float32), 16), np.zeros(16, np.float32)
        run(function, host, x, y)
        np.testing.assert_array_equal(y, np.maximum(x, 0))


def refused(body: Statement, *buffers: Buffer) -> IngotError:
    with pytest.raises(IngotError) as caught:
        emit_kernel(kernel(body, *buffers), parse_target("x86-64-v3"), "kernel")
    assert caught.value.node == "kernel"
    return caught.value


def test_errors_name_operator_and_type() -> None:
    text = Buffer("text", DType.STRING, (1,))
    assert refused(Store(text, (Const(0),), BufferLoad(text, (Const(0),))), text).code is ErrorCode.UNSUPPORTED_DTYPE
    value = Unary(UnaryOp.POPCOUNT, BufferLoad(X, (Const(0),)))
    error = refused(Store(Y, (Const(0),), value), X, Y)
    assert error.code is ErrorCode.UNSUPPORTED_DTYPE
    assert "popcount" in str(error)
    assert "float32" in str(error)
    loop = For(Var("i"), Const(4), ForKind.VECTORIZED, Block(()))
    assert refused(loop).code is ErrorCode.COMPILER_FAULT
    assert "'gone'" in str(refused(Store(Y, (Var("gone"),), Const(0.0, F32)), Y))
