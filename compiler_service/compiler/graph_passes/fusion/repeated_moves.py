"""Data movement that is repeated inside every group that reads it, at the price of other strides, instead of being done once
by a copy: slices, axes of extent 1 that come and go, transposes before the products of attention, keys and values that
several of its heads share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compiler_service.compiler.graph_passes.algebra.broadcast import stretches
from compiler_service.compiler.graph_passes.analysis.classify import Classification, OperatorKind
from compiler_service.compiler.graph_passes.fusion.grouping import PRODUCTS, SOFTMAX, VIEWS
from compiler_service.compiler.graph_passes.rewriting.attributes import text_attribute
from compiler_service.compiler.graph_passes.rewriting.operands import permutation
from compiler_service.compiler.tensor_expr.operators.conversion import KEPT_QUANTIZED
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import Graph, Node, Value, free_values

_READERS = SOFTMAX | {
    *("Conv", "ingot.ExactConv", "Gemm", "MaxPool", "AveragePool", "GlobalAveragePool"),
    *("LayerNormalization", "RMSNormalization"),
}
"""Reductions whose schedules read any strides, beside elementwise operators."""

_MATRIX_AXES = 2
"""The last axes of an operand of a product."""

_WIDENING = frozenset({"Cast", KEPT_QUANTIZED})
"""What products do to weights that are stored narrower than they are used."""


def repeated_moves(
    graph: Graph, work: Sequence[Node], kinds: Sequence[Classification], constants: Mapping[Value, object]
) -> dict[Value, Node]:
    """By result, the nodes of ``work`` that every group which reads them may repeat."""
    return _Finder(graph, work, kinds, constants).run()


@dataclass
class _Finder:
    graph: Graph
    work: Sequence[Node]
    kinds: Sequence[Classification]
    constants: Mapping[Value, object]
    found: dict[Value, Node] = field(default_factory=dict)

    def run(self) -> dict[Value, Node]:
        own = {id(n) for n in self.work}
        elsewhere = set(self.graph.outputs)
        for node in self.graph.nodes:
            elsewhere.update(free_values(node) if id(node) in own else (*node.operands, *free_values(node)))
        readers: dict[Value, list[int]] = {}
        for i, node in enumerate(self.work):
            for value in dict.fromkeys(node.operands):
                readers.setdefault(value, []).append(i)
        for i in reversed(range(len(self.work))):
            node = self.work[i]
            if len(node.results) != 1 or not self._moves(node, self.kinds[i]):
                continue
            (result,) = node.results
            if result not in elsewhere and all(self._takes(r, node) for r in readers.get(result, ())):
                self.found[result] = node
        for node in self.work:  # what is a view of memory is no copy: only behind a move need it be repeated
            if node.op in VIEWS and node.results[0] in self.found and node.operands[0] not in self.found:
                del self.found[node.results[0]]
        return self.found

    def _moves(self, node: Node, kind: Classification) -> bool:
        if node.op in _WIDENING:
            return all(v in self.constants for v in node.operands)
        if not kind.free or not node.operands or (node.operands[0] in self.constants and node.op != "Expand"):
            return False
        if node.op in VIEWS:
            return _only_units_move(node) or (_keeps_matrices(node) and self._is_repeated(node.operands[0]))
        return node.op in ("Slice", "Transpose", "Expand")

    def _is_repeated(self, value: Value) -> bool:
        """Whether ``value`` repeats something: keys and values that several heads share."""
        return any(value in n.results for n in self.work if n.op == "Expand")

    def _takes(self, index: int, node: Node) -> bool:
        """Whether the reader number ``index`` of ``node`` reads as well through it."""
        reader, kind = self.work[index], self.kinds[index]
        (value,) = node.results
        if reader.results and reader.results[0] in self.found:
            return True
        if node.op in _WIDENING:
            return reader.op in ("MatMul", "Gemm") and value == reader.operands[1]
        if reader.op in PRODUCTS:
            if stretches(node, last=_MATRIX_AXES):  # rows and columns are found by adding, not by asking
                return False
            return node.op != "Transpose" or self._is_product_operand(reader, value, node)
        if node.op == "Transpose" or reader.op in VIEWS or reader.op in ("Concat", "Transpose"):
            return False
        return kind.kind in (OperatorKind.ELEMENTWISE, OperatorKind.INJECTIVE) or (
            reader.op in _READERS and node.op != "Expand"
        )

    def _is_product_operand(self, reader: Node, value: Value, node: Node) -> bool:
        """The right operand must be contiguous along its columns, or along the known number of rows that are summed over."""
        if any(v in self.constants for v in reader.operands) or not _is_matrix_product(reader):
            return False
        last = permutation(node).index(value.type.rank - 1)  # where the contiguous axis of the source goes
        if value != reader.operands[1]:
            return last >= value.type.rank - 2
        return last == value.type.rank - 1 or (last == value.type.rank - 2 and isinstance(value.shape[-2], int))


def _is_matrix_product(node: Node) -> bool:
    """``[.., m, k] @ [.., k, n]``, whatever becomes of the batch axes."""
    if node.op == "MatMul":
        return True
    terms = text_attribute(node, "equation", "").partition("->")[0].split(",")
    return len(terms) == 2 and terms[0].endswith("mk") and terms[1].endswith("kn")


def _only_units_move(node: Node) -> bool:
    """Whether a reshape only inserts or removes axes of extent 1."""
    return _wide(node.operands[0].shape) == _wide(node.results[0].shape)


def _keeps_matrices(node: Node) -> bool:
    """Whether a reshape leaves the last two axes as they are."""
    before, after = node.operands[0].shape, node.results[0].shape
    return len(before) > 2 and len(after) > 2 and before[-2:] == after[-2:]


def _wide(shape: Sequence[Dim]) -> list[Dim]:
    return [d for d in shape if d != 1]
