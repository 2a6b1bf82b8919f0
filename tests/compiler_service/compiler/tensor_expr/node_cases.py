"""ONNX's own single-node test cases in the form that definitions take."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests
from onnx.numpy_helper import to_array
from onnx.onnx_cpp2py_export import defs

from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.arrays import dtype_of
from shared_ir.dtype import DType

SMALL = 64
_DTYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "stash_type", "precision")


@dataclass(frozen=True)
class NodeCase:
    """One node, its inputs and the outputs that ONNX expects. An absent input is None."""

    name: str
    op: str
    attributes: dict[str, Any]
    inputs: tuple[np.ndarray | None, ...]
    outputs: tuple[np.ndarray | None, ...]
    rtol: float
    atol: float

    @property
    def placeholders(self) -> tuple[Tensor | None, ...]:
        """Static placeholders; small inputs are known at compile time."""
        return tuple(
            None if x is None else placeholder(f"x{i}", x.shape, dtype_of(x), known(x))
            for i, x in enumerate(self.inputs)
        )


def known(x: np.ndarray) -> np.ndarray | None:
    """The elements of a small tensor as a value."""
    if x.size > SMALL:
        return None
    value = np.empty(x.shape, object)
    value.reshape(-1)[:] = [v if isinstance(v, (bool, int, float)) else float(v) for v in x.reshape(-1).tolist()]
    return value


@cache
def node_cases() -> tuple[NodeCase, ...]:
    """Every case of one node of the main domain, over numeric tensors, in the newest form of its operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(_cases())


def _cases() -> Iterator[NodeCase]:
    for case in load_model_tests(kind="node"):
        if len(case.model.graph.node) != 1 or case.name.endswith("_expanded"):
            continue
        (node,) = case.model.graph.node
        opset = {o.domain: o.version for o in case.model.opset_import}.get("", 0)
        if node.domain not in ("", "ai.onnx") or not _is_newest(node.op_type, opset):
            continue
        given, expected = (tuple(map(_array, values)) for values in case.data_sets[0])
        if not all(a is not None and a.dtype.kind not in "OUSc" for a in (*given, *expected)):
            continue
        feeds = dict(zip([i.name for i in case.model.graph.input], given, strict=False))
        wanted = dict(zip([o.name for o in case.model.graph.output], expected, strict=False))
        yield NodeCase(
            case.name,
            node.op_type,
            attributes_of(node),
            tuple(feeds[n] if n else None for n in node.input),
            tuple(wanted[n] if n else None for n in node.output),
            case.rtol,
            case.atol,
        )


def _array(value: Any) -> np.ndarray | None:
    """Arrays, numpy scalars and tensor protos as arrays; sequences and optionals are None."""
    if isinstance(value, onnx.TensorProto):
        array: np.ndarray = to_array(value)
        return array
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else None


def _is_newest(op: str, opset: int) -> bool:
    return bool(defs.get_schema(op, opset, "").since_version == defs.get_schema(op, "").since_version)


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes as the frontend hands them to definitions."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if attribute.name in _DTYPE_ATTRIBUTES:
            if value:
                found[attribute.name] = _dtype(value)
        elif isinstance(value, bytes):
            found[attribute.name] = value.decode()
        elif isinstance(value, onnx.TensorProto):
            array = to_array(value)
            found["value"], found["dtype"] = array.reshape(-1)[0].item(), dtype_of(array)
        else:
            found[attribute.name] = tuple(value) if isinstance(value, list) else value
    if node.op_type == "Split" and len(node.input) < 2:
        found.setdefault("num_outputs", len(node.output))
    return found


def _dtype(number: int) -> DType:
    if number == onnx.TensorProto.STRING:
        return DType.STRING
    return dtype_of(np.zeros(1, onnx.helper.tensor_dtype_to_np_dtype(number)))
