"""What is in memory at one moment of a run: which region holds which value.

A content is a number: every write makes a new one, so a value that a loop computes again and again is another content each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from compiler_service.compiler.graph_passes.analysis.aliases import is_empty, is_joined, is_view
from compiler_service.compiler.graph_passes.memory.memory_regions import MemoryRegions, StorageRegion
from compiler_service.compiler.graph_passes.memory.parts import find_strides
from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute
from compiler_service.compiler.tensor_expr.strides import row_major
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim, product
from shared_ir.graph.ir import GROUP_OP, Graph, Node, Value
from shared_ir.plan.program import Storage


@dataclass(frozen=True, slots=True)
class Holding:
    """``region`` holds ``content``, written as ``value``. Rows of a loop are written into ``hole`` while the others stay."""

    content: int
    value: Value
    region: StorageRegion
    hole: StorageRegion | None = None

    def written(self) -> StorageRegion:
        """What memory there is for certain: rows whose number nobody knows end where the next one begins."""
        if self.region.size is not None or self.hole is None:
            return self.region
        return replace(self.region, size=self.hole.offset - self.region.offset)


@dataclass(frozen=True)
class Structure:
    """How the values of a graph and of those nested in it lie in each other.

    Attributes:
        producers: of all values.
        parts: of an operand of a concatenation that runs no kernel, the concatenation and which operand it is.
        strides: of values with gaps, as kernels are compiled for them.
    """

    producers: dict[Value, Node] = field(default_factory=dict)
    parts: dict[Value, tuple[Value, int]] = field(default_factory=dict)
    strides: dict[Value, tuple[Dim, ...]] = field(default_factory=dict)
    constants: set[Value] = field(default_factory=set)

    @classmethod
    def of(cls, graph: Graph) -> Structure:
        found = cls()
        found._add(graph)
        return found

    def _add(self, graph: Graph) -> None:
        self.producers.update(graph.producers)
        self.constants.update(graph.constants)
        self.strides.update(find_strides(graph))
        for node in graph.nodes:
            if is_joined(node):
                self.parts.update((self.root(v), (node.results[0], i)) for i, v in enumerate(node.operands))
            for body in () if node.op == GROUP_OP else node.subgraphs:
                self._add(body)

    def root(self, value: Value) -> Value:
        """What ``value`` is a view of."""
        while (node := self.producers.get(value)) is not None and is_view(node) and len(node.operands) == 1:
            value = node.operands[0]
        return value

    def lie_apart(self, one: Value, other: Value) -> bool:
        """Whether both are parts of one concatenation, by different operands: their elements take turns in memory."""
        for first in self._leaves(one):
            places = dict(self._wholes(first))
            for second in self._leaves(other):
                if not any(places.get(whole, position) != position for whole, position in self._wholes(second)):
                    return False
        return True

    def _leaves(self, value: Value) -> list[Value]:
        """The parts that a view of several lies in, side by side; else the value itself."""
        node = self.producers.get(root := self.root(value))
        if node is None or not is_view(node):
            return [root]
        return [leaf for operand in node.operands for leaf in self._leaves(operand)]

    def _wholes(self, value: Value) -> Iterator[tuple[Value, int]]:
        while (place := self.parts.get(self.root(value))) is not None:
            yield place
            value = place[0]

    def pieces(self, value: Value, region: StorageRegion) -> list[tuple[Value, StorageRegion]]:
        """What ``value`` consists of, and where each piece must be for ``value`` to be in ``region``."""
        node = self.producers.get(value)
        if node is None or not (is_view(node) or is_joined(node)):
            return []
        if len(node.operands) == 1 and is_view(node):
            return [(node.operands[0], region)]
        (body,) = node.subgraphs
        axis = int_attribute(body.nodes[0], "axis") % value.type.rank
        stride = self.strides.get(value, row_major(value.shape))[axis]
        pieces, start = [], region.offset
        for operand in node.operands:
            pieces.append((operand, replace(region, offset=start, size=None)))
            start = start + product((operand.shape[axis], stride, value.dtype.itemsize))
        return pieces


@dataclass
class Contents:
    """Attributes:
    held: by storage.
    current: the content that a value stands for now.
    lost: the value that a content was written over by.
    """

    structure: Structure
    held: dict[tuple[Storage, int], tuple[Holding, ...]] = field(default_factory=dict)
    current: dict[Value, int] = field(default_factory=dict)
    lost: dict[int, Value] = field(default_factory=dict)

    def copy(self) -> Contents:
        return Contents(self.structure, dict(self.held), dict(self.current), dict(self.lost))

    def put(self, holding: Holding, regions: MemoryRegions) -> None:
        """``holding`` is written: what was there before is lost."""
        kept = []
        for other in self.held.get(holding.region.place, ()):
            if self._survives(other, holding, regions):
                kept.append(other)
            else:
                self.lost[other.content] = holding.value
        self.held[holding.region.place] = (*kept, holding)

    def _survives(self, other: Holding, written: Holding, regions: MemoryRegions) -> bool:
        if not regions.overlap(other.region, written.region):
            return True
        if other.hole is not None and regions.within(written.region, other.hole):
            return True
        return self.structure.lie_apart(other.value, written.value)

    def drop(self, content: int) -> None:
        self.held = {p: tuple(h for h in hs if h.content != content) for p, hs in self.held.items()}

    def forget_slot(self, region: StorageRegion, regions: MemoryRegions, value: Value) -> None:
        """A slot grows to the end of ``region`` without what is in it: all is lost, unless it was as large before."""
        found = self.held.get(region.place, ())
        if any(regions.ends_before(region, h.written()) for h in found):
            return
        self.lost.update((h.content, value) for h in found)
        self.held[region.place] = ()

    def swap(self, first: int, second: int) -> None:
        one, other = (Storage.SLOT, first), (Storage.SLOT, second)
        ones, others = self.held.get(one, ()), self.held.get(other, ())
        self.held[one] = tuple(replace(h, region=replace(h.region, index=first)) for h in others)
        self.held[other] = tuple(replace(h, region=replace(h.region, index=second)) for h in ones)

    def missing(self, value: Value, region: StorageRegion, regions: MemoryRegions) -> tuple[Value, Value | None] | None:
        """The part of ``value`` that is not in ``region``, and what was written over it; None where all is there."""
        stack = [(value, region)]
        while stack:
            value, region = stack.pop()
            if value in self.structure.constants or is_empty(value):
                continue
            content = self.current.get(value)
            places = self.held.get(region.place, ())
            if any(h.content == content and regions.start_together(h.region, region) for h in places):
                continue
            pieces = self.structure.pieces(value, region)
            if not pieces:
                return value, None if content is None else self.lost.get(content)
            stack += pieces
        return None

    def meet(self, other: Contents) -> Contents:
        """What is certain after either."""
        held = {p: tuple(h for h in hs if h in other.held.get(p, ())) for p, hs in self.held.items()}
        current = {v: c for v, c in self.current.items() if other.current.get(v) == c}
        return Contents(self.structure, held, current, {**self.lost, **other.lost})

    def restricted(self, values: Iterable[Value], before: int) -> Contents:
        """Without what a nested graph made: contents from ``before`` on, and values other than ``values``."""
        held = {p: tuple(h for h in hs if h.content < before) for p, hs in self.held.items()}
        return Contents(self.structure, held, {v: self.current[v] for v in values if v in self.current}, self.lost)


def fault(message: str, node: str) -> IngotError:
    return IngotError(ErrorCode.COMPILER_FAULT, message, node=node)
