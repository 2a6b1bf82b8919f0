"""Replace arithmetic on shapes by its result.

Shape operands come in three forms afterwards, and no other:

- every element is a number: a constant;
- some are expressions over dim symbols: one ``ingot.Dims {dims=(...)}`` node, without inputs, int64[n];
- the run computes them from data: left as it was.

Operators take the static knowledge (output shapes, slice starts) from ``Tensor.value`` of the operand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from compiler_service.compiler.graph_passes.analysis.known import FOLLOWED, known_values
from compiler_service.compiler.graph_passes.analysis.values import Known, dims_of
from compiler_service.compiler.graph_passes.rewriting.dead_code import eliminate_dead_code
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.nested import map_bodies
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.expr import Expr
from shared_ir.expr.dim import static
from shared_ir.graph.ir import DEFINE_OP, Graph, Node, Value, fresh_names
from shared_ir.types import TensorType

DIMS = "ingot.Dims"


@dataclass(frozen=True)
class FoldShapes(Pass):
    name: ClassVar[str] = "fold-shapes"
    level: ClassVar[int] = 0
    needs: ClassVar[Facts] = frozenset({GraphFact.LOOPS_LOWERED})
    gives: ClassVar[Facts] = frozenset({GraphFact.SHAPES_FOLDED})
    forbids: ClassVar[Facts] = frozenset({GraphFact.GROUPED})

    def run(self, graph: Graph) -> Graph:
        return _fold(graph, {}, fresh_names(graph))


def _fold(graph: Graph, outer: Known, fresh: Callable[[str], str]) -> Graph:
    known = known_values(graph, {**outer, **_empty(graph)})
    graph = _replace(graph, known, fresh)
    return map_bodies(graph, lambda body: _fold(body, known, fresh))


def _empty(graph: Graph) -> Known:
    """What has no elements, whatever it is computed from: sums over it are known, as the importer knows them."""
    results = (v for node in graph.nodes if not node.subgraphs for v in node.results)
    empty = (v for v in results if 0 in v.shape and v.type.is_static and v.dtype in FOLLOWED)
    return {v: np.empty([static(d) for d in v.shape], object) for v in empty}


def _replace(graph: Graph, known: Known, fresh: Callable[[str], str]) -> Graph:
    constants: dict[Value, np.ndarray] = {}
    nodes: list[Node] = []
    changed = False
    for node in graph.nodes:
        (result, *rest) = node.results or (None,)
        elements = None if result is None or rest or node.op in (DIMS, DEFINE_OP) else known.get(result)
        if result is None or elements is None:
            nodes.append(node)
        elif not any(isinstance(e, Expr) for e in elements.flat):
            constants[result] = _array(elements, result)
            changed = True
        else:
            made = _dims_nodes(result, elements, node, fresh)
            changed = changed or made != [node]
            nodes.extend(made)
    if not changed:
        return graph
    return eliminate_dead_code(graph.with_(nodes=tuple(nodes), constants={**graph.constants, **constants}))


def _array(elements: np.ndarray, value: Value) -> np.ndarray:
    return np.array(elements.tolist()).astype(storage_dtype(value.dtype)).reshape(elements.shape)


def _dims_nodes(result: Value, elements: np.ndarray, node: Node, fresh: Callable[[str], str]) -> list[Node]:
    """``node`` as an ``ingot.Dims`` (and a ``Squeeze`` for a scalar); ``node`` itself where that does not apply."""
    dims = dims_of(elements) if result.dtype is DType.INT64 else None
    if dims is None or elements.ndim > 1:
        return [node]
    if elements.ndim == 1:
        return [Node(DIMS, (), (result,), {"dims": dims}, node.name)]
    if node.op == "Squeeze":
        return [node]
    vector = Value(fresh(f"{result.name}_dim"), TensorType(DType.INT64, (1,)))
    return [
        Node(DIMS, (), (vector,), {"dims": dims}, node.name),
        Node("Squeeze", (vector,), (result,), {}, node.name),
    ]
