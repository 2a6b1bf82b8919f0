"""What a model becomes: names, symbols, constants, order, functions."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler_service.compiler.frontend.reading.source import NEWEST_OPSET
from compiler_service.compiler.frontend.standard.schemas import find_schema
from compiler_service.compiler.frontend.standard.uses import uses_of
from compiler_service.compiler.tensor_expr.registry import OPERATORS
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import dims_text
from shared_ir.graph.text import large_constants, parse_module, print_module
from tests.compiler_service.compiler.frontend.onnx_models import (
    BOOL,
    INT64,
    LIGHT,
    constant,
    load,
    model,
    node,
    ops,
    run,
    tensor,
)


def test_a_dynamic_shape_is_followed_through_shape_arithmetic() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["batch"], axis=0),
        node("Mul", ["batch", "two"], ["twice"]),
        node("Unsqueeze", ["twice", "axes"], ["first"]),
        node("Concat", ["first", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    constants = [constant("zero", 0), constant("two", 2), constant("axes", [0]), constant("rest", [-1])]
    module = load(model(nodes, [tensor("x", ["batch", 4, "w"])], ["y"], constants))
    (y,) = module.graph.outputs
    assert dims_text(y.shape) == "batch * 2, w * 2"


@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16])
def test_a_shape_is_followed_through_halves(kind: int) -> None:
    scales = helper.make_tensor("scales", kind, [4], [1.0, 1.0, 2.0, 1.5])
    nodes = [node("Cast", ["scales"], ["s"], to=onnx.TensorProto.FLOAT), node("Resize", ["x", "", "s"], ["y"])]
    module = load(model(nodes, [tensor("x", [1, 3, 4, 6])], ["y"], [scales]))
    assert module.graph.outputs[0].shape == (1, 3, 8, 9)


def test_interface_names_stay_and_value_names_become_identifiers() -> None:
    nodes = [node("Relu", ["in/x:0"], ["1"]), node("Relu", ["1"], ["out y"])]
    module = load(model(nodes, [tensor("in/x:0", [2])], ["out y"]))
    assert (module.input_names, module.output_names) == (("in/x:0",), ("out y",))
    assert [v.name for n in module.graph.nodes for v in n.results] == ["v1", "out_y"]
    assert [n.name for n in module.graph.nodes] == ["relu_node", "relu_node"]


def test_names_that_become_equal_stay_distinct() -> None:
    nodes = [node("Relu", ["x"], ["a.b"]), node("Relu", ["a.b"], ["a/b"]), node("Relu", ["a/b"], ["a_b"])]
    module = load(model(nodes, [tensor("x", [2])], ["a_b"]))
    assert [v.name for n in module.graph.nodes for v in n.results] == ["a_b", "a_b_1", "a_b_2"]


def test_dims_without_a_name_become_symbols_of_their_own() -> None:
    given = tensor("x", ["p.0", None, 3, "if", "p.0"])
    given.type.tensor_type.shape.dim[2].dim_value = -1
    module = load(model([node("Relu", ["x"], ["y"])], [given, tensor("z", ["p.0", "p/0"])], ["y", "z"]))
    assert [dims_text(v.shape) for v in module.graph.inputs] == ["p_0, x_1, x_2, if_, p_0", "p_0, p_0_1"]


def test_shapes_pin_and_name_dims() -> None:
    proto = model([node("Add", ["x", "y"], ["z"])], [tensor("x", ["n", None]), tensor("y", [1, None])], ["z"])
    module = load(proto, shapes={"x": [8, "w"], "y": [None, "w"]})
    assert [dims_text(v.shape) for v in (*module.graph.inputs, *module.graph.outputs)] == ["8, w", "1, w", "8, w"]


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"nope": [1, 1]}, "no input of the model"),
        ({"x": [1]}, "wrong number of axes"),
        ({"x": [None, 4]}, "contradicts the model"),
        ({"x": [-2, None]}, "contradicts the model"),
    ],
)
def test_impossible_shapes_are_refused(shapes: dict[str, list[int | None]], says: str) -> None:
    with pytest.raises(IngotError, match=says) as caught:
        load(model([node("Relu", ["x"], ["y"])], [tensor("x", ["n", 3])], ["y"]), shapes=shapes)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.tensor in shapes


def test_an_input_without_a_shape_needs_one() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [tensor("x", None)], ["y"])
    with pytest.raises(IngotError, match="has no shape") as caught:
        load(proto)
    assert "shapes={'x': (...)}" in caught.value.remedy
    assert dims_text(load(proto, shapes={"x": ["n", 2]}).graph.outputs[0].shape) == "n, 2"


def test_defaults_of_the_schema_are_filled_in() -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    module = load(model(nodes, [tensor("x", [1, 2, 5, 5])], ["y"], [constant("w", np.ones((3, 2, 3, 3), np.float32))]))
    (conv,) = module.graph.nodes
    assert conv.attributes["group"] == 1
    assert conv.attributes["auto_pad"] == "NOTSET"
    assert conv.attributes["pads"] == (1, 1, 1, 1)


def test_dtype_attributes_become_dtypes() -> None:
    module = load(model([node("Cast", ["x"], ["y"], to=INT64)], [tensor("x", [2])], ["y"]))
    assert module.graph.nodes[0].attributes["to"] is DType.INT64
    assert module.graph.outputs[0].dtype is DType.INT64


def test_an_output_that_is_listed_twice_is_one() -> None:
    module = load(model([node("Relu", ["x"], ["y"])], [tensor("x", [2])], ["y", "x", "y"]))
    assert module.output_names == ("y", "x")
    assert len(module.graph.outputs) == 2


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value": constant("", [1, 2], np.int32)}, np.array([1, 2], np.int32)),
        ({"value_float": 1.5}, np.array(1.5, np.float32)),
        ({"value_floats": [1.5, 2]}, np.array([1.5, 2], np.float32)),
        ({"value_int": 3}, np.array(3)),
        ({"value_ints": [3, 4]}, np.array([3, 4])),
    ],
)
def test_constant_nodes_become_constants(attributes: dict[str, object], expected: np.ndarray) -> None:
    module = load(model([node("Constant", [], ["c"], **attributes)], [], ["c"]))
    (found,) = module.graph.constants.values()
    assert module.graph.nodes == ()
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


def test_strings_become_numbers_of_a_table() -> None:
    module = load(model([node("Constant", [], ["c"], value_strings=["b", "", "a", "b"])], [], ["c"]))
    (found,) = module.graph.constants.values()
    assert [module.strings[i] for i in found.tolist()] == ["b", "", "a", "b"]
    assert found[1] == 0
    assert module.graph.outputs[0].dtype is DType.INT64
    assert module.objects["c"].dtype is DType.STRING


def test_sparse_constants_become_dense() -> None:
    values, indices = constant("s", [5, 7], np.float32), constant("", [1, 5])
    sparse = helper.make_sparse_tensor(values, indices, [2, 3])
    proto = model([node("Constant", [], ["c"], sparse_value=sparse)], [], ["c", "s"])
    proto.graph.sparse_initializer.append(sparse)
    for found in load(proto).graph.constants.values():
        assert found.tolist() == [[0, 5, 0], [0, 0, 7]]


def test_constant_of_shape_holds_a_number_and_its_type() -> None:
    nodes = [
        node("ConstantOfShape", ["s"], ["y"], value=constant("", [7], np.int32)),
        node("ConstantOfShape", ["s"], ["z"]),
    ]
    module = load(model(nodes, [], ["y", "z"], [constant("s", [2, 3])]))
    assert dict(module.graph.nodes[0].attributes) == {"value": 7, "dtype": DType.INT32}
    assert [str(v.type) for v in module.graph.outputs] == ["int32[2, 3]", "float32[2, 3]"]


def test_absent_inputs_are_none_and_trailing_ones_dropped() -> None:
    nodes = [node("Clip", ["x", "", "high"], ["y"]), node("Clip", ["y", "", ""], ["z"])]
    module = load(model(nodes, [tensor("x", [2])], ["z"], [constant("high", 6, np.float32)]))
    first, second = module.graph.nodes
    assert [v if v is None else v.name for v in first.inputs] == ["x", None, "high"]
    assert [v if v is None else v.name for v in second.inputs] == ["y"]


def test_nodes_out_of_order_are_sorted() -> None:
    nodes = [node("Neg", ["b"], ["y"]), node("Relu", ["x"], ["a"]), node("Exp", ["a"], ["b"])]
    assert ops(load(model(nodes, [tensor("x", [2])], ["y"])).graph) == ["Relu", "Exp", "Neg"]


def test_an_input_may_be_an_output() -> None:
    module = load(model([], [tensor("x", ["n"])], ["x"]))
    assert module.graph.outputs == module.graph.inputs


def _scale(opset: int = 17) -> onnx.FunctionProto:
    body = [
        node("Constant", [], ["factor"], name="c"),
        node("Mul", ["a", "factor"], ["t"], name="mul"),
        node("Relu", ["t"], ["b"], name="relu"),
    ]
    reference = body[0].attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "value_float", "by", onnx.AttributeProto.FLOAT
    return helper.make_function("my.ops", "Scale", ["a"], ["b"], body, [helper.make_opsetid("", opset)], ["by"])


def test_functions_of_the_model_are_inlined() -> None:
    nodes = [
        node("Scale", ["x"], ["t"], domain="my.ops", by=2.0, name="one"),
        node("Scale", ["t"], ["y"], domain="my.ops", by=3.0, name="two"),
    ]
    proto = model(nodes, [tensor("x", [2])], ["y"], functions=[_scale()], domains={"my.ops": 1})
    module = load(proto)
    assert [n.name for n in module.graph.nodes] == ["one/mul", "one/relu", "two/mul", "two/relu"]
    assert [a.tolist() for a in module.graph.constants.values()] == [2.0, 3.0]
    (y,) = run(module, {"x": np.array([1, -1], np.float32)})
    assert y.tolist() == [6, 0]


def test_functions_follow_their_own_opset() -> None:
    body = [node("Squeeze", ["a"], ["b"], axes=[0])]
    function = helper.make_function("my.ops", "First", ["a"], ["b"], body, [helper.make_opsetid("", 11)])
    nodes = [node("First", ["x"], ["y"], domain="my.ops")]
    module = load(model(nodes, [tensor("x", [1, 4])], ["y"], functions=[function], domains={"my.ops": 1}))
    assert str(module.graph.outputs[0].type) == "float32[4]"


def test_functions_that_recurse_are_refused() -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
    a = helper.make_function("my.ops", "A", ["a"], ["b"], [node("B", ["a"], ["b"], domain="my.ops")], opsets)
    b = helper.make_function("my.ops", "B", ["a"], ["b"], [node("A", ["a"], ["b"], domain="my.ops")], opsets)
    nodes = [node("A", ["x"], ["y"], domain="my.ops")]
    with pytest.raises(IngotError, match="calls itself") as caught:
        load(model(nodes, [tensor("x", [1])], ["y"], functions=[a, b], domains={"my.ops": 1}))
    assert caught.value.code is ErrorCode.INVALID_MODEL
    assert caught.value.received == "A -> B -> A"


def test_metadata_of_the_producer_is_kept() -> None:
    proto = model([], [tensor("x", [1])], ["x"])
    proto.producer_name, proto.producer_version = "maker", "2"
    proto.metadata_props.add(key="labels", value="a,b")
    proto.metadata_props.add(key="book", value="x" * 10_000)
    assert load(proto).metadata == {"producer": "maker 2", "ir_version": "8", "graph": "main", "labels": "a,b"}


def test_known_branches_are_taken_while_importing() -> None:
    then = helper.make_graph([node("Relu", ["x"], ["t"])], "then", [], [tensor("t", [2])])
    other = helper.make_graph([node("Squeeze", ["x"], ["e"])], "else", [], [tensor("e", [])])
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Equal", ["s", "two"], ["flag"]),
        node("If", ["flag"], ["y"], then_branch=then, else_branch=other),
    ]
    module = load(model(nodes, [tensor("x", [2])], ["y"], [constant("two", [2])]))
    assert ops(module.graph) == ["Shape", "Equal", "Relu"]


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda p: p.stem)
def test_the_models_of_the_onnx_package(path: Path) -> None:
    proto = onnx.load(path)
    module = load(path)
    initializers = {t.name for t in proto.graph.initializer}
    assert module.input_names == tuple(i.name for i in proto.graph.input if i.name not in initializers)
    for value, declared in zip(module.graph.outputs, proto.graph.output, strict=True):
        assert list(value.shape) == [d.dim_value for d in declared.type.tensor_type.shape.dim]
    assert print_module(parse_module(print_module(module), large_constants(module.graph))) == print_module(module)


def test_elements_of_constants_are_views_of_the_file() -> None:
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    proto = model([node("MatMul", ["x", "w"], ["y"])], [tensor("x", [1, 64])], ["y"], [constant("w", weights)])
    (found,) = load(proto).graph.constants.values()
    assert not found.flags.owndata
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, weights)


def test_a_declared_output_type_must_hold() -> None:
    with pytest.raises(IngotError, match="another element type than the model declares") as caught:
        load(model([node("Relu", ["x"], ["y"])], [tensor("x", [1])], [tensor("y", [1], BOOL)]))
    assert (caught.value.code, caught.value.tensor) == (ErrorCode.TYPE_MISMATCH, "y")


@pytest.mark.parametrize("op", sorted(OPERATORS))
def test_definitions_take_the_attributes_that_the_importer_gives(op: str) -> None:
    schema = find_schema(op, "", NEWEST_OPSET)
    if schema is None:
        assert "." in op, f"{op} is neither a standard operator nor one with a domain"
        return
    parameters = inspect.signature(OPERATORS[op].definition).parameters.values()
    taken = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    given = {name for name in schema.attributes if name not in uses_of(op) or not uses_of(op)[name].hint}
    assert given <= taken, f"{op} does not take {given - taken}"
