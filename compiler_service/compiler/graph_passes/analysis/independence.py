"""The proof that the rows of a batch do not see each other, so that those of different clients may be computed together.

Forward data flow over the graph as it was imported, before any pass: which axis of every value counts rows, by the definition of its
operator (:mod:`row_axes`) or a rule of its own here. Whatever is not understood, control flow among it, is not proven.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from compiler_service.compiler.graph_passes.analysis.known import known_values
from compiler_service.compiler.graph_passes.analysis.row_axes import SAME, BatchRows, RowAxis, Rows, rows_of
from compiler_service.compiler.graph_passes.analysis.symbols import input_symbols
from compiler_service.compiler.graph_passes.analysis.values import dims_of, operand
from compiler_service.compiler.tensor_expr.registry import infer
from compiler_service.compiler.tensor_expr.tensor import Tensor, topological
from shared_ir.errors import IngotError
from shared_ir.expr import Var
from shared_ir.expr.dim import as_dim, product
from shared_ir.graph.ir import CALL_OP, DEFINE_OP, Graph, Node, Value

_FIRST = RowAxis(0)


@dataclass(frozen=True, slots=True)
class RowProof:
    """``symbol`` counts the rows along the first axis of every input and output, and the rows of the outputs depend on the same rows
    of the inputs alone. Without a proof it is empty, and ``reason`` says where it ends."""

    symbol: str = ""
    reason: str = ""


def rows_apart(graph: Graph) -> RowProof:
    """The proof for ``graph``, whose inputs are all given."""
    counts = {v.shape[0] if v.shape else None for v in (*graph.inputs, *graph.outputs)}
    count = next(iter(counts)) if len(counts) == 1 else None
    if not isinstance(count, Var) or not graph.inputs:
        return RowProof(reason="no symbol is the first extent of every input and output")
    batch = BatchRows(count.name, input_symbols(graph) - {count.name})
    if not all(batch.is_same(v.shape[1:]) for v in graph.inputs):
        return RowProof(reason=f"{count.name} is the extent of another axis too")
    flow = _Flow(batch, known_values(graph), dict.fromkeys(graph.constants, SAME))
    flow.rows.update(dict.fromkeys(graph.inputs, frozenset({_FIRST})))
    for node in graph.nodes:
        flow.add(node)
    lost = next((v for v in graph.outputs if _FIRST not in (flow.rows.get(v) or ())), None)
    return RowProof(count.name) if lost is None else RowProof(reason=flow.end_of_proof(graph, lost))


@dataclass(frozen=True)
class _Flow:
    """What is known of the values above a node; of those that are left out, nothing."""

    batch: BatchRows
    known: Mapping[Value, np.ndarray]
    rows: dict[Value, Rows] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        """Takes in ``node``, whose operands are in."""
        if node.subgraphs or node.op in (DEFINE_OP, CALL_OP):
            return
        rule = _RULES.get(node.op, _Flow._defined)
        self.rows.update(rule(self, node))
        self.rows.update(dict.fromkeys((v for v in node.results if self._is_known(v)), SAME))

    def end_of_proof(self, graph: Graph, output: Value) -> str:
        """Where it ends on the way to ``output``: the first node of which nothing is known, though it is of its operands."""
        node = graph.producers.get(output)
        if node is None:
            return f"{output.name} does not come in rows"
        lost = node
        while node is not None:
            lost = node
            unknown = (v for v in node.operands if self.rows.get(v) is None and v not in self.known)
            node = next((graph.producers[v] for v in unknown if v in graph.producers), None)
        return f"{lost}: its rows are not seen to depend on the same rows of its operands alone"

    def _is_known(self, value: Value) -> bool:
        """Whether ``value`` is arithmetic on sizes that are the same for any rows."""
        elements = self.known.get(value)
        dims = None if elements is None else dims_of(elements)
        return dims is not None and self.batch.is_same(dims)

    def _defined(self, node: Node) -> dict[Value, Rows]:
        operands = [None if v is None else operand(v, self.known.get(v)) for v in node.inputs]
        try:
            results = infer(node.op, tuple(operands), node.attributes)
        except IngotError:
            return {}  # refused with its own words where the node is compiled
        found: dict[Tensor, Rows] = {
            t: self.rows.get(v) for t, v in zip(operands, node.inputs, strict=True) if t is not None and v is not None
        }
        for tensor in dict.fromkeys(t for result in results if result is not None for t in topological(result)):
            if tensor not in found:
                found[tensor] = rows_of(tensor, found, self.batch)
        pairs = zip(node.outputs, results, strict=False)
        return {v: found[t] for v, t in pairs if v is not None and t is not None}

    def _reshaped(self, node: Node) -> dict[Value, Rows]:
        """The same elements in the same order: rows stay whole where as many elements stand before them, and in each."""
        (source, *_), (result,) = node.operands, node.results
        rows = self.rows.get(source)
        if rows is None:
            return {}
        if not rows:
            return {result: SAME} if self.batch.is_same(result.shape) else {}
        places = {_place(source, row) for row in rows}
        kept = frozenset(row for row in self.batch.axes(result.shape) if _place(result, row) in places)
        return {result: kept or None}

    def _recurrent(self, node: Node) -> dict[Value, Rows]:
        """Every step of a sequence of rows computes row by row; weights are shared."""
        x, weights, recurrence, bias, lengths, state, cell, peepholes = (*node.inputs, *(None,) * 8)[:8]
        first = node.attributes.get("layout", 0) == 1
        rows, last = (RowAxis(0), RowAxis(0)) if first else (RowAxis(1), RowAxis(1))
        shared = all(v is None or self.rows.get(v) == SAME for v in (weights, recurrence, bias, peepholes))
        own = ((x, rows), (lengths, _FIRST), (state, last), (cell, last))
        if not shared or any(v is not None and r not in (self.rows.get(v) or ()) for v, r in own):
            return {}
        every = RowAxis(0) if first else RowAxis(2)
        found = zip(node.outputs, (every, last, last), strict=False)
        return {v: frozenset({r}) for v, r in found if v is not None}

    def _along_last_axis(self, node: Node) -> dict[Value, Rows]:
        """What is computed along the last axis for each of the others."""
        x, (result,) = node.operands[0], node.results
        rows = self.rows.get(x)
        if not rows:
            return {result: rows}
        return {result: frozenset(r for r in rows if r.axis < x.type.rank - 1) or None}


def _place(value: Value, row: RowAxis) -> tuple[object, object]:
    """Elements of ``value`` before its rows, and in one of them."""
    before, behind = value.shape[: row.axis], value.shape[row.axis + 1 :]
    return product(before), as_dim(product(behind) * row.inner)


_Rule = Callable[[_Flow, Node], dict[Value, Rows]]
_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "Reshape": _Flow._reshaped,
        "Flatten": _Flow._reshaped,
        "RNN": _Flow._recurrent,
        "GRU": _Flow._recurrent,
        "LSTM": _Flow._recurrent,
        "ingot.Sorted": _Flow._along_last_axis,
        "ingot.Best": _Flow._along_last_axis,
    }
)
"""Operators whose definition does not show it: it divides by extents, or there is none."""
