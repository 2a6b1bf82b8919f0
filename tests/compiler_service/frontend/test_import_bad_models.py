"""Bad input: each a typed error that names the thing and the remedy, at a bounded cost."""

from __future__ import annotations

import gzip
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from compiler_service.frontend.limits import Limits
from compiler_service.frontend.source import NEWEST_OPSET
from shared_ir.errors import Blame, ErrorCode, IngotError
from shared_ir.graph import Module
from tests.compiler_service.frontend.onnx_models import BOOL, constant, graph, load, model, node, tensor

X = tensor("x", ["n", 4])


def relu() -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"])], [X], ["y"])


def refused(source: onnx.ModelProto | bytes | Path, **options: object) -> IngotError:
    with pytest.raises(IngotError) as caught:
        load(source, **options)
    assert caught.value.message
    assert caught.value.blame is Blame.USER
    return caught.value


# -- files


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes"),
        (b"PK\x03\x04rest", "ZIP archive"),
        (gzip.compress(b"x", mtime=0), "gzip archive"),
        (pickle.dumps({}, protocol=4), "Python pickle"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"\x1c\x00\x00\x00TFL3", "TensorFlow Lite"),
        (b"\x1c\x00\x00\x00ORTM", "internal format of ONNX Runtime"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "text: '<!DOCTYPE html>"),
        (b'{"ir_version": 8}', "text:"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "more than 64 bits"),
        (b"\x07\x00", "field number 0"),
        (b"\x0f", "wire type 7"),
        (b"\x3a\xff\x01abc", "reaches past the end"),
        (b"\xaa\x06\x03abc", "another message"),
        (np.random.default_rng(0).bytes(4096), "protobuf|past the end|another message"),
    ],
)
def test_what_is_no_model_is_told_apart(data: bytes, says: str) -> None:
    error = refused(data)
    assert error.code is ErrorCode.INVALID_MODEL
    assert any(s in f"{error.message}: {error.received}" for s in says.split("|"))
    assert error.remedy


def test_the_extension_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(relu().SerializeToString())
    assert isinstance(load(path), Module)
    (tmp_path / "model.onnx").write_text("not a model")
    assert refused(tmp_path / "model.onnx").code is ErrorCode.INVALID_MODEL


def test_missing_files_are_not_found(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.onnx").code is ErrorCode.NOT_FOUND
    assert refused(tmp_path).code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("where", ["memory", "file"])
def test_the_size_is_checked_before_reading(tmp_path: Path, where: str) -> None:
    data = relu().SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    error = refused(data if where == "memory" else path, limits=Limits(model_bytes=len(data) - 1))
    assert error.code is ErrorCode.LIMIT_EXCEEDED
    assert str(len(data) - 1) in error.expected


def test_a_truncated_model_says_so() -> None:
    weights = constant("w", np.ones((4, 4), np.float32))
    data = model([node("MatMul", ["x", "w"], ["y"])], [X], ["y"], [weights]).SerializeToString()
    error = refused(data[: len(data) // 2])
    assert (error.code, error.message) == (ErrorCode.INVALID_MODEL, "the model file is truncated or is no protobuf")


# -- the outline of a model


def _without(field: str) -> onnx.ModelProto:
    proto = relu()
    proto.ClearField(field)
    return proto


def _with_opset(version: int) -> onnx.ModelProto:
    proto = relu()
    proto.opset_import[0].version = version
    return proto


def _with_ir_version(version: int) -> onnx.ModelProto:
    proto = relu()
    proto.ir_version = version
    return proto


@pytest.mark.parametrize(
    ("proto", "code", "says"),
    [
        (_without("ir_version"), ErrorCode.INVALID_MODEL, "no ir_version"),
        (_without("opset_import"), ErrorCode.INVALID_MODEL, "imports no operator set"),
        (_without("graph"), ErrorCode.INVALID_MODEL, "no graph"),
        (_with_ir_version(2), ErrorCode.INVALID_MODEL, "IR version"),
        (_with_ir_version(999), ErrorCode.INVALID_MODEL, "IR version"),
        (_with_opset(0), ErrorCode.UNSUPPORTED_OPSET, "opset of the model"),
        (_with_opset(-3), ErrorCode.UNSUPPORTED_OPSET, "opset of the model"),
        (_with_opset(NEWEST_OPSET + 1), ErrorCode.UNSUPPORTED_OPSET, "opset of the model"),
        (model([], [X], []), ErrorCode.INVALID_MODEL, "no outputs"),
        (model([], [X, X], ["x"]), ErrorCode.INVALID_MODEL, "no name of its own"),
        (model([], [tensor("", [1]), X], ["x"]), ErrorCode.INVALID_MODEL, "no name of its own"),
        (model([], [X], ["x", "x"]), ErrorCode.INVALID_MODEL, "no name of its own"),
        (model([], [X], ["nothing"]), ErrorCode.INVALID_MODEL, "nothing defines"),
        (model([], [tensor("x", ["n"], 0)], ["x"]), ErrorCode.UNSUPPORTED_DTYPE, "element type"),
        (
            model([], [tensor("x" * 5000, ["n"])], ["x" * 5000]),
            ErrorCode.LIMIT_EXCEEDED,
            "name of an input is too long",
        ),
    ],
)
def test_models_with_parts_missing(proto: onnx.ModelProto, code: ErrorCode, says: str) -> None:
    error = refused(proto)
    assert error.code is code
    assert says in error.message


def test_two_models_in_one_file_are_refused() -> None:
    assert "several graphs" in refused(relu().SerializeToString() * 2).message


def test_inputs_that_are_no_tensors_nor_sequences_of_them_are_refused() -> None:
    inner = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, ["n"]))
    nested = helper.make_value_info("x", helper.make_sequence_type_proto(inner))
    error = refused(model([], [nested], ["x"]))
    assert (error.code, error.tensor, error.received) == (ErrorCode.UNSUPPORTED_DTYPE, "x", "sequence")


# -- graphs


def _chain(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    return model(nodes, [X], ["y"])


@pytest.mark.parametrize(
    ("proto", "code", "where", "says"),
    [
        (
            _chain(
                node("Add", ["x", "b"], ["a"], name="first"),
                node("Relu", ["a"], ["b"], name="second"),
                node("Neg", ["b"], ["y"]),
            ),
            ErrorCode.INVALID_MODEL,
            "first (Add)",
            "cycle",
        ),
        (_chain(node("Relu", ["y"], ["y"], name="self")), ErrorCode.INVALID_MODEL, "self (Relu)", "cycle"),
        (
            _chain(node("Add", ["x", "lost"], ["y"], name="sum")),
            ErrorCode.INVALID_MODEL,
            "sum (Add)",
            "nothing defines",
        ),
        (
            _chain(node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"], name="again")),
            ErrorCode.INVALID_MODEL,
            "again (Neg)",
            "defined twice",
        ),
        (_chain(node("Relu", ["x"], ["x"], name="over")), ErrorCode.INVALID_MODEL, "over (Relu)", "defined twice"),
        (
            _chain(node("Relu", ["x", "x"], ["y"], name="many")),
            ErrorCode.INVALID_MODEL,
            "many (Relu)",
            "wrong number of inputs",
        ),
        (_chain(node("Add", ["x"], ["y"], name="few")), ErrorCode.INVALID_MODEL, "few (Add)", "wrong number of inputs"),
        (
            _chain(node("Add", ["x", ""], ["y"], name="gap")),
            ErrorCode.INVALID_MODEL,
            "gap (Add)",
            "lacks its input 'B'",
        ),
        (
            _chain(node("Relu", ["x"], ["y", "z"], name="out")),
            ErrorCode.INVALID_MODEL,
            "out (Relu)",
            "wrong number of outputs",
        ),
        (
            _chain(node("Concat", ["x"], ["y"], name="cat")),
            ErrorCode.INVALID_MODEL,
            "cat (Concat)",
            "lacks its attribute 'axis'",
        ),
        (
            _chain(node("Relu", ["x"], ["y"], name="odd", slope=1.0)),
            ErrorCode.UNSUPPORTED_ATTRIBUTE,
            "odd (Relu)",
            "has no attribute 'slope'",
        ),
        (
            _chain(node("Frobnicate", ["x"], ["y"], name="unknown")),
            ErrorCode.UNSUPPORTED_OPERATOR,
            "unknown (Frobnicate)",
            "is not an operator of opset 17",
        ),
        (
            _chain(node("Gelu", ["x"], ["y"], name="new")),
            ErrorCode.UNSUPPORTED_OPERATOR,
            "new (Gelu)",
            "not an operator of opset 17",
        ),
        (
            _chain(node("Magic", ["x"], ["y"], name="m", domain="com.acme")),
            ErrorCode.INVALID_MODEL,
            "m (com.acme.Magic)",
            "imports no opset",
        ),
        (
            _chain(node("Constant", [], ["y"], name="c")),
            ErrorCode.INVALID_MODEL,
            "c (Constant)",
            "no value, or several",
        ),
        (
            _chain(node("Constant", [], ["y"], name="c", value_int=1, value_float=1.0)),
            ErrorCode.INVALID_MODEL,
            "c (Constant)",
            "no value, or several",
        ),
        (_chain(node("MatMul", ["x", "x"], ["y"], name="mm")), ErrorCode.TYPE_MISMATCH, "mm (MatMul)", ""),
        (_chain(node("Cast", ["x"], ["y"], name="c", to=99)), ErrorCode.UNSUPPORTED_DTYPE, "c (Cast)", "element type"),
    ],
)
def test_invalid_graphs_name_the_node(proto: onnx.ModelProto, code: ErrorCode, where: str, says: str) -> None:
    if where == "mm (MatMul)":
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 5
    error = refused(proto)
    assert (error.code, error.node) == (code, where)
    assert says in error.message


def test_foreign_domains_are_named() -> None:
    nodes = [node("FusedGelu", ["x"], ["y"], domain="com.acme", name="fused")]
    error = refused(model(nodes, [X], ["y"], domains={"com.acme": 1}))
    assert (error.code, error.node) == (ErrorCode.UNSUPPORTED_DOMAIN, "fused (com.acme.FusedGelu)")
    assert "com.acme" in error.message
    assert "function" in error.remedy


def test_the_message_of_a_cycle_shows_it() -> None:
    nodes = [node("Relu", [f"v{(i + 1) % 3}"], [f"v{i}"], name=f"n{i}") for i in range(3)]
    error = refused(model([node("Relu", ["v0"], ["y"], name="after"), *nodes], [X], ["y"]))
    assert error.received == "n0 (Relu) -> n2 (Relu) -> n1 (Relu) -> n0 (Relu)"


def test_values_of_another_branch_are_not_seen() -> None:
    then = graph([node("Relu", ["x"], ["r"]), node("Neg", ["r"], ["t"])], [], ["t"])
    other = graph([node("Neg", ["r"], ["e"], name="leak")], [], ["e"])
    nodes = [node("If", ["flag"], ["y"], name="choose", then_branch=then, else_branch=other)]
    error = refused(model(nodes, [X, tensor("flag", [], BOOL)], ["y"]))
    assert (error.code, error.tensor) == (ErrorCode.INVALID_MODEL, "r")


# -- bombs: small files that would cost much


def _repeat(op: Callable[[str, str, int], onnx.NodeProto], times: int, **more: object) -> onnx.ModelProto:
    nodes = [op(f"v{i}", f"v{i + 1}", i) for i in range(times)]
    return model(nodes, [tensor("v0", ["n", 4])], [f"v{times}"], **more)  # type: ignore[arg-type]


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
    error = refused(_function_bomb(), limits=Limits(nodes=5000))
    assert error.code is ErrorCode.LIMIT_EXCEEDED
    assert "5000" in error.expected


def test_many_nodes_are_counted_before_parsing() -> None:
    data = relu().SerializeToString()
    padding = b"\x0a\x00" * 3000  # empty nodes, two bytes each
    proto = onnx.ModelProto.FromString(data)
    body = proto.graph.SerializeToString() + padding
    proto.ClearField("graph")
    error = refused(proto.SerializeToString() + _wrapped(7, body), limits=Limits(graph_entries=2000))
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
    error = refused(_without("graph").SerializeToString() + _wrapped(7, made))
    assert (error.code, error.message) == (ErrorCode.INVALID_MODEL, "the model file is damaged or nested too deeply")


def test_squaring_constants_stays_cheap() -> None:
    nodes = [node("Mul", [f"v{i}", f"v{i}"], [f"v{i + 1}"]) for i in range(40)]
    module = load(model(nodes, [], ["v40"], [constant("v0", [3])]))
    assert str(module.graph.outputs[0].type) == "int64[1]"


# -- anything at all


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_refused_or_imported(data: bytes) -> None:
    _only_typed_errors(data)


def _sample() -> bytes:
    inner = graph([node("Relu", ["h"], ["t"])], [], ["t"])
    other = graph([node("Neg", ["h"], ["e"])], [], ["e"])
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Shape", ["h"], ["s"]),
        node("Slice", ["s", "one", "two"], ["last"]),
        node("Concat", ["minus", "last"], ["target"], axis=0),
        node("Reshape", ["h", "target"], ["r"]),
        node("ReduceMean", ["r"], ["m"], axes=[1], keepdims=1),
        node("If", ["flag"], ["i"], then_branch=inner, else_branch=other),
        node("Add", ["m", "i"], ["y"]),
    ]
    constants = [
        constant("w", np.ones((4, 4), np.float32)),
        constant("one", [1]),
        constant("two", [2]),
        constant("minus", [-1]),
    ]
    return model(nodes, [X, tensor("flag", [], BOOL)], [tensor("y", ["n", 4])], constants).SerializeToString()


SAMPLE = _sample()


def test_the_sample_itself_is_imported() -> None:
    assert str(load(SAMPLE).graph.outputs[0].type) == "float32[n, 4]"


@pytest.mark.parametrize("start", range(7))
def test_truncations_are_refused(start: int) -> None:
    for length in range(start, len(SAMPLE), 7):
        _only_typed_errors(SAMPLE[:length])


def test_an_absent_part_of_a_concatenation_is_a_fault_of_the_model() -> None:
    position = 107  # the first letter of the first input of Concat
    _only_typed_errors(SAMPLE[:position] + b"\0" + SAMPLE[position + 1 :])
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[4] y) { y = Concat<axis=0>(x, x) }'
    )
    model.graph.node[0].input[0] = ""
    with pytest.raises(IngotError, match="lacks one of its inputs") as caught:
        load(model)
    assert caught.value.code is ErrorCode.INVALID_MODEL


@given(st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_models_are_refused_or_imported(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SAMPLE)
    for position, byte in changes:
        data[position] = byte
    _only_typed_errors(bytes(data))


_FIELDS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 5))


@given(
    st.lists(_FIELDS, max_size=4),
    st.lists(_FIELDS, max_size=4),
    st.sampled_from(["Reshape", "Tile", "Expand", "Slice", "Pad"]),
)
@settings(max_examples=300, deadline=None)
def test_any_numbers_in_shape_inputs(first: list[int], second: list[int], op: str) -> None:
    inputs = ["x", "a", "b"] if op == "Slice" else ["x", "a"]
    constants = [constant("a", first, np.int64), constant("b", second, np.int64)]
    _only_typed_errors(model([node(op, inputs, ["y"])], [X], ["y"], constants).SerializeToString())


def _only_typed_errors(data: bytes) -> None:
    found: IngotError | None = None
    try:
        load(data)
    except IngotError as error:
        found = error
    assert found is None or found.blame is Blame.USER


def test_the_types_of_shape_inputs_are_checked() -> None:
    proto = model([node("Reshape", ["x", "s"], ["y"])], [X, tensor("s", [2])], ["y"])
    assert refused(proto).node == "reshape_node (Reshape)"
