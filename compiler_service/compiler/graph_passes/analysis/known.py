"""Which values are known while compiling: constants, dims, and the arithmetic that models do on shapes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler_service.compiler.graph_passes.analysis.values import define_node, known_tensor
from compiler_service.compiler.tensor_expr.meaning.known import (
    as_objects,
    is_followed,
    may_be_known,
)
from shared_ir.dtype import HALVES, DType
from shared_ir.errors import IngotError
from shared_ir.graph.ir import GROUP_OP, Graph, Node, Value

FOLLOWED = frozenset({DType.INT64, DType.INT32, DType.BOOL, DType.FLOAT32, DType.FLOAT64, *HALVES})


def known_values(graph: Graph, outer: Mapping[Value, np.ndarray] | None = None) -> dict[Value, np.ndarray]:
    """Value -> its elements, an object array of numbers and Expr, for every small value that does not depend on data.

    Args:
        outer: what is known of the enclosing graphs.
    """
    known: dict[Value, np.ndarray] = dict(outer or {})
    for value, array in graph.constants.items():
        if _small(value):
            known[value] = as_objects(array)
    for node in graph.nodes:
        known.update(node_values(node, known))
    return known


def node_values(node: Node, known: Mapping[Value, np.ndarray]) -> dict[Value, np.ndarray]:
    """What of the results of ``node`` is known where ``known`` is."""
    if node.op == GROUP_OP:
        return _group_values(node, known)
    return _evaluate(node, known) if _worth_a_try(node, known) else {}


def _group_values(group: Node, known: Mapping[Value, np.ndarray]) -> dict[Value, np.ndarray]:
    """What a fused group calculates of dims: graphs nested below read it, though its own kernels may have no need to."""
    if not any(_small(v) and not v.dtype.is_float for v in group.results):
        return {}
    (body,) = group.subgraphs
    outer = zip(body.inputs, group.operands, strict=True)
    inside = known_values(body, {own: known[value] for own, value in outer if value in known})
    results = zip(body.outputs, group.results, strict=True)
    return {result: inside[own] for own, result in results if own in inside}


def _worth_a_try(node: Node, known: Mapping[Value, np.ndarray]) -> bool:
    if node.subgraphs or not any(_small(v) for v in node.results):
        return False
    return node.op in ("Shape", "Size") or all(v in known for v in node.operands)


def _small(value: Value) -> bool:
    if value.dtype not in FOLLOWED:
        return False
    size = 1
    for dim in value.shape:
        if not isinstance(dim, int):
            return False
        size *= dim
    return may_be_known(value.dtype, size)


def _evaluate(node: Node, known: Mapping[Value, np.ndarray]) -> dict[Value, np.ndarray]:
    try:
        tensors = define_node(node, known)
    except IngotError:
        return {}  # the operator is refused where it is compiled, with its own words
    found = {}
    for value, tensor in zip(node.outputs, tensors, strict=False):
        elements = known_tensor(tensor) if tensor is not None and value is not None else None
        if value is not None and elements is not None and is_followed(value.dtype, elements):
            found[value] = elements
    return found
