"""Writing nodes of the graph IR compactly: the importer and the passes write them in the same words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, numbers_of
from shared_ir.graph.ir import Attribute, Value


class NodeWriter(ABC):
    """Writes nodes whose types come from the definitions of their operators. Where they go, and what is stated beside them, is
    for who implements :meth:`write` and :meth:`constant`."""

    @abstractmethod
    def write(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute],
        title: str = "",
        output: str = "",
    ) -> Value:
        """The first output of a new node.

        Args:
            title: the name of the node; without one, as the writer has it.
            output: what its output is called, as far as the name is free.

        Raises:
            IngotError: the operator does not take these operands.
        """

    @abstractmethod
    def constant(self, array: np.ndarray, name: str = "constant") -> Value:
        """A constant; the array must not be written to afterwards."""

    def node(
        self, op: str, /, *inputs: Value | None, title: str = "", output: str = "", **attributes: Attribute
    ) -> Value:
        """As :meth:`write`, with the attributes by name."""
        return self.write(op, inputs, attributes, title, output)

    def integers(self, *numbers: int, name: str = "ints") -> Value:
        """An int64 vector."""
        return self.constant(np.array(numbers, dtype=np.int64).reshape(len(numbers)), name)

    def dims(self, dims: Sequence[Dim], name: str = "shape") -> Value:
        """An int64 vector of dims: a constant when all are numbers, else an ``ingot.Dims`` node."""
        if (numbers := numbers_of(dims)) is not None:
            return self.integers(*numbers, name=name)
        return self.node("ingot.Dims", dims=tuple(dims), output=name)

    def cast(self, x: Value, dtype: DType) -> Value:
        """``x`` in the element type ``dtype``: ``x`` itself, where it has it."""
        return x if x.dtype is dtype else self.node("Cast", x, to=dtype)

    def reshape(self, x: Value, shape: Sequence[Dim], *, title: str = "", output: str = "") -> Value:
        """The elements of ``x``, in their order, as a tensor of ``shape``."""
        return self.node("Reshape", x, self.dims(shape), allowzero=1, title=title, output=output or f"{x.name}_view")

    def transpose(self, x: Value, perm: Sequence[int], *, title: str = "", output: str = "") -> Value:
        """``x`` with axis ``perm[i]`` in place ``i``."""
        return self.node("Transpose", x, perm=tuple(perm), title=title, output=output or f"{x.name}_t")

    def slice(self, x: Value, axis: int, start: Dim, stop: Dim, *, title: str = "") -> Value:
        """``x[..., start:stop, ...]`` along one axis."""
        operands = (self.dims([start], "starts"), self.dims([stop], "ends"), self.integers(axis, name="axes"))
        return self.node("Slice", x, *operands, title=title, output=f"{x.name}_part")
