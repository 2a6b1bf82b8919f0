"""Floats of 16 bits are float32 between the inputs and the outputs of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from compiler_service.compiler.graph_passes.analysis.known import known_values
from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from compiler_service.compiler.graph_passes.rewriting.dead_code import eliminate_dead_code
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from shared_ir.dtype import HALVES, DType
from shared_ir.errors import IngotError
from shared_ir.graph.ir import CALL_OP, Attribute, Graph, Node, Value, free_values, fresh_names, walk_graphs
from shared_ir.types import TensorType

_TABLES = frozenset({"Gather"})
"""Read a little of their first operand, which stays as it is: what was read is widened."""

_CACHES = frozenset({"Concat", "ScatterND", "ScatterElements", "TensorScatter"})
"""What decoders lengthen their keys and values with: these come in and go out again as halves, whatever is computed."""

_SHOW_BITS = frozenset({"BitCast", CALL_OP})

_JUMP = frozenset({"Floor", "Ceil", "Round", "Sign", "Mod", "ThresholdedRelu", "Shrink", "Hardmax", "OneHot", "Range"})
"""Operators of floats whose results jump where an operand changes in its last bit."""

_CALM = frozenset({"Shape", "Size", "QuantizeLinear"})
"""Operators whose results are no floats, and hang on sizes alone, or change by one step where an operand changes in its last bit."""


@dataclass(frozen=True)
class WidenFloats(Pass):
    """``float16`` and ``bfloat16`` say how a model is stored and fed; what it computes is ``float32``.

    Processors convert halves, few calculate with them, and not with the accuracy of a sum in float32. So results keep their
    excess precision, as XLA's do (``xla_allow_excess_precision``): Casts to halves fall away, and with them all that stands between
    two operators that belong together. A half is left where the model shows one, at its inputs and outputs and where bits are
    looked at, and in tables and caches, of which memory has half as many bytes to give; and it is read where it decides something:
    by comparisons, by whatever gives positions, integers or truth (ArgMax, TopK, NonZero, Cast), and by steps (Floor, Sign): what is equal
    in the model is equal here. Numbers that are cast to a half and back,
    with nothing computed in between, are rounded: the model asks for that alone. So are those that float64 is cast to: by way of float32
    they would be rounded twice.
    """

    name: ClassVar[str] = "widen-floats"
    level: ClassVar[int] = 3
    gives: ClassVar[Facts] = frozenset({GraphFact.FLOATS_WIDENED})
    forbids: ClassVar[Facts] = frozenset({GraphFact.WEIGHTS_HALVED, GraphFact.GROUPED})

    def run(self, graph: Graph) -> Graph:
        if not any(_mentions_narrow(n) for body in walk_graphs(graph) for n in body.nodes):
            return graph
        scope = _Scope.of_model(graph)
        for node in graph.nodes:
            scope.settle(node)
        scope.name(graph.outputs)
        constants = {**graph.constants, **scope.builder.added}
        return eliminate_dead_code(graph.with_(nodes=tuple(scope.builder.nodes), constants=constants))


def _mentions_narrow(node: Node) -> bool:
    return any(v.dtype in HALVES for v in (*node.operands, *node.results))


def _decides(node: Node) -> bool:
    """Whether other results come of halves that differ in what was rounded off."""
    is_half = any(v.dtype in HALVES for v in node.operands)
    jumps = node.op in _JUMP or any(not v.dtype.is_float for v in node.results)
    return is_half and jumps and node.op not in _CALM


def _narrows_doubles(node: Node) -> bool:
    return any(v.dtype in HALVES for v in node.results) and any(v.dtype is DType.FLOAT64 for v in node.operands)


def _made_to_round(graph: Graph) -> Iterator[Value]:
    """Halves that float32 is cast to, and that are only cast back."""
    read_otherwise = set(graph.outputs)
    cast_back: set[Value] = set()
    for node in graph.nodes:
        is_back = node.op == "Cast" and node.results[0].dtype is DType.FLOAT32
        (cast_back if is_back else read_otherwise).update((*node.operands, *free_values(node)))
    for node in graph.nodes:
        if node.op == "Cast" and node.operands[0].dtype is DType.FLOAT32 and node.results[0].dtype in HALVES:
            yield from (v for v in node.results if v in cast_back and v not in read_otherwise)


@dataclass
class _Scope:
    """One graph while its nodes are gone through.

    Attributes:
        builder: collects the nodes.
        taken: value of the model -> what takes its place: for a half the float32 of the same number, or that it was rounded from.
        halves: value of the model -> the half that it is: itself where it was not computed, else rounded for this graph.
        rounded: halves that are made for their rounding alone.
    """

    builder: Builder
    taken: dict[Value, Value]
    halves: dict[Value, Value]
    rounded: frozenset[Value]

    @classmethod
    def of_model(cls, graph: Graph) -> _Scope:
        builder = Builder(fresh_names(graph), dict(graph.constants), known=known_values(graph))
        halves = {v: v for v in (*graph.inputs, *graph.constants) if v.dtype in HALVES}
        return cls(builder, {}, halves, frozenset(_made_to_round(graph)))

    def within(self, body: Graph) -> _Scope:
        """The scope of a body of control flow, which reads what was defined so far."""
        constants = {**self.builder.constants, **body.constants}
        builder = Builder(self.builder.fresh, constants, known=known_values(body, self.builder.known))
        halves = self.halves | {v: v for v in body.constants if v.dtype in HALVES}
        return _Scope(builder, dict(self.taken), halves, frozenset(_made_to_round(body)))

    def name(self, outputs: tuple[Value, ...]) -> None:
        """Give the outputs of the model their names and types again."""
        for value in dict.fromkeys(outputs):
            if value.dtype in HALVES and self.halves.get(value) != value:
                self.builder.nodes.append(Node("Cast", (self.taken[value],), (value,), {"to": value.dtype}))
            elif value.dtype not in HALVES and value in self.taken:
                self.builder.nodes.append(Node("Identity", (self.taken[value],), (value,)))

    def settle(self, node: Node) -> None:
        if node.subgraphs:
            self._control(node)
        elif _narrows_doubles(node):
            self._keep(node)
        elif node.op == "Cast" and node.results[0].dtype in {DType.FLOAT32, *HALVES}:
            self._cast(node)
        elif self._stays(node) or _decides(node):
            self._keep(node)
        else:
            self._compute(node)

    def _stays(self, node: Node) -> bool:
        if node.op in _TABLES:
            return node.operands[0] in self.halves
        if node.op in _CACHES:
            return any(v in self.halves and v not in self.builder.constants for v in node.operands)
        return node.op in _SHOW_BITS or not _mentions_narrow(node)

    def _keep(self, node: Node) -> None:
        """``node`` on the halves that the model gives it."""
        self._emit(node, self._half, node.outputs)
        self.halves |= {v: v for v in node.results if v.dtype in HALVES}

    def _compute(self, node: Node) -> None:
        """``node`` on float32. Its result is one too, unless an attribute says what it is."""
        inputs = tuple(None if v is None else self._float(v) for v in node.inputs)
        try:
            tensors = self.builder.define(node.op, inputs, node.attributes)
        except IngotError:
            self._keep(node)  # refused in its own words where it is compiled
            return
        kept = {
            v: v
            for v, t in zip(node.outputs, tensors, strict=False)
            if v is not None and t is not None and t.dtype in HALVES
        }
        self._emit(node, self._float, tuple(v if v in kept else self._result(v) for v in node.outputs))
        self.halves |= kept

    def _cast(self, node: Node) -> None:
        """Between floats of at most 32 bits nothing is left of a Cast."""
        (x,), (result,) = node.operands, node.results
        if result in self.rounded and x not in self.taken:
            self._keep(node)
        elif x.dtype is DType.FLOAT32 or x.dtype in HALVES:
            self.taken[result] = self._float(x)
        else:
            self._emit(replace(node, attributes={"to": DType.FLOAT32}), self._float, (self._result(result),))

    def _control(self, node: Node) -> None:
        """Control flow takes and gives float32; halves that its bodies read are widened once, in front of it."""
        for value in free_values(node):
            self._float(value)
        attributes: dict[str, Attribute] = {
            k: self._body(a) if isinstance(a, Graph) else a for k, a in node.attributes.items()
        }
        self._emit(replace(node, attributes=attributes), self._float, tuple(self._result(v) for v in node.outputs))

    def _body(self, body: Graph) -> Graph:
        inner = self.within(body)
        inputs = tuple(v for i in body.inputs if (v := inner._result(i)) is not None)
        for node in body.nodes:
            inner.settle(node)
        outputs = tuple(inner._float(v) for v in body.outputs)
        nodes, constants = tuple(inner.builder.nodes), {**body.constants, **inner.builder.added}
        return body.with_(inputs=inputs, outputs=outputs, nodes=nodes, constants=constants)

    def _emit(self, node: Node, of: Callable[[Value], Value], outputs: tuple[Value | None, ...]) -> None:
        inputs = tuple(None if v is None else of(v) for v in node.inputs)
        self.builder.nodes.append(replace(node, inputs=inputs, outputs=outputs))

    def _float(self, value: Value) -> Value:
        """What takes the place of ``value`` where it is calculated with."""
        if value in self.taken or value.dtype not in HALVES:
            return self.taken.get(value, value)
        array = self.builder.constants.get(value)
        if array is None:
            self.taken[value] = self.builder.node("Cast", value, to=DType.FLOAT32, output=value.name)
        else:
            self.taken[value] = self.builder.constant(array.astype(np.float32), value.name)
        return self.taken[value]

    def _half(self, value: Value) -> Value:
        """``value`` as the model has it, rounded if it was computed."""
        if value.dtype not in HALVES:
            return self.taken.get(value, value)
        if value not in self.halves:
            self.halves[value] = self.builder.node("Cast", self.taken[value], to=value.dtype, output=value.name)
        return self.halves[value]

    def _result(self, value: Value | None) -> Value | None:
        """The float32 that is computed in place of a half; any other value as it is."""
        if value is None or value.dtype not in HALVES:
            return value
        self.taken[value] = Value(self.builder.fresh(value.name), TensorType(DType.FLOAT32, value.shape))
        return self.taken[value]
