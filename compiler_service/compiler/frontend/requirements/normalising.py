"""Conventions of operands that decide shapes (-1, 0, counting from the end), resolved by nodes where only the run knows them.

A normaliser gets the operand as an int64 vector and what is known of its elements, and gives both without conventions: every
element is then at least 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from compiler_service.compiler.tensor_expr.refusal import unknown_value
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, as_dim, product, static
from shared_ir.graph.ir import Attribute, Value
from shared_ir.graph.node_writer import NodeWriter

Elements: TypeAlias = tuple[Dim | None, ...]


class OperandWriter(NodeWriter):
    """Writes nodes, and knows elements of operands; see :class:`defining.Nodes`."""

    @abstractmethod
    def elements(self, value: Value | None) -> Elements | None:
        """The elements of a value that is known, as dims."""


@dataclass(frozen=True)
class Operand:
    """An operand of a node: ``vector`` holds it as int64, ``known`` is what is known of its elements.

    ``inputs`` and ``attributes`` are those of the node.
    """

    nodes: OperandWriter
    inputs: Sequence[Value | None]
    attributes: Mapping[str, Attribute]
    vector: Value
    known: Elements

    @property
    def x(self) -> Value:
        """The first input of the node."""
        value = self.inputs[0]
        assert value is not None
        return value


Result: TypeAlias = tuple[Value, Elements]
Normaliser: TypeAlias = Callable[[Operand], Result]


def reshape_target(operand: Operand) -> Result:
    """0 copies an extent, -1 is what is left, or stays where nothing tells that: the run ends, since no extent is less than 0."""
    nodes, x, wanted, known = operand.nodes, operand.x, operand.vector, operand.known
    if not operand.attributes.get("allowzero", 0):
        own: list[Dim] = [x.shape[i] if i < x.type.rank else 1 for i in range(len(known))]
        zero = nodes.node("Equal", wanted, nodes.integers(0))
        wanted = nodes.node("Where", zero, nodes.dims(own), wanted)
        known = tuple(o if isinstance(k, int) and k == 0 else k for k, o in zip(known, own, strict=True))
    free = nodes.node("Less", wanted, nodes.integers(0))
    one = nodes.integers(1)
    others = nodes.node("ReduceProd", nodes.node("Where", free, one, wanted), keepdims=1)
    left = nodes.node("Div", nodes.dims([product(x.shape)]), nodes.node("Max", others, one))
    several = nodes.node("Greater", nodes.node("ReduceSum", nodes.node("Cast", free, to=DType.INT64), keepdims=1), one)
    unclear = nodes.node("Or", nodes.node("Less", others, one), several)
    left = nodes.node("Where", unclear, nodes.integers(-1), left)
    wanted = nodes.node("Where", free, left, wanted)
    if sum(k is None for k in known) and -1 in known:
        known = tuple(None if isinstance(k, int) and k == -1 else k for k in known)
    return wanted, known


def slice_bounds(operand: Operand) -> Result:
    """Bounds counted from the end when negative, cut off at the ends of the axis."""
    nodes, x, bounds, known, inputs = operand.nodes, operand.x, operand.vector, operand.known, operand.inputs
    axes, steps = (inputs[i] if len(inputs) > i else None for i in (3, 4))
    strides = () if steps is None else nodes.elements(steps)
    if strides is None or not all(isinstance(s, int) and s > 0 for s in strides):
        raise unknown_value("starts, ends", bounds.name)  # going backwards they may be less than 0
    chosen = range(len(known)) if axes is None else _numbers(nodes.elements(axes) or ())
    extents = nodes.dims([x.shape[a % x.type.rank] for a in chosen])
    negative = nodes.node("Less", bounds, nodes.integers(0))
    bounds = nodes.node("Where", negative, nodes.node("Add", bounds, extents), bounds)
    bounds = nodes.node("Min", nodes.node("Max", bounds, nodes.integers(0)), extents)
    kept = tuple(None if k is None or not isinstance(k, int) or k < 0 else as_dim(k) for k in known)
    return bounds, kept


def _numbers(elements: Elements) -> list[int]:
    return [static(e) for e in elements if e is not None]


def axes_from_start(operand: Operand) -> Result:
    """Axes of the first operand, counted from the end where negative."""
    return _from_start(operand, operand.x.type.rank)


def new_axes_from_start(operand: Operand) -> Result:
    """Axes of the result of Unsqueeze, counted from the end where negative."""
    return _from_start(operand, operand.x.type.rank + len(operand.known))


def _from_start(operand: Operand, rank: int) -> Result:
    nodes, axes, known = operand.nodes, operand.vector, operand.known
    negative = nodes.node("Less", axes, nodes.integers(0))
    axes = nodes.node("Where", negative, nodes.node("Add", axes, nodes.integers(rank)), axes)
    return axes, tuple(k + rank if isinstance(k, int) and k < 0 else k for k in known)


REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

NORMALISERS: Mapping[tuple[str, int], Normaliser] = MappingProxyType(
    {
        **{(f"Reduce{kind}", 1): axes_from_start for kind in REDUCTIONS},
        ("Squeeze", 1): axes_from_start,
        ("Unsqueeze", 1): new_axes_from_start,
        ("CumSum", 1): axes_from_start,
        ("CumProd", 1): axes_from_start,
        ("ingot.FourierMatrix", 1): axes_from_start,
        ("ingot.Fourier", 2): axes_from_start,
        ("Reshape", 1): reshape_target,
        ("Slice", 1): slice_bounds,
        ("Slice", 2): slice_bounds,
    }
)
"""By operator and number of the operand."""
