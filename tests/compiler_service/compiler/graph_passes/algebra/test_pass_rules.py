"""Every row of the rule tables: the graph before, the graph after, and that both compute the same."""

from __future__ import annotations

import math
import re

import pytest

from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from compiler_service.compiler.graph_passes.normal_form.expand_operators import ExpandOperators
from shared_ir.dtype import DType
from shared_ir.graph.ir import Graph, Node, Value
from shared_ir.types import TensorType
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, body, graph, lines, ops, run_passes

X = "float32[batch, 4]"

UNARY = {
    "identity": ("%y: T = Relu(%i)", "%i: T = Identity(%x)", "%y: T = Relu(%x)"),
    "dropout": ("%y: T = Relu(%i)", "%i: T = Dropout(%x)", "%y: T = Relu(%x)"),
    "double negation": ("%y: T = Relu(%i)", "%n: T = Neg(%x)\n%i: T = Neg(%n)", "%y: T = Relu(%x)"),
    "relu twice": ("%y: T = Relu(%i)", "%i: T = Relu(%x)", "%y: T = Relu(%x)"),
    "cast to the same type": ("%y: T = Relu(%i)", "%i: T = Cast(%x) {to=float32}", "%y: T = Relu(%x)"),
    "sum of one": ("%y: T = Relu(%i)", "%i: T = Sum(%x)", "%y: T = Relu(%x)"),
    "sum of two": ("%y: T = Sum(%i, %x)", "%i: T = Relu(%x)", "%i: T = Relu(%x)\n%y: T = Add(%i, %x)"),
    "log of softmax": ("%y: T = Log(%i)", "%i: T = Softmax(%x) {axis=-1}", "%y: T = LogSoftmax(%x) {axis=-1}"),
    "concat of one": ("%y: T = Relu(%i)", "%i: T = Concat(%x) {axis=0}", "%y: T = Relu(%x)"),
}


def _typed(text: str) -> str:
    return re.sub(r"\bT\b", X, text)


def _simplified(nodes: str, constants: str = "") -> tuple[Graph, Graph]:
    before = graph(_typed("\n".join(["graph main(%x: T) -> (%y) {", constants, nodes, "}"])))
    return before, run_passes(before, SimplifyAlgebra())


@pytest.mark.parametrize("name", UNARY)
def test_unary_rule(name: str) -> None:
    last, first, wanted = UNARY[name]
    before, after = _simplified(f"{first}\n{last}")
    assert body(after) == lines(_typed(wanted))
    assert_same(before, after)


CONSTANT = {
    "x + -0": ("-0.0", "Add(%x, %c)", "Relu(%x)"),
    "-0 + x": ("-0.0", "Add(%c, %x)", "Relu(%x)"),
    "x - 0": ("0.0", "Sub(%x, %c)", "Relu(%x)"),
    "x * 1": ("1.0", "Mul(%x, %c)", "Relu(%x)"),
    "x / 1": ("1.0", "Div(%x, %c)", "Relu(%x)"),
    "x ** 1": ("1.0", "Pow(%x, %c)", "Relu(%x)"),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_neutral_constant(name: str) -> None:
    number, call, wanted = CONSTANT[name]
    before, after = _simplified(f"%i: T = {call}\n%y: T = Relu(%i)", f"const %c: float32[1] = [{number}]")
    assert body(after) == f"%y: {X} = {wanted}"
    assert_same(before, after)


@pytest.mark.parametrize(
    ("exponent", "wanted"), [("2.0", "Mul(%x, %x)"), ("0.5", "Sqrt(%x)"), ("-1.0", "Reciprocal(%x)")]
)
def test_power(exponent: str, wanted: str) -> None:
    _, after = _simplified("%y: T = Pow(%x, %c)", f"const %c: float32[1] = [{exponent}]")
    assert body(after) == f"%y: {X} = {wanted}"


def test_division_by_a_constant_is_exact_or_asked_for() -> None:
    text = "graph main(%x: float32[4]) -> (%y) {{\n const %c: float32[1] = [{}]\n %y: float32[4] = Div(%x, %c)\n}}"
    exact, rounded = graph(text.format("8.0")), graph(text.format("3.0"))
    assert "Mul" in body(run_passes(exact, SimplifyAlgebra(approximate=False)))
    assert run_passes(rounded, SimplifyAlgebra(approximate=False)) is rounded
    assert "Mul" in body(run_passes(rounded, SimplifyAlgebra(approximate=True)))


def test_constants_of_a_chain_meet() -> None:
    before, after = _simplified(
        "%a: T = Add(%x, %c)\n%b: T = Sub(%a, %c)\n%y: T = Add(%b, %d)",
        "const %c: float32[1] = [2.0]\nconst %d: float32[4] = [1.0, 2.0, 3.0, 4.0]",
    )
    assert [n.op for n in after.nodes] == ["Add"]
    assert_same(before, after)


MOVEMENT = {
    "transposes that cancel": (
        "%a: float32[4, batch] = Transpose(%x) {perm=(1, 0)}\n%b: T = Transpose(%a) {perm=(1, 0)}\n%y: T = Relu(%b)",
        ["Relu"],
    ),
    "reshape of reshape": (
        "%s: int64[3] = ingot.Dims() {dims=(`batch`, 2, 2)}\n"
        "%r: int64[2] = ingot.Dims() {dims=(`batch`, 4)}\n"
        "%a: float32[batch, 2, 2] = Reshape(%x, %s)\n%b: T = Reshape(%a, %r)\n%y: T = Relu(%b)",
        ["Relu"],
    ),
    "unsqueeze is a reshape": (
        "%a: float32[batch, 1, 4] = Unsqueeze(%x, %one)\n%y: float32[batch, 1, 4] = Relu(%a)",
        ["ingot.Dims", "Reshape", "Relu"],
    ),
    "transpose of unit axes is a reshape": (
        "%a: float32[batch, 1, 4] = Unsqueeze(%x, %one)\n%y: float32[1, batch, 4] = Transpose(%a) {perm=(1, 0, 2)}",
        ["ingot.Dims", "Reshape"],
    ),
    "slice of everything": (
        "%a: T = Slice(%x, %zero, %far, %one)\n%y: T = Relu(%a)",
        ["Relu"],
    ),
    "a slice that reverses stays": (
        "%a: T = Slice(%x, %last, %before, %one, %back)\n%y: T = Relu(%a)",
        ["Slice", "Relu"],
    ),
    "an input is reshaped before it is converted": (
        "%a: float16[batch, 4] = Cast(%x) {to=float16}\n%y: float16[batch, 1, 4] = Unsqueeze(%a, %one)",
        ["ingot.Dims", "Reshape", "Cast"],
    ),
    "what is calculated is converted before it is reshaped": (
        "%r: T = Relu(%x)\n%a: float16[batch, 4] = Cast(%r) {to=float16}\n"
        "%y: float16[batch, 1, 4] = Unsqueeze(%a, %one)",
        ["Relu", "Cast", "ingot.Dims", "Reshape"],
    ),
    "no padding": ("%a: T = Pad(%x, %none)\n%y: T = Relu(%a)", ["Relu"]),
    "a padding that shifts stays": ("%a: T = Pad(%x, %shift)\n%y: T = Relu(%a)", ["Pad", "Relu"]),
    "slices that follow each other are one": (
        "%a: float32[batch, 1] = Slice(%x, %zero, %one, %one)\n%b: float32[batch, 2] = Slice(%x, %one, %last, %one)\n"
        "%y: float32[batch, 3] = Concat(%a, %b) {axis=1}",
        ["Slice"],
    ),
    "what wraps around its ends stays": (
        "%a: float32[batch, 1] = Slice(%x, %last, %far, %one)\n%b: float32[batch, 1] = Slice(%x, %zero, %one, %one)\n"
        "%y: float32[batch, 6] = Concat(%a, %x, %b) {axis=1}",
        ["Slice", "Slice", "Concat"],
    ),
    "split is slices": (
        "%a: float32[batch, 1], %b: float32[batch, 3] = Split(%x, %parts) {axis=1}\n%y: float32[batch, 3] = Mul(%a, %b)",
        ["Slice", "Slice", "Mul"],
    ),
}
INTEGERS = """
const %zero: int64[1] = [0]
const %one: int64[1] = [1]
const %far: int64[1] = [9223372036854775807]
const %last: int64[1] = [-1]
const %before: int64[1] = [-9223372036854775808]
const %back: int64[1] = [-1]
const %none: int64[4] = [0, 0, 0, 0]
const %shift: int64[4] = [0, 1, 0, -1]
const %parts: int64[2] = [1, 3]
"""


@pytest.mark.parametrize("name", MOVEMENT)
def test_movement_rule(name: str) -> None:
    nodes, wanted = MOVEMENT[name]
    before, after = _simplified(nodes, INTEGERS)
    assert [n.op for n in after.nodes] == wanted
    assert_same(before, after)


def test_zero_padding_moves_into_the_convolution() -> None:
    before = graph(
        """
        graph main(%x: float32[batch, 2, h, w]) -> (%y) {
          const %w: float32[1, 2, 1, 1] = [1.0, 2.0]
          const %pads: int64[8] = [0, 0, 1, 2, 0, 0, 3, 4]
          %p: float32[batch, 2, h + 4, w + 6] = Pad(%x, %pads)
          %y: float32[batch, 1, h + 4, w + 6] = Conv(%p, %w) {kernel_shape=(1, 1)}
        }
        """
    )
    after = run_passes(before, SimplifyAlgebra())
    assert [n.op for n in after.nodes] == ["Conv"]
    assert after.nodes[0].attributes["pads"] == (1, 2, 3, 4)
    assert_same(before, after)


SCALARS = """
const %half: float32[] = [0.5]
const %one: float32[] = [1.0]
const %two: float32[] = [2.0]
const %three: float32[] = [3.0]
const %zero: float32[] = [0.0]
const %six: float32[] = [6.0]
const %root: float32[] = [1.4142135]
const %quick: float32[] = [1.702]
const %cubic: float32[] = [0.044715]
const %pi: float32[] = [0.7978846]
const %epsilon: float32[] = [1e-05]
const %axis: int64[1] = [-1]
"""
M = "float32[batch, 1]"
PATTERNS = {
    "gelu": (
        "%a: T = Div(%x, %root)\n%b: T = Erf(%a)\n%c: T = Add(%b, %one)\n%d: T = Mul(%x, %c)\n%y: T = Mul(%d, %half)",
        "Gelu(%x)",
    ),
    "gelu, the half first": (
        "%a: T = Div(%x, %root)\n%b: T = Erf(%a)\n%c: T = Add(%b, %one)\n%d: T = Mul(%x, %half)\n%y: T = Mul(%d, %c)",
        "Gelu(%x)",
    ),
    "gelu by tanh": (
        "%p: T = Pow(%x, %three)\n%q: T = Mul(%p, %cubic)\n%r: T = Add(%x, %q)\n%s: T = Mul(%r, %pi)\n%t: T = Tanh(%s)\n"
        "%u: T = Add(%t, %one)\n%v: T = Mul(%x, %u)\n%y: T = Mul(%half, %v)",
        'Gelu(%x) {approximate="tanh"}',
    ),
    "swish": ("%s: T = Sigmoid(%x)\n%y: T = Mul(%x, %s)", "Swish(%x)"),
    "quick gelu": (
        "%m: T = Mul(%x, %quick)\n%s: T = Sigmoid(%m)\n%y: T = Mul(%x, %s)",
        "Swish(%x) {alpha=1.7020000219345093}",
    ),
    "hard swish": (
        "%a: T = Add(%x, %three)\n%c: T = Clip(%a, %zero, %six)\n%m: T = Mul(%x, %c)\n%y: T = Div(%m, %six)",
        "HardSwish(%x)",
    ),
    "hard swish, the gate first": (
        "%a: T = Add(%x, %three)\n%c: T = Clip(%a, %zero, %six)\n%d: T = Div(%c, %six)\n%y: T = Mul(%x, %d)",
        "HardSwish(%x)",
    ),
    "hard sigmoid": (
        "%a: T = Add(%x, %three)\n%c: T = Clip(%a, %zero, %six)\n%y: T = Div(%c, %six)",
        "HardSigmoid(%x) {alpha=0.16666666666666666, beta=0.5}",
    ),
    "softmax": (
        "%m: M = ReduceMax(%x, %axis)\n%d: T = Sub(%x, %m)\n%e: T = Exp(%d)\n%s: M = ReduceSum(%e, %axis)\n%y: T = Div(%e, %s)",
        "Softmax(%x) {axis=1}",
    ),
    "safe softmax": (
        "%w: T = Softmax(%x) {axis=1}\n%n: B = IsNaN(%w)\n%y: T = Where(%n, %zero, %w)",
        "ingot.SafeSoftmax(%x) {axis=1}",
    ),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_pattern(name: str) -> None:
    nodes, wanted = PATTERNS[name]
    before, after = _simplified(nodes.replace("M =", f"{M} =").replace("B =", "bool[batch, 4] ="), SCALARS)
    assert body(after) == f"%y: {X} = {wanted}"
    assert_same(before, after, 1e-4)


def test_layer_normalization_with_scale_and_bias() -> None:
    before, after = _simplified(
        f"%m: {M} = ReduceMean(%x, %axis)\n%d: T = Sub(%x, %m)\n%p: T = Pow(%d, %two)\n%v: {M} = ReduceMean(%p, %axis)\n"
        f"%e: {M} = Add(%v, %epsilon)\n%s: {M} = Sqrt(%e)\n%n: T = Div(%d, %s)\n%a: T = Mul(%n, %gamma)\n%y: T = Add(%a, %beta)",
        SCALARS + "const %gamma: float32[4] = [1.0, 2.0, 3.0, 4.0]\nconst %beta: float32[4] = [4.0, 3.0, 2.0, 1.0]",
    )
    assert [n.op for n in after.nodes] == ["LayerNormalization"]
    assert len(after.nodes[0].operands) == 3
    assert_same(before, after)


@pytest.mark.parametrize(
    "inverse",
    [
        "%n: T = Div(%x, %s)",
        f"%i: {M} = Reciprocal(%s)\n%n: T = Mul(%x, %i)",
        f"%i: {M} = Div(%one, %s)\n%n: T = Mul(%i, %x)",
    ],
)
def test_root_mean_square_normalization_with_scale(inverse: str) -> None:
    before, after = _simplified(
        f"%p: T = Mul(%x, %x)\n%v: {M} = ReduceMean(%p, %axis)\n%e: {M} = Add(%v, %epsilon)\n%s: {M} = Sqrt(%e)\n"
        f"{inverse}\n%y: T = Mul(%gamma, %n)",
        SCALARS + "const %gamma: float32[4] = [1.0, 2.0, 3.0, 4.0]",
    )
    assert [n.op for n in after.nodes] == ["RMSNormalization"]
    assert_same(before, after)


@pytest.mark.parametrize(
    ("plain", "view", "constant"),
    [
        ("2, 3, 4", "1, 2, 3, 4", "2, 1, 4"),
        ("2, 3, 4", "2, 1, 3, 4", "1, 3, 4"),
        ("1, 2, 3, 4", "2, 3, 1, 4", "2, 1, 1, 4"),
        ("2, 3, 4", "2, 3, 4, 1", "3, 1, 1"),
    ],
)
def test_axes_that_come_and_go_for_a_constant_move_to_the_constant(plain: str, view: str, constant: str) -> None:
    count = math.prod(int(d) for d in constant.split(","))
    before = graph(
        f"""
        graph main(%x: float32[{plain}]) -> (%y) {{
          const %c: float32[{constant}] = {[float(i) for i in range(count)]}
          const %to: int64[{view.count(",") + 1}] = [{view}]
          const %back: int64[{plain.count(",") + 1}] = [{plain}]
          %a: float32[{view}] = Reshape(%x, %to)
          %b: float32[{view}] = Add(%a, %c)
          %y: float32[{plain}] = Reshape(%b, %back)
        }}
        """
    )
    after = run_passes(before, SimplifyAlgebra())
    assert [n.op for n in after.nodes] == ["Add"]
    assert_same(before, after)


def test_axes_that_mean_something_else_stay() -> None:
    before = graph(
        """
        graph main(%x: float32[2, 6]) -> (%y) {
          const %c: float32[3, 1] = [1.0, 2.0, 3.0]
          const %to: int64[3] = [2, 3, 2]
          const %back: int64[2] = [2, 6]
          %a: float32[2, 3, 2] = Reshape(%x, %to)
          %b: float32[2, 3, 2] = Add(%a, %c)
          %y: float32[2, 6] = Reshape(%b, %back)
        }
        """
    )
    after = run_passes(before, SimplifyAlgebra())
    assert [n.op for n in after.nodes] == ["Reshape", "Add", "Reshape"]
    assert_same(before, after)


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
@pytest.mark.parametrize("flags", ["", " {exclusive=1}", " {reverse=1}", " {exclusive=1, reverse=1}"])
@pytest.mark.parametrize("axis", [1, -1, -3])
def test_sums_of_all_before(op: str, flags: str, axis: int) -> None:
    before = graph(
        f"""
        graph main(%x: float32[12, batch, 9]) -> (%y) {{
          const %axis: int64[1] = [{axis}]
          %y: float32[12, batch, 9] = {op}(%x, %axis){flags}
        }}
        """
    )
    after = run_passes(before, SimplifyAlgebra())
    assert [n.op for n in after.nodes] == ["ingot.Cumulative"]
    assert_same(before, after)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_are_scattered_one_after_the_other(axis: int, reduction: str) -> None:
    """Positions before 0 count from the end; those that several updates hit hold the last."""
    before = graph(
        f"""
        graph main(%x: float32[9, 11, batch], %i: int64[9, 10, batch], %u: float32[9, 10, batch]) -> (%y) {{
          const %nine: int64[1] = [9]
          %p: int64[9, 10, batch] = Mod(%i, %nine)
          %y: float32[9, 11, batch] = ScatterElements(%x, %p, %u) {{axis={axis}, reduction="{reduction}"}}
        }}
        """.replace("batch", "12")
    )
    after = run_passes(before, SimplifyAlgebra())
    assert [n.op for n in after.nodes] == ["Mod", "ingot.Scattered"]
    assert_same(before, after)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("rest", ["", ", 3", ", 37", ", 2, 19"])
def test_slices_are_scattered_one_after_the_other(rest: str, reduction: str) -> None:
    before = graph(
        f"""
        graph main(%x: float32[5, batch{rest}], %i: int64[3, 6, 2], %u: float32[3, 6{rest}]) -> (%y) {{
          const %least: int64[1] = [2]
          %p: int64[3, 6, 2] = Mod(%i, %least)
          %y: float32[5, batch{rest}] = ScatterND(%x, %p, %u) {{reduction="{reduction}"}}
        }}
        """
    )
    after = run_passes(before, SimplifyAlgebra())
    assert [n.op for n in after.nodes] == ["Mod", "ingot.Scattered"]
    assert_same(before, after)


def test_elements_return_to_where_they_were_pooled_from() -> None:
    before = graph(
        """
        graph main(%x: float32[batch, 3, 8, 6]) -> (%y) {
          %p: float32[batch, 3, 4, 3], %i: int64[batch, 3, 4, 3] = MaxPool(%x) {kernel_shape=(2, 2), strides=(2, 2)}
          %y: float32[batch, 3, 8, 6] = MaxUnpool(%p, %i) {kernel_shape=(2, 2), strides=(2, 2)}
        }
        """
    )
    after = run_passes(before, ExpandOperators(), SimplifyAlgebra())
    assert [n.op for n in after.nodes if "Unpool" in n.op or "Scattered" in n.op] == ["ingot.Scattered"]
    assert_same(before, after)


def test_short_sums_stay_what_they_are() -> None:
    before, after = _simplified("%y: T = CumSum(%x, %axis)", "const %axis: int64[1] = [1]")
    assert after is before


def test_a_graph_without_matches_is_the_same_object() -> None:
    before, after = _simplified("%y: T = Relu(%x)")
    assert after is before


def test_an_output_keeps_its_name_when_its_producer_goes_away() -> None:
    type_ = TensorType(DType.FLOAT32, (4,))
    x, y = Value("x", type_), Value("y", type_)
    before = Graph("main", (x,), (y,), (Node("Identity", (x,), (y,)),))
    after = run_passes(before, SimplifyAlgebra())
    assert after.outputs == (y,)


def test_copies_of_unknown_extents_are_whole() -> None:
    before = graph(
        """
        graph main(%x: float32[batch, 3, h]) -> (%y) {
          const %n: int64[3] = [2, 1, 3]
          %y: float32[batch * 2, 3, h * 3] = Tile(%x, %n)
        }
        """
    )
    after = run_passes(before, SimplifyAlgebra())
    assert [op for op in ops(after) if op != "ingot.Dims"] == ["Reshape", "Expand", "Reshape"]
    assert_same(before, after)


def test_copies_of_known_extents_stay_as_they_are() -> None:
    before = graph(
        """
        graph main(%x: float32[2, h]) -> (%y) {
          const %n: int64[2] = [2, 1]
          %y: float32[4, h] = Tile(%x, %n)
        }
        """
    )
    assert run_passes(before, SimplifyAlgebra()) is before


@pytest.mark.parametrize(
    ("product", "operators"),
    [
        ("MatMul(%r, %w)", ["Reshape", "MatMul"]),
        ("Gemm(%r, %w, %c)", ["Reshape", "MatMul", "Add"]),
        ("Gemm(%r, %w, %c) {transB=1}", ["Reshape", "MatMul", "Add"]),
        ("Gemm(%r, %w, %rows)", ["Reshape", "Gemm", "Reshape"]),
        ("Gemm(%r, %w, %c) {alpha=2.0}", ["Reshape", "Gemm", "Reshape"]),
    ],
)
def test_product_of_a_matrix_that_was_and_becomes_a_tensor(product: str, operators: list[str]) -> None:
    before = graph(
        f"""
        graph main(%x: float32[batch, 3, 2, 2], %rows: float32[3 * batch, 1]) -> (%y) {{
          const %w: float32[4, 4] = {[float(i) for i in range(16)]}
          const %c: float32[1, 4] = [1.0, 2.0, 3.0, 4.0]
          const %to: int64[2] = [-1, 4]
          const %back: int64[3] = [-1, 3, 4]
          %r: float32[3 * batch, 4] = Reshape(%x, %to)
          %p: float32[3 * batch, 4] = {product}
          %y: float32[batch, 3, 4] = Reshape(%p, %back)
        }}
        """
    )
    after = run_passes(before, FoldConstants(), SimplifyAlgebra(), FoldConstants())
    assert [n.op for n in after.nodes if n.op != "ingot.Dims"] == operators
    assert_same(before, after)


@pytest.mark.parametrize(
    ("ends", "shape", "operators"),
    [
        ((4, 8), "batch, 3, 2, 2", ["Reshape", "Slice"]),
        ((4, 8), "batch, 3, 1, 4", ["Reshape", "Slice"]),
        ((6, 12), "batch, 3, 3, 1, 2", ["Reshape", "Slice"]),
        ((2, 6), "batch, 3, 1, 4", ["Slice", "Reshape"]),
        ((4, 8), "3 * batch, 2, 2", ["Slice", "Reshape"]),
    ],
)
def test_pieces_of_an_axis_are_sliced_whole(ends: tuple[int, int], shape: str, operators: list[str]) -> None:
    wanted = [-1 if "batch" in d else int(d) for d in shape.split(",")]
    before = graph(
        f"""
        graph main(%x: float32[batch, 3, 12]) -> (%y) {{
          const %start: int64[1] = [{ends[0]}]
          const %stop: int64[1] = [{ends[1]}]
          const %axis: int64[1] = [2]
          const %to: int64[{len(wanted)}] = {wanted}
          %s: float32[batch, 3, {ends[1] - ends[0]}] = Slice(%x, %start, %stop, %axis)
          %y: float32[{shape}] = Reshape(%s, %to)
        }}
        """
    )
    after = run_passes(before, SimplifyAlgebra())
    assert [n.op for n in after.nodes if n.op != "ingot.Dims"] == operators
    assert_same(before, after)


def test_pieces_of_nothing_are_not_counted() -> None:
    before = graph(
        """
        graph main(%x: float32[3, 12]) -> (%y) {
          const %at: int64[1] = [4]
          const %axis: int64[1] = [1]
          const %to: int64[3] = [3, 2, 0]
          %s: float32[3, 0] = Slice(%x, %at, %at, %axis)
          %y: float32[3, 2, 0] = Reshape(%s, %to) {allowzero=1}
        }
        """
    )
    assert ops(run_passes(before, SimplifyAlgebra())) == ["Slice", "Reshape"]


@pytest.mark.parametrize(
    ("merged", "perm", "shape", "operators"),
    [
        ("4 * batch, h, 6", (0, 2, 1), "batch, 4, 6, h", ["Transpose"]),
        ("batch, 4 * h, 6", (2, 1, 0), "6, 4, h, batch", ["Transpose"]),
        ("4 * batch, h, 6", (0, 2, 1), "batch, 2, 2, 6, h", ["Reshape", "Transpose"]),
        ("4 * batch, h, 2, 3", (0, 3, 1, 2), "batch, 4, 3, h, 2", ["Reshape", "Transpose"]),
        ("4 * batch, h, 2, 3", (0, 2, 3, 1), "batch, 4, 6, h", ["Reshape", "Transpose", "Reshape"]),
    ],
)
def test_axes_that_split_after_a_transpose(
    merged: str, perm: tuple[int, ...], shape: str, operators: list[str]
) -> None:
    into, back = merged.split(", "), shape.split(", ")
    turned = ", ".join(into[p] for p in perm)
    before = graph(
        f"""
        graph main(%x: float32[batch, 4, h, 6]) -> (%y) {{
          %into: int64[{len(into)}] = ingot.Dims() {{dims=({", ".join(_dim(d) for d in into)},)}}
          %back: int64[{len(back)}] = ingot.Dims() {{dims=({", ".join(_dim(d) for d in back)},)}}
          %r: float32[{merged}] = Reshape(%x, %into)
          %t: float32[{turned}] = Transpose(%r) {{perm={perm}}}
          %y: float32[{shape}] = Reshape(%t, %back)
        }}
        """
    )
    after = run_passes(before, SimplifyAlgebra())
    assert [n.op for n in after.nodes if n.op != "ingot.Dims"] == operators
    assert_same(before, after)


def _dim(text: str) -> str:
    return text if text.isdigit() else f"`{text}`"
