"""Compute at compile time what depends on constants alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import ClassVar

import numpy as np

from compiler_service.compiler.graph_passes.analysis.symbols import node_dims
from compiler_service.compiler.graph_passes.analysis.values import evaluate_node
from compiler_service.compiler.graph_passes.cleaning.eliminate_common_subexpressions import RANDOM
from compiler_service.compiler.graph_passes.rewriting.dead_code import eliminate_dead_code
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import at_least
from compiler_service.compiler.graph_passes.rewriting.nested import Constants, map_graphs
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.tensor_expr.meaning.evaluate import EvaluationBudget
from compiler_service.compiler.tensor_expr.operators.conversion import KEPT_QUANTIZED
from compiler_service.compiler.tensor_expr.operators.sequential import SEQUENTIAL
from shared_ir.dtype import DType
from shared_ir.expr.dim import dim_symbols, static
from shared_ir.graph.ir import CALL_OP, DEFINE_OP, GROUP_OP, INVOKE_OP, Graph, Node, Value

ALWAYS = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast", "DequantizeLinear"})
"""What models do to weights: folded at any size, since the result replaces an operand of the same size."""

NEVER = frozenset(
    {"ingot.Dims", "ingot.Ratios", "ingot.Uniform", DEFINE_OP, CALL_OP, INVOKE_OP, KEPT_QUANTIZED, *SEQUENTIAL, *RANDOM}
)

_MOST_BYTES_BEYOND = 1 << 30
"""Operands and results that are computed with at compile time, whatever memory the operands take."""
_MOST_TIMES_HELD = 16
"""The same, in multiples of that memory."""
_MOST_STEPS = 1 << 30
"""Operations of elements in one pass over a model, but for those of :data:`ALWAYS`; some ten seconds."""


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Results of at most ``largest_result`` bytes are folded, and those no larger than the operands together; but nothing that takes
    much more time than the constants of the model take memory: views of one element are of any size.

    ``ConstantOfShape`` and ``Expand`` of one element become broadcast views that take no memory, up to a size: where a kernel reads one
    of them it is a weight like others.

    Attributes:
        keeps: operators that are left as they are.
    """

    name: ClassVar[str] = "fold-constants"
    level: ClassVar[int] = 1
    gives: ClassVar[Facts] = frozenset({GraphFact.CONSTANTS_FOLDED, GraphFact.WEIGHTS_DEQUANTIZED})
    forbids: ClassVar[Facts] = frozenset({GraphFact.WEIGHTS_HALVED, GraphFact.GROUPED})

    largest_result: int = field(default=64 * 1024, metadata=at_least(0))
    keeps: frozenset[str] = frozenset()

    def given(self) -> Facts:
        return self.gives - {GraphFact.WEIGHTS_DEQUANTIZED} if "DequantizeLinear" in self.keeps else self.gives

    def run(self, graph: Graph) -> Graph:
        return map_graphs(graph, partial(self._fold, EvaluationBudget(_MOST_STEPS)))

    def _fold(self, budget: EvaluationBudget, graph: Graph, outer: Constants) -> Graph:
        known = {**outer, **graph.constants}
        added: dict[Value, np.ndarray] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            arrays = self._evaluate(node, known, budget)
            if arrays is None:
                nodes.append(node)
                continue
            added.update(arrays)
            known.update(arrays)
        if not added:
            return graph
        return eliminate_dead_code(graph.with_(nodes=tuple(nodes), constants={**graph.constants, **added}))

    def _evaluate(
        self, node: Node, known: Mapping[Value, np.ndarray], budget: EvaluationBudget
    ) -> dict[Value, np.ndarray] | None:
        if node.subgraphs or node.op in NEVER or node.op in self.keeps or node.op == GROUP_OP or not node.results:
            return None
        if not all(v in known for v in node.operands):
            return None
        if any(v.dtype is DType.STRING for v in (*node.results, *node.operands)) or dim_symbols(node_dims(node)):
            return None
        uniform = _uniform(node, known) if sum(map(_bytes, node.results)) <= _MOST_BYTES_BEYOND else None
        if uniform is not None:
            return {node.results[0]: uniform}
        if not self._worth(node, known):
            return None
        return evaluate_node(node, known, None if node.op in ALWAYS else budget)

    def _worth(self, node: Node, known: Mapping[Value, np.ndarray]) -> bool:
        result, operands = sum(map(_bytes, node.results)), sum(map(_bytes, node.operands))
        if result + operands > _MOST_BYTES_BEYOND + _MOST_TIMES_HELD * sum(_held(known[v]) for v in node.operands):
            return False
        return node.op in ALWAYS or result <= max(self.largest_result, operands)


def _bytes(value: Value) -> int:
    return prod(d for d in value.shape if isinstance(d, int)) * value.dtype.itemsize


def _held(array: np.ndarray) -> int:
    """Bytes of memory: the elements along axes without a stride are one."""
    own = [n for n, stride in zip(array.shape, array.strides, strict=True) if stride]
    size: int = array.itemsize * prod(own)
    return size


def _uniform(node: Node, known: Mapping[Value, np.ndarray]) -> np.ndarray | None:
    """A read-only view of one element, for nodes that repeat one element."""
    if node.op not in ("ConstantOfShape", "Expand", "Reshape", "Transpose"):
        return None
    (result,) = node.results
    if node.op == "ConstantOfShape":
        one = _smallest(node, known)
        return None if one is None else np.broadcast_to(one.reshape(()), _static(result))
    source = known[node.operands[0]]
    if source.size == 0 or any(s for s, n in zip(source.strides, source.shape, strict=True) if n > 1):
        return None
    return np.broadcast_to(source[(0,) * source.ndim], _static(result))


def _smallest(node: Node, known: Mapping[Value, np.ndarray]) -> np.ndarray | None:
    """The element that a ``ConstantOfShape`` repeats: its value for the shape ``[1]``."""
    shape = Value(f"{node.operands[0].name}_one", node.operands[0].type)
    ones = np.ones(known[node.operands[0]].shape, dtype=np.int64)
    result = node.results[0]
    small = Node(node.op, (shape,), (Value(result.name, result.type),), node.attributes)
    arrays = evaluate_node(small, {shape: ones})
    return None if arrays is None else next(iter(arrays.values()))


def _static(value: Value) -> tuple[int, ...]:
    return tuple(static(d) for d in value.shape)
