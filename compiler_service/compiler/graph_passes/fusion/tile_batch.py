"""Chains of kernels run for one part of a batch after the other, where the whole of it does not fit a cache.

A batch of images goes through a network layer by layer: what one kernel leaves, tens of megabytes, has left the caches before the next
one reads it. The images are independent, so a chain of kernels can run for as many of them as stay in a cache, then for the next: loop
tiling of the one loop that all kernels of the chain share, as an ``ingot.Repeat`` over the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from compiler_service.compiler.graph_passes.analysis.aliases import is_view
from compiler_service.compiler.graph_passes.analysis.known import known_values
from compiler_service.compiler.graph_passes.analysis.sizes import elements, estimate
from compiler_service.compiler.graph_passes.analysis.symbols import fresh_symbols
from compiler_service.compiler.graph_passes.fusion.batch_parts import BatchStage, BatchTiling, part_of, stage_of
from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import above, at_least
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Var
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import GROUP_OP, REPEAT_OP, Attribute, Graph, Node, Value, free_values, fresh_names
from shared_ir.machine.target import Target
from shared_ir.types import TensorType

_EXPECTED_BATCH = 8
"""Parts of a batch whose size only the run knows."""

_MOST_SAMPLES = 1 << 16
"""Largest part of a batch that is looked at."""
_MOST_NUMBERS = 64
"""First extents of inputs that are tried as a number of samples, where they are constant."""

_LEAST_KERNELS = 2
"""One alone reads nothing that it has just written."""

Chain = Sequence[BatchStage]


@dataclass(frozen=True)
class Costs:
    """What a kernel takes on the target, in cycles, as far as it matters whether its data is in the last-level cache.

    That of a nearer level was no gain where it was measured: what streams from one level to the next is waited for but little.

    Attributes:
        cache: bytes that may be in use at a time and still be there when they are read again.
        cached, uncached: bytes that a core receives in a cycle from the cache, and from memory.
        flops: floating-point operations in a cycle.
        overlap: share of the shorter of computing and moving that goes on during the other.
        launch: cycles of a launch, and of the threads meeting at its end.
    """

    cache: int = field(default=1 << 23, metadata=at_least(0))
    cached: float = field(default=16, metadata=above(0))
    uncached: float = field(default=8, metadata=above(0))
    flops: float = field(default=32, metadata=above(0))
    overlap: float = field(default=0.5, metadata=at_least(0))
    launch: float = field(default=8000, metadata=at_least(0))

    @classmethod
    def of(cls, target: Target) -> Costs:
        """A quarter of the cache: the rest is left to weights, and to others who share it."""
        flops = 2 * target.vector_bits / DType.FLOAT32.bits
        return cls((target.l3 or target.l2) // 4, 2 * target.memory_bytes, target.memory_bytes, flops)

    def kernel(self, flops: float, moved: float) -> float:
        """A launch that reads and writes ``moved`` bytes."""
        times = flops / self.flops, moved / (self.cached if moved <= self.cache else self.uncached)
        return self.launch + max(times) + (1 - self.overlap) * min(times)


@dataclass(frozen=True)
class TileBatch(Pass):
    """Comes behind fusion, which says what goes through memory, and before what arranges values in it.

    The batch is what the first axis of an input counts. A chain is cut where that saves ``least_share`` of its time, by ``costs``;
    samples whose number only the run knows go one by one.
    """

    name: ClassVar[str] = "tile-batch"
    level: ClassVar[int] = 3
    needs: ClassVar[Facts] = frozenset({GraphFact.GROUPED})
    forbids: ClassVar[Facts] = frozenset(
        {GraphFact.OUTPUTS_APART, GraphFact.PARTS_PLACED, GraphFact.CONCATENATIONS_SPLIT, GraphFact.ROWS_PADDED}
    )

    costs: Costs = Costs()
    least_share: float = field(default=0.05, metadata=at_least(0))

    def run(self, graph: Graph) -> Graph:
        reading = _readers_of_rows(graph)
        for samples in _sample_counts(graph):
            tiling = _Tiling.of(graph, samples, self, reading.get(samples, graph.nodes))
            if tiling is not None:
                return tiling.run()
        return graph


def _sample_counts(graph: Graph) -> Iterator[Dim]:
    firsts = list(dict.fromkeys(v.shape[0] for v in graph.inputs if v.type.rank > 1))
    numbers = [d for d in firsts if isinstance(d, int) and d > 1][:_MOST_NUMBERS]
    return (d for d in firsts if isinstance(d, Var) or d in numbers)


def _readers_of_rows(graph: Graph) -> Mapping[Dim, list[Node]]:
    """For every symbol, the nodes with an operand or result whose rows it counts."""
    found: dict[Dim, list[Node]] = {}
    for node in graph.nodes:
        firsts = {v.shape[0] for v in (*node.operands, *node.results) if v.shape}
        for symbol in dict.fromkeys(s for d in firsts if isinstance(d, Expr) for s in d.variables):
            found.setdefault(symbol, []).append(node)
    return found


def _batches(samples: Dim) -> Iterator[BatchTiling]:
    """Ways to cut a batch into equal parts, the smallest first."""
    if not isinstance(samples, int):
        return iter((BatchTiling(samples),))
    return (
        BatchTiling(samples, part) for part in range(1, min(samples // 2, _MOST_SAMPLES) + 1) if samples % part == 0
    )


@dataclass(frozen=True)
class _Tiling:
    """What of ``graph`` is cut: chains of stages that follow each other."""

    graph: Graph
    batch: BatchTiling
    chains: tuple[Chain, ...]

    @classmethod
    def of(cls, graph: Graph, samples: Dim, limits: TileBatch, reading: Sequence[Node]) -> _Tiling | None:
        """The tiling that saves most; None where none saves enough. ``reading`` are the nodes that may have samples."""
        if max((_moved(n, BatchTiling(samples)) for n in reading), default=0) <= limits.costs.cache:
            return None
        known = known_values(graph)
        runs = list(_runs(graph, [stage_of(n, BatchTiling(samples), graph.constants, known) for n in graph.nodes]))
        best, most = None, 0.0
        for batch in _batches(samples):
            found = [c for run in runs for c in _cheapest(run, batch, limits)]
            saved = sum(_saved(s, batch, limits.costs) for c in found for s in c)
            if saved > most:
                best, most = cls(graph, batch, tuple(found)), saved
        return best

    def run(self) -> Graph:
        fresh, symbol = fresh_names(self.graph), fresh_symbols(self.graph)
        place = {id(n): i for i, n in enumerate(self.graph.nodes)}
        nodes: list[Node] = []
        done = 0
        for chain in self.chains:
            first, last = place[id(chain[0].node)], place[id(chain[-1].node)]
            inside = {id(s.node) for s in chain}
            nodes += self.graph.nodes[done:first]
            nodes += (n for n in self.graph.nodes[first : last + 1] if id(n) not in inside)
            nodes += self._repeat(chain, symbol("part"), fresh)
            done = last + 1
        return self.graph.with_(nodes=(*nodes, *self.graph.nodes[done:]))

    def _repeat(self, chain: Chain, number: Var, fresh: Callable[[str], str]) -> list[Node]:
        """``chain`` in a loop over the parts, and views of what leaves it."""
        parts = {v: self.batch.cut(v, fresh(f"{v.name}_part")) for s in chain for v in s.node.results}
        leaving = tuple(v for v in parts if self._is_read_outside(v, chain))
        stacked = [
            Value(fresh(f"{v.name}_parts"), TensorType(v.dtype, (self.batch.parts, *parts[v].shape))) for v in leaving
        ]
        nodes = tuple(part_of(s, self.batch, parts, number, fresh) for s in chain)
        attributes: dict[str, Attribute] = {
            "body": Graph("part", (), tuple(parts[v] for v in leaving), nodes),
            "counter": number,
            "conditional": 0,
            "limit": self.batch.parts,
            "reverse": (0,) * len(leaving),
        }
        repeat = Node(REPEAT_OP, (None, None), tuple(stacked), attributes)
        return [repeat, *(_view(rows, v, fresh) for rows, v in zip(stacked, leaving, strict=True))]

    def _is_read_outside(self, value: Value, chain: Chain) -> bool:
        inside = {id(s.node) for s in chain}
        readers = self.graph.consumers.get(value, ())
        return value in self.graph.outputs or any(id(n) not in inside for n in readers)


def _runs(graph: Graph, stages: Iterable[BatchStage | None]) -> Iterator[list[BatchStage]]:
    """Stages that may be in one chain: what stands between them can go before them all."""
    run: list[BatchStage] = []
    made: set[Value] = set()
    for node, stage in zip(graph.nodes, stages, strict=True):
        apart = made.isdisjoint((*node.operands, *free_values(node)))
        if stage is not None and made.isdisjoint(stage.whole):
            if not (apart and _moves_nothing(node)):
                run.append(stage)
                made.update(node.results)
        elif not (apart and node.op == GROUP_OP):
            yield run
            run = [] if stage is None else [stage]
            made = {v for s in run for v in s.node.results}
    yield run


def _moves_nothing(group: Node) -> bool:
    """Whether the memory of its operands is that of its result, or may become so (see :mod:`place_parts`)."""
    return is_view(group) or all(n.op == "Concat" for n in group.subgraphs[0].nodes)


def _cheapest(run: Chain, batch: BatchTiling, limits: TileBatch) -> list[Chain]:
    """The chains in ``run`` that save most, in order: ranges of the largest sum (Bentley, "Programming Pearls", 1984)."""
    first = last = start = 0
    most = total = 0.0
    for i, stage in enumerate(run):
        if total <= 0:
            start, total = i, 0.0
        total += _saved(stage, batch, limits.costs)
        if total > most:
            first, last, most = start, i + 1, total
    if first == last:
        return []
    chain = run[first:last]
    kernels = sum(not is_view(s.node) for s in chain)
    least = limits.least_share * sum(_cycles(s, batch, limits.costs, 1) for s in chain)
    own = [chain] if kernels >= _LEAST_KERNELS and most >= least else []
    return [*_cheapest(run[:first], batch, limits), *own, *_cheapest(run[last:], batch, limits)]


def _saved(stage: BatchStage, batch: BatchTiling, costs: Costs) -> float:
    return _cycles(stage, batch, costs, 1) - _cycles(stage, batch, costs, _parts(batch))


def _parts(batch: BatchTiling) -> int:
    return batch.parts if isinstance(batch.parts, int) else _EXPECTED_BATCH


def _cycles(stage: BatchStage, batch: BatchTiling, costs: Costs, parts: int) -> float:
    """Cycles of the whole batch in so many ``parts``."""
    if is_view(stage.node):
        return 0.0
    share = _parts(batch) / parts
    moved = sum(_bytes(batch.cut(v)) for v in (*stage.cut, *stage.node.results)) * share
    flops = estimate(batch.bound(stage.flops))
    own = flops * share if isinstance(batch.samples, Var) else flops / parts
    return parts * costs.kernel(own, moved + sum(map(_bytes, stage.whole)))


def _moved(node: Node, batch: BatchTiling) -> int:
    """Bytes of a batch that ``node`` reads and writes."""
    return sum(
        _parts(batch) * _bytes(batch.cut(v)) for v in (*node.operands, *node.results) if batch.rows(v) is not None
    )


def _bytes(value: Value) -> int:
    return elements(value) * value.dtype.itemsize


def _view(source: Value, target: Value, fresh: Callable[[str], str]) -> Node:
    """The group that sees ``source`` in the shape of ``target``."""
    builder = Builder(fresh)
    reshape = Node("Reshape", (source, builder.dims(target.shape)), (target,), {"allowzero": 1})
    body = Graph("reshape", (source,), (target,), (*builder.nodes, reshape), builder.added)
    return Node(GROUP_OP, (source,), (target,), {"body": body, "nodes": (), "view": True})
