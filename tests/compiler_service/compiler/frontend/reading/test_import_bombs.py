"""Small files that would cost much: refused at a bounded cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import onnx
import pytest
from onnx import helper

from compiler_service.compiler.frontend.reading.limits import FrontendLimits
from shared_ir.errors import ErrorCode
from tests.compiler_service.compiler.frontend.onnx_models import constant, load, model, node, refused, relu, tensor

X = tensor("x", ["n", 4])


def _repeat(op: Callable[[str, str, int], onnx.NodeProto], times: int, **more: Any) -> onnx.ModelProto:
    nodes = [op(f"v{i}", f"v{i + 1}", i) for i in range(times)]
    return model(nodes, [tensor("v0", ["n", 4])], [f"v{times}"], **more)


def _concat(a: str, b: str, _: int) -> onnx.NodeProto:
    return node("Concat", [a, a], [b], axis=0)


def _shape_bomb(op: str) -> onnx.ModelProto:
    """A dim that is added to or multiplied by itself again and again."""
    nodes = [node("Shape", ["x"], ["s0"])]
    nodes += [node(op, [f"s{i}", f"s{i}"], [f"s{i + 1}"]) for i in range(40)]
    return model([*nodes, node("ConstantOfShape", ["s40"], ["y"])], [tensor("x", ["n", "m"])], ["y"])


def _filled(dims: list[int]) -> onnx.ModelProto:
    return model([node("ConstantOfShape", ["s"], ["y"])], [], ["y"], [constant("s", dims)])


def _ranged(limit: int) -> onnx.ModelProto:
    constants = [constant(n, v) for n, v in (("a", 0), ("b", limit), ("c", 1))]
    return model([node("Range", ["a", "b", "c"], ["y"])], [], ["y"], constants)


def _function_bomb() -> onnx.ModelProto:
    """Each function calls the next one twice."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = [
        helper.make_function(
            "f",
            f"F{i}",
            ["a"],
            ["c"],
            [node(f"F{i + 1}", ["a"], ["b"], domain="f"), node(f"F{i + 1}", ["b"], ["c"], domain="f")],
            opsets,
        )
        for i in range(11)
    ]
    leaf = [node("Relu", ["a"], ["r0"])] + [node("Relu", [f"r{i}"], [f"r{i + 1}"]) for i in range(30)]
    functions.append(helper.make_function("f", "F11", ["a"], ["r30"], leaf, opsets))
    return model([node("F0", ["x"], ["y"], domain="f")], [X], ["y"], functions=functions, domains={"f": 1})


def _expand(dims: list[int]) -> onnx.ModelProto:
    return model([node("Expand", ["x", "s"], ["y"])], [tensor("x", [1, 1])], ["y"], [constant("s", dims)])


def _tile(repeats: list[int]) -> onnx.ModelProto:
    return model([node("Tile", ["x", "s"], ["y"])], [tensor("x", [1, 1])], ["y"], [constant("s", repeats)])


_REFUSALS = (
    ErrorCode.LIMIT_EXCEEDED,
    ErrorCode.TYPE_MISMATCH,  # more axes than an array can have
)


@pytest.mark.parametrize(
    "proto",
    [
        _repeat(_concat, 40),
        _shape_bomb("Add"),
        _filled([2**38]),
        _filled([2**20, 2**20, 2**20]),
        _filled([2**62, 2**62]),
        _filled([1] * 200),
        _ranged(2**40),
        _expand([2**20, 2**20]),
        _tile([2**40, 1]),
        model([], [tensor("x", [2**40])], ["x"]),
        model([], [tensor("x", [2**20, 2**20])], ["x"]),
        model([], [tensor("x", [1] * 17)], ["x"]),
    ],
    ids=[
        "concat x40", "dim + dim x40", "2**38", "2**60", "2**124", "rank 200", "range", "expand", "tile",
        "dim 2**40", "input 2**40", "rank 17",
    ],
)  # fmt: skip
def test_bombs_are_refused_quickly(proto: onnx.ModelProto) -> None:
    start = time.process_time()
    assert refused(proto).code in _REFUSALS
    assert time.process_time() - start < 5


def test_a_dim_too_long_to_follow_counts_as_one_that_only_the_run_knows() -> None:
    start = time.process_time()
    assert "ingot.Define" in [n.op for n in load(_shape_bomb("Mul")).graph.nodes]
    assert time.process_time() - start < 5


@pytest.mark.slow
def test_functions_that_multiply_are_cut_off() -> None:
    error = refused(_function_bomb(), limits=FrontendLimits(nodes=5000))
    assert error.code is ErrorCode.LIMIT_EXCEEDED
    assert "5000" in error.expected


def test_many_nodes_are_counted_before_parsing() -> None:
    data = relu().SerializeToString()
    padding = b"\x0a\x00" * 3000  # empty nodes, two bytes each
    proto = onnx.ModelProto.FromString(data)
    body = proto.graph.SerializeToString() + padding
    proto.ClearField("graph")
    error = refused(proto.SerializeToString() + _wrapped(7, body), limits=FrontendLimits(graph_entries=2000))
    assert (error.code, error.message) == (ErrorCode.LIMIT_EXCEEDED, "the graph has too many entries")


def _wrapped(field: int, body: bytes) -> bytes:
    """``body`` as a message field of protobuf's wire format."""
    length, varint = len(body), b""
    while length > 0x7F:
        varint, length = varint + bytes([length & 0x7F | 0x80]), length >> 7
    return bytes([field << 3 | 2]) + varint + bytes([length]) + body


def test_deep_messages_are_refused() -> None:
    made = b""
    for _ in range(60):
        made = _wrapped(1, _wrapped(5, _wrapped(6, made)))  # graph: node: attribute: graph
    proto = relu()
    proto.ClearField("graph")
    error = refused(proto.SerializeToString() + _wrapped(7, made))
    assert (error.code, error.message) == (ErrorCode.INVALID_MODEL, "the model file is damaged or nested too deeply")


def test_squaring_constants_stays_cheap() -> None:
    nodes = [node("Mul", [f"v{i}", f"v{i}"], [f"v{i + 1}"]) for i in range(40)]
    module = load(model(nodes, [], ["v40"], [constant("v0", [3])]))
    assert str(module.graph.outputs[0].type) == "int64[1]"
