"""The rules that every graph obeys; run after import and after every pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr
from shared_ir.expr.dim import Dim, as_dim, dim_text
from shared_ir.graph.ir import GROUP_OP, Attribute, Graph, Module, Node, Value
from shared_ir.types import TensorType

NodeCheck = Callable[[Node], None]
"""A check of one node's operator against the types of its operands and results; raises :class:`IngotError`."""


def verify(graph: Graph, check_node: NodeCheck | None = None) -> None:
    """Check that ``graph`` is well formed.

    Every value is defined once, before its first use, under a name of its own and with one type; graph outputs are
    defined; constants have the type of their value; shapes are in normal form; bodies of groups read nothing from
    outside.

    Args:
        check_node: the operator typing check, called for every node once its operands are known to be sound.

    Raises:
        IngotError: COMPILER_FAULT naming the node and the value.
    """
    _Verifier(check_node).graph(graph, {}, "")


def verify_module(module: Module, check_node: NodeCheck | None = None) -> None:
    """:func:`verify` of the module's graph, and that the interface names fit it."""
    verify(module.graph, check_node)
    for what, names, values in (
        ("input_names", module.input_names, module.graph.inputs),
        ("output_names", module.output_names, module.graph.outputs),
    ):
        if names and len(names) != len(values):
            _fail(f"the module has {len(names)} {what} for {len(values)} values")


def _fail(message: str, node: str = "", tensor: str = "") -> NoReturn:
    raise IngotError(ErrorCode.COMPILER_FAULT, f"the graph is not well formed: {message}", node=node, tensor=tensor)


@dataclass
class _Verifier:
    check_node: NodeCheck | None
    names: set[str] = field(default_factory=set)
    normal: set[Dim] = field(default_factory=set)
    """Dims that were found to be in normal form."""

    def graph(self, graph: Graph, outer: dict[str, Value], owner: str) -> None:
        visible = dict(outer)
        for value in graph.inputs:
            self.define(value, visible, owner)
        for value, array in graph.constants.items():
            self.define(value, visible, owner)
            if DType.of(array) is not value.dtype or tuple(array.shape) != value.shape:
                _fail(f"constant {value} holds {DType.of(array)}{list(array.shape)}", owner, value.name)
        for node in graph.nodes:
            self.node(node, visible)
        for value in graph.outputs:
            self.use(value, visible, owner or f"graph {graph.name}")

    def node(self, node: Node, visible: dict[str, Value]) -> None:
        for value in node.operands:
            self.use(value, visible, str(node))
        for key, attribute in node.attributes.items():
            self.attribute(key, attribute, node, visible)
        for value in node.results:
            self.define(value, visible, str(node))
        if self.check_node is not None:
            self.check_node(node)

    def attribute(self, key: str, attribute: Attribute, node: Node, visible: dict[str, Value]) -> None:
        match attribute:
            case Graph() if node.op == GROUP_OP:
                _Verifier(self.check_node, normal=self.normal).graph(attribute, {}, str(node))
            case Graph():
                self.graph(attribute, visible, str(node))
            case tuple():
                for item in attribute:
                    self.attribute(key, item, node, visible)
            case bool() | int() | float() | str() | Expr():
                pass
            case _ if not isinstance(attribute, TensorType):
                _fail(f"attribute {key} is a {type(attribute).__name__}", str(node))

    def define(self, value: Value, visible: dict[str, Value], where: str) -> None:
        if not value.name:
            _fail("a value has no name", where)
        if value.name in self.names:
            _fail(f"%{value.name} is defined twice", where, value.name)
        for dim in value.shape:
            self.dim(dim, value, where)
        self.names.add(value.name)
        visible[value.name] = value

    def dim(self, dim: Dim, value: Value, where: str) -> None:
        if dim in self.normal:
            return
        if isinstance(dim, bool) or as_dim(dim) != dim:
            _fail(f"dim {dim_text(dim)} of %{value.name} is not in normal form", where, value.name)
        if isinstance(dim, int) and dim < 0:
            _fail(f"%{value.name} has the negative dim {dim}", where, value.name)
        self.normal.add(dim)

    def use(self, value: Value, visible: dict[str, Value], where: str) -> None:
        known = visible.get(value.name)
        if known is None:
            _fail(f"%{value.name} is used but not defined above", where, value.name)
        if known != value:
            _fail(f"{value} is used, but defined as {known}", where, value.name)
