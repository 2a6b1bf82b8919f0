"""What the ONNX standard says of an operator at an opset: arity, attributes, defaults."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import onnx
import onnx.defs

from compiler_service.compiler.frontend.importing.attributes import DTYPE_ATTRIBUTES, plain_value
from compiler_service.compiler.frontend.importing.node import AttributeValue, SourceNode
from compiler_service.compiler.frontend.reading.source import NEWEST_OPSET
from compiler_service.compiler.frontend.standard.forms import Schema, schema_of_form
from compiler_service.compiler.frontend.standard.uses import FORMS
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError


@lru_cache(maxsize=4096)
def find_schema(op: str, domain: str, opset: int) -> Schema | None:
    """The form of ``op`` in force at ``opset``; ``None`` where neither the standard nor :data:`FORMS` has one."""
    try:
        return onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        described = FORMS.get(f"{domain}.{op}" if domain else op)
        return None if described is None else schema_of_form(op, domain, described)


WRITTEN_EARLY = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""Operators that ONNX Runtime's optimizer writes into models of any opset; of the second the standard knows nothing."""


def schema_of(node: SourceNode) -> Schema | None:
    """The form that ``node`` follows; ``None`` for operators of foreign domains.

    Raises:
        IngotError: UNSUPPORTED_OPERATOR when the standard domain has no such operator at this opset.
    """
    schema = find_schema(node.op, node.domain, node.opset)
    if node.op in WRITTEN_EARLY and not node.domain:
        return schema or find_schema(node.op, "", NEWEST_OPSET)
    if schema is None and not node.domain:
        newest = find_schema(node.op, "", NEWEST_OPSET)
        known = f"from opset {first_version(node.op)} on" if newest is not None else "in no opset"
        raise IngotError(
            ErrorCode.UNSUPPORTED_OPERATOR,
            f"{node.op} is not an operator of opset {node.opset}",
            node=str(node),
            expected="an operator of the opset that the model imports",
            received=f"{node.op}, which exists {known}",
            remedy="Raise the opset of the model, or check the name of the operator.",
        )
    return schema


@lru_cache(maxsize=1024)
def first_version(op: str) -> int:
    """The first opset in which the standard has ``op``."""
    return min(int(s.since_version) for s in onnx.defs.get_all_schemas_with_history() if s.name == op and not s.domain)


def check_form(node: SourceNode, schema: Schema) -> None:
    """Arity, unknown and missing attributes.

    Raises:
        IngotError: INVALID_MODEL, or UNSUPPORTED_ATTRIBUTE for an attribute that the operator does not have.
    """
    _check_count("inputs", len(node.inputs), schema.min_input, schema.max_input, node)
    _check_count("outputs", len(node.outputs), schema.min_output, schema.max_output, node)
    required = [i for i, p in enumerate(schema.inputs) if p.option == onnx.defs.OpSchema.FormalParameterOption.Single]
    for index in required:
        if not node.input(index):
            parameter = schema.inputs[index].name
            raise _invalid(f"{node.op} lacks its input {parameter!r}", node, f"{len(required)} inputs", "an empty name")
    _check_variadic(node, schema)
    for key in node.attributes:
        if key not in schema.attributes:
            raise IngotError(
                ErrorCode.UNSUPPORTED_ATTRIBUTE,
                f"{node.op} of opset {node.opset} has no attribute {key!r}",
                node=str(node),
                field=key,
                expected=", ".join(sorted(schema.attributes)) or "no attributes",
                received=key,
                remedy="Export the model again, or import the opset in which the operator has this attribute.",
            )
    for key, attribute in schema.attributes.items():
        if key not in node.attributes:
            if attribute.required:
                raise _invalid(f"{node.op} lacks its attribute {key!r}", node, f"a value for {key}", "none")
        elif not _is_of_kind(node.attributes[key], attribute.type.name):
            received = type(node.attributes[key]).__name__
            raise _invalid(f"{node.op} has the attribute {key!r} in another kind", node, attribute.type.name, received)
        elif key in SWITCHES and node.attributes[key] not in (0, 1):
            received = str(node.attributes[key])
            raise _invalid(
                f"{node.op} has a value of the attribute {key!r} that means nothing", node, "0 or 1", received
            )


SWITCHES = frozenset(
    {
        "align_corners",
        "allowzero",
        "antialias",
        "broadcast",
        "ceil_mode",
        "center_point_box",
        "count_include_pad",
        "detect_negative",
        "detect_positive",
        "exclude_outside",
        "exclusive",
        "fmod",
        "input_forget",
        "interleaved",
        "inverse",
        "is_case_sensitive",
        "is_causal",
        "is_test",
        "keepdims",
        "largest",
        "layout",
        "linear_before_reset",
        "new_axis",
        "noop_with_empty_axes",
        "onesided",
        "periodic",
        "reverse",
        "saturate",
        "select_last_index",
        "sorted",
        "spatial",
        "storage_order",
        "training_mode",
        "transA",
        "transB",
        "upper",
        "zeros",
    }
)
"""Attributes of standard operators that are 0 or 1: of other values the standard says nothing, and engines differ."""


def _check_variadic(node: SourceNode, schema: Schema) -> None:
    """Where an operator takes any number of inputs of one kind, none of them may be absent."""
    if not schema.inputs:
        return
    last, rest = schema.inputs[-1], node.inputs[len(schema.inputs) - 1 :]
    is_variadic = last.option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    if is_variadic and last.is_homogeneous and not all(rest):
        raise _invalid(f"{node.op} lacks one of its inputs {last.name!r}", node, "a name for each", "an empty name")


_KINDS: Mapping[str, type] = {
    "INT": int,
    "FLOAT": float,
    "STRING": str,
    "TENSOR": onnx.TensorProto,
    "GRAPH": onnx.GraphProto,
    "SPARSE_TENSOR": onnx.SparseTensorProto,
    "TYPE_PROTO": onnx.TypeProto,
}
"""OpSchema.AttrType -> what :func:`plain_value` makes of it; the plural is a tuple of these."""


def _is_of_kind(value: AttributeValue, kind: str) -> bool:
    if isinstance(value, DType):
        return kind == "INT"
    if kind in _KINDS:
        return isinstance(value, _KINDS[kind])
    element = _KINDS[kind.removesuffix("S")]
    return isinstance(value, tuple) and all(issubclass(t, element) for t in set(map(type, value)))


def _check_count(what: str, found: int, least: int, most: int, node: SourceNode) -> None:
    if not least <= found <= most:
        wanted = str(least) if least == most else f"{least} to {most}" if most < 1000 else f"at least {least}"
        raise _invalid(f"{node.op} has the wrong number of {what}", node, wanted, str(found))


def _invalid(message: str, node: SourceNode, expected: str, received: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_MODEL,
        message,
        node=str(node),
        expected=expected,
        received=received,
        remedy="Export the model again.",
    )


def with_defaults(node: SourceNode, schema: Schema) -> SourceNode:
    """``node`` with the defaults of ``schema`` filled in."""
    missing = {
        k: v for k, v in defaults(schema.name, schema.domain, schema.since_version).items() if k not in node.attributes
    }
    return node.with_(attributes={**node.attributes, **missing}) if missing else node


@lru_cache(maxsize=4096)
def defaults(op: str, domain: str, version: int) -> Mapping[str, AttributeValue]:
    """Default attribute values of the form of ``op`` at ``version``."""
    schema = find_schema(op, domain, version)
    found: dict[str, AttributeValue] = {}
    for key, attribute in (schema.attributes if schema is not None else {}).items():
        value = attribute.default_value
        if value.type == onnx.AttributeProto.UNDEFINED:
            continue
        plain = plain_value(value)
        if key in DTYPE_ATTRIBUTES and plain == 0:
            continue
        found[key] = plain
    return found
