"""The nodes that a pass writes: fresh names, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler_service.compiler.graph_passes.analysis.values import define
from compiler_service.compiler.tensor_expr.meaning.known import is_followed
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Attribute, Graph, Node, Value, fresh_names
from shared_ir.graph.node_writer import NodeWriter
from shared_ir.types import TensorType

Array = np.ndarray
"""An array of numpy, of any element type."""


@dataclass
class Builder(NodeWriter):
    """Collects nodes and constants for one graph.

    Attributes:
        fresh: a source of unused names; share it between all builders of one graph and its nested graphs.
        constants: every constant visible where the nodes will stand, those added here included.
        nodes: what was built, in order.
        added: the constants that were added here.
        known: elements of values that are no constants: object arrays of numbers and Expr.
    """

    fresh: Callable[[str], str]
    constants: dict[Value, Array] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    added: dict[Value, Array] = field(default_factory=dict)
    known: dict[Value, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> Builder:
        """One for nodes at the end of ``graph``."""
        return cls(fresh_names(graph), dict(graph.constants))

    def constant(self, array: Array, name: str = "constant") -> Value:
        value = Value(self.fresh(name), TensorType(DType.of(array), array.shape))
        self.constants[value] = self.added[value] = array
        return value

    def write(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute],
        title: str = "",
        output: str = "",
    ) -> Value:
        (tensor, *_) = self.define(op, inputs, attributes)
        if tensor is None:
            raise IngotError(ErrorCode.COMPILER_FAULT, f"{op} has no first output", node=f"{title} ({op})")
        value = Value(self.fresh(output or op.lower()), TensorType(tensor.dtype, tensor.shape))
        self.nodes.append(Node(op, tuple(inputs), (value,), attributes, title))
        if tensor.value is not None and is_followed(tensor.dtype, tensor.value):
            self.known[value] = tensor.value
        return value

    def define(
        self, op: str, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]
    ) -> tuple[Tensor | None, ...]:
        """The tensor expressions of what :meth:`write` would build."""
        known = {v: k for v in inputs if v is not None and (k := self._elements(v)) is not None}
        return define(op, inputs, attributes, known)

    def _elements(self, value: Value) -> Array | None:
        array = self.constants.get(value)
        return self.known.get(value) if array is None else array
