"""A model of one node for each operator of the standard and each element type that its schema allows for the first input."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from shared_ir.dtype import DType
from tests.compiler_service.compiler.tensor_expr.node_cases import NodeCase, node_cases

_CODES = {
    "float": TensorProto.FLOAT,
    "float32": TensorProto.FLOAT,
    "double": TensorProto.DOUBLE,
    "float64": TensorProto.DOUBLE,
    **{name.lower(): code for name, code in TensorProto.DataType.items() if name not in ("FLOAT", "DOUBLE")},
}


def retyped_models(dtypes: Collection[str]) -> Iterator[tuple[str, onnx.ModelProto]]:
    """``ReduceL2-int64`` and its model, with the shapes and the other operands of the smallest case of the standard; ``dtypes`` are
    called as the standard does."""
    smallest: dict[str, NodeCase] = {}
    for case in node_cases():
        known = smallest.get(case.op)
        if (
            case.inputs
            and all(x is None or x.size for x in (*case.inputs, *case.outputs))
            and case.inputs[0] is not None
        ):
            smallest[case.op] = case if known is None or _size(case) < _size(known) else known
    for op, case in sorted(smallest.items()):
        schema = onnx.defs.get_schema(op)
        allowed = schema.inputs[0].types
        for name in dtypes:
            if f"tensor({name})" in allowed:
                yield f"{op}-{name}", _model(case, schema, _CODES[name])


def _size(case: NodeCase) -> int:
    return sum(x.size for x in case.inputs if x is not None)


def _model(case: NodeCase, schema: onnx.defs.OpSchema, code: int) -> onnx.ModelProto:
    """All operands that have the type of the first, and may have another, get the new one."""
    inputs, initializers, names = [], [], []
    assert case.inputs[0] is not None
    for position, x in enumerate(case.inputs):
        names.append("" if x is None else f"x{position}")
        if x is None:
            continue
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        if x.dtype == case.inputs[0].dtype and len(formal.types) > 1:
            inputs.append(helper.make_tensor_value_info(names[-1], code, x.shape))
        else:
            initializers.append(numpy_helper.from_array(np.asarray(x), names[-1]))
    outputs = [f"y{i}" if y is not None else "" for i, y in enumerate(case.outputs)]
    attributes = {k: _CODES[v.value] if isinstance(v, DType) else v for k, v in case.attributes.items()}
    node = helper.make_node(case.op, names, outputs, **attributes)
    results = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    graph = helper.make_graph([node], case.op, inputs, results, initializers)
    version = onnx.defs.onnx_opset_version()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)
