"""Small ONNX models, and what an imported module computes, evaluated with numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler_service.compiler.frontend.importing.inference import Inference
from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.registry import OPERATORS, infer
from compiler_service.compiler.tensor_expr.tensor import placeholder
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import Blame, IngotError
from shared_ir.expr import Var
from shared_ir.graph.ir import DEFINE_OP, Graph, Module, Value

INFERENCE = Inference(infer, OPERATORS)
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

Shape = Sequence[int | str | None]


def tensor(name: str, shape: Shape | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def constant(name: str, values: Any, dtype: Any = None) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype=dtype), name)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, name=attributes.pop("name", f"{op.lower()}_node"), **attributes)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto | str],
    constants: Sequence[onnx.TensorProto] = (),
) -> onnx.GraphProto:
    """Outputs given by name have no declared type."""
    declared = [onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in outputs]
    return helper.make_graph(nodes, "main", inputs, declared, constants)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto | str],
    constants: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, v) for d, v in (domains or {}).items()]
    made = graph(nodes, inputs, outputs, constants)
    return helper.make_model(made, opset_imports=opsets, ir_version=8, functions=functions)


def load(proto: onnx.ModelProto | bytes | Path | ModelSource, **options: Any) -> Module:
    source = proto.SerializeToString() if isinstance(proto, onnx.ModelProto) else proto
    return import_model(source, ImportOptions(**options), INFERENCE)


def ops(g: Graph) -> list[str]:
    return [n.op for n in g.nodes]


def run(module: Module, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a module without control flow: every node by its own definition."""
    arrays: dict[Value, np.ndarray] = {
        v: feeds[n] for n, v in zip(module.input_names, module.graph.inputs, strict=True)
    }
    arrays |= module.graph.constants
    symbols: dict[str, int] = {}
    for n in module.graph.nodes:
        given = [None if v is None else arrays[v] for v in n.inputs]
        operands = [None if a is None else _operand(i, a) for i, a in enumerate(given)]
        results = infer(n.op, tuple(operands), n.attributes)
        fed = {o: a for o, a in zip(operands, given, strict=True) if o is not None and a is not None}
        wanted = [(v, t) for v, t in zip(n.outputs, results, strict=False) if v is not None and t is not None]
        if n.op == DEFINE_OP:
            assert given[0] is not None
            names = cast("tuple[Var, ...]", n.attributes["symbols"])
            symbols |= dict(zip((s.name for s in names), given[0].tolist(), strict=True))
        for (value, _), array in zip(wanted, evaluate([t for _, t in wanted], fed, symbols), strict=True):
            arrays[value] = array
    return [arrays[v] for v in module.graph.outputs]


def _operand(index: int, array: np.ndarray) -> Any:
    dtype = DType.of(array)
    assert array.dtype == storage_dtype(dtype)
    known = np.empty(array.shape, dtype=object)
    if array.size:
        known.reshape(-1)[:] = array.reshape(-1).tolist()
    return placeholder(f"x{index}", array.shape, dtype, known if array.size <= 64 else None)


def relu() -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"])], [tensor("x", ["n", 4])], ["y"])


def refused(source: onnx.ModelProto | bytes | Path, **options: object) -> IngotError:
    """What the import of ``source`` raises: an error that the user can mend."""
    with pytest.raises(IngotError) as caught:
        load(source, **options)
    assert caught.value.message
    assert caught.value.blame is Blame.USER
    return caught.value
