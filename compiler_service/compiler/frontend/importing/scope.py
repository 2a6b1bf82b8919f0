"""What names mean while a graph is being built, and what has been built of it."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from compiler_service.compiler.frontend.importing.node import AttributeValue
from compiler_service.compiler.tensor_expr.assumptions import Assumption
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr, Var
from shared_ir.graph.ir import Node, Value

FunctionKey: TypeAlias = tuple[str, str, str]
"""Domain, name and overload of a model-local function."""


class Special(enum.Enum):
    """Bindings that are no value."""

    ABSENT = "an optional input that was left out"
    UNKNOWN = "the output of a node that could not be imported"


@dataclass(frozen=True)
class SequenceBinding:
    """A sequence of tensors whose length is known; ``element`` is their type where the sequence may be empty."""

    values: tuple[Value, ...]
    element: DType | None = None


Binding: TypeAlias = "Value | SequenceBinding | Special"


@dataclass
class GraphDraft:
    """The nodes and constants of a graph so far.

    Attributes:
        checked: the conditions that its checks state.
        made: what the importer added by itself, by what it is: the same twice is one value, so that sizes which two operators
            take from one operand of the run are one symbol.
        symbols: those of the elements of vectors that the run computes.
    """

    nodes: list[Node] = field(default_factory=list)
    constants: dict[Value, np.ndarray] = field(default_factory=dict)
    checked: set[Assumption] = field(default_factory=set)
    made: dict[Hashable, Value] = field(default_factory=dict)
    symbols: dict[Value, tuple[Var, ...]] = field(default_factory=dict)


@dataclass
class Frame:
    """The names of one graph or function body.

    Attributes:
        opsets: domain -> version in force.
        parent: the enclosing graph, whose names are visible; a function body has none.
        attributes: attributes of the function call that this frame belongs to.
        calls: functions being inlined, outermost first.
        prefix: put before the names of nodes that come from a function.
        ranks: by name, how many axes the model says that values have.
        counters: the numbers of the iterations that the graph is in, outermost first; None in a Scan, whose have no name yet.
    """

    opsets: Mapping[str, int]
    parent: Frame | None = None
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    calls: tuple[FunctionKey, ...] = ()
    prefix: str = ""
    depth: int = 0
    bindings: dict[str, Binding] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    counters: tuple[Expr, ...] | None = ()

    def nested(self) -> Frame:
        """The frame of a graph inside this one."""
        inside = Frame(self.opsets, self, self.attributes, self.calls, self.prefix, self.depth + 1)
        inside.counters = self.counters
        return inside

    def find(self, name: str) -> Binding | None:
        """The binding of ``name`` here or in an enclosing graph."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.bindings:
                return frame.bindings[name]
            frame = frame.parent
        return None

    def is_defined(self, name: str) -> bool:
        return self.find(name) is not None

    def define(self, label: str, value: Binding) -> str:
        """Bind ``value`` to a name of its own, like ``label``, that no node has; the name."""
        name = f"{label} (own)"
        while self.is_defined(name):
            name += "'"
        self.bindings[name] = value
        return name

    def lookup(self, name: str) -> Binding:
        """As :meth:`find`; the empty name is absent.

        Raises:
            IngotError: INVALID_MODEL for a name that nothing defines.
        """
        found = Special.ABSENT if not name else self.find(name)
        if found is None:
            raise IngotError(
                ErrorCode.INVALID_MODEL,
                "a value is used that nothing defines",
                tensor=name,
                expected="a value of the graph",
                received="none",
                remedy="Export the model again; this graph is not valid ONNX.",
            )
        return found
