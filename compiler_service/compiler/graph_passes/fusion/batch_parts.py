"""Fused groups that compute a part of a batch: which can, and what they are then.

A batch has so many samples; a value that is independent of it from sample to sample has so many rows for each along its first axis. A
group can be cut where each row of its results comes from the same row of such operands (see :mod:`row_wise`), and where its nodes, with
fewer rows, give results with fewer rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from compiler_service.compiler.graph_passes.analysis.aliases import is_view
from compiler_service.compiler.graph_passes.analysis.known import known_values, node_values
from compiler_service.compiler.graph_passes.analysis.row_wise import rows_read
from compiler_service.compiler.graph_passes.analysis.values import Known, define_node
from compiler_service.compiler.graph_passes.normal_form.fold_shapes import DIMS
from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from compiler_service.compiler.tensor_expr.kernel.group import define_group, flops_of
from compiler_service.compiler.tensor_expr.tensor import Compute, Tensor, topological
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr import Expr, Var, lift, variables
from shared_ir.expr.dim import Dim, as_dim, bind
from shared_ir.graph.ir import GROUP_OP, Graph, Node, Value
from shared_ir.types import TensorType


@dataclass(frozen=True)
class BatchTiling:
    """``samples`` of them, a number or a symbol, of which ``part`` are computed at a time."""

    samples: Dim
    part: int = 1

    @property
    def parts(self) -> Dim:
        return self.samples // self.part if isinstance(self.samples, int) else as_dim(lift(self.samples) // self.part)

    def rows(self, value: Value) -> int | None:
        """Rows of ``value`` for each sample; None where its first axis does not come in samples."""
        first = value.shape[0] if value.shape else 0
        rows = self._of_one(first)
        whole = isinstance(rows, int) and rows > 0 and as_dim(self.samples * rows) == first
        return rows if whole and isinstance(rows, int) else None

    def cut(self, value: Value, name: str = "") -> Value:
        """What a part of the batch has of ``value``, which comes in samples."""
        rows = self.rows(value)
        assert rows is not None
        return Value(name or value.name, TensorType(value.dtype, (rows * self.part, *value.shape[1:])))

    def bound(self, dim: Dim) -> Dim:
        """``dim`` where there are no samples but those of a part."""
        return bind(dim, {self.samples.name: self.part}) if isinstance(self.samples, Var) else dim

    def _of_one(self, dim: Dim) -> Dim:
        if isinstance(self.samples, Var):
            return bind(dim, {self.samples.name: 1})
        return dim // self.samples if isinstance(dim, int) and isinstance(self.samples, int) else dim


@dataclass(frozen=True)
class BatchStage:
    """A group that can be computed for one part of a batch after the other.

    Attributes:
        node: the group.
        cut: its operands that come in samples, of which a part reads its own.
        whole: all others.
        flops: floating-point operations for the whole batch.
    """

    node: Node
    cut: frozenset[Value]
    whole: frozenset[Value]
    flops: Dim = 0


def stage_of(node: Node, batch: BatchTiling, constants: Mapping[Value, np.ndarray], known: Known) -> BatchStage | None:
    """``node`` as a stage; None where it is no group, or mixes samples."""
    rows = {batch.rows(v) for v in node.results}
    if node.op != GROUP_OP or None in rows:
        return None
    given = {v for v in node.operands if v not in constants and batch.rows(v) is not None}
    cut, flops = (frozenset(given), 0) if is_view(node) else _read_by_rows(node, given, batch, known)
    alike = is_view(node) or rows == {batch.rows(v) for v in cut}
    if not cut or not alike or cut_body(node, batch, cut) is None:
        return None
    return BatchStage(node, cut, frozenset(node.operands) - cut, flops)


def _read_by_rows(node: Node, given: set[Value], batch: BatchTiling, known: Known) -> tuple[frozenset[Value], Dim]:
    """Those of the operands ``given`` that ``node`` reads row by row, none where it mixes rows; its floating-point operations."""
    (body,) = node.subgraphs
    tensors = define_group(body, node, known, {})
    results = [tensors[v] for v in body.outputs]
    arguments = {tensors[inner]: v for inner, v in zip(body.inputs, node.operands, strict=True) if v in given}
    if any(_mentions(t, batch) for result in results for t in topological(result)):
        return frozenset(), 0
    found = rows_read(results, frozenset(arguments)) or ()
    return frozenset(arguments[t] for t in found), as_dim(sum((flops_of(t) for t in results), start=0))


def _mentions(tensor: Tensor, batch: BatchTiling) -> bool:
    """Whether an element depends on the number of samples, which is another one for a part."""
    if not isinstance(batch.samples, Var):
        return False
    elements = () if tensor.value is None else tensor.value.flat
    bodies = (tensor.op.body,) if isinstance(tensor.op, Compute) else ()
    return any(isinstance(e, Expr) and batch.samples in variables(e) for e in (*elements, *bodies))


def cut_body(node: Node, batch: BatchTiling, cut: frozenset[Value]) -> Graph | None:
    """The body of the group ``node`` for one part of ``batch``; None where some result does not get the rows of a part."""
    (body,) = node.subgraphs
    inputs = tuple(
        batch.cut(inner) if operand in cut else inner for inner, operand in zip(body.inputs, node.operands, strict=True)
    )
    cutting = _Cutting(
        batch, dict(zip(body.inputs, inputs, strict=True)), dict(body.constants), known_values(body.with_(nodes=()))
    )
    try:
        nodes = [cutting.node(n) for n in body.nodes]
    except IngotError:
        return None
    outputs = tuple(cutting.new[v] for v in body.outputs)
    if any(o != batch.cut(v) for o, v in zip(outputs, body.outputs, strict=True)):
        return None
    return Graph(body.name, inputs, outputs, tuple(nodes), cutting.constants)


@dataclass
class _Cutting:
    """The nodes of one body with the rows of a part; ``new`` are their values, by those of the whole batch."""

    batch: BatchTiling
    new: dict[Value, Value]
    constants: dict[Value, np.ndarray]
    known: dict[Value, np.ndarray]

    def node(self, node: Node) -> Node:
        inputs = tuple(None if v is None else self.new.get(v, v) for v in node.inputs)
        made = replace(node, inputs=inputs)
        if node.op == DIMS:
            dims = node.attributes["dims"]
            assert isinstance(dims, tuple)
            own = tuple(self.batch.bound(d) for d in dims if isinstance(d, (int, Expr)))
            made = replace(node, attributes={**node.attributes, "dims": own})
        elif node.op == "Reshape" and inputs[0] != node.inputs[0]:
            made = self._reshaped(made)
        shapes = (None if t is None else t.shape for t in define_node(made, self.known))
        for value, shape in zip(node.outputs, shapes, strict=False):
            if value is not None and shape is not None:
                self.new[value] = Value(value.name, TensorType(value.dtype, shape))
        made = replace(made, outputs=tuple(None if v is None else self.new[v] for v in node.outputs))
        self.known.update(node_values(made, self.known))
        return made

    def _reshaped(self, node: Node) -> Node:
        """``node``, whose shape tells the rows of the whole batch, with those of a part."""
        (result,) = node.results
        if self.batch.rows(result) is None or not all(isinstance(d, int) for d in result.shape[1:]):
            return node
        shape = self.batch.cut(result).shape
        target = Value(f"{result.name}_rows", TensorType(DType.INT64, (len(shape),)))
        self.constants[target] = self.known[target] = np.array(shape, dtype=np.int64)
        return replace(node, inputs=(node.inputs[0], target), attributes={"allowzero": 1})


def part_of(
    stage: BatchStage, batch: BatchTiling, parts: Mapping[Value, Value], number: Expr, fresh: Callable[[str], str]
) -> Node:
    """The group of ``stage`` for part ``number`` of ``batch``.

    Args:
        parts: values that are there for that part alone, by the whole; those of its results among them. Of what else it reads row by
            row it takes its rows from the whole.
        fresh: a source of names for values.
    """
    node = stage.node
    body = cut_body(node, batch, stage.cut)
    assert body is not None
    builder = Builder(fresh, dict(body.constants))
    names = {inner: parts[v] for inner, v in zip(body.outputs, node.results, strict=True)}
    for inner, operand in zip(body.inputs, node.operands, strict=True):
        names[inner] = parts.get(operand, operand)
        if operand in stage.cut and operand not in parts:
            rows = builder.reshape(operand, (batch.parts, *inner.shape))
            index = builder.node("Squeeze", builder.dims([as_dim(number)], "part"))
            names[inner] = builder.node("Gather", rows, index, axis=0, output=f"{inner.name}_rows")
    nodes = (*builder.nodes, *(_renamed(n, names) for n in body.nodes))
    inputs, outputs = (tuple(parts.get(v, v) for v in values) for values in (node.operands, node.results))
    attributes = {k: a for k, a in node.attributes.items() if not (builder.nodes and k == "view")}
    attributes["body"] = Graph(body.name, inputs, outputs, nodes, builder.constants)
    return replace(node, inputs=inputs, outputs=outputs, attributes=attributes)


def _renamed(node: Node, names: Mapping[Value, Value]) -> Node:
    inputs, outputs = (tuple(None if v is None else names.get(v, v) for v in vs) for vs in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)
