"""Graph IR: typed SSA over frozen values, with nested graphs for control flow and fused groups.

Grammar::

    Module   = Module(graph, opset, metadata, input_names, output_names)
    Graph    = Graph(name, inputs, outputs, nodes, constants)     nodes are in topological order
    Node     = Node(op, inputs, outputs, attributes, name)        an absent optional input or output is None
    Value    = Value(name, type)                                  defined once, used anywhere below
    Attribute = int | float | bool | str | Dim | DType | TensorType | Graph | tuple of these

``op`` is the ONNX operator name in its newest form (the frontend adapts older forms), prefixed with its domain when
that is not ``ai.onnx`` (``com.microsoft.Gelu``), or one of ours: ``ingot.Group`` (a fused group; attribute ``body`` is
a Graph), ``ingot.Repeat`` (the one loop that is left of Loop, Scan and the recurrent operators), ``ingot.Define``, ``ingot.Call``,
``ingot.Invoke`` and ``ingot.Check`` (below).
The type of a value is a TensorType.
A nested graph may use values of the enclosing graphs (``If``, ``Loop``, ``Scan`` bodies do; a Group body does not).

Symbols of shapes are those of the inputs, and those that the run defines: ``ingot.Define {symbols=(n, m)}`` gives them the
elements of its operand, an int64 vector; the outputs of control flow and of operators whose result has a size that depends on
data define the new symbols of their shapes. Whatever mentions a symbol stands below its definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim
from shared_ir.types import ObjectType, TensorType


@dataclass(frozen=True, slots=True)
class Value:
    """One SSA value, printed ``%name: float32[batch, 3]``."""

    name: str
    type: TensorType

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        """An extent for each axis."""
        return self.type.shape

    def __str__(self) -> str:
        return f"%{self.name}: {self.type}"


GROUP_OP = "ingot.Group"
"""The operator whose ``body`` is closed: it names its own values and reads none of the enclosing graph."""

REPEAT_OP = "ingot.Repeat"
"""``for counter in range(limit) while condition``.

Inputs: limit (int64, one element; absent where the attribute ``limit`` is a dim), condition (bool; absent: true), and the
initial carried values. ``body``: carried values -> (condition, where ``conditional``), carried values, rows. Outputs: the final
carried values, and the rows of each kind stacked along axis 0, last one first where ``reverse`` says so. ``counter`` is the symbol
of the iteration number.
"""

DEFINE_OP = "ingot.Define"
"""Its attribute ``symbols`` has one symbol per element of its operand; the output is the operand, known as these symbols.

They are at least 0. With the attribute ``message`` they are all ``expected``, or the run ends with that message; such a node stays
even where nobody reads it.
"""

CALL_OP = "ingot.Call"
"""A function of the executor: for strings, sequences and optionals, which are no work for kernels.

Attributes: ``function``, its name; ``takes`` and ``gives``, for every operand and result an element type, or ``object`` for the
number of a sequence or optional; all others are handed to the function. The sizes of its results are known before it runs.
"""

INVOKE_OP = "ingot.Invoke"
"""A call of the function of the module that its attribute ``function`` names: operands are its inputs, results its outputs. It is gone
before code is made: a module that is compiled is one graph.
"""

CHECK_OP = "ingot.Check"
"""A condition of the run: the dims ``actual`` and ``expected`` are equal, or ``actual`` is at least ``expected`` with ``lower``;
else the run ends with ``message``. It has neither operands nor results, and stays whatever becomes of the node that stated it.
"""

Attribute: TypeAlias = "int | float | bool | str | Dim | DType | TensorType | Graph | tuple[Attribute, ...]"
"""What a node may have by name; graphs are the bodies of control flow."""


@dataclass(frozen=True)
class Node:
    """One application of an operator. ``name`` is the ONNX node name, kept for errors and profiles."""

    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", MappingProxyType(dict(self.attributes)))

    @property
    def results(self) -> tuple[Value, ...]:
        """The outputs that are present."""
        return tuple(v for v in self.outputs if v is not None)

    @property
    def operands(self) -> tuple[Value, ...]:
        """The inputs that are present."""
        return tuple(v for v in self.inputs if v is not None)

    @property
    def subgraphs(self) -> tuple[Graph, ...]:
        """The graphs among its attributes."""
        return tuple(a for a in self.attributes.values() if isinstance(a, Graph))

    def __str__(self) -> str:
        return f"{self.name or '(unnamed)'} ({self.op})"


@dataclass(frozen=True, eq=False)
class Graph:
    """A function of tensors. ``constants`` maps values to arrays (weights); arrays are never written to.

    Passes return *the same object* when they changed nothing.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))

    @cached_property
    def producers(self) -> Mapping[Value, Node]:
        """The node that defines each value of this graph (inputs and constants have none)."""
        return {v: n for n in self.nodes for v in n.results}

    @cached_property
    def consumers(self) -> Mapping[Value, tuple[Node, ...]]:
        """Nodes of this graph that read each value, nested graphs included."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys((*node.operands, *free_values(node))):
                found.setdefault(value, []).append(node)
        return {v: tuple(ns) for v, ns in found.items()}

    def with_(
        self,
        *,
        nodes: tuple[Node, ...] | None = None,
        constants: Mapping[Value, np.ndarray] | None = None,
        outputs: tuple[Value, ...] | None = None,
        inputs: tuple[Value, ...] | None = None,
    ) -> Graph:
        """A copy with parts replaced."""
        return replace(
            self,
            nodes=self.nodes if nodes is None else nodes,
            constants=self.constants if constants is None else constants,
            outputs=self.outputs if outputs is None else outputs,
            inputs=self.inputs if inputs is None else inputs,
        )


@dataclass(frozen=True, eq=False)
class Module:
    """A model: its graph and what is worth keeping of where it came from.

    ``input_names`` and ``output_names`` are the names of the model's interface, in the order of ``graph.inputs`` and
    ``graph.outputs``: what users type and see, which need not be identifiers and which no pass changes. ``objects`` says which
    of these are no plain arrays of numbers; ``strings`` is the table of the strings in the model, in the order of their numbers.
    ``defaults`` holds, by name, what inputs are that a caller need not give.
    """

    graph: Graph
    opset: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    objects: Mapping[str, ObjectType] = field(default_factory=dict)
    strings: tuple[str, ...] = ()
    defaults: Mapping[str, np.ndarray] = field(default_factory=dict)


def free_values(node: Node) -> tuple[Value, ...]:
    """Values of enclosing graphs that the nested graphs of ``node`` read."""
    return tuple(dict.fromkeys(v for g in node.subgraphs for v in graph_free_values(g)))


def graph_free_values(graph: Graph) -> tuple[Value, ...]:
    """Values that ``graph`` reads but does not define."""
    defined = {*graph.inputs, *graph.constants, *(v for n in graph.nodes for v in n.results)}
    read = [v for n in graph.nodes for v in (*n.operands, *free_values(n))] + list(graph.outputs)
    return tuple(dict.fromkeys(v for v in read if v not in defined))


def replace_values(node: Node, mapping: Mapping[Value, Value]) -> Node:
    """``node`` reading ``mapping[v]`` in place of ``v``, nested graphs included."""

    def attribute(value: Attribute) -> Attribute:
        if not isinstance(value, Graph):
            return value
        return value.with_(
            nodes=tuple(replace_values(n, mapping) for n in value.nodes),
            outputs=tuple(mapping.get(v, v) for v in value.outputs),
        )

    if not any(v in mapping for v in (*node.operands, *free_values(node))):
        return node
    return replace(
        node,
        inputs=tuple(None if v is None else mapping.get(v, v) for v in node.inputs),
        attributes={k: attribute(a) for k, a in node.attributes.items()},
    )


def walk_graphs(graph: Graph) -> Iterator[Graph]:
    """``graph`` and every graph nested in it."""
    yield graph
    for node in graph.nodes:
        for sub in node.subgraphs:
            yield from walk_graphs(sub)


def all_constants(graph: Graph) -> Mapping[Value, np.ndarray]:
    """The constants of ``graph`` and of the graphs nested in its control flow."""
    found = dict(graph.constants)
    for node in graph.nodes:
        for body in () if node.op == GROUP_OP else node.subgraphs:
            found |= all_constants(body)
    return found


def fresh_names(graph: Graph) -> Callable[[str], str]:
    """A source of value names that are not used in ``graph`` yet: ``fresh("x")`` -> ``x``, ``x_1``, ..."""
    used = {
        v.name for g in walk_graphs(graph) for v in (*g.inputs, *g.constants, *(r for n in g.nodes for r in n.results))
    }

    def fresh(base: str) -> str:
        name, i = base, 0
        while name in used:
            i += 1
            name = f"{base}_{i}"
        used.add(name)
        return name

    return fresh
