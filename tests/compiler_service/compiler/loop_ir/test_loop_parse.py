"""Loop programs read from the text that they print as."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from compiler_service.compiler.codegen.emit.kernel import emit_kernel
from compiler_service.compiler.loop_ir.expression_parser import LineParser
from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferScope,
    Checkpoint,
    For,
    ForKind,
    Function,
    If,
    Let,
    Prefetch,
    Ramp,
    Shuffle,
    Statement,
    Store,
    VectorReduce,
    VectorVar,
    walk_statements,
)
from compiler_service.compiler.loop_ir.parse import parse_function
from compiler_service.compiler.loop_ir.passes import LOOP_PASSES
from compiler_service.compiler.loop_ir.text import expression_text, print_function, statement_head
from compiler_service.compiler.loop_ir.verify import verify
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, topological
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import COMPARISONS, Binary, BinaryOp, Cast, Const, Expr, Reinterpret, Select, Unary, UnaryOp, Var
from shared_ir.expr.dim import dim_symbols
from tests.compiler_service.compiler.loop_ir.loop_checks import assert_reads_back
from tests.compiler_service.compiler.loop_ir.loop_programs import (
    convolution,
    guarded_scale,
    load,
    padded_copy,
    register_tiled_matmul,
    row_sums,
    slice_copy,
    store,
)
from tests.compiler_service.compiler.loop_ir.passes.test_loop_passes_random import Program, functions, results
from tests.compiler_service.compiler.schedule.kernels import ONE_QUICK_TARGET, TARGETS, arguments_of
from tests.compiler_service.compiler.schedule.test_default_schedules import CASES, QUICK

SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large]
A, B, C = Var("a"), Var("b"), Var("c")
X, Y, T = Buffer("x", DType.FLOAT32, (4, 8)), Buffer("y", DType.FLOAT32, (4, 8)), Var("t")
NAMES: dict[str, Var | Buffer] = {"a": A, "b": B, "c": C, "x": X}
FLAT = {"unroll", "shuffle", "start"}
"""Passes behind which a function is flat."""


def stages(function: Function) -> list[tuple[str, Function]]:
    """The function as it comes, and behind every pass."""
    found = [("lowered", function)]
    for item in LOOP_PASSES:
        function = item.apply(function)
        found.append((item.name, function))
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("target", ONE_QUICK_TARGET)
@pytest.mark.parametrize("case", [pytest.param(c, marks=[] if c in QUICK else pytest.mark.slow) for c in CASES])
def test_kernels_read_back_at_every_stage_and_emit_the_same_code(case: str, target: str) -> None:
    output, _ = coalesce(CASES[case][0])
    symbols = sorted(dim_symbols(d for t in topological(output) for d in t.shape))
    schedule = default_schedule(output, frozenset(), TARGETS[target])
    kernel = lower("kernel", output, arguments_of(output), symbols, schedule, TARGETS[target])
    for name, function in stages(kernel):
        read = assert_reads_back(function)
        verify(read, name in FLAT)
    assert emit_kernel(read, TARGETS[target], "k") == emit_kernel(function, TARGETS[target], "k")


@pytest.mark.parametrize(
    "program",
    [guarded_scale, register_tiled_matmul, convolution, padded_copy, row_sums, slice_copy],
    ids=lambda p: p.__name__,
)
def test_programs_read_back_at_every_stage(program: Callable[[], Function]) -> None:
    for _, function in stages(program()):
        assert_reads_back(function)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=SLOW_DRAWS,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(program=functions().map(Program), n=st.integers(1, 4))
def test_random_programs_read_back_and_compute_the_same(program: Program, n: int) -> None:
    for _, function in stages(program.function):
        read = assert_reads_back(function)
    for found, wanted in zip(results(read, n), results(program.function, n), strict=True):
        np.testing.assert_array_equal(found, wanted)


# -- expressions


def read(text: str) -> Expr:
    parser = LineParser(text, 1, NAMES)
    expr = parser.expr()
    parser.end()
    return expr


def _numbers() -> list[Expr]:
    """Constants of every type, the values among them that are written differently."""
    floats = [0.0, -0.0, 1.0, -2.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan")]
    found: list[Expr] = [Const(False, DType.BOOL), Const(True, DType.BOOL)]
    for dtype in DType:
        if dtype.is_float:
            found += [Const(value, dtype) for value in floats]
        elif dtype.is_integer:
            found += [Const(value, dtype) for value in (0, 1, *dtype.limits)]
    return found


def _operations() -> list[Expr]:
    wide, vector = load(X, A, B), BufferLoad(X, (A, Ramp(B, Const(1), 4)))
    return [
        *(Unary(op, wide) for op in UnaryOp),
        *(Binary(op, A, B) for op in BinaryOp),
        *(Binary(op, A, Binary(op, B, C)) for op in BinaryOp if op not in COMPARISONS),
        *(Binary(op, Binary(op, A, B), C) for op in BinaryOp if op not in COMPARISONS),
        *(Cast(dtype, A) for dtype in DType),
        Reinterpret(DType.INT32, wide),
        *(VectorReduce(op, vector) for op in ReduceOp),
        Select(Binary(BinaryOp.LT, A, B), wide, wide),
        Binary(BinaryOp.EQ, Binary(BinaryOp.LT, A, B), Binary(BinaryOp.LT, B, C)),
        Ramp(A, Const(-2), 4),
        Broadcast(Const(-1), 4),
        Shuffle(vector, vector, (0, 5, 2, 7)),
        BufferLoad(X, (A, Ramp(Const(-2), Const(1), 4)), Binary(BinaryOp.EQ, Ramp(A, B, 4), Broadcast(C, 4))),
        Binary(BinaryOp.SUB, A, Const(-1)),
        Binary(BinaryOp.MUL, Const(-1), Binary(BinaryOp.SUB, Const(3), Const(4))),
    ]


@pytest.mark.parametrize("expr", [*_numbers(), *_operations()], ids=expression_text)
def test_expressions_read_back(expr: Expr) -> None:
    found = read(expression_text(expr))
    assert expression_text(found) == expression_text(expr)
    assert found.dtype is expr.dtype
    if not any(isinstance(e, BufferLoad | Ramp | Broadcast | Shuffle) for e in (expr, *expr.children())):
        assert found is expr  # equal scalar expressions are one object


# -- what the text has to say


def over_x_and_y(body: Statement) -> Function:
    return Function("f", (X, Y), (), T, 1, body)


def test_the_end_of_a_let_and_of_memory_is_said() -> None:
    """A statement behind a let is not inside it; memory that lived longer would take more of it."""
    local = Buffer("local", DType.FLOAT32, (4,), BufferScope.SCRATCH)
    zero = Const(0.0, DType.FLOAT32)
    inner = Allocate(local, store(local, [0], zero))
    text = print_function(over_x_and_y(Block((inner, Let(A, T * 2, store(Y, [0, A], zero)), store(Y, [T, 0], zero)))))
    assert text.splitlines()[2:] == [
        "    scope:",
        "        scratch local: float32[4]",
        "        local[0] = 0.0",
        "    scope:",
        "        let a = t * 2",
        "        y[0, a] = 0.0",
        "    y[t, 0] = 0.0",
    ]
    body = parse_function(text).body
    assert isinstance(body, Block)
    (first, second, third) = body.statements
    assert isinstance(first, Allocate)
    assert isinstance(second, Let)
    assert isinstance(third, Store)
    assert_reads_back(over_x_and_y(Block((Block((store(Y, [0, 0], zero), inner)), inner))))


def test_memory_that_is_allocated_in_two_places_stays_one_buffer() -> None:
    local = Buffer("local", DType.FLOAT32, (4,), BufferScope.STACK)
    use = Allocate(local, store(local, [0], Const(0.0, DType.FLOAT32)))
    read = assert_reads_back(over_x_and_y(Block((use, For(A, Const(2), ForKind.UNROLLED, use)))))
    assert isinstance(read.body, Block)
    first, second = read.body.statements
    assert isinstance(first, Allocate)
    assert isinstance(second, For)
    assert isinstance(second.body, Allocate)
    assert first.buffer is second.body.buffer


def test_the_distance_of_prefetching_and_strides_are_said() -> None:
    weights = Buffer("w", DType.BFLOAT16, (4, 8), prefetch=1024, strides=(16, 1))
    read = assert_reads_back(Function("f", (weights, Y), (), T, 1, Prefetch(weights, (T, Const(0)), 2)))
    assert (read.buffers[0].prefetch, read.buffers[0].strides) == (1024, (16, 1))


def test_checkpoints() -> None:
    body = Block((store(Y, [A], Const(0.0, DType.FLOAT32)), Checkpoint()))
    read = assert_reads_back(Function("f", (Y,), (), T, 1, For(A, Const(4), ForKind.SERIAL, body)))
    assert any(isinstance(s, Checkpoint) for s in walk_statements(read.body))


def test_names_that_mean_something_else_are_changed() -> None:
    odd = [Buffer(name, DType.FLOAT32, (4,)) for name in ("out", "let", "and", "1", "", "stack", "if", "mask", "min")]
    task = Var("task")
    body = Block(tuple(store(b, [task], load(odd[0], task)) for b in odd))
    assert_reads_back(Function("f", tuple(odd), (Var("or"), Var("function")), task, Var("or"), body))


def test_a_function_without_a_name_has_one_in_the_text() -> None:
    assert assert_reads_back(Function("", (X, Y), (), T, 1, store(Y, [0, 0], load(X, 0, 0)))).name == "_"


FIRST_BEYOND = 1 << 63


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (T * 2 + Const(FIRST_BEYOND), f"t * 2 + {-FIRST_BEYOND}"),
        (T * Const(5 - 4 * FIRST_BEYOND) + 1, "t * 5 + 1"),
        (Const(-FIRST_BEYOND - 3), str(FIRST_BEYOND - 3)),
        (T * Const(FIRST_BEYOND - 1), f"t * {FIRST_BEYOND - 1}"),
    ],
)
def test_numbers_that_int64_does_not_hold_are_printed_modulo_2_to_the_64(index: Expr, text: str) -> None:
    """As flattening and simplification leave them in positions."""
    function = over_x_and_y(store(Y, [index, 0], Const(0.0, DType.FLOAT32)))
    verify(function)
    verify(assert_reads_back(function))
    assert f"y[{text}, 0]" in print_function(function)
    assert statement_head(function.body) == f"y[{expression_text(index)}, 0] = 0.0"


@pytest.mark.parametrize("base", [FIRST_BEYOND - 2, FIRST_BEYOND, -FIRST_BEYOND, -FIRST_BEYOND - 1])
def test_vectors_of_positions_at_the_ends_of_int64(base: int) -> None:
    zeros = Broadcast(Const(0.0, DType.FLOAT32), 4)
    assert_reads_back(over_x_and_y(Store(Y, (T, Ramp(Const(base), Const(1), 4)), zeros)))


def test_vector_names_and_branches() -> None:
    mask = VectorVar("m", DType.BOOL, 4)
    ramp = Ramp(T, Const(1), 4)
    value = BufferLoad(X, (T, ramp), mask)
    inner = Let(mask, Binary(BinaryOp.LT, ramp, Broadcast(Const(7), 4)), Store(Y, (T, ramp), value, mask))
    read = assert_reads_back(over_x_and_y(If(Binary(BinaryOp.LT, T, Const(1)), inner, Block(()))))
    assert isinstance(read.body, If)
    assert isinstance(read.body.then, Let)
    assert read.body.then.var is mask
    verify(read)


def test_comments_and_empty_lines_are_passed_over() -> None:
    text = print_function(guarded_scale())
    noted = "# a kernel\n\n" + text.replace("\n", "  # noted\n\n")
    assert print_function(parse_function(noted)) == text


# -- mistakes

HEAD = "function f(x: float32[n], out y: float32[n]; n: int64)\nfor task t in 0..n:\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: the loop IR text does not parse; expected function NAME"),
        ("graph main() -> ()", "expected function NAME"),
        (HEAD, "line 3, .* a statement, or pass"),
        (HEAD + "  y[t] = x[t]", "line 3, .* 4 columns in"),
        (HEAD + "    y[t] = x[t]\n  pass", "line 4, .* the end of the function"),
        (HEAD + "    y[t] = z[t]", "line 3, column 12: this name is not bound; .* received 'z"),
        (HEAD + "    y[t] = x[t", "line 3, column 15: .*expected ','; received|expected ','"),
        (HEAD + "    y[t] = x[t] + 1", "operands of add of one type"),
        (HEAD + "    y[t] = foo(x[t])", "there is no function 'foo'"),
        (HEAD + "    y[t] = 1.0q8", "expected end of line"),
        (HEAD + "    y[t] = 1.0f7", "expected an element type"),
        (HEAD + "    y[t] = 1.5i32", "expected a whole number of int32"),
        (HEAD + "    y[t] = float32(300u8)", "expected a whole number of uint8"),
        (HEAD + "    y[t + " + "9" * 5000 + "] = x[t]", "expected a whole number of int64"),
        (HEAD + "    y[t:+" + "9" * 5000 + "] = x[t]", "expected a whole number"),
        (HEAD + "    y[t] = select(0 < t < n, x[t], 0.0)", "brackets that say which comparison comes first"),
        (HEAD + "    y[inf:4] = x[t]", "expected '\\+' and a number of lanes"),
        (HEAD + "    y[t:n] = x[t]", "expected '\\+' and a number of lanes"),
        (HEAD + "    let t = n\n    y[t] = x[t]", "the name 't' is bound already"),
        (HEAD + "    stack x: float32[4]\n    y[t] = x[t]", "the name 'x' is bound already"),
        (HEAD + "    n[t] = x[t]", "this is none"),
        (HEAD + "    prefetch.l1 x[t, mask=true]", "a prefetch without a mask"),
        (HEAD + "    for i in 0..n sideways:\n        pass", "expected ':'"),
        (HEAD + "    for i in 0..n:\n    pass", "line 4, .* 8 columns in|a statement, or pass"),
        (HEAD + "    x[t] = y[t]", "argument x of f is stored to; expected 'out' before x"),
        ("function f(x: float33[n]; n: int64)\nfor task t in 0..n:\n    pass", "expected an element type"),
        (HEAD + "    y[t] = " + "exp(" * 5000 + "1.0" + ")" * 5000, "nested too deeply"),
    ],
    ids=lambda value: value[-24:],
)
def test_mistakes_are_said_with_their_place(text: str, message: str) -> None:
    with pytest.raises(IngotError, match=message) as caught:
        parse_function(text)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


PIECES = [
    "",
    " ",
    "\n",
    "    ",
    "(",
    ")",
    "[",
    "]",
    ":",
    ":+",
    ", ",
    "-",
    "0",
    "1e999",
    "inf",
    "x",
    "mask=",
    "scope:",
    "\x00",
    "²",
]


@settings(max_examples=300, deadline=None)
@given(
    program=st.sampled_from([guarded_scale, register_tiled_matmul, padded_copy]),
    flat=st.booleans(),
    edits=st.lists(
        st.tuples(st.integers(0, 1 << 16), st.integers(0, 6), st.sampled_from(PIECES)), min_size=1, max_size=4
    ),
)
def test_damaged_text_is_refused_or_read_as_it_prints(
    program: Callable[[], Function], flat: bool, edits: list[tuple[int, int, str]]
) -> None:
    text = print_function(stages(program())[-1][1] if flat else program())
    for place, length, piece in edits:
        at = place % (len(text) + 1)
        text = text[:at] + piece + text[at + length :]
    try:
        found = parse_function(text)
        verify(found)
    except IngotError:
        return
    assert_reads_back(found)
