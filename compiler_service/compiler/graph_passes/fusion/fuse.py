"""Operator fusion: every operator ends inside an ``ingot.Group``, which becomes one kernel.

A group's ``body`` is a graph of its own: its inputs are the group's operands in order. Scalars, operands that the operator
definitions use up (axes, shapes) and arithmetic on dims are inside the body; weights are operands. Attributes of a group:

- ``body``: the graph;
- ``nodes``: the names of the ONNX nodes that it computes;
- ``view``: true when it moves no byte, so that its output is its operand under another shape and no kernel runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from compiler_service.compiler.graph_passes.analysis.classify import (
    AccessPattern,
    Classification,
    OperatorKind,
    classify,
)
from compiler_service.compiler.graph_passes.analysis.known import known_values
from compiler_service.compiler.graph_passes.analysis.values import Known
from compiler_service.compiler.graph_passes.fusion.grouping import VIEWS, Grouping, GroupLimits, paths_of
from compiler_service.compiler.graph_passes.fusion.repeated_moves import repeated_moves
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import at_least
from compiler_service.compiler.graph_passes.rewriting.nested import map_bodies
from compiler_service.compiler.graph_passes.rewriting.operands import moves_nothing, permutation
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.tensor_expr.kernel.group import measured_operands
from compiler_service.compiler.tensor_expr.operators.sequential import SEQUENTIAL
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import (
    CALL_OP,
    CHECK_OP,
    DEFINE_OP,
    GROUP_OP,
    INVOKE_OP,
    REPEAT_OP,
    Attribute,
    Graph,
    Node,
    Value,
    free_values,
)

SETTLED = frozenset({GROUP_OP, "If", "Loop", "Scan", REPEAT_OP, DEFINE_OP, CALL_OP, INVOKE_OP, CHECK_OP, *SEQUENTIAL})
"""Operators that belong to no group."""


@dataclass(frozen=True)
class Fuse(Pass):
    """An anchor (contraction, pool, reduction) takes in the elementwise operators that follow it; these join among themselves
    and with data movement where that repeats no work; a group has at most one anchor.

    Attributes:
        merge: false puts every operator in a group of its own.
        most_nodes: most operators of one group.
        most_concatenated: longer concatenations are not fused with anything.
        prologues: let elementwise operators join the reduction that follows them.
    """

    name: ClassVar[str] = "fuse"
    level: ClassVar[int] = 0
    needs: ClassVar[Facts] = frozenset({GraphFact.OPERATORS_EXPANDED, GraphFact.LOOPS_LOWERED, GraphFact.SHAPES_FOLDED})
    gives: ClassVar[Facts] = frozenset({GraphFact.GROUPED})

    merge: bool = True
    most_nodes: int = field(default=32, metadata=at_least(1))
    most_concatenated: int = field(default=4, metadata=at_least(0))
    prologues: bool = False

    def run(self, graph: Graph) -> Graph:
        return self._fuse(graph, {}, {})

    def ensures(self, graph: Graph) -> None:
        for node in graph.nodes:
            if not _is_settled(node):
                raise IngotError(ErrorCode.COMPILER_FAULT, "an operator is in no group", node=str(node))

    def _fuse(self, graph: Graph, outer: Known, outer_constants: Mapping[Value, np.ndarray]) -> Graph:
        known = known_values(graph, outer)
        constants = {**outer_constants, **graph.constants}
        if not all(_is_settled(n) for n in graph.nodes):
            graph = self._group(graph, known, constants)
        return map_bodies(graph, lambda body: self._fuse(body, known, constants))

    def _group(self, graph: Graph, known: Known, constants: Mapping[Value, np.ndarray]) -> Graph:
        settled = [n for n in graph.nodes if _is_settled(n)]
        asked = {*graph.outputs, *(v for n in settled for v in (*n.operands, *free_values(n)))}
        shapes = {v: n for n in graph.nodes if not _is_settled(n) for v in n.results if v in known}
        work = [n for n in graph.nodes if not _is_settled(n) and _is_work(n, known, asked)]
        kinds = [classify(n, known) for n in work]
        _check_expanded(work, kinds)
        moves = repeated_moves(graph, work, kinds, constants) if self.merge else {}
        kept = [i for i, n in enumerate(work) if n.results[0] not in moves]
        work, kinds = [work[i] for i in kept], [kinds[i] for i in kept]
        limits = GroupLimits(self.most_nodes, self.most_concatenated, self.prologues)
        grouping = Grouping(work, kinds, paths_of(work, graph), limits)
        parts = grouping.run() if self.merge else [[i] for i in range(len(work))]
        place = {id(n): i for i, n in enumerate(graph.nodes)}
        maker = _GroupMaker(constants, shapes, moves)
        placed = [(place[id(n)], n) for n in settled]
        for part in parts:
            group = maker.group([work[i] for i in part], [kinds[i] for i in part])
            placed.append((place[id(work[part[-1]])], group))
        nodes = tuple(n for _, n in sorted(placed, key=lambda item: item[0]))
        read = {v for n in nodes for v in (*n.operands, *free_values(n))} | set(graph.outputs)
        return graph.with_(nodes=nodes, constants={v: a for v, a in graph.constants.items() if v in read})


def _is_settled(node: Node) -> bool:
    return node.op in SETTLED


def _check_expanded(nodes: Sequence[Node], kinds: Sequence[Classification]) -> None:
    """NOTE: a graph from elsewhere may not be what a pipeline of this pass alone takes it to be."""
    for node, kind in zip(nodes, kinds, strict=True):
        if kind.named:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"pass 'fuse' needs {GraphFact.OPERATORS_EXPANDED!s}, and the graph has {node.op}, of which no code is made as it stands",
                node=node.name or node.results[0].name,
                field="passes",
                expected="operators that say how each element is computed",
                received=node.op,
                remedy="Run expand-operators before fuse.",
            )


def _is_work(node: Node, known: Known, asked: set[Value]) -> bool:
    """Arithmetic on dims is repeated inside the groups that need it, unless somebody else reads it."""
    return any(v not in known or v in asked for v in node.results)


@dataclass(frozen=True)
class _GroupMaker:
    """``constants`` are those in sight; ``shapes`` are the nodes that only calculate with dims, ``moves`` those that groups
    repeat, by result."""

    constants: Mapping[Value, np.ndarray]
    shapes: Mapping[Value, Node]
    moves: Mapping[Value, Node]

    def group(self, nodes: Sequence[Node], kinds: Sequence[Classification]) -> Node:
        made = {v for n in nodes for v in n.results}
        inlined: dict[Value, np.ndarray] = {}
        arithmetic: list[Node] = []
        inputs: dict[Value, None] = {}
        for node, kind in zip(nodes, kinds, strict=True):
            for value, access in zip(node.inputs, kind.accesses, strict=True):
                if value is None or value in made or _is_number(inlined.get(value)):
                    continue  # a number that is inside for one reader is for all
                if value in self.constants and value not in inputs and self._belongs_inside(node, value, access):
                    inlined[value] = self.constants[value]
                elif not self._repeat(value, arithmetic, inlined, inputs):
                    inputs[value] = None
        outputs = nodes[-1].results if len(nodes) > 1 else tuple(nodes[0].results)
        label = "_".join(n.op.rpartition(".")[2].lower() for n in nodes)[:80]
        body = Graph(label, tuple(inputs), outputs, (*arithmetic, *nodes), inlined)
        moved = [n for n in arithmetic if n.results[0] in self.moves]
        names = tuple(dict.fromkeys(n.name for n in (*moved, *nodes) if n.name))
        attributes: dict[str, Attribute] = {"body": body, "nodes": names}
        if len(nodes) == 1 and _is_view(nodes[0], inputs, self.constants):
            attributes["view"] = True
        anchor = next((n for n, k in zip(nodes, kinds, strict=True) if k.kind is OperatorKind.REDUCTION), nodes[-1])
        return Node(GROUP_OP, tuple(inputs), outputs, attributes, anchor.name)

    def _belongs_inside(self, node: Node, value: Value, access: AccessPattern) -> bool:
        """Scalars, and what the definition of the operator uses up, are part of the kernel; the rest is data."""
        array = self.constants[value]
        if value in measured_operands(node):  # steps of 1 and zero points of 0 take no instruction
            return array.size == 1 and array.flat[0] == (1 if value.dtype.is_float else 0)
        return access is AccessPattern.UNUSED or array.size == 1

    def _repeat(
        self, value: Value, nodes: list[Node], inlined: dict[Value, np.ndarray], inputs: dict[Value, None]
    ) -> bool:
        """The node that calculates ``value`` from dims or moves data to it, after those that it needs itself; whether there
        is one. What it reads besides is an operand of the group."""
        node = self.shapes.get(value) or self.moves.get(value)
        if node is None:
            return False
        if any(node is n for n in nodes):
            return True
        for position, operand in enumerate(node.operands):
            array = self.constants.get(operand)
            is_number = position > 0 and array is not None and (operand.dtype is DType.INT64 or array.size == 1)
            if _is_number(inlined.get(operand)):
                continue
            if array is not None and (value in self.shapes or is_number):
                inputs.pop(operand, None)
                inlined[operand] = array
            elif not self._repeat(operand, nodes, inlined, inputs):
                inputs[operand] = None
        nodes.append(node)
        return True


def _is_number(array: np.ndarray | None) -> bool:
    return array is not None and array.size == 1


def _is_view(node: Node, inputs: Mapping[Value, None], constants: Mapping[Value, np.ndarray]) -> bool:
    if len(inputs) != 1 or node.operands[0] in constants or node.operands[0].dtype is not node.results[0].dtype:
        return False
    if node.op == "Transpose":
        return moves_nothing(node.operands[0].shape, permutation(node))
    return node.op in VIEWS
