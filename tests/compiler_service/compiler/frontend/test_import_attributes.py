"""Attributes in every domain: what is not understood is refused by name, what changes nothing is named with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from compiler_service.compiler.frontend.adapters.table import ADAPTATIONS
from compiler_service.compiler.frontend.importer import HANDLERS
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.standard.forms import schema_of_form
from compiler_service.compiler.frontend.standard.functions import has_definition
from compiler_service.compiler.frontend.standard.schemas import SWITCHES
from compiler_service.compiler.frontend.standard.uses import EVERYWHERE, FORMS, STANDARD, uses_of, without_hints
from compiler_service.compiler.pipeline import check_model
from compiler_service.compiler.tensor_expr.registry import OPERATORS
from shared_ir.errors import ErrorCode

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft")
_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic


def is_imported(qualified: str) -> bool:
    domain, _, op = qualified.rpartition(".")
    known = {*OPERATORS, *ADAPTATIONS, *HANDLERS, "Constant"}
    return qualified in known or has_definition(SourceNode(op, (), (), domain=domain))


def forms() -> Iterator[Any]:
    """The schema of every form of every operator that is imported."""
    for schema in onnx.defs.get_all_schemas_with_history():
        qualified = f"{schema.domain}.{schema.name}" if schema.domain else schema.name
        if not schema.deprecated and is_imported(qualified):
            yield schema
    for qualified, described in FORMS.items():
        domain, _, op = qualified.rpartition(".")
        yield schema_of_form(op, domain, described)


SCHEMAS = list(forms())
ALL = [pytest.param(s, id=f"{s.domain}.{s.name}-{s.since_version}") for s in SCHEMAS]


def node_model(schema: Any, **attributes: Any) -> onnx.ModelProto:
    """One node with as many inputs as it needs; what they hold does not matter."""
    count = max(schema.min_input, 1 if schema.inputs and schema.inputs[0].option == _VARIADIC else 0)
    inputs = [f"x{i}" for i in range(count)]
    outputs = [f"y{i}" for i in range(max(1, schema.min_output))]
    node = helper.make_node(schema.name, inputs, outputs, name="node", domain=schema.domain, **attributes)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in inputs]
    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=n) for n in outputs])
    versions = {"": 21, schema.domain: schema.since_version}
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(d, v) for d, v in versions.items()], ir_version=10
    )


def test_every_domain_is_walked() -> None:
    assert {s.domain for s in SCHEMAS} == set(DOMAINS)


@pytest.mark.parametrize("schema", ALL)
def test_an_unknown_attribute_is_refused_by_name(schema: Any) -> None:
    report = check_model(node_model(schema, foo=7).SerializeToString())
    (obstacle,) = report.obstacles
    assert obstacle.code is ErrorCode.UNSUPPORTED_ATTRIBUTE
    assert obstacle.field == "foo"
    assert obstacle.node == "node"
    assert obstacle.operator == schema.name
    assert obstacle.remedy
    for name in schema.attributes:
        assert name in obstacle.reason


SWITCHED = [
    pytest.param(s, name, id=f"{s.name}-{s.since_version}-{name}")
    for s in SCHEMAS
    if not s.domain
    for name in sorted(SWITCHES & set(s.attributes))
]


@pytest.mark.parametrize(("schema", "name"), SWITCHED)
def test_a_switch_is_on_or_off(schema: Any, name: str) -> None:
    required = {n: [0] for n, a in schema.attributes.items() if a.required and n != name}
    obstacles = check_model(node_model(schema, **{**required, name: 2}).SerializeToString()).obstacles
    assert [o.code for o in obstacles if f"'{name}'" in o.reason] == [ErrorCode.INVALID_MODEL]


def test_attributes_that_are_not_simply_read_exist() -> None:
    """No row of the table outlives its attribute, and each says why."""
    known: dict[str, set[str]] = {}
    for schema in SCHEMAS:
        qualified = f"{schema.domain}.{schema.name}" if schema.domain else schema.name
        known.setdefault(qualified, set()).update(schema.attributes)
    for qualified, uses in STANDARD.items():
        assert set(uses) <= known[qualified] | set(EVERYWHERE)
    for uses in (*STANDARD.values(), EVERYWHERE, *(f.attributes for f in FORMS.values())):
        for name, use in uses.items():
            assert not (use.hint and use.values), name
            assert bool(use.values) is bool(use.remedy), name


def test_hints_are_left_out_and_other_values_refused() -> None:
    node = SourceNode("TopK", ("x", "k"), ("v",), {"axis": 1, "sorted": 0})
    assert without_hints(node).attributes == {"axis": 1}
    assert uses_of("TopK")["sorted"].hint


@pytest.mark.parametrize("qualified", sorted(OPERATORS))
def test_every_attribute_of_a_definition_is_one_of_the_standard(qualified: str) -> None:
    """So an attribute that the schema has and the definition lacks is refused by the definition, not lost."""
    domain, _, op = qualified.rpartition(".")
    if domain in ("", *DOMAINS) and onnx.defs.has(op, domain):
        schema = onnx.defs.get_schema(op, domain=domain)
        parameters = {p.name for p in OPERATORS[qualified]._parameters if p.kind is p.KEYWORD_ONLY}
        dropped = {name for name, use in uses_of(qualified).items() if use.hint}
        assert set(schema.attributes) - dropped <= parameters | dropped
