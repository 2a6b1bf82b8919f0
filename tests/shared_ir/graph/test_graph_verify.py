"""The verifier accepts every well-formed graph and names what is wrong with the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp
from shared_ir.expr.dim import symbol
from shared_ir.graph.ir import GROUP_OP, Graph, Module, Node, Value
from shared_ir.graph.verify import verify, verify_module
from shared_ir.types import TensorType
from tests.shared_ir.graph.random_graphs import graphs

N = symbol("n")
X, Y, Z = (Value(name, TensorType(DType.FLOAT32, (N, 3))) for name in "xyz")
RELU = Node("Relu", (X,), (Y,), {}, "relu")


def graph(*nodes: Node, inputs: tuple[Value, ...] = (X,), outputs: tuple[Value, ...] = (Y,)) -> Graph:
    return Graph("g", inputs, outputs, nodes)


def body(op: str, *nodes: Node, outputs: tuple[Value, ...] = ()) -> Node:
    return Node(op, (), (), {"body": Graph("body", (), outputs, nodes)}, "owner")


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(graphs())
def test_well_formed_graphs_pass(made: Graph) -> None:
    verify(made)


def _renamed_type(value: Value, dtype: DType) -> Value:
    return Value(value.name, TensorType(dtype, value.shape))


BAD = {
    "used before it is defined": (graph(Node("Neg", (Y,), (Z,), {}, "neg"), RELU), "%y is used but not defined above"),
    "never defined": (graph(Node("Neg", (Z,), (Y,), {}, "neg")), "%z is used but not defined above"),
    "defined by two nodes": (graph(RELU, RELU), "%y is defined twice"),
    "defined as input and by a node": (graph(Node("Relu", (X,), (X,), {}, "relu")), "%x is defined twice"),
    "output not defined": (graph(RELU, outputs=(Z,)), "%z is used but not defined above"),
    "used with another type": (
        graph(RELU, Node("Neg", (_renamed_type(Y, DType.INT8),), (Z,), {}, "neg")),
        "is used, but defined as",
    ),
    "no name": (graph(inputs=(Value("", X.type),), outputs=()), "a value has no name"),
    "dim not in normal form": (
        graph(inputs=(Value("x", TensorType(DType.INT8, (Binary(BinaryOp.SUB, N, N),))),), outputs=()),
        "not in normal form",
    ),
    "negative dim": (graph(inputs=(Value("x", TensorType(DType.INT8, (-1,))),), outputs=()), "the negative dim -1"),
    "constant of another shape": (
        Graph("g", (), (), (), {X: np.zeros((2, 3), np.float32)}),
        "constant %x: float32[n, 3] holds float32[2, 3]",
    ),
    "body shadows a name": (
        graph(RELU, body("If", Node("Neg", (Y,), (X,), {}, "inner"))),
        "%x is defined twice",
    ),
    "value of a body used outside": (
        graph(body("If", RELU), Node("Neg", (Y,), (Z,), {}, "neg"), outputs=(Z,)),
        "%y is used but not defined above",
    ),
    "two bodies define one name": (graph(body("If", RELU), body("If", RELU), outputs=()), "%y is defined twice"),
    "group reads from outside": (graph(body(GROUP_OP, RELU), outputs=()), "%x is used but not defined above"),
    "attribute of a foreign kind": (
        graph(Node("Relu", (X,), (Y,), {"a": np.zeros(2)}, "relu")),  # type: ignore[dict-item]  # what is refused
        "attribute a is a ndarray",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_broken_graphs_are_named(case: str) -> None:
    broken, message = BAD[case]
    with pytest.raises(IngotError) as caught:
        verify(broken)
    assert caught.value.code is ErrorCode.COMPILER_FAULT
    assert message in caught.value.message


def test_bodies_read_from_outside_and_groups_name_their_own() -> None:
    own = Graph("own", (X,), (Y,), (RELU,))
    verify(graph(RELU, body("If", Node("Neg", (Y,), (Z,), {}, "inner"), outputs=(Z,))))
    verify(graph(RELU, Node(GROUP_OP, (X,), (Z,), {"body": own}, "group"), outputs=(Z,)))


def test_the_node_check_sees_every_node_once() -> None:
    seen: list[str] = []
    inner = Node("Neg", (Y,), (Z,), {}, "inner")
    verify(graph(RELU, body("If", inner)), check_node=lambda node: seen.append(node.name))
    assert seen == ["relu", "inner", "owner"]


def test_the_error_of_the_node_check_comes_through() -> None:
    def check(node: Node) -> None:
        raise IngotError(ErrorCode.TYPE_MISMATCH, "no", node=str(node))

    with pytest.raises(IngotError, match=r"at node 'relu \(Relu\)'"):
        verify(graph(RELU), check)


def test_interface_names_fit_the_graph() -> None:
    module = Module(graph(RELU), 17, {}, ("x",), ("y",))
    verify_module(module)
    with pytest.raises(IngotError, match="2 input_names for 1 values"):
        verify_module(replace(module, input_names=("x", "more")))
