"""A model in double precision: the same graph, each float32 and float16 of it a float64."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

_NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16)
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")


def widen(model: ModelProto) -> None:
    """Rewrite ``model`` in place: initializers, constants, casts and declared types, bodies and functions included.

    Floats of 32 and 16 bits become 64 wide, values unchanged; all other types stay. What an operator itself rounds to (the
    steps of quantization) stays as well.
    """
    _widen_graph(model.graph)
    for function in model.functions:
        _widen_nodes(function.node)


def _widen_graph(graph: GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        _widen_type(value.type)
    _widen_nodes(graph.node)


def _widen_nodes(nodes: Iterable[NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            _widen_attribute(node.op_type, attribute)


def _widen_attribute(op_type: str, attribute: AttributeProto) -> None:
    match attribute.type:
        case AttributeProto.GRAPH:
            _widen_graph(attribute.g)
        case AttributeProto.TENSOR:
            _widen_tensor(attribute.t)
        case AttributeProto.INT if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _NARROW:
            attribute.i = TensorProto.DOUBLE
        case AttributeProto.FLOAT | AttributeProto.FLOATS if op_type == "Constant":
            numbers = attribute.f if attribute.type == AttributeProto.FLOAT else list(attribute.floats)
            tensor = numpy_helper.from_array(np.asarray(numbers, np.float64))
            attribute.CopyFrom(helper.make_attribute("value", tensor))


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _NARROW:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def _widen_type(declared: TypeProto) -> None:
    match declared.WhichOneof("value"):
        case "tensor_type" if declared.tensor_type.elem_type in _NARROW:
            declared.tensor_type.elem_type = TensorProto.DOUBLE
        case "sequence_type":
            _widen_type(declared.sequence_type.elem_type)
        case "optional_type":
            _widen_type(declared.optional_type.elem_type)
