"""Strided accesses in groups become rows and shuffles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_service.compiler.loop_ir.interpret import run as interpret
from compiler_service.compiler.loop_ir.ir import (
    Block,
    Buffer,
    BufferLoad,
    Function,
    Ramp,
    Shuffle,
    Store,
    VectorVar,
    walk_statements,
)
from compiler_service.compiler.loop_ir.passes import run
from compiler_service.compiler.loop_ir.passes.shuffle import transposed
from compiler_service.compiler.loop_ir.text import expression_text, print_function
from compiler_service.compiler.loop_ir.verify import verify
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr import Const, Expr, Var, lift, select, walk
from tests.compiler_service.compiler.loop_ir.loop_checks import ZERO, N, outputs
from tests.compiler_service.compiler.loop_ir.loop_programs import (
    FLOAT,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    load,
    loops,
    store,
)

T, C, J = Var("t"), Var("i"), Var("j")


def tiled_transpose(rows: int, columns: int, size: int, dtype: DType = FLOAT) -> Function:
    """``y[j, i] = x[i, j]`` in squares of ``size``."""
    x, y = Buffer("x", dtype, (rows, columns)), Buffer("y", dtype, (columns, rows))
    to, io = Var("to"), Var("io")
    body = store(y, [to * size + J, io * size + C], load(x, io * size + C, to * size + J))
    nest = loops(
        body, (to, columns // size, SERIAL), (io, rows // size, SERIAL), (J, size, UNROLLED), (C, size, VECTORIZED)
    )
    return Function("transpose", (x, y), (N,), T, 1, nest)


def strided_accesses(function: Function) -> int:
    count = 0
    for statement in walk_statements(function.body):
        if isinstance(statement, Store):
            places = [statement.indices[0]]
            places += [e.indices[0] for e in walk(statement.value) if isinstance(e, BufferLoad)]
            count += sum(isinstance(p, Ramp) and p.stride != Const(1) for p in places)
    return count


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64, DType.INT8, DType.FLOAT16])
@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_squares_are_read_in_rows(size: int, dtype: DType) -> None:
    function = tiled_transpose(2 * size, 3 * size, size, dtype)
    flat = run(function)
    verify(flat, flat=True)
    assert strided_accesses(flat) == 0
    for before, after in zip(outputs(function, {"n": 1}), outputs(flat, {"n": 1}), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(("dtype", "columns"), [(FLOAT, 8), (FLOAT, 4), (DType.FLOAT16, 8), (DType.FLOAT64, 4)])
def test_several_squares_one_below_the_other_are_one_of_full_vectors(dtype: DType, columns: int) -> None:
    x, y = Buffer("x", dtype, (32, 3 * columns)), Buffer("y", dtype, (3 * columns, 32))
    to, io = Var("to"), Var("io")
    body = store(y, [to * columns + J, io * 16 + C], load(x, io * 16 + C, to * columns + J))
    nest = loops(body, (to, 3, SERIAL), (io, 2, SERIAL), (J, columns, UNROLLED), (C, 16, VECTORIZED))
    function = Function("transpose", (x, y), (N,), T, 1, nest)
    flat = run(function)
    verify(flat, flat=True)
    assert strided_accesses(flat) == 0
    for before, after in zip(outputs(function, {"n": 1}), outputs(flat, {"n": 1}), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_a_transposition_takes_as_few_shuffles_as_there_can_be(lanes: int, itemsize: int) -> None:
    values: dict[Expr, np.ndarray] = {}
    count = 0

    def combine(lhs: Expr, rhs: Expr, order: tuple[int, ...]) -> Expr:
        nonlocal count
        count += 1
        result = VectorVar(f"v{count}", FLOAT, lanes)
        values[result] = np.concatenate([values[lhs], values[rhs]])[list(order)]
        return result

    rows = [VectorVar(f"r{i}", FLOAT, lanes) for i in range(lanes)]
    values.update({r: np.arange(lanes) + lanes * i for i, r in enumerate(rows)})
    columns = transposed(rows, lanes, itemsize, combine)
    np.testing.assert_array_equal([values[c] for c in columns], np.arange(lanes**2).reshape(lanes, lanes).T)
    assert count == lanes * (lanes.bit_length() - 1)


@pytest.mark.parametrize("channels", [2, 3, 4, 8])
def test_interleaved_stores_are_contiguous(channels: int) -> None:
    x, y = Buffer("x", FLOAT, (channels, 32)), Buffer("y", FLOAT, (32, channels))
    place = T * 8 + C
    body = store(y, [place, J], load(x, J, place) + 1.0)
    function = Function("pixels", (x, y), (N,), T, 4, loops(body, (J, channels, UNROLLED), (C, 8, VECTORIZED)))
    flat = run(function)
    verify(flat, flat=True)
    assert strided_accesses(flat) == 0
    for before, after in zip(outputs(function, {"n": 1}), outputs(flat, {"n": 1}), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("order", "stride", "reason"),
    [((0, 1), 3, "a gap"), ((0, 1, 2), 4, "too few"), ((0, 0, 1), 2, "twice the same")],
)
def test_other_strided_stores_are_left_alone(order: tuple[int, ...], stride: int, reason: str) -> None:
    x, y = Buffer("x", FLOAT, (8, 8)), Buffer("y", FLOAT, (8 * stride,))
    stores = [store(y, [C * stride + k], load(x, n, C)) for n, k in enumerate(order)]
    nest = [loops(s, (C, 8, VECTORIZED)) for s in stores]
    function = Function("gaps", (x, y), (N,), T, 1, Block(tuple(nest)))
    flat = run(function)
    for before, after in zip(outputs(function, {"n": 1}), outputs(flat, {"n": 1}), strict=True):
        np.testing.assert_array_equal(before, after, err_msg=reason)


def test_guarded_loads_are_not_read_ahead() -> None:
    x, y = Buffer("x", FLOAT, (8, 8)), Buffer("y", FLOAT, (8, 8))
    value = select(T >= 1, load(x, C, J), ZERO)
    nest = loops(store(y, [J, C], value), (J, 8, UNROLLED), (C, 8, VECTORIZED))
    flat = run(Function("guarded", (x, y), (N,), T, 2, nest))
    assert strided_accesses(flat) == 8
    assert "shuffle" not in print_function(flat)


def test_a_buffer_that_is_written_is_not_read_ahead() -> None:
    y = Buffer("y", FLOAT, (16, 16))
    body = store(y, [J + 8, C], load(y, C, J))
    function = Function("in_place", (y,), (N,), T, 1, loops(body, (J, 8, UNROLLED), (C, 8, VECTORIZED)))
    flat = run(function)
    assert "shuffle" not in print_function(flat)


def test_meaning_and_text() -> None:
    x, y = Buffer("x", FLOAT, (8,)), Buffer("y", FLOAT, (4,))
    first, second = (BufferLoad(x, (Ramp(Const(at), Const(1), 4),)) for at in (0, 4))
    picked = Shuffle(first, second, (7, 0, 4, 4))
    assert expression_text(picked) == "shuffle(x[0:4], x[4:8], [7, 0, 4, 4])"
    function = Function("pick", (x, y), (), T, 1, Store(y, (Ramp(Const(0), Const(1), 4),), picked))
    verify(function, flat=True)
    result = np.zeros(4, np.float32)
    interpret(function, [np.arange(8, dtype=np.float32), result], {})
    assert result.tolist() == [7, 0, 4, 4]


@pytest.mark.parametrize("order", [(8, 0), (0,), (-1, 0)])
def test_lanes_that_are_not_there_are_refused(order: tuple[int, ...]) -> None:
    x = Buffer("x", FLOAT, (4,))
    row = BufferLoad(x, (Ramp(Const(0), Const(1), 4),))
    index = Ramp(Const(0), Const(1), len(order)) if len(order) > 1 else Const(0)
    function = Function("pick", (x,), (), T, 1, Store(x, (index,), Shuffle(row, row, order)))
    with pytest.raises(IngotError, match="order of shuffle"):
        verify(function)


def picked(size: int, group: int, count: int, *, rotate: bool) -> Function:
    """``y[c, i] = x[4, ...]`` where lane ``i`` picks element ``c`` of its group, or the element ``c`` places on in its group."""
    x, y = Buffer("x", FLOAT, (2, size)), Buffer("y", FLOAT, (count, size))
    place = (C + J) % group if rotate else J
    body = store(y, [J, C], load(x, lift(1), C // group * group + place))
    return Function("picked", (x, y), (N,), T, 1, loops(body, (J, count, UNROLLED), (C, size, VECTORIZED)))


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize(("size", "group"), [(16, 4), (16, 8), (8, 2), (4, 2)])
def test_lanes_that_pick_from_a_vector_share_one_load(size: int, group: int, rotate: bool) -> None:
    function = picked(size, group, group, rotate=rotate)
    flat = run(function)
    verify(flat, flat=True)
    expressions = [e for s in walk_statements(flat.body) for e in _values(s)]
    loads = {e for e in expressions if isinstance(e, BufferLoad)}
    assert all(isinstance(e.indices[0], Ramp) for e in loads)
    for before, after in zip(outputs(function, {"n": 1}), outputs(flat, {"n": 1}), strict=True):
        np.testing.assert_array_equal(before, after)


def test_nothing_is_read_behind_what_was_asked_for() -> None:
    """The first element of every group alone does not reach the end of the last one."""
    x, y = Buffer("x", FLOAT, (13,)), Buffer("y", FLOAT, (16,))
    nest = loops(store(y, [C], load(x, C // 4 * 4)), (C, 16, VECTORIZED))
    flat = run(Function("picked", (x, y), (N,), T, 1, nest))
    (value,) = (s.value for s in walk_statements(flat.body) if isinstance(s, Store))
    assert isinstance(value, BufferLoad)
    assert not isinstance(value.indices[0], Ramp)


@settings(deadline=None, max_examples=150)
@given(
    size=st.sampled_from([4, 8, 16]),
    wanted=st.integers(1, 16),
    stride=st.integers(1, 4),
    group=st.integers(1, 6),
    first=st.integers(0, 3),
    more=st.integers(0, 40),
    known=st.booleans(),
)
def test_masked_lanes_pick_what_they_would(
    size: int, wanted: int, stride: int, group: int, first: int, more: int, known: bool
) -> None:
    """Of lanes that want something, each picks its element, whatever of the stretch that lies in other lanes is known to exist."""
    wanted = min(wanted, size)
    lane = C // group * group * stride + C % group * stride + first
    length = (wanted - 1) * stride + first + 1 + more
    row = lift(0) if known else T
    x, y = Buffer("x", FLOAT, (2, length) if not known else (length,)), Buffer("y", FLOAT, (2, size))
    index = (lane,) if known else (row, lane)
    value = BufferLoad(x, index, wanted > C)
    nest = loops(Store(y, (row, C), value, wanted > C), (C, size, VECTORIZED))
    function = Function("picked", (x, y), (N,), T, 2, nest)
    flat = run(function)
    verify(flat, flat=True)
    for before, after in zip(outputs(function, {"n": 1}), outputs(flat, {"n": 1}), strict=True):
        np.testing.assert_array_equal(before, after)


def _values(statement: object) -> list[Expr]:
    value = getattr(statement, "value", None)
    return list(walk(value)) if isinstance(value, Expr) else []
