"""The text form of the graph IR is exact, and its errors say where."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim, as_dim, symbol
from shared_ir.graph.ir import GROUP_OP, Graph, Module, Node, Value
from shared_ir.graph.text import (
    array_digest,
    large_arrays,
    large_constants,
    parse_graph,
    parse_module,
    print_graph,
    print_module,
)
from shared_ir.types import TensorType
from tests.shared_ir.graph.random_graphs import modules, same_arrays, same_graph

F32 = DType.FLOAT32


def _value(name: str, *shape: Dim, dtype: DType = F32) -> Value:
    return Value(name, TensorType(dtype, tuple(as_dim(d) for d in shape)))


def example() -> Module:
    batch, w = symbol("batch"), symbol("w")
    x, y, z = _value("x", batch, 3, w), _value("y", batch, 4, (w + 1) // 2), _value("z", batch, 4, (w + 1) // 2)
    weight, axes = _value("w", 4, 3, 3), _value("axes", 2, dtype=DType.INT64)
    inner, flag = _value("inner", batch, 4, (w + 1) // 2), _value("flag", dtype=DType.BOOL)
    then = Graph("then", (), (inner,), (Node("Relu", (y,), (inner,)),))
    inside = _value("x", batch)
    group = Graph("group", (inside,), (inside,), ())
    nodes = (
        Node("Conv", (x, weight, None), (y,), {"strides": (2,), "group": 1, "auto_pad": "NOTSET"}, "conv1"),
        Node("If", (flag,), (z, None), {"then_branch": then, "hint": 0.5}, "if/1"),
        Node(GROUP_OP, (), (), {"body": group, "to": DType.INT8, "type": x.type, "size": as_dim(w * 2)}),
    )
    constants = {weight: np.zeros((4, 3, 3), np.float32), axes: np.array([2, 3])}
    return Module(
        Graph("main", (x, flag), (z,), nodes, constants), 17, {"producer": "test"}, ("x:0", "flag"), ("out/z",)
    )


def test_text_of_an_example(golden: Callable[[str], None]) -> None:
    golden(print_module(example()))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(modules())
def test_parse_inverts_print(module: Module) -> None:
    text = print_module(module)
    found = parse_module(text, large_constants(module.graph) | large_arrays(module.defaults.values()))
    assert same_graph(found.graph, module.graph)
    assert (found.opset, found.metadata) == (module.opset, module.metadata)
    assert (found.input_names, found.output_names) == (module.input_names, module.output_names)
    assert (found.objects, found.strings) == (module.objects, module.strings)
    assert same_arrays(found.defaults, module.defaults)
    assert print_module(found) == text


@pytest.mark.parametrize(
    "array",
    [
        np.array([0.1, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3.4028235e38], np.float32),
        np.array([6e-8, 65504], np.float16),
        np.array([2**64 - 1, 0], np.uint64),
        np.array(-(2**63)),
        np.array(True),
        np.zeros((0, 3), np.float32),
        np.array([0x7FC00001, 0xFFC00000], np.uint32).view(np.float32),  # NaNs with a payload
        np.array([1.5, -2], ml_dtypes.bfloat16),
        np.array([1, 2], ml_dtypes.float8_e4m3fn),
        np.array([-8, 7], ml_dtypes.int4),
        np.array(["a", 'quote " and \\', ""], dtype=object),
        np.arange(17),
        np.array([1, 2], ">i4"),
    ],
    ids=lambda a: f"{a.dtype}{list(a.shape)}",
)
def test_constants_keep_every_bit(array: np.ndarray) -> None:
    value = Value("c", TensorType(DType.of(array), tuple(array.shape)))
    graph = Graph("g", (), (value,), (), {value: array})
    found = parse_graph(print_graph(graph), large_constants(graph)).constants[value]
    assert found.shape == array.shape
    assert array_digest(found) == array_digest(array)
    assert found.tolist() == array.tolist() or array.dtype.kind == "f"


@pytest.mark.parametrize("order", [1, -1])
def test_constants_of_equal_bytes_and_other_types(order: int) -> None:
    """They have one digest, under which one of them is given."""
    arrays: list[np.ndarray] = [
        np.zeros(100, np.float32),
        np.zeros((10, 10), np.int32),
        np.zeros((2, 25), np.float64),
        np.zeros(400, np.bool_),
        np.zeros(200, ml_dtypes.bfloat16),
        np.zeros(400, ml_dtypes.int4),
    ]
    constants = {Value(f"c{n}", TensorType(DType.of(a), a.shape)): a for n, a in enumerate(arrays[::order])}
    graph = Graph("g", (), tuple(constants), (), constants)
    assert len(large_constants(graph)) == 1
    read = parse_graph(print_graph(graph), large_constants(graph))
    for value, array in read.constants.items():
        assert (DType.of(array), array.shape) == (value.type.dtype, value.type.shape)
        assert not array.astype(np.float64).any()


def test_comments_and_layout_do_not_matter() -> None:
    text = "graph g(%x: float32[n]) -> (%y) { # comment\n  %y: float32[n]\n = Relu ( %x ) }"
    assert print_graph(parse_graph(text)) == "graph g(%x: float32[n]) -> (%y) {\n  %y: float32[n] = Relu(%x)\n}\n"


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("", "line 1, column 1", "'graph'"),
        ("graph g() -> () {", "line 1, column 18", "a node or '}'"),
        ("graph g() -> () {}\nrest", "line 2, column 1", "end of text"),
        ("graph g(%x: float33[2]) -> () {}", "line 1, column 13", "an element type"),
        ("graph g(%x: float32[a b]) -> () {}", "line 1, column 21", "a dim"),
        ("graph g(%x: float32[2) -> () {}", "line 1, column 32", "']'"),
        ("graph g() -> (%y) {}", "line 1, column 15", "a value that is defined above"),
        ("graph g() -> () {\n  %y: bool[] = Not(%y)\n}", "line 2, column 20", "a value that is defined above"),
        ("graph g(%x: bool[], %x: bool[]) -> () {}", "line 1, column 21", "a new name"),
        ("graph g() -> () {\n  const %c: int8[2] = [1]\n}", "line 2, column 23", "an array of type int8[2]"),
        ("graph g() -> () {\n  const %c: int8[1] = [300]\n}", "line 2, column 23", "an array of type int8[1]"),
        ("graph g() -> () {\n  const %c: int8[1] = [1.5]\n}", "line 2, column 23", "an array of type int8[1]"),
        ("graph g() -> () {\n  const %c: int8[n] = [1]\n}", "line 2, column 23", "an array of type int8[n]"),
        (f"graph g() -> () {{const %c: int8[9] = sha256:{'0' * 64}}}", "line 1, column 38", "an array of type int8[9]"),
        ("graph g() -> () { %y: bool[] = Op() {a=} }", "line 1, column 40", "an attribute value"),
        ('graph g() -> () { %y: bool[] = Op() "name }', "line 1, column 37", "a node or '}'"),
    ],
)
def test_errors_say_where_and_what(text: str, place: str, expected: str) -> None:
    with pytest.raises(IngotError) as caught:
        parse_graph(text)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.message.startswith(f"{place}:")
    assert expected in caught.value.expected


def test_nesting_is_bounded() -> None:
    text = "graph g() -> () { () = Op() {body=" * 100
    with pytest.raises(IngotError, match="at most 64 nested graphs"):
        parse_graph(text)


def test_a_large_constant_must_fit_its_type() -> None:
    graph = example().graph
    other = dict.fromkeys(large_constants(graph), np.zeros((4, 3, 3), np.float64))
    with pytest.raises(IngotError, match="is float64"):
        parse_graph(print_graph(graph), other)


@pytest.mark.parametrize("header", ["{opset=true_}", '{opset="x"}', "{surprise=1}", "{metadata=(1, 2)}"])
def test_module_headers_are_checked(header: str) -> None:
    with pytest.raises(IngotError, match="line 1"):
        parse_module(f"module {header}\ngraph g() -> () {{}}")
