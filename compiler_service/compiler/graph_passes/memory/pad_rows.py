"""Padding after the rows of a product's data, so that they do not push each other out of the cache.

A register tile reads an element of each of some fourteen rows, then the next of each. A set-associative cache finds the place of a
line by its address modulo the bytes of one way: rows that lie a multiple of these apart share one set, and a line has left before
its second element is read. The level behind bears that while it holds the whole data, and no longer. A line of padding after each
row spreads the rows over all sets.

Rivera and Tseng, "Data transformations for eliminating conflict misses", PLDI 1998, call this intra-variable padding.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from compiler_service.compiler.graph_passes.algebra.fold_batch_norm import CONTRACTIONS
from compiler_service.compiler.graph_passes.analysis.aliases import runs_no_kernel
from compiler_service.compiler.graph_passes.memory.parts import find_parts, readers
from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import at_least
from compiler_service.compiler.graph_passes.rewriting.nested import map_graphs
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.tensor_expr.strides import padded
from shared_ir.graph.ir import GROUP_OP, Graph, Node, Value


@dataclass(frozen=True)
class PadRows(Pass):
    """A value that a contraction reads gets padding where its rows would share few sets of the first-level cache, and where all that
    read it can do so through strides. Runs last.

    Attributes:
        way: bytes of one way. A cache that is looked up while the address is translated has ways of at most a page: 4 KiB.
        sets: rows are padded that have so many sets among them, or fewer.
        padding: bytes after each row; a cache line.
    """

    name: ClassVar[str] = "pad-rows"
    level: ClassVar[int] = 3
    needs: ClassVar[Facts] = frozenset(
        {GraphFact.GROUPED, GraphFact.OUTPUTS_APART, GraphFact.PARTS_PLACED, GraphFact.CONCATENATIONS_SPLIT}
    )
    gives: ClassVar[Facts] = frozenset({GraphFact.ROWS_PADDED})

    way: int = field(default=4096, metadata=at_least(1))
    sets: int = field(default=2, metadata=at_least(1))
    padding: int = field(default=64, metadata=at_least(1))

    def run(self, graph: Graph) -> Graph:
        return map_graphs(graph, lambda nested, _: self._arranged(nested))

    def _arranged(self, graph: Graph) -> Graph:
        parts = find_parts(graph)
        arranged = {*parts, *(p.whole for p in parts.values())}
        nodes = tuple(
            self._padded(n) if self._gains(graph, n) and n.results[0] not in arranged else n for n in graph.nodes
        )
        return graph if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)) else graph.with_(nodes=nodes)

    def _gains(self, graph: Graph, node: Node) -> bool:
        if node.op != GROUP_OP or runs_no_kernel(node) or len(node.results) != 1:
            return False
        (value,) = node.results
        if not self._collides(value):
            return False
        found = readers(graph, value, padded(value.shape, self._elements(value)))
        return found is not None and any(_contracts(n) for n in found)

    def _collides(self, value: Value) -> bool:
        if value.type.rank < 2 or all(d == 1 for d in value.shape[:-1]):
            return False
        row = value.shape[-1]
        return isinstance(row, int) and row > 0 and row * value.dtype.itemsize % max(1, self.way // self.sets) == 0

    def _elements(self, value: Value) -> int:
        return self.padding // value.dtype.itemsize

    def _padded(self, node: Node) -> Node:
        return replace(node, attributes={**node.attributes, "padding": self._elements(node.results[0])})


def _contracts(group: Node) -> bool:
    """Whether ``group`` sums over channels; those of a convolution in groups are few."""
    (body,) = group.subgraphs
    return any(n.op in CONTRACTIONS and int_attribute(n, "group", 1) == 1 for n in body.nodes)
