"""Bad input: each a typed error that names the thing and the remedy, at a bounded cost."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler_service.compiler.frontend.reading.limits import FrontendLimits
from compiler_service.compiler.frontend.reading.source import NEWEST_OPSET
from shared_ir.errors import ErrorCode
from shared_ir.graph.ir import Module
from tests.compiler_service.compiler.frontend.onnx_models import (
    BOOL,
    constant,
    graph,
    load,
    model,
    node,
    refused,
    relu,
    tensor,
)

X = tensor("x", ["n", 4])


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
    assert refused(tmp_path).code is ErrorCode.INVALID_ARGUMENT  # it is there, and is a folder


@pytest.mark.parametrize("where", ["memory", "file"])
def test_the_size_is_checked_before_reading(tmp_path: Path, where: str) -> None:
    data = relu().SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    error = refused(data if where == "memory" else path, limits=FrontendLimits(model_bytes=len(data) - 1))
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


def test_the_types_of_shape_inputs_are_checked() -> None:
    proto = model([node("Reshape", ["x", "s"], ["y"])], [X, tensor("s", [2])], ["y"])
    assert refused(proto).node == "reshape_node (Reshape)"
