"""Building nodes compactly: types are inferred from the operator definitions, names are fresh."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler_service.compiler.graph_passes.analysis.values import define
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim, numbers_of
from shared_ir.graph.ir import Attribute, Graph, Node, Value, fresh_names
from shared_ir.types import TensorType

Array = np.ndarray


@dataclass
class Builder:
    """Collects nodes and constants for one graph.

    Attributes:
        fresh: a source of unused names; share it between all builders of one graph and its nested graphs.
        constants: every constant visible where the nodes will stand, those added here included.
        nodes: what was built, in order.
        added: the constants that were added here.
    """

    fresh: Callable[[str], str]
    constants: dict[Value, Array] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    added: dict[Value, Array] = field(default_factory=dict)
    known: dict[Value, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> Builder:
        return cls(fresh_names(graph), dict(graph.constants))

    def constant(self, array: Array, name: str = "constant") -> Value:
        """A new constant; the array must not be written to afterwards."""
        value = Value(self.fresh(name), TensorType(DType.of(array), array.shape))
        self.constants[value] = self.added[value] = array
        return value

    def integers(self, numbers: Sequence[int], name: str = "ints") -> Value:
        return self.constant(np.array(numbers, dtype=np.int64).reshape(len(numbers)), name)

    def dims(self, dims: Sequence[Dim], name: str = "shape") -> Value:
        """An int64 vector of dims: a constant when all are numbers, else an ``ingot.Dims`` node."""
        if (numbers := numbers_of(dims)) is not None:
            return self.integers(numbers, name)
        value = Value(self.fresh(name), TensorType(DType.INT64, (len(dims),)))
        self.nodes.append(Node("ingot.Dims", (), (value,), {"dims": tuple(dims)}))
        elements = np.empty(len(dims), dtype=object)
        elements[:] = dims
        self.known[value] = elements
        return value

    def node(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute] | None = None,
        *,
        name: str = "",
        output: str = "",
    ) -> Value:
        """One node with one output, whose type is inferred.

        Raises:
            IngotError: the operator does not take these operands.
        """
        attributes = attributes or {}
        (tensor, *_) = self.define(op, inputs, attributes)
        if tensor is None:
            raise IngotError(ErrorCode.COMPILER_FAULT, f"{op} has no first output", node=f"{name} ({op})")
        value = Value(self.fresh(output or op.lower()), TensorType(tensor.dtype, tensor.shape))
        self.nodes.append(Node(op, tuple(inputs), (value,), attributes, name))
        return value

    def define(
        self, op: str, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]
    ) -> tuple[Tensor | None, ...]:
        """The tensor expressions of what :meth:`node` would build."""
        known = {v: k for v in inputs if v is not None and (k := self._elements(v)) is not None}
        return define(op, inputs, attributes, known)

    def _elements(self, value: Value) -> Array | None:
        array = self.constants.get(value)
        return self.known.get(value) if array is None else array

    def reshape(self, x: Value, shape: Sequence[Dim], *, name: str = "", output: str = "") -> Value:
        return self.node(
            "Reshape", (x, self.dims(shape)), {"allowzero": 1}, name=name, output=output or f"{x.name}_view"
        )

    def transpose(self, x: Value, perm: Sequence[int], *, name: str = "", output: str = "") -> Value:
        return self.node("Transpose", (x,), {"perm": tuple(perm)}, name=name, output=output or f"{x.name}_t")

    def slice(self, x: Value, axis: int, start: Dim, stop: Dim, *, name: str = "") -> Value:
        """``x[..., start:stop, ...]`` along one axis."""
        operands = (x, self.dims([start], "starts"), self.dims([stop], "ends"), self.integers([axis], "axes"))
        return self.node("Slice", operands, name=name, output=f"{x.name}_part")
