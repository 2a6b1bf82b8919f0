"""Accesses at positions from data: what is proven to be inside, what is refused, and what extents are asked to be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from compiler_service.compiler.loop_ir.algorithms.compact import CompactCell, let, load, loop, with_cell
from compiler_service.compiler.loop_ir.algorithms.table import algorithm_function, is_proven
from compiler_service.compiler.loop_ir.interpret import run
from compiler_service.compiler.loop_ir.ir import Block, Buffer, BufferLoad, Function, If, Statement, Store
from compiler_service.compiler.loop_ir.positions.proof import required_extents
from compiler_service.compiler.tensor_expr.tensor import placeholder
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr, Var, cast, lift, logical_and, maximum, minimum, select, walk
from shared_ir.expr.dim import Dim, symbol
from shared_ir.graph.ir import Attribute

N, M, TASK = Var("d0"), Var("d1"), Var("t")
F32, I64 = DType.FLOAT32, DType.INT64


def program(
    body: Callable[[Buffer, Buffer, Buffer], Statement], extent: Dim = N, dtype: DType = DType.INT64
) -> Function:
    """A function of ``x`` [extent], ``indices`` [d1] and ``y`` [d1], with a task for each index."""
    x, y = Buffer("x", DType.FLOAT32, (extent,)), Buffer("y", DType.FLOAT32, (M,))
    indices = Buffer("indices", dtype, (M,))
    return Function("kernel", (x, indices, y), (N, M), TASK, M, body(x, indices, y))


def gather(position: Callable[[Expr], Expr], extent: Dim = N, dtype: DType = DType.INT64) -> Function:
    """``y[t] = x[position(indices[t])]``."""
    return program(
        lambda x, indices, y: Store(y, (TASK,), load(x, position(cast(load(indices, TASK), DType.INT64)))),
        extent,
        dtype,
    )


def scatter(write: Callable[[Buffer, Expr], Statement], extent: Dim = N) -> Function:
    """What ``write`` does to ``x`` at the position ``indices[t]``."""
    return program(lambda x, indices, y: let("p", load(indices, TASK), lambda p: write(x, p)), extent)


INSIDE = {
    "clamped": lambda i: maximum(minimum(i, N - 1), 0),
    "clamped the other way": lambda i: minimum(maximum(i, 0), N - 1),
    "from the end, clamped": lambda i: maximum(minimum(select(i < 0, i + N, i), N - 1), 0),
    "chosen": lambda i: select(logical_and(i >= 0, i < N), i, 0),
    "remainder": lambda i: i % N,
    "remainder of a sum": lambda i: (i * 7 + 3) % N,
}
OUTSIDE = {
    "as it is": lambda i: i,
    "a square that may wrap": lambda i: minimum(
        cast(cast(i, DType.UINT32), DType.INT64) * cast(cast(i, DType.UINT32), DType.INT64), N - 1
    ),
    "twice what is nearly the largest": lambda i: minimum(maximum(minimum(i, 2**62), 0) * 2, N - 1),
    "one more than a number that may be the largest": lambda i: minimum(maximum(i, 0) + 1, N - 1),
    "an extent times another": lambda i: minimum(maximum(minimum(i, N - 1), 0) * M, N - 1),
    "clamped before it wraps": lambda i: cast(cast(maximum(minimum(i, N - 1), 0), DType.INT32), DType.INT64),
    "cut off to a type that is wider than the axis": lambda i: cast(cast(i, DType.UINT8), DType.INT64),
    "from the end": lambda i: select(i < 0, i + N, i),
    "only from below": lambda i: maximum(i, 0),
    "only from above": lambda i: minimum(i, N - 1),
    "one too far": lambda i: maximum(minimum(i, N), 0),
    "one before": lambda i: maximum(minimum(i, N - 1), -1),
    "moved after it was clamped": lambda i: maximum(minimum(i, N - 1), 0) + 1,
    "doubled after it was clamped": lambda i: maximum(minimum(i, N - 1), 0) * 2,
    "chosen by the wrong test": lambda i: select(i < N, i, 0),
    "chosen by the end of a sum, which may wrap": lambda i: select(logical_and(i >= 0, i + 1 < N), i, 0),
    "chosen where it is outside": lambda i: select(logical_and(i >= 0, i < N), 0, i),
}


@pytest.mark.parametrize("kind", INSIDE)
def test_what_keeps_a_position_inside_is_a_proof(kind: str) -> None:
    assert required_extents(gather(INSIDE[kind])) == {(N, 1)}, "an empty axis has no position inside"


@pytest.mark.parametrize("kind", OUTSIDE)
def test_less_is_refused(kind: str) -> None:
    with pytest.raises(IngotError, match="axis 0 of x is accessed at a position from data") as caught:
        required_extents(gather(OUTSIDE[kind]))
    assert caught.value.code is ErrorCode.COMPILER_FAULT
    assert caught.value.node == "kernel"
    assert "y[t]" in caught.value.field


def test_another_extent_must_be_no_larger() -> None:
    """The symbol of another tensor: that they are equal is for the run to find."""
    assert required_extents(gather(lambda i: maximum(minimum(i, M - 1), 0))) == {(N, maximum(1, M))}
    assert required_extents(gather(lambda i: i % M)) == {(N, maximum(1, M))}
    assert required_extents(gather(lambda i: i % M, 8)) == {(8, maximum(1, M))}


def test_constant_extents_ask_for_nothing() -> None:
    assert not required_extents(gather(lambda i: maximum(minimum(i, 7), 0), 8))
    assert not required_extents(gather(lambda i: i % 8, 8))
    with pytest.raises(IngotError, match="0 <= max"):
        required_extents(gather(lambda i: maximum(minimum(i, 8), 0), 8))


def test_narrow_types_are_bounds() -> None:
    assert not required_extents(gather(lambda i: i, 256, DType.UINT8))
    for extent, dtype in ((255, DType.UINT8), (256, DType.INT8)):
        with pytest.raises(IngotError):
            required_extents(gather(lambda i: i, extent, dtype))


def known(ends: tuple[int, int] | None) -> Callable[[Buffer], tuple[int, int] | None]:
    return lambda _: ends


def test_conversions_that_wrap_are_no_bounds() -> None:
    assert not required_extents(gather(lambda i: cast(cast(i, DType.UINT8), DType.INT64), 256))
    with pytest.raises(IngotError):
        required_extents(gather(lambda i: cast(cast(i, DType.UINT8), DType.INT64), 255))
    with pytest.raises(IngotError):
        required_extents(gather(lambda i: cast(cast(i % 256, DType.INT8), DType.INT64), 256))


def test_narrow_rooms_keep_what_fits_them() -> None:
    def body(x: Buffer, indices: Buffer, y: Buffer) -> Statement:
        clamped = maximum(minimum(load(indices, TASK), 7), 0)
        return with_cell(
            "at", cast(clamped, DType.INT32), lambda at: Store(y, (TASK,), load(x, cast(at.value, DType.INT64)))
        )

    assert not required_extents(program(body, 8))
    with pytest.raises(IngotError):
        required_extents(program(body, 7))


def test_what_other_tasks_store_is_not_bounded_by_ones_own() -> None:
    """Elements of an argument that every task writes its own number to."""

    def body(x: Buffer, indices: Buffer, y: Buffer) -> Statement:
        put = Store(indices, (TASK,), TASK)
        return Block((put, If(TASK < N, Store(y, (TASK,), load(x, load(indices, 0))))))

    assert required_extents(program(body)) == {(N, M)}


def test_known_elements_are_bounds() -> None:
    assert not required_extents(gather(lambda i: i, 8), lambda buffer: (0, 7) if buffer.name == "indices" else None)
    for ends in ((0, 8), (-1, 7), None):
        with pytest.raises(IngotError):
            required_extents(gather(lambda i: i, 8), known(ends))


def test_writes_are_tested_like_reads() -> None:
    one = lift(1.0, DType.FLOAT32)
    guarded = scatter(lambda x, p: If(logical_and(p >= 0, p < N), Store(x, (p,), one)))
    assert not required_extents(guarded), "what is inside shows that the axis is not empty"
    masked = scatter(lambda x, p: Store(x, (p,), one, mask=logical_and(p >= 0, p < N)))
    assert not required_extents(masked)
    otherwise = scatter(lambda x, p: If(p < 0, Block(()), If(p >= N, Block(()), Store(x, (p,), one))))
    assert not required_extents(otherwise)

    def under(test: Callable[[Expr], Expr]) -> Function:
        return scatter(lambda x, p: If(test(p), Store(x, (p,), one)))

    for test in (lambda p: p >= 0, lambda p: p < N, lambda p: logical_and(p >= 0, p <= N)):
        with pytest.raises(IngotError, match="axis 0 of x"):
            required_extents(under(test))


def test_a_loop_as_long_as_data_says_is_a_position_from_data() -> None:
    def body(bound: Callable[[Expr], Expr]) -> Function:
        return program(
            lambda x, indices, y: loop("k", bound(load(indices, TASK)), lambda k: Store(y, (TASK,), load(x, k)))
        )

    assert not required_extents(body(lambda i: minimum(i, N)))
    with pytest.raises(IngotError):
        required_extents(body(lambda i: i))


def counting(room: Callable[[Expr], Expr], start: int = 0, step: int = 1) -> Function:
    """Writes where a counter stands."""

    def over(x: Buffer, indices: Buffer, y: Buffer) -> Statement:
        def visit(count: CompactCell) -> Statement:
            put = Block((Store(x, (count.value,), lift(1.0, DType.FLOAT32)), count.set(count.value + step)))
            wanted = load(indices, TASK) > 0
            return loop("i", M, lambda i: If(logical_and(wanted, room(count.value)), put))

        return with_cell("count", lift(start), visit)

    return program(over)


def test_counters_are_bounded_by_all_of_their_stores() -> None:
    assert not required_extents(counting(lambda c: c < N))
    for wrong in (counting(lambda c: c <= N), counting(lambda c: c < N, -1), counting(lambda c: c < N, 0, -1)):
        with pytest.raises(IngotError):
            required_extents(wrong)


def test_a_counter_begins_as_a_size() -> None:
    def over(x: Buffer, indices: Buffer, y: Buffer) -> Statement:
        def visit(at: CompactCell) -> Statement:
            put = Store(x, (minimum(at.value, N - 1),), lift(1.0, DType.FLOAT32))
            return Block((at.set(at.value + 1), put))

        return with_cell("at", maximum(load(indices, TASK), 0), visit)

    with pytest.raises(IngotError, match="axis 0 of x"):
        required_extents(program(over))


def copying(also: Expr | None = None) -> Function:
    """Reads where a cell says that takes what another one holds, and takes it back; ``also`` is stored besides."""

    def over(x: Buffer, indices: Buffer, y: Buffer) -> Statement:
        def swap(at: CompactCell, held: CompactCell) -> Statement:
            read = Store(y, (TASK,), load(x, held.value))
            more = () if also is None else (held.set(also),)
            return Block((*more, held.set(at.value), read, at.set(held.value)))

        first = minimum(maximum(load(indices, TASK), 0), 7)
        return with_cell("at", first, lambda at: with_cell("held", at.value, lambda held: swap(at, held)))

    return program(over, 8)


def test_what_takes_elements_of_another_buffer_alone_has_its_bounds() -> None:
    assert not required_extents(copying())
    for wrong in (8, -1):
        with pytest.raises(IngotError, match="axis 0 of x"):
            required_extents(copying(lift(wrong)))


def test_masks_are_looked_at() -> None:
    one = lift(1.0, DType.FLOAT32)
    masked = program(lambda x, indices, y: Store(y, (TASK,), one, mask=load(x, load(indices, TASK)) > 0))
    with pytest.raises(IngotError, match="axis 0 of x"):
        required_extents(masked)


def test_what_was_tested_before_a_write_is_forgotten() -> None:
    one = lift(1.0, DType.FLOAT32)

    def twice(x: Buffer, indices: Buffer, y: Buffer) -> Statement:
        def over(at: CompactCell) -> Statement:
            put = Store(x, (at.value,), one)
            inside = logical_and(at.value >= 0, at.value < N)
            return If(inside, Block((put, at.set(at.value + 1), put)))

        return with_cell("at", load(indices, TASK), over)

    def in_turn(x: Buffer, indices: Buffer, y: Buffer) -> Statement:
        def over(at: CompactCell) -> Statement:
            inside = logical_and(at.value >= 0, at.value < N)
            put = Block((Store(x, (at.value,), one), at.set(at.value + 1)))
            return If(inside, loop("k", M, lambda _: put))

        return with_cell("at", load(indices, TASK), over)

    for wrong in (twice, in_turn):
        with pytest.raises(IngotError, match="axis 0 of x"):
            required_extents(program(wrong))


Typed = tuple[tuple[Dim, ...], DType]
ALGORITHMS: dict[str, tuple[list[Typed], Typed, dict[str, Attribute]]] = {
    "ingot.Positions": ([((N,), DType.BOOL)], ((M,), DType.INT64), {}),
    "ingot.Sorted": ([((3, N), DType.FLOAT32)], ((3, 2, N), DType.INT64), {}),
    "ingot.Best": ([((3, 100), DType.FLOAT32)], ((3, 5), DType.INT64), {}),
    "ingot.Determinant": ([((N, 9, 9), DType.FLOAT32)], ((N,), DType.FLOAT32), {}),
    "ingot.Suppressed": (
        [
            ((2, N, 4), DType.FLOAT32),
            ((2, 3, N), DType.FLOAT32),
            ((2, 3, N), DType.INT64),
            ((1,), DType.INT64),
            ((1,), DType.FLOAT32),
            ((1,), DType.FLOAT32),
        ],
        ((2, 3, N), DType.INT64),
        {},
    ),
    "ingot.Scattered": (
        [((N, 4), DType.FLOAT32), ((M, 4), DType.INT64), ((M, 4), DType.FLOAT32)],
        ((N, 4), DType.FLOAT32),
        {"axis": 0, "reduction": "add"},
    ),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_loop_functions_need_no_extent(name: str) -> None:
    given_, (shape, dtype), attributes = ALGORITHMS[name]
    arguments = [placeholder(f"x{i}", s, d) for i, (s, d) in enumerate(given_)]
    function = algorithm_function(name, "f", arguments, placeholder("y", shape, dtype), 2, attributes)
    assert not required_extents(function)


# Two records: the first goes on to itself or to the second, a leaf, which tests for NaN.
_NAN = int(np.float32("nan").view(np.int32))
TREE = np.array([1, 0, 0, 0, 0, _NAN, 4, 1], np.int32)


def trees(records: np.ndarray, roots: int = 0) -> bool:
    x, root = Buffer("x", DType.FLOAT32, (M, 2)), Buffer("roots", DType.INT32, (1,))
    words, steps = Buffer("records", DType.INT32, (len(records),)), Buffer("steps", DType.INT32, (1,))
    elements = ((), [np.array([roots], np.int32)], [records], [np.ones(1, np.int32)])
    return is_proven("ingot.TreeLeaves", (x, root, words, steps), elements, {})


def test_tables_of_trees_are_looked_at() -> None:
    assert trees(TREE)
    assert not is_proven("ingot.TreeLeaves", (), (), {}), "nothing is known"
    assert not trees(TREE, roots=8)
    for at, wrong in ((0, 2), (0, -1), (2, 4), (2, -4), (2, 1), (5, 0), (6, 8)):
        changed = TREE.copy()
        changed[at] = wrong
        assert not trees(changed), (at, wrong)


SIZE = 6
_numbers = st.integers(-3, SIZE + 3)


def _grown(inner: st.SearchStrategy[Callable[[Expr], Expr]]) -> st.SearchStrategy[Callable[[Expr], Expr]]:
    def both(make: Callable[[Expr, Expr], Expr]) -> st.SearchStrategy[Callable[[Expr], Expr]]:
        return st.tuples(inner, inner).map(lambda two: lambda i: make(two[0](i), two[1](i)))

    def chosen(parts: tuple[Callable[[Expr], Expr], ...]) -> Callable[[Expr], Expr]:
        a, b, c, d = parts
        return lambda i: select(a(i) < b(i), c(i), d(i))

    return st.one_of(
        both(minimum),
        both(maximum),
        both(lambda a, b: a + b),
        both(lambda a, b: a - b),
        both(lambda a, b: a * b),
        inner.map(lambda f: lambda i: f(i) % SIZE),
        inner.map(lambda f: lambda i: f(i) // 2),
        st.tuples(inner, inner, inner, inner).map(chosen),
    )


POSITIONS = st.recursive(
    st.one_of(
        st.just(lambda i: i),
        _numbers.map(lambda n: lambda i: lift(n) + i * 0),
        _numbers.map(lambda n: lambda _: lift(n)),
    ),
    _grown,
    max_leaves=8,
)


@given(POSITIONS)
def test_what_is_proven_is_inside(position: Callable[[Expr], Expr]) -> None:
    """For random positions: where there is a proof, no number of the data leads outside."""
    function = gather(lambda i: maximum(position(i), 0), SIZE)
    assert isinstance(function.body, Store)
    assume(any(isinstance(e, BufferLoad) for e in walk(function.body.value.children()[0])))
    try:
        required_extents(function)
    except IngotError:
        return
    given_ = np.array([*range(-20, 20), 2**62, -(2**62), 2**63 - 1, -(2**63)])
    x, y = np.arange(SIZE, dtype=np.float32), np.zeros(len(given_), np.float32)
    run(function, [x, given_, y], {"d0": SIZE, "d1": len(given_)})  # the interpreter raises where an index is outside


def test_extents_are_named_as_they_are() -> None:
    twice, both = symbol("d0") * 2, symbol("d0") + symbol("d1")
    assert required_extents(gather(lambda i: maximum(minimum(i, N * 2 - 1), 0), twice)) == {(twice, 1)}
    assert not required_extents(gather(lambda i: maximum(minimum(i, N + M - 1), 0), both)), (
        "there is a task for each of d1"
    )


@pytest.mark.parametrize(("parts", "further", "is_inside"), [(2, 0, True), (1, 1, True), (3, 0, False), (2, 1, False)])
def test_the_index_of_a_task_is_taken_apart(parts: int, further: int, is_inside: bool) -> None:
    """``TASK < parts * tiles`` says ``TASK // tiles < parts``, whatever the number of tiles."""
    tiles = (N + 1249) // 1250
    x, indices, y = (Buffer(n, k, (e,)) for n, k, e in (("x", F32, 2), ("indices", I64, M), ("y", F32, M)))
    turned = minimum(load(indices, lift(0)), 2)
    part = TASK // tiles + further
    body = Store(y, (lift(0),), load(x, select(part < turned, turned - 1 - part, part)))
    function = Function("kernel", (x, indices, y), (N, M), TASK, tiles * parts, body)
    if is_inside:
        assert not required_extents(function)
    else:
        with pytest.raises(IngotError, match="not proven to be inside"):
            required_extents(function)
