"""Sequences and optionals that only the run knows, through compiled code and the graph executor, beside onnx's reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from shared_ir.errors import ErrorCode, IngotError
from tests.conformance.compiled import run_compiled

pytestmark = pytest.mark.slow

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
X = helper.make_tensor_value_info("x", FLOAT, ["n", "m"])
SEQUENCE = helper.make_tensor_sequence_value_info("s", FLOAT, ["a", "b"])
AT = helper.make_tensor_value_info("at", INT64, [])
MATRICES = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((4, 3), np.float32), np.full((1, 3), 7, np.float32)]


def value(name: str, kind: str = "tensor", rank: int = 2, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    shape = [None] * rank
    if kind == "tensor":
        return helper.make_tensor_value_info(name, dtype, shape)
    return helper.make_tensor_sequence_value_info(name, dtype, shape)


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "main", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def check(proto: onnx.ModelProto, feeds: Mapping[str, Any], expected: Sequence[Any] | None = None) -> None:
    """The same at both ends of optimisation, and as the reference has it, unless it cannot run the model."""
    expected = ReferenceEvaluator(proto).run(None, dict(feeds)) if expected is None else expected
    for opt_level in (0, 3):
        found = run_compiled(proto, feeds, opt_level)
        for a, b in zip(found, expected, strict=True):
            assert isinstance(a, list) is isinstance(b, list)
            pairs = zip(a, b, strict=True) if isinstance(a, list) else [(a, b)]
            for x, y in pairs:
                assert x.dtype == y.dtype
                np.testing.assert_allclose(x, y, rtol=1e-6)


@pytest.mark.parametrize("at", [0, 2, -1])
def test_kernels_work_on_the_elements_of_a_sequence(at: int) -> None:
    nodes = [
        helper.make_node("SequenceAt", ["s", "at"], ["e"]),
        helper.make_node("Exp", ["e"], ["f"]),
        helper.make_node("ReduceSum", ["f"], ["y"], keepdims=0),
        helper.make_node("SequenceInsert", ["s", "f"], ["t"]),
        helper.make_node("SequenceLength", ["t"], ["l"]),
        helper.make_node("SequenceErase", ["t", "at"], ["u"]),
    ]
    outputs = [value("y", rank=0), value("l", rank=0, dtype=INT64), value("u", "sequence")]
    check(model(nodes, [SEQUENCE, AT], outputs), {"s": MATRICES, "at": np.array(at)})


@pytest.mark.parametrize("new_axis", [0, 1])
def test_parts_of_a_tensor_whose_number_only_the_run_knows(new_axis: int) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "size"], ["s"], axis=0),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=1, new_axis=new_axis),
        helper.make_node("Neg", ["y"], ["z"]),
    ]
    size = helper.make_tensor_value_info("size", INT64, [])
    proto = model(nodes, [X, size], [value("z", rank=2 + new_axis)])
    for rows in (4, 6):
        x = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
        check(proto, {"x": x, "size": np.array(2)})


def test_a_loop_that_collects_tensors_of_growing_size() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Unsqueeze", ["i", "zero"], ["rows"]),
            helper.make_node("Slice", ["x", "zero", "rows"], ["part"]),
            helper.make_node("Mul", ["part", "part"], ["square"]),
            helper.make_node("SequenceInsert", ["state", "square"], ["next"]),
        ],
        "body",
        [value("i", rank=0, dtype=INT64), value("go", rank=0, dtype=BOOL), value("state", "sequence")],
        [value("on", rank=0, dtype=BOOL), value("next", "sequence")],
    )
    nodes = [
        helper.make_node("Constant", [], ["zero"], value_ints=[0]),
        helper.make_node("SequenceEmpty", [], ["none"], dtype=FLOAT),
        helper.make_node("Loop", ["trips", "", "none"], ["all"], body=body),
        helper.make_node("ConcatFromSequence", ["all"], ["y"], axis=0),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    trips = helper.make_tensor_value_info("trips", INT64, [])
    proto = model(nodes, [X, trips], [value("all", "sequence"), value("z")])
    x = np.arange(8, dtype=np.float32).reshape(4, 2) - 3
    parts = [x[:i] ** 2 for i in range(4)]
    check(proto, {"x": x, "trips": np.array(4)}, [parts, np.concatenate(parts)])


@pytest.mark.parametrize("carried", [False, True])
def test_an_empty_sequence_goes_through_control_flow(carried: bool) -> None:
    """It is made without operands, and what is put into it has no position: calls with operands that are absent."""

    def body(name: str, nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto]) -> onnx.GraphProto:
        outputs = [value("on", rank=0, dtype=BOOL)] if inputs else []
        return helper.make_graph(nodes, name, inputs, [*outputs, value(nodes[-1].output[0], "sequence")])

    put = helper.make_node("SequenceInsert", ["none", "x"], ["put"])
    if carried:
        given = [value("i", rank=0, dtype=INT64), value("go", rank=0, dtype=BOOL), value("state", "sequence")]
        put.input[0] = "state"
        loop = body("loop", [helper.make_node("Identity", ["go"], ["on"]), put], given)
        chosen = helper.make_node("Loop", ["trips", "", "none"], ["s"], body=loop)
    else:
        kept = body("kept", [helper.make_node("SequenceConstruct", ["x", "x"], ["two"])], [])
        chosen = helper.make_node("If", ["flag"], ["s"], then_branch=body("then", [put], []), else_branch=kept)
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"], dtype=FLOAT),
        chosen,
        helper.make_node("SequenceErase", ["s"], ["fewer"]),
        helper.make_node("SequenceLength", ["fewer"], ["l"]),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    trips, flag = helper.make_tensor_value_info("trips", INT64, []), helper.make_tensor_value_info("flag", BOOL, [])
    proto = model(nodes, [X, trips if carried else flag], [value("l", rank=0, dtype=INT64), value("y")])
    x = MATRICES[0]
    for count in (1, 2):
        feeds = {"x": x, "trips": np.array(count)} if carried else {"x": x, "flag": np.array(count == 1)}
        check(proto, feeds, [np.array(count - 1), np.concatenate([x] * count)])


def test_a_branch_that_gives_one_sequence_or_another() -> None:
    def arm(name: str, *inputs: str) -> onnx.GraphProto:
        node = helper.make_node("SequenceConstruct", list(inputs), [name])
        return helper.make_graph([node], name, [], [value(name, "sequence")])

    nodes = [
        helper.make_node("Neg", ["x"], ["minus"]),
        helper.make_node("If", ["p"], ["s"], then_branch=arm("a", "x"), else_branch=arm("b", "minus", "x")),
        helper.make_node("SequenceLength", ["s"], ["l"]),
        helper.make_node("SequenceAt", ["s", "last"], ["e"]),
        helper.make_node("Abs", ["e"], ["y"]),
    ]
    nodes.insert(0, helper.make_node("Constant", [], ["last"], value_int=-1))
    proto = model(
        nodes,
        [X, helper.make_tensor_value_info("p", BOOL, [])],
        [value("l", rank=0, dtype=INT64), value("y"), value("s", "sequence")],
    )
    for taken in (True, False):
        check(proto, {"x": MATRICES[0], "p": np.array(taken)})


def test_a_map_over_two_sequences_and_a_tensor() -> None:
    body = helper.make_graph(
        [helper.make_node("Mul", ["a", "b"], ["c"]), helper.make_node("Add", ["c", "k"], ["d"])],
        "body",
        [value("a"), value("b"), value("k", rank=1)],
        [value("d")],
    )
    nodes = [helper.make_node("SequenceMap", ["s", "t", "k"], ["u"], body=body)]
    other = helper.make_tensor_sequence_value_info("t", FLOAT, ["a", "b"])
    inputs = [SEQUENCE, other, helper.make_tensor_value_info("k", FLOAT, [3])]
    feeds: dict[str, Any] = {"s": MATRICES, "t": [m + 1 for m in MATRICES], "k": np.arange(3, dtype=np.float32)}
    expected = [m * (m + 1) + feeds["k"] for m in MATRICES]
    check(model(nodes, inputs, [value("u", "sequence")]), feeds, [expected])


def test_optionals_of_the_interface() -> None:
    inner = helper.make_tensor_type_proto(FLOAT, [None])
    given = helper.make_value_info("o", helper.make_optional_type_proto(inner))
    then = helper.make_graph([helper.make_node("OptionalGetElement", ["o"], ["g"])], "then", [], [value("g", rank=1)])
    otherwise = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value_floats=[9.0])], "otherwise", [], [value("c", rank=1)]
    )
    nodes = [
        helper.make_node("OptionalHasElement", ["o"], ["h"]),
        helper.make_node("If", ["h"], ["e"], then_branch=then, else_branch=otherwise),
        helper.make_node("Neg", ["e"], ["y"]),
    ]
    proto = model(nodes, [given], [value("h", rank=0, dtype=BOOL), value("y", rank=1)])
    present, negative = run_compiled(proto, {"o": np.array([1.0, 2.0], np.float32)})
    assert present.item() is True
    assert negative.tolist() == [-1.0, -2.0]
    present, negative = run_compiled(proto, {"o": None})
    assert present.item() is False
    assert negative.tolist() == [-9.0]


def test_what_the_interface_refuses() -> None:
    nodes = [helper.make_node("SequenceAt", ["s", "at"], ["y"])]
    proto = model(nodes, [SEQUENCE, AT], [value("y")])
    for feeds, says in (
        ({"s": MATRICES, "at": np.array(3)}, "no such position"),
        ({"s": MATRICES[0], "at": np.array(0)}, "a list of arrays"),
        ({"s": [MATRICES[0].astype(np.float64)], "at": np.array(0)}, "arrays of float32"),
        ({"s": [np.ones(3, np.float32)], "at": np.array(0)}, "not what the model expects"),
        ({"at": np.array(0)}, "no value for input 's'"),
    ):
        with pytest.raises(IngotError, match=says) as caught:
            run_compiled(proto, feeds)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
