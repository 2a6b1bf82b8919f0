"""Whether the types that a graph says are those that its operators give."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler_service.compiler.graph_passes.analysis.known import node_values
from compiler_service.compiler.graph_passes.analysis.values import define_node
from compiler_service.compiler.tensor_expr.meaning.known import as_objects, may_be_known
from compiler_service.compiler.tensor_expr.refusal import UnknownValueError
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import (
    CALL_OP,
    CHECK_OP,
    DEFINE_OP,
    GROUP_OP,
    INVOKE_OP,
    REPEAT_OP,
    Graph,
    Node,
    Value,
)
from shared_ir.types import TensorType

_TYPED_OTHERWISE = frozenset({GROUP_OP, REPEAT_OP, DEFINE_OP, CALL_OP, CHECK_OP, INVOKE_OP, "If", "Loop", "Scan"})
"""By their bodies, or by what they call."""

_Known = Mapping[Value, np.ndarray]


def check_types(graph: Graph, outer: _Known | None = None) -> None:
    """Compare the type of every result with that of its operator's definition, nested graphs included.

    Dims of a result may say more or less than those of the definition, but no other number.

    Raises:
        IngotError: TYPE_MISMATCH, or UNSUPPORTED_OPERATOR, with the node.
    """
    known: dict[Value, np.ndarray] = dict(outer or {})
    known |= {v: as_objects(a) for v, a in graph.constants.items() if may_be_known(v.dtype, a.size)}
    for node in graph.nodes:
        for body in node.subgraphs:
            check_types(body, _inside(node, body, known) if node.op == GROUP_OP else known)
        if node.op not in _TYPED_OTHERWISE:
            _check(node, known)
        known.update(node_values(node, known))


def _inside(group: Node, body: Graph, known: _Known) -> _Known:
    pairs = zip(body.inputs, group.operands, strict=True)
    return {own: known[value] for own, value in pairs if value in known}


def _check(node: Node, known: _Known) -> None:
    try:
        tensors = define_node(node, known)
    except UnknownValueError:
        return  # a body that is repeated reads elements which its iteration tells
    except IngotError as error:
        raise error.located(node=str(node)) from error
    for value, tensor in zip(node.outputs, tensors, strict=False):
        if value is not None and tensor is not None and not _of(tensor).may_be(value.type):
            raise IngotError(
                ErrorCode.TYPE_MISMATCH,
                "a result has another type than its operator gives",
                node=str(node),
                tensor=value.name,
                expected=str(_of(tensor)),
                received=str(value.type),
            )


def _of(tensor: Tensor) -> TensorType:
    return TensorType(tensor.dtype, tensor.shape)
