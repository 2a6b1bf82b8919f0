"""When the memory of each value of a graph with nested graphs is in use, and which values are made where others will be.

Steps are numbered in the order of the text. What a loop reads from outside is in use until the loop ends.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compiler_service.compiler.graph_passes.analysis.aliases import is_view
from compiler_service.compiler.graph_passes.analysis.classify import overwritable_inputs
from compiler_service.compiler.graph_passes.analysis.symbols import input_symbols
from compiler_service.compiler.graph_passes.memory.parts import find_parts, find_strides
from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute, ints_attribute
from compiler_service.compiler.tensor_expr.strides import Strides, span
from shared_ir.expr import Expr, Var, lift, maximum
from shared_ir.expr.dim import Dim, as_dim, dim_symbols, product
from shared_ir.graph.ir import DEFINE_OP, GROUP_OP, REPEAT_OP, Graph, Node, Value
from shared_ir.types import TensorType

Span = tuple[int, int]


def byte_size(type: TensorType, strides: Strides | None = None) -> Dim:
    """Bytes from the first element of a tensor to its last, none without elements; types below 8 bits take one byte per element."""
    elements = span(type.shape, strides)
    return as_dim((elements if strides is None else maximum(lift(elements), 0)) * type.dtype.itemsize)


class Extent(enum.IntEnum):
    """How much of its parent's memory a value is; of nested ones the largest counts."""

    WHOLE = 0
    PART = 1  # a row of a parent that is reserved as a whole
    GROWING = 2  # a row of a parent whose size only the end of a loop knows


@dataclass(frozen=True, slots=True)
class Home:
    """The memory of a value is that of ``parent``, from byte ``offset`` on."""

    parent: Value
    offset: Dim = 0
    extent: Extent = Extent.WHOLE


@dataclass(frozen=True)
class LoopLife:
    """A Repeat: its carried values; for each, what stands for the memory that the body leaves its successor in (the carried value
    itself where it is updated in place); for each kind of rows, the offset in the stacked rows of this iteration's."""

    carried: tuple[Value, ...]
    following: tuple[Value, ...]
    rows: tuple[Home, ...]


@dataclass
class Survey:
    """Filled in by :func:`survey`.

    Attributes:
        roots: for every value, the value that defines its memory (itself, unless it is a view).
        spans: first and last step at which the memory of each root is in use.
        homes: roots that are made in the memory of another root.
        wholes: roots that other roots of the same graph are parts of.
        strides: of values with gaps in their memory.
        groups: the fused groups with their steps.
        loops: by the name of the counter.
    """

    outputs: frozenset[Value]
    roots: dict[Value, Value] = field(default_factory=dict)
    spans: dict[Value, Span] = field(default_factory=dict)
    homes: dict[Value, Home] = field(default_factory=dict)
    wholes: set[Value] = field(default_factory=set)
    strides: dict[Value, Strides] = field(default_factory=dict)
    groups: list[tuple[int, Node]] = field(default_factory=list)
    loops: dict[str, LoopLife] = field(default_factory=dict)
    constants: set[Value] = field(default_factory=set)
    available: set[str] = field(default_factory=set)
    _step: int = -1

    def home(self, root: Value) -> Home:
        """Where ``root`` is in the end: the root that owns the memory, and the offset in it."""
        offset: Dim = 0
        extent = Extent.WHOLE
        while root in self.homes:
            home = self.homes[root]
            offset, extent, root = as_dim(offset + home.offset), max(extent, home.extent), home.parent
        return Home(root, offset, extent)

    def size(self, value: Value) -> Dim:
        """Bytes to set aside for ``value``, which owns its memory: whole rows, so that what has gaps and no rows takes none."""
        strides = self.strides.get(value)
        if strides is None:
            return byte_size(value.type)
        return product((value.shape[0], strides[0], value.dtype.itemsize))

    # -- the walk

    def graph(self, graph: Graph) -> None:
        for value in (*graph.inputs, *graph.constants):
            self.roots[value] = value
        for value, part in find_parts(graph).items():
            self.homes[value] = Home(part.whole, product((part.offset, value.dtype.itemsize)))
            self.wholes.add(part.whole)
        self.strides.update(find_strides(graph))
        self.constants.update(graph.constants)
        for node in graph.nodes:
            self._step += 1
            match node.op:
                case "If":
                    self._branch(node)
                case _ if node.op == REPEAT_OP:
                    self._repeat(node)
                case _:
                    self._plain(node)
            self.available |= dim_symbols(d for v in node.results for d in v.shape)

    def _plain(self, node: Node) -> None:
        for value in node.results:
            self.roots[value] = self.roots[node.operands[0]] if is_view(node) else value
        self._touch((*node.results, *node.operands))
        if node.op == GROUP_OP:
            self.groups.append((self._step, node))
        if node.op == DEFINE_OP:
            symbols = node.attributes["symbols"]
            assert isinstance(symbols, tuple)
            self.available.update(s.name for s in symbols if isinstance(s, Var))

    def _touch(self, values: Sequence[Value]) -> None:
        for value in values:
            root = self.roots[value]
            self.spans[root] = (self.spans.get(root, (self._step, 0))[0], self._step)

    def _branch(self, node: Node) -> None:
        self.roots.update((v, v) for v in node.results)
        self._touch((*node.operands, *node.results))
        for arm in node.subgraphs:
            self.graph(arm)
            self._step += 1
            self._touch(arm.outputs)
            for value, result in zip(node.outputs, arm.outputs, strict=False):
                if value is not None:
                    self._claim(arm, result, Home(value))
        self._step += 1
        self._touch(node.results)

    def _repeat(self, node: Node) -> None:
        (body,) = node.subgraphs
        start, available = self._step, set(self.available)
        count, conditional = len(body.inputs), int_attribute(node, "conditional")
        self.roots.update((v, v) for v in (*node.results, *body.inputs))
        self._touch((*node.operands, *node.results, *body.inputs))
        counter = node.attributes["counter"]
        assert isinstance(counter, Var)
        self.available |= {counter.name, *dim_symbols(d for v in body.inputs for d in v.shape)}
        self.graph(body)
        self._step += 1
        self._touch(body.outputs)
        read = {
            v: self.spans[v][1] for v in body.inputs
        }  # an output that is the old value reads it when all nodes have run
        self._touch(body.inputs)
        for root, (first, last) in list(self.spans.items()):
            if first < start <= last:
                self.spans[root] = first, self._step
        following = []
        for carried, result, final in zip(body.inputs, body.outputs[conditional:], node.outputs, strict=False):
            if final is not None and final not in self.outputs:
                self.homes[final] = Home(carried)
            following.append(self._following(body, carried, result, read[carried], start))
        rows = [
            self._row(node, body, position, value, available)
            for position, value in enumerate(node.outputs[count:])
            if value is not None
        ]
        self.loops[counter.name] = LoopLife(body.inputs, tuple(following), tuple(rows))
        self._step += 1
        self._touch(node.results)

    def _following(self, body: Graph, carried: Value, result: Value, read: int, start: int) -> Value:
        """The root that stands for the memory of the next value of ``carried``."""
        producer = body.producers.get(self.roots[result])
        last = self.spans[self.roots[result]][0] if producer is not None else -1
        in_place = (
            producer is not None
            and producer.op == GROUP_OP
            and len(producer.results) == 1
            and read == last
            and result.shape == carried.shape
            and carried in overwritable_inputs(producer)
            and not any(self.roots[v] == carried for v in producer.operands if v != carried)
            and self._claim(body, result, Home(carried))
        )
        if in_place:
            return carried
        following = Value(f"{carried.name}'", result.type)
        self.roots[following] = following
        self.spans[following] = start, self._step
        self._claim(body, result, Home(following))
        return following

    def _row(self, node: Node, body: Graph, position: int, value: Value, available: set[str]) -> Home:
        result = body.outputs[int_attribute(node, "conditional") + len(body.inputs) + position]
        number = node.attributes["counter"]
        assert isinstance(number, Expr)
        if ints_attribute(node, "reverse", ())[position]:
            limit = node.attributes["limit"]
            assert isinstance(limit, (int, Expr))
            number = limit - 1 - number
        extent = Extent.PART if dim_symbols(value.shape) <= available else Extent.GROWING
        home = Home(value, as_dim(number * byte_size(result.type)), extent)
        self._claim(body, result, home)
        return home

    def _claim(self, graph: Graph, result: Value, home: Home) -> bool:
        """Let ``result`` of a nested graph be made at ``home``, where its producer can write anywhere."""
        root = self.roots[result]
        producer = graph.producers.get(root)
        if producer is None or root in self.homes or byte_size(root.type) != byte_size(result.type):
            return False
        if producer.op == REPEAT_OP and self._is_arranged(producer, root):
            return False
        self.homes[root] = home
        return True

    def _is_arranged(self, node: Node, root: Value) -> bool:
        """Whether an output of a Repeat has a slot of its own: it is carried, or grows with every iteration."""
        (body,) = node.subgraphs
        position = node.outputs.index(root) - len(body.inputs)
        counter = node.attributes["counter"]
        assert isinstance(counter, Var)
        present = [v for v in node.outputs[len(body.inputs) :] if v is not None]
        return position < 0 or self.loops[counter.name].rows[present.index(root)].extent is Extent.GROWING


def survey(graph: Graph, output_roots: Mapping[Value, int]) -> Survey:
    """Lifetimes and homes of all values of ``graph``; ``output_roots`` have memory of the caller."""
    found = Survey(frozenset(output_roots), available=set(input_symbols(graph)))
    found.graph(graph)
    return found
