"""Initializers that are inputs too: which of them a caller may give."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.frontend.reading.defaults import MOST_ELEMENTS
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import inference
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Module
from tests.compiler_service.compiler.frontend.onnx_models import INT64, constant, model, node, tensor


def added(elements: int = 2, ir_version: int = 10) -> onnx.ModelProto:
    """``y = x + w``, where ``w`` has a default."""
    inputs = [tensor("x", [elements]), tensor("w", [elements])]
    proto = model([node("Add", ["x", "w"], ["y"])], inputs, ["y"], [constant("w", np.ones(elements), np.float32)])
    proto.ir_version = ir_version
    return proto


def load(proto: onnx.ModelProto, overridable: tuple[str, ...] | None = None) -> Module:
    return import_model(proto.SerializeToString(), ImportOptions(overridable=overridable), inference())


def test_a_few_numbers_may_be_given() -> None:
    module = load(added())
    assert module.input_names == ("x", "w")
    np.testing.assert_array_equal(module.defaults["w"], np.ones(2, np.float32))
    assert not module.graph.constants


def test_before_ir_version_4_every_initializer_was_listed_and_is_a_constant() -> None:
    module = load(added(ir_version=3))
    assert (module.input_names, dict(module.defaults)) == (("x",), {})


def test_weights_of_a_network_are_constants_unless_they_are_named() -> None:
    many = added(MOST_ELEMENTS + 1)
    assert load(many).input_names == ("x",)
    assert load(many, ("w",)).input_names == ("x", "w")


def test_nothing_is_overridable_where_the_user_says_so() -> None:
    assert load(added(), ()).input_names == ("x",)


def test_what_the_compiler_must_know_stays_a_constant() -> None:
    """Of two defaults one decides how many axes the result has: it is a constant, the other may be given."""
    inputs = [tensor("x", [1, 2]), tensor("w", [2]), tensor("axes", ["q"], INT64)]
    nodes = [node("Squeeze", ["x", "axes"], ["s"]), node("Add", ["s", "w"], ["y"])]
    defaults = [constant("w", [1, 2], np.float32), constant("axes", [0])]
    proto = model(nodes, inputs, ["y"], defaults)
    proto.ir_version = 10
    module = load(proto)
    assert (module.input_names, set(module.defaults)) == (("x", "w"), {"w"})


def test_a_name_that_is_no_default_is_refused() -> None:
    with pytest.raises(IngotError, match="no initializer that is an input") as caught:
        load(added(), ("x",))
    assert (caught.value.code, caught.value.tensor, caught.value.expected) == (ErrorCode.INVALID_ARGUMENT, "x", "w")


def test_a_default_of_another_shape_than_its_input_is_refused() -> None:
    inputs = [tensor("x", [2]), tensor("w", [3])]
    proto = model([node("Relu", ["x"], ["y"])], inputs, ["y"], [constant("w", [1, 2], np.float32)])
    proto.ir_version = 10
    with pytest.raises(IngotError, match="default of an input does not fit") as caught:
        load(proto, ("w",))
    assert (caught.value.code, caught.value.tensor) == (ErrorCode.INVALID_MODEL, "w")


@pytest.mark.parametrize("given", ["b", 3, ["b", 3]])
def test_names_are_a_list(given: object) -> None:
    with pytest.raises(IngotError) as caught:
        CompileOptions.from_dict({"overridable": given})
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "overridable")
