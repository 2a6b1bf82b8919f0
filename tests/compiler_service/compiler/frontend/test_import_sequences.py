"""Sequences and optionals of known length are resolved while importing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from compiler_service.compiler.reference.interpret import run_graph
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import CALL_OP
from tests.compiler_service.compiler.frontend.onnx_models import BOOL, INT64, constant, graph, load, model, node, tensor

X = tensor("x", ["n", 6])
POSITIONS = [constant("zero", 0, np.int64), constant("two", 2, np.int64), constant("last", -1, np.int64)]


def check(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[onnx.ValueInfoProto], constants: Sequence[onnx.TensorProto] = ()
) -> None:
    """The imported graph has plain operators alone and computes what the reference evaluator does."""
    proto = model(nodes, [X], outputs, [*POSITIONS, *constants])
    imported = load(proto).graph
    assert not [n.op for n in imported.nodes if n.op.startswith(("Sequence", "Optional", "SplitTo", "ConcatFrom"))]
    feeds = {"x": np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)}
    for expected, found in zip(ReferenceEvaluator(proto).run(None, feeds), run_graph(imported, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_unbind() -> None:
    nodes = [
        node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0),
        node("SequenceAt", ["s", "two"], ["a"]),
        node("SequenceAt", ["s", "last"], ["b"]),
        node("Add", ["a", "b"], ["y"]),
        node("SequenceLength", ["s"], ["l"]),
    ]
    check(nodes, [tensor("y", ["n"]), tensor("l", [], INT64)])


@pytest.mark.parametrize("sizes", [[2, 4], [1, 5], 4, 6])
def test_split(sizes: int | list[int]) -> None:
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["s"], axis=1),
        node("SequenceAt", ["s", "last"], ["y"]),
        node("ConcatFromSequence", ["s"], ["z"], axis=1),
    ]
    check(nodes, [tensor("y", ["n", None]), tensor("z", ["n", 6])], [constant("sizes", sizes, np.int64)])


def test_building() -> None:
    nodes = [
        node("SequenceEmpty", [], ["e"]),
        node("SequenceInsert", ["e", "x"], ["s1"]),
        node("Neg", ["x"], ["m"]),
        node("SequenceInsert", ["s1", "m", "zero"], ["s2"]),
        node("Identity", ["s2"], ["s3"]),
        node("ConcatFromSequence", ["s3"], ["y"], axis=0, new_axis=1),
        node("SequenceErase", ["s3"], ["s4"]),
        node("SequenceAt", ["s4", "zero"], ["z"]),
    ]
    check(nodes, [tensor("y", [2, "n", 6]), tensor("z", ["n", 6])])


def test_map() -> None:
    body = graph(
        [node("Sub", ["e", "k"], ["o"])],
        [tensor("e", [None, None]), tensor("k", [None, None])],
        [tensor("o", [None, None])],
    )
    nodes = [
        node("Exp", ["x"], ["m"]),
        node("SequenceConstruct", ["x", "m"], ["s"]),
        node("SequenceMap", ["s", "x"], ["t"], body=body),
        node("ConcatFromSequence", ["t"], ["y"], axis=0),
    ]
    check(nodes, [tensor("y", [None, 6])])


def test_optionals() -> None:
    nodes = [
        node("Optional", ["x"], ["o"]),
        node("OptionalHasElement", ["o"], ["h"]),
        node("OptionalGetElement", ["o"], ["g"]),
        node("Neg", ["g"], ["y"]),
    ]
    imported = load(model(nodes, [X], [tensor("y", ["n", 6]), tensor("h", [], BOOL)])).graph
    x = np.ones((2, 6), np.float32)
    negative, present = run_graph(imported, {"x": x})
    np.testing.assert_array_equal(negative, -x)
    assert present.item() is True


@pytest.mark.parametrize(
    ("nodes", "code", "says"),
    [
        ([node("SequenceAt", ["x", "zero"], ["y"])], ErrorCode.INVALID_MODEL, "received a tensor"),
        (
            [node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "two"], ["y"])],
            ErrorCode.INVALID_MODEL,
            "an element that the sequence does not have",
        ),
        (
            [node("Optional", [], ["o"], type=X.type), node("OptionalGetElement", ["o"], ["y"])],
            ErrorCode.INVALID_MODEL,
            "empty optional",
        ),
        (
            [node("SequenceConstruct", ["x"], ["s"]), node("Neg", ["s"], ["y"])],
            ErrorCode.UNSUPPORTED_DTYPE,
            "Neg takes tensors",
        ),
        (
            [
                node("SequenceEmpty", [], ["s"]),
                node("ConcatFromSequence", ["s"], ["t"], axis=0),
                node("Neg", ["t"], ["y"]),
            ],
            ErrorCode.UNSUPPORTED_DTYPE,
            "number of axes only the run knows",
        ),
    ],
)
def test_what_is_no_sequence_or_has_no_rank_is_refused(
    nodes: Sequence[onnx.NodeProto], code: ErrorCode, says: str
) -> None:
    proto = model(nodes, [X, tensor("p", [], BOOL)], ["y"], POSITIONS)
    with pytest.raises(IngotError) as caught:
        load(proto)
    assert caught.value.code is code
    assert says in str(caught.value)


def test_what_only_the_run_knows_is_left_to_the_executor() -> None:
    nodes = [node("SplitToSequence", ["x"], ["s"], axis=0), node("SequenceAt", ["s", "last"], ["y"])]
    graph_ = load(model(nodes, [X], [tensor("y", [1, 6])], POSITIONS)).graph
    calls = [n.attributes["function"] for n in graph_.nodes if n.op == CALL_OP]
    assert calls == ["split_to_sequence", "sequence_at", "extents", "tensor"]
    assert not [n.op for n in graph_.nodes if n.op.startswith("S")]
