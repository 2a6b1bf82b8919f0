"""Tensors of strings: moved and compared by kernels, looked into by the executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.pipeline import CompileOptions, compile_model
from runtime_service.executors.aot import AotExecutor
from runtime_service.executors.library import Handle, Library
from runtime_service.executors.resources import Resources
from runtime_service.executors.signature import CallSignature
from runtime_service.loading.loader import load_model
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.json_form import read_plan, write_plan
from shared_ir.plan.program import Call, walk_steps
from tests.conformance.compiled import run_compiled, run_onnx_runtime

pytestmark = pytest.mark.slow

STRING, FLOAT, INT64 = onnx.TensorProto.STRING, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
WORDS = np.array([["red", "grün", ""], ["blue", "red", "red"]], object)


def model(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], *outputs: str) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "main", inputs, [onnx.ValueInfoProto(name=o) for o in outputs])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 4)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def words(name: str = "x", shape: Any = ("n", "m")) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, STRING, shape)


def test_what_moves_and_compares_strings_is_compiled() -> None:
    nodes = [
        helper.make_node("Constant", [], ["red"], value_strings=["red"]),
        helper.make_node("Constant", [], ["other"], value_string="other"),
        helper.make_node("Constant", [], ["flip"], value_ints=[1, 0]),
        helper.make_node("Equal", ["x", "red"], ["is_red"]),
        helper.make_node("Where", ["is_red", "x", "other"], ["y"]),
        helper.make_node("Transpose", ["y"], ["t"], perm=[1, 0]),
        helper.make_node("Gather", ["y", "flip"], ["g"]),
        helper.make_node("Concat", ["x", "g"], ["c"], axis=0),
        helper.make_node("Cast", ["is_red"], ["number"], to=FLOAT),
    ]
    proto = model(nodes, [words()], "is_red", "t", "c", "number")
    expected = np.where(WORDS == "red", WORDS, "other")
    for opt_level in (0, 3):
        is_red, t, c, number = run_compiled(proto, {"x": WORDS}, opt_level)
        np.testing.assert_array_equal(is_red, WORDS == "red")
        np.testing.assert_array_equal(t, expected.T)
        np.testing.assert_array_equal(c, np.concatenate([WORDS, expected[::-1]]))
        np.testing.assert_array_equal(number, (WORDS == "red").astype(np.float32))
        assert c.dtype == object
    artifact = compile_model(ModelSource.of(proto.SerializeToString()), host_target(), CompileOptions(), workers=0)
    assert not [s for s in walk_steps(artifact.plan.steps) if isinstance(s, Call)]
    assert read_plan(write_plan(artifact.plan)).strings == ("", "red", "other")
    with load_model(artifact, threads=1) as loaded:
        assert isinstance(loaded._make_executor(), AotExecutor)


def test_what_looks_into_strings_is_a_call_between_kernels() -> None:
    nodes = [
        helper.make_node("Constant", [], ["s"], value_string="s"),
        helper.make_node("StringConcat", ["x", "s"], ["plural"]),
        helper.make_node("RegexFullMatch", ["plural"], ["m"], pattern="r.*"),
        helper.make_node("Not", ["m"], ["y"]),
        helper.make_node("StringSplit", ["x"], ["parts", "counts"], delimiter="e"),
        helper.make_node("Mul", ["counts", "counts"], ["square"]),
    ]
    proto = model(nodes, [words()], "plural", "y", "parts", "square")
    plural, y, parts, square = run_compiled(proto, {"x": WORDS})
    np.testing.assert_array_equal(plural, WORDS + "s")
    np.testing.assert_array_equal(y, [[False, True, True], [True, False, False]])
    assert parts.shape == (2, 3, 2)
    assert parts[0].tolist() == [["r", "d"], ["grün", ""], ["", ""]]
    np.testing.assert_array_equal(square, [[4, 1, 0], [4, 4, 4]])


@pytest.mark.parametrize("stop", [["red"], ["red", "blue", "grün", ""]])
def test_normalizer_leaves_as_many_as_the_run_says(stop: list[str]) -> None:
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["y"], stopwords=stop, case_change_action="UPPER"),
        helper.make_node("Shape", ["y"], ["s"]),
    ]
    proto = model(nodes, [words(shape=["n"])], "y", "s")
    y, shape = run_compiled(proto, {"x": WORDS.reshape(-1)})
    expected = [w.upper() for w in WORDS.reshape(-1) if w not in stop] or [""]
    assert y.tolist() == expected
    assert shape.tolist() == [len(expected)]


@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, INT64])
def test_casts_between_strings_and_numbers(kind: int) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=kind),
        helper.make_node("Add", ["a", "a"], ["b"]),
        helper.make_node("Cast", ["b"], ["y"], to=STRING),
    ]
    (y,) = run_compiled(model(nodes, [words(shape=["n"])], "y"), {"x": np.array(["1", "-20", "4096"], object)})
    assert [float(v) for v in y] == [2.0, -40.0, 8192.0]


def test_tables_of_strings() -> None:
    nodes = [
        helper.make_node("LabelEncoder", ["x"], ["n"], domain="ai.onnx.ml", keys_strings=["red", "blue"],
                         values_int64s=[4, 5], default_int64=-7),
        helper.make_node("LabelEncoder", ["n"], ["back"], domain="ai.onnx.ml", keys_int64s=[4, 5],
                         values_strings=["rot", "blau"], default_string="?"),
    ]  # fmt: skip
    n, back = run_compiled(model(nodes, [words()], "n", "back"), {"x": WORDS})
    np.testing.assert_array_equal(n, [[4, -7, -7], [5, 4, 4]])
    np.testing.assert_array_equal(back, [["rot", "?", "?"], ["blau", "rot", "rot"]])


def test_categories() -> None:
    given = {"cats_strings": ["red", "blue"], "cats_int64s": [4, 5], "default_int64": 0, "default_string": "?"}
    nodes = [
        helper.make_node("CategoryMapper", ["x"], ["n"], domain="ai.onnx.ml", **given),
        helper.make_node("CategoryMapper", ["n"], ["back"], domain="ai.onnx.ml", **given),
    ]
    n, back = run_compiled(model(nodes, [words()], "n", "back"), {"x": WORDS})
    np.testing.assert_array_equal(n, [[4, 0, 0], [5, 4, 4]])
    np.testing.assert_array_equal(back, [["red", "?", "?"], ["blue", "red", "red"]])


def test_numbers_are_refused_where_strings_belong_and_the_other_way_round() -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    with pytest.raises(IngotError, match="an array of strings"):
        run_compiled(model(nodes, [words()], "y"), {"x": np.ones((2, 2), np.float32)})
    nodes = [helper.make_node("Exp", ["x"], ["y"])]
    with pytest.raises(IngotError) as caught:
        run_compiled(model(nodes, [words()], "y"), {"x": WORDS})
    assert (caught.value.code, caught.value.expected) == (ErrorCode.TYPE_MISMATCH, "a float")


def test_a_bundle_of_calls_is_refused() -> None:
    source = ModelSource.of(
        model([helper.make_node("StringConcat", ["x", "x"], ["y"])], [words()], "y").SerializeToString()
    )
    with pytest.raises(IngotError, match="a bundle is native code alone") as caught:
        compile_model(source, host_target(), CompileOptions(bundle="shared"), workers=0)
    assert caught.value.code is ErrorCode.UNSUPPORTED_OPERATOR


def test_native_code_refuses_calls_by_name() -> None:
    source = ModelSource.of(
        model([helper.make_node("StringConcat", ["x", "x"], ["y"])], [words()], "y").SerializeToString()
    )
    artifact = compile_model(source, host_target(), workers=0)
    library = Library(artifact.library, "strings")
    resources = Resources(threads=1)
    handle = Handle(library, 0, 0, resources)
    signature = CallSignature.of(artifact.plan, library.input_dtypes, library.output_dtypes)
    numbers = np.zeros((1, 2), np.int64)
    try:
        with pytest.raises(IngotError, match="only the graph executor runs it"):
            AotExecutor(signature, handle, resources).run([numbers])
    finally:
        handle.close()
        library.release()


@pytest.mark.parametrize(
    "given",
    [
        {"tokenexp": "[a-zA-Z]+"},
        {"tokenexp": "[a-zA-Z]+", "mincharnum": 2},
        {"tokenexp": "(c)at|[a-z]", "mark": 1},
        {"separators": [" ", ","]},
        {"separators": ["( |,)+"], "mark": 1},
        {"separators": [""]},
    ],
)
@pytest.mark.parametrize("texts", [["the cat, sat", "a  dog", "", " x"], ["", ""]])
def test_tokens(given: dict[str, Any], texts: list[str]) -> None:
    given = {"mark": 0, "mincharnum": 1, "pad_value": "#", **given}
    nodes = [helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **given)]
    proto = model(nodes, [words(shape=["n"])], "y")
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", STRING, None))
    feeds = {"x": np.array(texts, object)}
    found, expected = run_compiled(proto, feeds)[0], run_onnx_runtime(proto, feeds)[0]
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()
