"""Values in several memory layouts: transposes are remembered and only built where somebody needs one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler_service.compiler.graph_passes.analysis.sizes import elements
from compiler_service.compiler.graph_passes.analysis.values import Known
from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from compiler_service.compiler.graph_passes.rewriting.operands import moves_nothing
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import Attribute, Node, Value
from shared_ir.types import TensorType

Perm = tuple[int, ...]
"""A layout ``p`` of a value ``v`` is the tensor ``Transpose(v, perm=p)``."""


def identity(rank: int) -> Perm:
    return tuple(range(rank))


def channels_last(rank: int) -> Perm:
    """``(0, 2, 3, 1)`` for rank 4."""
    return (0, *range(2, rank), 1)


def inverse(perm: Perm) -> Perm:
    return tuple(perm.index(i) for i in range(len(perm)))


def permuted(items: Sequence[Dim], perm: Perm) -> tuple[Dim, ...]:
    return tuple(items[p] for p in perm)


@dataclass
class LayoutState:
    """The graph being rebuilt: for every value of the old graph, the tensors of the new one that hold it in some layout.

    Attributes:
        builder: where the new nodes go.
        known: elements of shape operands that are known.
        versions: old value -> layout -> new value. The first entry is the layout in which it is computed.
    """

    builder: Builder
    known: Known
    versions: dict[Value, dict[Perm, Value]] = field(default_factory=dict)

    def layouts(self, value: Value) -> Mapping[Perm, Value]:
        """The layouts in which ``value`` exists already; inputs and constants exist as they are."""
        return self.versions.setdefault(value, {identity(value.type.rank): value})

    def native(self, value: Value) -> Perm:
        return next(iter(self.layouts(value)))

    def is_constant(self, value: Value) -> bool:
        return value in self.builder.constants

    def get(self, value: Value, perm: Perm) -> Value:
        """``value`` in layout ``perm``, built from the layout in which it was computed if it does not exist yet."""
        found = self.layouts(value).get(perm)
        if found is None:
            found = self.versions[value][perm] = self._convert(value, perm)
        return found

    def plain(self, value: Value) -> Value:
        """``value`` in the layout of the old graph."""
        return self.get(value, identity(value.type.rank))

    def pin(self, value: Value) -> None:
        """Make ``value`` itself exist, under its own name: outputs and what nested graphs read need it."""
        found = self.plain(value)
        if found != value:
            self.builder.nodes.append(Node("Identity", (found,), (value,)))
            self.versions[value][identity(value.type.rank)] = value

    def _convert(self, value: Value, perm: Perm) -> Value:
        array = self.builder.constants.get(value)
        if array is not None:
            return self.builder.constant(np.transpose(array, perm), value.name)
        native = self.native(value)
        source = self.versions[value][native]
        order = tuple(native.index(p) for p in perm)
        shape = permuted(value.shape, perm)
        result = value if perm == identity(len(perm)) else self.new_value(value, perm)
        if moves_nothing(source.shape, order):
            operands: tuple[Value, ...] = (source, self.builder.dims(shape))
            self.builder.nodes.append(Node("Reshape", operands, (result,), {"allowzero": 1}))
        else:
            self.builder.nodes.append(Node("Transpose", (source,), (result,), {"perm": order}))
        return result

    def new_value(self, value: Value, perm: Perm) -> Value:
        kind = "last" if perm == channels_last(len(perm)) else "t"
        return Value(self.builder.fresh(f"{value.name}_{kind}"), TensorType(value.dtype, permuted(value.shape, perm)))

    def define(
        self,
        node: Node,
        perms: Sequence[Perm | None],
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute],
        op: str | None = None,
    ) -> None:
        """Emit ``node`` over ``inputs`` of the new graph, computing output ``i`` in layout ``perms[i]``."""
        outputs: list[Value | None] = []
        for value, perm in zip(node.outputs, perms, strict=True):
            if value is None or perm is None:
                outputs.append(None)
                continue
            result = value if perm == identity(len(perm)) else self.new_value(value, perm)
            self.versions[value] = {perm: result}
            outputs.append(result)
        self.builder.nodes.append(Node(op or node.op, tuple(inputs), tuple(outputs), attributes, node.name))

    def cost(self, value: Value, perm: Perm) -> int:
        """Elements to move in order to have ``value`` in layout ``perm``."""
        if perm in self.layouts(value) or self.is_constant(value):
            return 0
        order = tuple(self.native(value).index(p) for p in perm)
        source = self.versions[value][self.native(value)]
        return 0 if moves_nothing(source.shape, order) else elements(value)

    def cheapest(self, values: Sequence[Value]) -> Perm:
        """The layout in which ``values`` of equal rank are brought together at the least cost; ties go to channels last."""
        rank = values[0].type.rank
        candidates = list(dict.fromkeys(p for v in values if not self.is_constant(v) for p in self.layouts(v)))
        candidates = candidates or [identity(rank)]
        last, plain = channels_last(rank) if rank > 1 else identity(rank), identity(rank)

        def rank_of(perm: Perm) -> tuple[int, int]:
            preference = 0 if perm == last else 1 if perm == plain else 2
            return sum(self.cost(v, perm) for v in values), preference

        return min(candidates, key=rank_of)
