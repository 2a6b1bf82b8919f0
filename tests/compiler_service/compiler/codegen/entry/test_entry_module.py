"""Dims as LLVM IR against their meaning in Python, and the printed entry of a small plan."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compiler_service.compiler.codegen.entry.dim_code import DECLARATIONS, Body, DimCode
from compiler_service.compiler.codegen.entry.module import emit_entry
from compiler_service.compiler.codegen.entry.steps import MOST_TOGETHER
from runtime_service.loading.loader import load_model
from shared_ir.dtype import ONNX_DTYPES, DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Select, Unary, UnaryOp, Var
from shared_ir.expr.dim import Dim, parse_dim, symbol
from shared_ir.machine.target import parse_target
from shared_ir.plan.program import BufferSpec, Constraint, KernelSpec, Launch, Plan, Storage, SymbolSource, TensorSpec
from shared_ir.sizes import Sizes
from tests.native_models import build_model, toy_plan

SYMBOLS = ("a", "b", "c")
OPERATIONS: dict[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.ADD: lambda x, y: x + y,
    BinaryOp.SUB: lambda x, y: x - y,
    BinaryOp.MUL: lambda x, y: x * y,
    BinaryOp.FLOOR_DIV: lambda x, y: x // (y or 1),
    BinaryOp.FLOOR_MOD: lambda x, y: x % (y or 1),
    BinaryOp.TRUNC_DIV: lambda x, y: truncated(x, y or 1),
    BinaryOp.TRUNC_MOD: lambda x, y: x - truncated(x, y or 1) * (y or 1),
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
}
COMPARISONS: dict[BinaryOp, Callable[[int, int], bool]] = {
    BinaryOp.LT: lambda x, y: x < y,
    BinaryOp.LE: lambda x, y: x <= y,
    BinaryOp.GT: lambda x, y: x > y,
    BinaryOp.GE: lambda x, y: x >= y,
    BinaryOp.EQ: lambda x, y: x == y,
    BinaryOp.NE: lambda x, y: x != y,
}


def truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


OVERFLOW = -(1 << 62)


def load_symbol(body: Body, name: str) -> str:
    return body.element("%symbols", SYMBOLS.index(name))


def run_dim(dim: Dim, values: tuple[int, ...]) -> int:
    """``dim`` computed by machine code; ``OVERFLOW`` where an int64 does not hold it."""
    body = Body()
    load = partial(load_symbol, body)
    body.add(f"ret i64 {DimCode(body, load, f'ret i64 {OVERFLOW}').operand(dim)}")
    text = "\n".join([*DECLARATIONS, "define i64 @f(ptr %symbols) {", body.text(), "}"])
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine()
    with llvm.create_mcjit_compiler(module, machine) as engine:
        engine.finalize_object()
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(engine.get_function_address("f"))
        return int(function((ctypes.c_int64 * len(values))(*values)))


def meaning(expr: Expr, values: tuple[int, ...]) -> int:
    match expr:
        case Const(value=value):
            return int(value)
        case Var(name=name):
            return values[SYMBOLS.index(name)]
        case Binary(op=op, lhs=lhs, rhs=rhs):
            if op in (BinaryOp.AND, BinaryOp.OR):
                both = bool(meaning(lhs, values)), bool(meaning(rhs, values))
                return all(both) if op is BinaryOp.AND else any(both)
            return (OPERATIONS | COMPARISONS)[op](meaning(lhs, values), meaning(rhs, values))
        case Select(cond=cond, then=then, otherwise=otherwise):
            return meaning(then if meaning(cond, values) else otherwise, values)
    raise AssertionError(expr)


leaves = st.one_of(st.sampled_from([Var(s) for s in SYMBOLS]), st.integers(-9, 9).map(Const))


def extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    compared = st.builds(Binary, st.sampled_from(list(COMPARISONS)), inner, inner)
    joined = st.builds(Binary, st.sampled_from([BinaryOp.AND, BinaryOp.OR]), compared, compared)
    return st.one_of(
        st.builds(Binary, st.sampled_from(list(OPERATIONS)), inner, inner),
        st.builds(Select, st.one_of(compared, joined), inner, inner),
    )


expressions = st.recursive(leaves, extend, max_leaves=8)


@settings(max_examples=60, deadline=None)
@given(expressions, st.tuples(*[st.integers(-20, 60)] * 3))
def test_dims_mean_what_python_means(expr: Expr, values: tuple[int, ...]) -> None:
    assert run_dim(expr, values) == meaning(expr, values)
    assert Sizes(dict(zip(SYMBOLS, values, strict=True))).value(expr) == meaning(expr, values)


@pytest.mark.parametrize(
    "text", ["(a + 1) // 2", "(a - 7) // 3", "(a - 7) % 3", "a // b", "a % b", "max(a - 9, b) * c"]
)
@pytest.mark.parametrize("values", [(0, 0, 0), (1, 2, 3), (4, 3, 1), (6, 0, 5)])
def test_floor_division_and_zero_divisors(text: str, values: tuple[int, ...]) -> None:
    dim = parse_dim(text)
    assert not isinstance(dim, int)
    assert run_dim(dim, values) == meaning(dim, values)


def test_overflow_of_the_arena_size_is_seen() -> None:
    size = symbol("a") * symbol("b") * 4096
    assert run_dim(size, (1 << 20, 1 << 20, 0)) == 1 << 52
    assert run_dim(size, (1 << 31, 1 << 31, 0)) == OVERFLOW


def wraps(expr: Expr, values: tuple[int, ...]) -> bool:
    """Whether computing ``expr``, but for what a selection does not choose, leaves the range of int64."""
    match expr:
        case Const() | Var():
            return False
        case Select(cond=cond, then=then, otherwise=otherwise):
            return wraps(cond, values) or wraps(then if meaning(cond, values) else otherwise, values)
    own = meaning(expr, values)
    return not LEAST <= own <= MOST or any(wraps(part, values) for part in expr.children())


LEAST, MOST = -(1 << 63), (1 << 63) - 1
edges = st.sampled_from([LEAST, LEAST + 1, -1, 0, 1, 2, 1 << 31, 1 << 32, 1 << 61, 1 << 62, MOST - 1, MOST])


@settings(max_examples=150, deadline=None)
@given(expressions, st.tuples(edges, edges, edges))
@example(Var("a") % Var("b"), (LEAST, -1, 0))
@example(Var("a") // Var("b"), (LEAST, -1, 0))
def test_no_result_has_wrapped(expr: Expr, values: tuple[int, ...]) -> None:
    assert run_dim(expr, values) == (OVERFLOW if wraps(expr, values) else meaning(expr, values))
    interpreted = Sizes(dict(zip(SYMBOLS, values, strict=True)))
    if LEAST <= meaning(expr, values) <= MOST:
        assert interpreted.value(expr) == meaning(expr, values)
    else:
        with pytest.raises(IngotError) as caught:
            interpreted.value(expr)
        assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED


def test_a_part_that_is_not_chosen_may_wrap() -> None:
    """The end of a slice that the run gives, counted from the end where it is negative."""
    a, b = Var("a"), Var("b")
    chosen = Select(Binary(BinaryOp.LT, a, Const(0)), Binary(BinaryOp.ADD, a, b), a)
    end = Binary(BinaryOp.MIN, chosen, b)
    assert run_dim(end, (MOST, 5, 0)) == 5
    assert run_dim(end, (-2, 5, 0)) == 3
    assert run_dim(end, (LEAST, -1, 0)) == OVERFLOW


def test_what_was_proven_is_not_asked_again() -> None:
    body = Body()
    code = DimCode(body, partial(load_symbol, body), "ret i64 -1")
    for text in ("a * b + 1", "a * b", "(a * b + 1) // 2"):
        code.operand(parse_dim(text))
    assert sum("br i1" in line for line in body.lines) == 1


def test_repeated_subexpressions_are_computed_once() -> None:
    body = Body()
    code = DimCode(body, lambda name: body.value(f"load i64, ptr %{name}"), "ret i64 -1")
    half = parse_dim("(a + 1) // 2")
    first = code.operand(half)
    lines = len(body.lines)
    assert code.operand(parse_dim("(a + 1) // 2")) == first
    assert len(body.lines) == lines


def test_other_operators_are_refused_by_name() -> None:
    with pytest.raises(IngotError, match="neg") as caught:
        DimCode(Body(), str, "ret i64 -1").operand(Unary(UnaryOp.NEG, Var("a")))
    assert caught.value.code is ErrorCode.COMPILER_FAULT


def test_dtype_numbers_are_those_of_onnx() -> None:
    onnx = pytest.importorskip("onnx")
    names = {"float32": "FLOAT", "float64": "DOUBLE"}
    for dtype, number in ONNX_DTYPES.items():
        assert onnx.TensorProto.DataType.Value(names.get(dtype.value, dtype.value.upper())) == number
    assert set(ONNX_DTYPES) == set(DType)


def test_printed_entry(golden: Callable[..., None]) -> None:
    target = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
    golden(emit_entry(toy_plan(), target, ("k_matmul", "k_add", "k_pairs"), "0.1.0"))


def test_empty_and_odd_plans_run() -> None:
    """No kernels, no symbols, scalars, an equality constraint, names that need escapes."""
    name = 'a "quoted"\\ näme'
    plan = Plan(
        name=name,
        inputs=(TensorSpec(name, DType.INT64, ()), TensorSpec("v", DType.UINT8, (symbol("n"), symbol("n") * 2))),
        outputs=(TensorSpec("out", DType.FLOAT32, (0, symbol("n") - 2)),),
        symbols=(SymbolSource("n", 1, 0),),
        constraints=(Constraint(symbol("n") % 2, 0, "n must be even."),),
        buffers=(),
        kernels=(),
        steps=(),
    )
    model = build_model(plan=plan, symbols=())
    artifact = type(model)(plan, model.target, {"entry": model.objects["entry"]}, b"").artifact()
    with load_model(artifact, threads=1) as loaded:
        scalar = np.int64(3)
        for executor_input, shape in ((np.zeros((4, 8), np.uint8), (0, 2)), (np.zeros((2, 4), np.uint8), (0, 0))):
            assert loaded.run({name: np.asarray(scalar), "v": executor_input})["out"].shape == shape
        refusals: list[tuple[tuple[int, int], str]] = [
            ((3, 6), "n must be even; expected 0, received 1"),
            ((4, 9), r"input 'v' axis 1 \(n \* 2\); expected 8, received 9"),
            ((0, 0), "impossible extent -2"),
        ]
        for shape, message in refusals:
            with pytest.raises(IngotError, match=message):
                loaded.run({name: np.asarray(scalar), "v": np.zeros(shape, np.uint8)})


@pytest.mark.parametrize("count", [MOST_TOGETHER // 2, 2 * MOST_TOGETHER + 1])
def test_many_symbols_checks_and_outputs(count: int) -> None:
    """As many as one function holds, and so many that they are divided among several."""
    inputs = tuple(TensorSpec(f"x{i}", DType.UINT8, (symbol(f"n{i}"), symbol(f"n{i - 1}"))) for i in range(1, count))
    plan = Plan(
        name="many",
        inputs=(TensorSpec("x0", DType.UINT8, (symbol("n0"), 0)), *inputs),
        outputs=tuple(TensorSpec(f"y{i}", DType.UINT8, (0, symbol(f"n{i}") + i)) for i in range(count)),
        symbols=tuple(SymbolSource(f"n{i}", i, 0) for i in range(count)),
        constraints=(Constraint(symbol(f"n{count - 1}") % 2, 0, "the last must be even."),),
        buffers=(),
        kernels=(),
        steps=(),
    )
    model = build_model(plan=plan, symbols=())
    artifact = type(model)(plan, model.target, {"entry": model.objects["entry"]}, b"").artifact()
    sizes = [1 + i % 3 for i in range(count)]
    sizes[-1] = 4

    def feeds(changed: dict[tuple[int, int], int]) -> dict[str, np.ndarray[Any, Any]]:
        shapes = [[size, sizes[i - 1] if i else 0] for i, size in enumerate(sizes)]
        for (number, axis), extent in changed.items():
            shapes[number][axis] = extent
        return {f"x{i}": np.zeros(shape, np.uint8) for i, shape in enumerate(shapes)}

    with load_model(artifact, threads=1) as loaded:
        results = loaded.run(feeds({}))
        assert [results[f"y{i}"].shape for i in range(count)] == [(0, size + i) for i, size in enumerate(sizes)]
        for number in (1, count // 2, count - 1):
            with pytest.raises(IngotError, match=rf"input 'x{number}' axis 1 \(n{number - 1}\); .* received 9"):
                loaded.run(feeds({(number, 1): 9}))
        with pytest.raises(IngotError, match="the last must be even; expected 0, received 1"):
            loaded.run(feeds({(count - 1, 0): 3}))


def test_arena_overflow_is_an_error_not_a_crash() -> None:
    m, n = symbol("m"), symbol("n")
    plan = Plan(
        name="huge",
        inputs=(TensorSpec("x", DType.UINT8, (m, 0)), TensorSpec("y", DType.UINT8, (n, 0))),
        outputs=(),
        symbols=(SymbolSource("m", 0, 0), SymbolSource("n", 1, 0)),
        constraints=(),
        buffers=(BufferSpec(Storage.ARENA, DType.UINT8, (m, n), m * n * 65536),),
        kernels=(KernelSpec("none"),),
        steps=(Launch(0, (0,), (), m),),
        arena_size=m * n * 65536,
    )
    source = "void k_none(void) {}"
    model = build_model(plan=plan, kernels=source, symbols=("k_none",))
    artifact: Any = type(model)(plan, model.target, model.objects, b"").artifact()
    with load_model(artifact, threads=1) as loaded:
        assert loaded.run({"x": np.zeros((2, 0), np.uint8), "y": np.zeros((2, 0), np.uint8)}) == {}
        for extent in (1 << 22, (1 << 31) - 1):  # 2^60 bytes, and more than an int64 holds
            with pytest.raises(IngotError, match=r"needs .* bytes") as caught:
                loaded.run({"x": np.zeros((extent, 0), np.uint8), "y": np.zeros((extent, 0), np.uint8)})
            assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED
