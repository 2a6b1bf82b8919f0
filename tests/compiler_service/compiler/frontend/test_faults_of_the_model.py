"""Attributes that do not fit their node are the model's fault, and said so by name."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from shared_ir.errors import ErrorCode, IngotError


@cache
def published(op: str) -> onnx.ModelProto:
    """A model of one node from the tests of ONNX."""
    with warnings.catch_warnings(action="ignore"):
        models = [case.model for case in load_model_tests(kind="node") if case.model is not None]
    return next(m for m in models if [n.op_type for n in m.graph.node] == [op])


def refusal(model: onnx.ModelProto) -> IngotError:
    with pytest.raises(IngotError) as caught:
        compile_model(ModelSource.of(model.SerializeToString()), host_target(), CompileOptions(opt_level=0), workers=0)
    return caught.value


@pytest.mark.parametrize(
    ("op", "attribute", "value"),
    [
        ("TfIdfVectorizer", "ngram_counts", [9, 9]),
        ("TfIdfVectorizer", "ngram_counts", [-1]),
        ("TfIdfVectorizer", "ngram_indexes", [0]),
        ("TfIdfVectorizer", "ngram_indexes", [-5] * 7),
        ("TreeEnsemble", "nodes_featureids", [-1] * 3),
        ("TreeEnsemble", "nodes_featureids", [-1]),
        ("TreeEnsemble", "nodes_truenodeids", [0]),
        ("TreeEnsemble", "nodes_truenodeids", [-3] * 3),
        ("TreeEnsemble", "nodes_falseleafs", [1]),
        ("TreeEnsemble", "tree_roots", [77]),
        ("TreeEnsemble", "leaf_targetids", [88] * 4),
        ("TreeEnsemble", "aggregate_function", -1),
        ("TreeEnsemble", "post_transform", 99),
    ],
)
def test_lists_that_do_not_fit(op: str, attribute: str, value: object) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(published(op))
    (node,) = model.graph.node
    kept = [a for a in node.attribute if a.name != attribute]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(attribute, value)])
    error = refusal(model)
    assert error.code is ErrorCode.UNSUPPORTED_ATTRIBUTE
    assert error.field == attribute


def one_node(node: onnx.NodeProto, **constants: np.ndarray) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])]
    outputs = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", values, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("axis", [2, -3, 99])
def test_axes_out_of_range(axis: int) -> None:
    for op, second in (("TopK", np.array([2])), ("Compress", np.array([True, False, True]))):
        node = helper.make_node(op, ["x", "second"], ["y", "z"][: 2 if op == "TopK" else 1], axis=axis)
        error = refusal(one_node(node, second=second))
        assert error.code is ErrorCode.TYPE_MISMATCH
        assert "axis is out of range" in str(error)
        assert op in str(error)


def test_lists_of_a_slice_differ_in_length() -> None:
    node = helper.make_node("Slice", ["x", "starts", "ends", "axes"], ["y"])
    error = refusal(one_node(node, starts=np.array([0, 0]), ends=np.array([1, 1]), axes=np.array([0])))
    assert error.code is ErrorCode.TYPE_MISMATCH
    assert "differ in length" in str(error)


def strings(op: str, domain: str = "", **attributes: Any) -> onnx.ModelProto:
    """A model of one node that looks into strings."""
    node = helper.make_node(op, ["x"], ["y"], domain=domain, **attributes)
    element = TensorProto.BOOL if op == "RegexFullMatch" else TensorProto.STRING
    x, y = (helper.make_tensor_value_info(n, t, None) for n, t in (("x", TensorProto.STRING), ("y", element)))
    x.type.tensor_type.shape.dim.add().dim_param = "n"
    opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets)


TOKENS: dict[str, Any] = {"domain": "com.microsoft", "mark": 0, "mincharnum": 1, "pad_value": "#"}


@pytest.mark.parametrize("text", ["(?=a)b", r"(a)\1", "(", "((a{1000}){1000})", b"\xff", r"\pL{900}"])
def test_expressions_that_are_none_are_refused_before_a_run_needs_them(text: str | bytes) -> None:
    for field, model in (
        ("pattern", strings("RegexFullMatch", pattern=text)),
        ("tokenexp", strings("Tokenizer", tokenexp=text, **TOKENS)),
        ("separators", strings("Tokenizer", separators=[" ", text], **TOKENS)),
    ):
        error = refusal(model)
        assert (error.code, error.field) == (ErrorCode.UNSUPPORTED_ATTRIBUTE, field)
        assert "not understood" in error.message


def test_expressions_without_end_are_refused() -> None:
    """Each run would compile them, for minutes."""
    error = refusal(strings("Tokenizer", separators=[rf"\pL{{200}}{n}" for n in range(10_000)], **TOKENS))
    assert (error.code, error.field) == (ErrorCode.LIMIT_EXCEEDED, "separators")


def test_an_expression_must_be_there() -> None:
    assert refusal(strings("RegexFullMatch")).field == "pattern"


@pytest.mark.parametrize("action", ["TITLE", b"\xff", ""])
def test_letters_change_in_ways_that_there_are(action: str | bytes) -> None:
    error = refusal(strings("StringNormalizer", case_change_action=action))
    assert (error.code, error.field) == (ErrorCode.UNSUPPORTED_ATTRIBUTE, "case_change_action")
