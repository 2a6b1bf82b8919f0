"""``Loop`` and ``Scan`` become ``ingot.Repeat``: one loop, whose iteration number is a symbol.

With the number of the iteration a symbol, reading row ``i`` of a sequence is arithmetic on an index inside whatever kernel
uses the row; nothing is cut up beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from compiler_service.compiler.graph_passes.analysis.known import known_values
from compiler_service.compiler.graph_passes.analysis.symbols import fresh_symbols
from compiler_service.compiler.graph_passes.analysis.values import Known
from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute, ints_attribute
from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.nested import map_bodies
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr, Var
from shared_ir.expr.dim import Dim, as_dim
from shared_ir.graph.ir import REPEAT_OP, Attribute, Graph, Node, Value, fresh_names, walk_graphs
from shared_ir.types import TensorType

_UNLIMITED = 2**63 - 1


@dataclass(frozen=True)
class LowerLoops(Pass):
    name: ClassVar[str] = "lower-loops"
    level: ClassVar[int] = 0
    gives: ClassVar[Facts] = frozenset({GraphFact.LOOPS_LOWERED})
    forbids: ClassVar[Facts] = frozenset({GraphFact.GROUPED})

    def run(self, graph: Graph) -> Graph:
        if not any(n.op in ("Loop", "Scan") for g in walk_graphs(graph) for n in g.nodes):
            return graph
        return _Lowering(fresh_names(graph), fresh_symbols(graph)).graph(graph, {})

    def ensures(self, graph: Graph) -> None:
        for node in (n for g in walk_graphs(graph) for n in g.nodes):
            if node.op in ("Loop", "Scan"):
                raise IngotError(ErrorCode.COMPILER_FAULT, "a loop is left", node=str(node))


@dataclass(frozen=True)
class _Lowering:
    fresh: Callable[[str], str]
    symbol: Callable[[str], Var]

    def graph(self, graph: Graph, outer: Known) -> Graph:
        known = known_values(graph, outer)
        nodes: list[Node] = []
        for node in graph.nodes:
            match node.op:
                case "Loop":
                    nodes.extend(self._loop(node, known))
                case "Scan":
                    nodes.extend(self._scan(node))
                case _:
                    nodes.append(node)
        same = len(nodes) == len(graph.nodes) and all(a is b for a, b in zip(nodes, graph.nodes, strict=True))
        graph = graph if same else graph.with_(nodes=tuple(nodes))
        return map_bodies(graph, lambda body: self.graph(body, known))

    # -- Loop

    def _loop(self, node: Node, known: Known) -> list[Node]:
        (body,) = node.subgraphs
        iteration, running = body.inputs[:2]
        counter = node.attributes.get("counter")
        counter = counter if isinstance(counter, Var) else self.symbol(f"{node.name or 'loop'}_i")
        builder = self._builder(body)
        self._number(builder, counter, iteration)
        constants = {**body.constants, **builder.added, running: np.ones(_shape(running), dtype=np.bool_)}
        most, start = (*node.inputs, None, None)[:2]
        goes_on = body.outputs[0]
        starts = start is None or _is_true(known.get(start))
        always = starts and (goes_on == running or _is_true(known_values(body, known).get(goes_on)) or _passes(body))
        carried = len(body.inputs) - 2
        outputs = (*node.outputs, *(None,) * (len(body.outputs) - 1 - len(node.outputs)))
        wanted = [i for i, v in enumerate(outputs) if i < carried or v is not None]
        results = tuple(body.outputs[1 + i] for i in wanted)
        inner = Graph(
            body.name,
            body.inputs[2:],
            results if always else (goes_on, *results),
            (*builder.nodes, *body.nodes),
            constants,
        )
        attributes: dict[str, Attribute] = {"body": inner, "counter": counter, "conditional": int(not always)}
        limit = None if most is None else known.get(most)
        if most is None:
            attributes["limit"] = _UNLIMITED
        elif limit is not None:
            attributes["limit"] = as_dim(limit.reshape(-1).tolist()[0])
        attributes["reverse"] = (0,) * (len(wanted) - carried)
        operands = (None if limit is not None else most, None if starts else start, *node.inputs[2:])
        return [Node(REPEAT_OP, operands, tuple(outputs[i] for i in wanted), attributes, node.name)]

    def _number(self, builder: Builder, number: Dim, value: Value) -> None:
        """``value``, a scalar or a vector of one element, is ``number``."""
        attributes: dict[str, Attribute] = {"dims": (number,)}
        if value.shape == (1,):
            builder.nodes.append(Node("ingot.Dims", (), (value,), attributes))
            return
        vector = Value(self.fresh(f"{value.name}_dim"), TensorType(value.dtype, (1,)))
        builder.nodes.append(Node("ingot.Dims", (), (vector,), attributes))
        builder.nodes.append(Node("Squeeze", (vector,), (value,)))

    # -- Scan

    def _scan(self, node: Node) -> list[Node]:
        (body,) = node.subgraphs
        sequences = int_attribute(node, "num_scan_inputs")
        carried = len(body.inputs) - sequences
        axes = ints_attribute(node, "scan_input_axes", (0,) * sequences)
        backward = ints_attribute(node, "scan_input_directions", (0,) * sequences)
        scanned = [v for v in node.inputs[carried:] if v is not None]
        length = scanned[0].shape[axes[0] % scanned[0].type.rank]
        counter = self.symbol(f"{node.name or 'scan'}_i")
        builder = self._builder(body)
        for source, element, axis, back in zip(scanned, body.inputs[carried:], axes, backward, strict=True):
            number = as_dim(length - 1 - counter) if back else counter
            index = Value(self.fresh(f"{element.name}_index"), TensorType(DType.INT64, ()))
            self._number(builder, number, index)
            builder.nodes.append(Node("Gather", (source, index), (element,), {"axis": axis % source.type.rank}))
        rows = len(body.outputs) - carried
        outputs = (*node.outputs, *(None,) * (len(body.outputs) - len(node.outputs)))
        wanted = [i for i, v in enumerate(outputs) if i < carried or v is not None]
        out_axes = ints_attribute(node, "scan_output_axes", (0,) * rows)
        reverse = ints_attribute(node, "scan_output_directions", (0,) * rows)
        stacked, turned = self._turned(outputs, carried, out_axes, node.name)
        inner = Graph(
            body.name,
            body.inputs[:carried],
            tuple(body.outputs[i] for i in wanted),
            (*builder.nodes, *body.nodes),
            {**body.constants, **builder.added},
        )
        attributes: dict[str, Attribute] = {
            "body": inner,
            "counter": counter,
            "conditional": 0,
            "limit": length,
            "reverse": tuple(reverse[i - carried] for i in wanted if i >= carried),
        }
        operands = (None, None, *node.inputs[:carried])
        return [Node(REPEAT_OP, operands, tuple(stacked[i] for i in wanted), attributes, node.name), *turned]

    def _turned(
        self, outputs: Sequence[Value | None], carried: int, axes: Sequence[int], name: str
    ) -> tuple[list[Value | None], list[Node]]:
        """The outputs with rows along axis 0, and transpositions that bring them to where the model wants them."""
        stacked, nodes = list(outputs), []
        for i, axis in enumerate(axes, start=carried):
            value = outputs[i]
            if value is None or axis % value.type.rank == 0:
                continue
            axis %= value.type.rank
            shape = (value.shape[axis], *value.shape[:axis], *value.shape[axis + 1 :])
            rows = Value(self.fresh(f"{value.name}_rows"), TensorType(value.dtype, shape))
            order = [*range(1, axis + 1), 0, *range(axis + 1, value.type.rank)]
            nodes.append(Node("Transpose", (rows,), (value,), {"perm": tuple(order)}, name))
            stacked[i] = rows
        return stacked, nodes

    def _builder(self, body: Graph) -> Builder:
        return Builder(self.fresh, dict(body.constants))


def _shape(value: Value) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else 1 for d in value.shape)


def _is_true(elements: np.ndarray | None) -> bool:
    if elements is None or elements.size != 1:
        return False
    (element,) = elements.reshape(-1).tolist()
    return not isinstance(element, Expr) and bool(element)


def _passes(body: Graph) -> bool:
    """Whether the body hands its condition on, through Identity nodes at most."""
    value = body.outputs[0]
    while value != body.inputs[1]:
        producer = body.producers.get(value)
        if producer is None or producer.op != "Identity":
            return False
        value = producer.operands[0]
    return True
