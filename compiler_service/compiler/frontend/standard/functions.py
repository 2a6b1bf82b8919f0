"""Functions: those of the model, and operators that the standard defines by other operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx
import onnx.helper

from compiler_service.compiler.frontend.importing.attributes import read_attributes
from compiler_service.compiler.frontend.importing.node import AttributeValue, SourceNode, domain_name
from compiler_service.compiler.frontend.importing.objects import HandleType
from compiler_service.compiler.frontend.importing.scope import FunctionKey
from compiler_service.compiler.frontend.reading.source import NEWEST_OPSET
from compiler_service.compiler.frontend.reading.tensors import DTYPES
from compiler_service.compiler.frontend.standard.forms import Schema
from compiler_service.compiler.frontend.standard.schemas import find_schema
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.types import TensorType

_NUMBERS = {dtype: number for number, dtype in DTYPES.items()}


@dataclass(frozen=True)
class FunctionCall:
    """A function body with the attributes of one call of it."""

    key: FunctionKey
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: Sequence[onnx.NodeProto]
    opsets: Mapping[str, int]
    attributes: Mapping[str, AttributeValue]


def functions_of(model: onnx.ModelProto) -> dict[FunctionKey, onnx.FunctionProto]:
    """The functions that a model defines.

    Raises:
        IngotError: INVALID_MODEL when one is defined twice.
    """
    found: dict[FunctionKey, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (domain_name(function.domain), function.name, function.overload)
        if key in found:
            raise IngotError(
                ErrorCode.INVALID_MODEL,
                "a function of the model is defined twice",
                field=function.name,
                remedy="Export the model again.",
            )
        found[key] = function
    return found


def call_of_local(node: SourceNode, functions: Mapping[FunctionKey, onnx.FunctionProto]) -> FunctionCall | None:
    """The call that ``node`` is, if the model defines its operator.

    What the standard defines at this opset is never the model's to define: so ONNX Runtime and the reference have it.
    """
    key = (node.domain, node.op, node.overload)
    function = functions.get(key)
    if function is None or (not node.domain and find_schema(node.op, "", node.opset) is not None):
        return None
    if len(node.inputs) > len(function.input) or len(node.outputs) > len(function.output):
        raise IngotError(
            ErrorCode.INVALID_MODEL,
            f"a call of the function {node.op} has too many inputs or outputs",
            expected=f"{len(function.input)} inputs, {len(function.output)} outputs",
            received=f"{len(node.inputs)} and {len(node.outputs)}",
            remedy="Export the model again.",
        )
    return _call(key, function, node)


def call_of_standard(node: SourceNode, types: Sequence[TensorType | None]) -> FunctionCall | None:
    """The definition of a standard operator by others, as the ONNX package holds it; ``None`` where it has none.

    Args:
        types: types of the inputs, which choose among definitions that depend on them.
    """
    schema = find_schema(node.op, node.domain, NEWEST_OPSET)
    if schema is None:
        return None
    key = (node.domain, node.op, "")
    if schema.has_function:
        return _standard(_call(key, schema.function_body, node))
    if not schema.has_context_dependent_function:
        return None
    if any(t is None for t, name in zip(types, node.inputs, strict=True) if name):
        return None
    serialised = _definition_for(schema, node, types)
    return _standard(_call(key, onnx.FunctionProto.FromString(serialised), node)) if serialised else None


def _standard(call: FunctionCall) -> FunctionCall:
    """Definitions of the preview domain leave it to the model to import ai.onnx."""
    return replace(call, opsets={"": NEWEST_OPSET, **call.opsets})


def has_definition(node: SourceNode) -> bool:
    """Whether the standard defines the operator of ``node`` by others, for some types at least."""
    schema = find_schema(node.op, node.domain, NEWEST_OPSET)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def _definition_for(schema: Schema, node: SourceNode, types: Sequence[TensorType | None]) -> bytes:
    plain = {k: _NUMBERS[v] if isinstance(v, DType) else v for k, v in node.attributes.items()}
    proto = onnx.helper.make_node(
        node.op, node.inputs, node.outputs, domain=node.domain, **{k: v for k, v in plain.items() if v != ()}
    )
    protos = [onnx.TypeProto() if t is None else _type_proto(t) for t in types]
    version = max(schema.context_dependent_function_opset_versions)
    found: bytes = schema.get_context_dependent_function_with_opset_version(
        version, proto.SerializeToString(), [t.SerializeToString() for t in protos]
    )
    return found


def _type_proto(type: TensorType) -> onnx.TypeProto:
    if not isinstance(type, HandleType):
        return onnx.helper.make_tensor_type_proto(_NUMBERS[type.dtype], _onnx_shape(type))
    rank = next(iter(type.ranks)) if type.ranks is not None and len(type.ranks) == 1 else None
    proto = onnx.helper.make_tensor_type_proto(_NUMBERS[type.element], None if rank is None else [None] * rank)
    proto = onnx.helper.make_sequence_type_proto(proto) if type.kind.is_sequence else proto
    return onnx.helper.make_optional_type_proto(proto) if type.kind.is_optional else proto


def _onnx_shape(type: TensorType) -> list[int | None]:
    return [d if isinstance(d, int) else None for d in type.shape]


def _call(key: FunctionKey, function: onnx.FunctionProto, node: SourceNode) -> FunctionCall:
    defaults = read_attributes(function.attribute_proto, {}, node.op)
    opsets = {domain_name(o.domain): o.version for o in function.opset_import}
    attributes = {**defaults, **node.attributes}
    return FunctionCall(key, tuple(function.input), tuple(function.output), function.node, opsets, attributes)
