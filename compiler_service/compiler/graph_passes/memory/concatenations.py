"""Groups that hold a concatenation: which they are, and how they are cut around it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute
from shared_ir.graph.ir import GROUP_OP, Attribute, Graph, Node, Value


@dataclass(frozen=True)
class Concatenation:
    """A group around one concatenation.

    Attributes:
        group: the group.
        concat: the concatenation in its body.
        before: of each operand of ``concat`` that the group computes itself, the nodes that compute it.
        after: the nodes that compute the result of the group from that of ``concat``; none where it is the result.
    """

    group: Node
    concat: Node
    before: dict[Value, tuple[Node, ...]]
    after: tuple[Node, ...]

    @property
    def result(self) -> Value:
        """What is concatenated, whole."""
        return self.concat.results[0]

    @property
    def axis(self) -> int:
        return int_attribute(self.concat, "axis") % self.result.type.rank

    @classmethod
    def of(cls, group: Node) -> Concatenation | None:
        """``None`` where ``group`` has no or several concatenations, or parts of it that do not come apart."""
        if group.op != GROUP_OP or len(group.results) != 1 or group.attributes.get("view", False):
            return None
        (body,) = group.subgraphs
        found = [n for n in body.nodes if n.op == "Concat"]
        if len(found) != 1 or len(found[0].operands) < 2 or any(v in body.constants for v in found[0].operands):
            return None
        (concat,), given = found, frozenset(body.inputs)
        before = {v: _needed(body, v, ()) for v in concat.operands if v not in given}
        after = _needed(body, body.outputs[0], concat.results)
        return cls(group, concat, before, after) if _come_apart(body, [*before.values(), after]) else None

    def cut(self) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        """Groups that compute the operands, and those that compute the result from what is concatenated."""
        before = tuple(self._part(nodes, value) for value, nodes in self.before.items())
        after = (self._part(self.after, self.group.results[0]),) if self.after else ()
        return before, after

    def joined(self, operands: tuple[Value, ...], **attributes: Attribute) -> Node:
        """The group that is the concatenation alone, of ``operands`` in place of its own."""
        concat = Node("Concat", operands, (self.result,), self.concat.attributes, self.concat.name)
        return self._group((concat,), operands, self.result, **attributes)

    def _part(self, nodes: tuple[Node, ...], result: Value) -> Node:
        made = {v for n in nodes for v in n.results}
        return self._group(nodes, (v for n in nodes for v in n.operands if v not in made), result)

    def _group(
        self, nodes: tuple[Node, ...], operands: Iterable[Value], result: Value, **attributes: Attribute
    ) -> Node:
        (body,) = self.group.subgraphs
        read = dict.fromkeys(operands)
        constants = {v: body.constants[v] for v in read if v in body.constants}
        inputs = tuple(v for v in read if v not in constants)
        label = "_".join(n.op.rpartition(".")[2].lower() for n in nodes)[:80]
        part = Graph(label, inputs, (result,), nodes, constants)
        names = tuple(dict.fromkeys(n.name for n in nodes if n.name))
        return Node(GROUP_OP, inputs, (result,), {"body": part, "nodes": names, **attributes}, self.group.name)


def _needed(body: Graph, result: Value, given: tuple[Value, ...]) -> tuple[Node, ...]:
    """The nodes of ``body`` that ``result`` is computed by, in order, from what is ``given`` and from outside."""
    wanted, found = {result} - {*given}, set[int]()
    for node in reversed(body.nodes):
        if any(v in wanted for v in node.results):
            found.add(id(node))
            wanted |= {*node.operands} - {*given}
    return tuple(n for n in body.nodes if id(n) in found)


def _come_apart(body: Graph, parts: list[tuple[Node, ...]]) -> bool:
    """Whether no node that reads data is needed in two of ``parts``."""
    data = set(body.inputs)
    shared: list[Node] = []
    for node in body.nodes:
        if any(v in data for v in node.operands):
            data.update(node.results)
            shared += [node] if sum(any(n is node for n in part) for part in parts) > 1 else []
    return not shared
