"""Where every buffer of a fused graph lives: model inputs and outputs, weights, one arena shared over time, and slots.

Values whose sizes follow from the inputs of the model are in the arena. Values that the run sizes, and those that a loop
carries from one iteration to the next, are in slots, which grow during the run and exchange their memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from types import MappingProxyType

from compiler_service.compiler.graph_passes.analysis.aliases import is_view, memory_roots
from compiler_service.compiler.graph_passes.analysis.classify import overwritable_inputs
from compiler_service.compiler.graph_passes.analysis.symbols import input_symbols
from compiler_service.compiler.graph_passes.memory.lifetimes import Extent, Home, Survey, byte_size, survey
from compiler_service.compiler.graph_passes.memory.pack_memory import MemoryBlock, pack
from compiler_service.compiler.tensor_expr.operators.sequential import SEQUENTIAL
from compiler_service.compiler.tensor_expr.strides import Strides
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim, as_dim, dim_symbols, sum_of
from shared_ir.graph.ir import CALL_OP, CHECK_OP, DEFINE_OP, GROUP_OP, REPEAT_OP, Graph, Node, Value
from shared_ir.plan.program import Storage

__all__ = ["Extent", "LoopMemory", "MemoryPlan", "Placement", "byte_size", "plan_memory"]

_END = 1 << 62
"""A step after every other."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The memory of one value, in the terms of :class:`shared_ir.plan.program.BufferSpec`.

    ``index`` counts model inputs, model outputs or slots; ``offset`` and ``size`` are bytes. The offset of a weight is not
    decided here. ``extent`` tells who reserves a slot: who makes the value, unless that is a row of something larger.
    """

    storage: Storage
    size: Dim
    offset: Dim = 0
    index: int = 0
    extent: Extent = Extent.WHOLE

    def shares(self, other: Placement) -> bool:
        """Whether both start at the same byte."""
        place = (self.storage, self.index, self.offset)
        return place == (other.storage, other.index, other.offset)


@dataclass(frozen=True)
class LoopMemory:
    """Memory of a Repeat beside that of values: where the body leaves the next value of each carried value, and where the
    rows of an iteration go."""

    following: tuple[Placement, ...]
    rows: tuple[Placement, ...]


@dataclass(frozen=True)
class MemoryPlan:
    """Placements of every value of a graph and of the graphs nested in it.

    Attributes:
        buffers: value -> placement; values that share memory have equal storage, offset and index.
        arena_size: bytes of the arena.
        unshared_size: bytes that the arena would take if no two values shared memory over time.
        loops: by the name of the counter of a Repeat.
        slots: number of slots.
    """

    buffers: Mapping[Value, Placement]
    arena_size: Dim
    unshared_size: Dim
    loops: Mapping[str, LoopMemory] = field(default_factory=dict)
    slots: int = 0


def plan_memory(graph: Graph, *, in_place: bool = True) -> MemoryPlan:
    """Place every value of ``graph``, whose nodes are fused groups and control flow in the order in which they will run.

    Outputs of the model are written where they belong, also through views, and never live in the arena
    (:class:`SeparateOutputs` has seen to it that they can be); outputs that the run sizes live in slots of their own.

    Args:
        in_place: let a purely elementwise group write over an input of the same size that nothing reads later. Its
            kernel must then have read an element before it writes that element, and write it once.

    Raises:
        IngotError: UNSUPPORTED_OPERATOR for a node that is neither a group nor control flow.
    """
    _check_nodes(graph)
    known = input_symbols(graph)
    roots = memory_roots(graph)
    outputs = {roots[v]: i for i, v in enumerate(graph.outputs)}
    given = {
        roots[v]: i for i, v in enumerate(graph.outputs) if dim_symbols((*v.shape, *roots[v].shape)) <= known
    }  # an output may be a view whose extents only the run knows, of as many elements as the inputs say
    found = survey(graph, given)
    found.spans.update((v, (found.spans.get(v, (0, 0))[0], _END)) for v in outputs)
    owned = _owned(graph, found, given)
    members = _members(found, owned)
    carried = {v for loop in found.loops.values() for v in (*loop.following, *loop.carried)}
    in_slots = {
        v: None
        for v, all_of in members.items()
        if v in carried or not outputs.keys().isdisjoint((v, *all_of)) or _is_sized_by_run((v, *all_of), known)
    }
    arena = {v: None for v in members if v not in in_slots}
    arena_size = _place_in_arena(found, members, arena, owned, in_place)
    slots = _place_in_slots(found, members, in_slots, owned)
    buffers = {v: _placement(v, found.home(r), owned, found.strides.get(v)) for v, r in found.roots.items()}
    loops = {
        counter: LoopMemory(
            tuple(_placement(v, found.home(v), owned) for v in loop.following),
            tuple(_row(h, found, owned) for h in loop.rows),
        )
        for counter, loop in found.loops.items()
    }
    unshared = sum_of(found.size(v) for v in arena)
    return MemoryPlan(MappingProxyType(buffers), arena_size, unshared, MappingProxyType(loops), slots)


def _check_nodes(graph: Graph) -> None:
    placed = (GROUP_OP, REPEAT_OP, DEFINE_OP, CALL_OP, CHECK_OP, "If", *SEQUENTIAL)
    for node in (n for g in _control_graphs(graph) for n in g.nodes):
        if node.op not in placed:
            raise IngotError(
                ErrorCode.UNSUPPORTED_OPERATOR,
                f"{node.op} cannot be placed in a memory plan",
                node=str(node),
                remedy="Rewrite this part of the model with supported operators.",
            )


def _control_graphs(graph: Graph) -> Iterable[Graph]:
    """``graph`` and the bodies of its control flow."""
    yield graph
    for node in graph.nodes:
        if node.op != GROUP_OP:
            for body in node.subgraphs:
                yield from _control_graphs(body)


def _owned(graph: Graph, found: Survey, outputs: Mapping[Value, int]) -> dict[Value, Placement]:
    """Memory that is not ours to arrange."""
    owned = {v: Placement(Storage.INPUT, byte_size(v.type), index=i) for i, v in enumerate(graph.inputs)}
    owned.update((v, Placement(Storage.WEIGHT, byte_size(v.type))) for v in found.constants)
    owned.update((v, Placement(Storage.OUTPUT, byte_size(v.type), index=i)) for v, i in outputs.items())
    return owned


def _members(found: Survey, owned: Mapping[Value, Placement]) -> dict[Value, list[Value]]:
    """Every root with memory of its own, and the roots that are made in it."""
    members: dict[Value, list[Value]] = {}
    for root in dict.fromkeys(found.roots.values()):
        owner = found.home(root).parent
        if owner not in owned:
            members.setdefault(owner, []).append(root)
    return members


def _is_sized_by_run(values: Iterable[Value], known: frozenset[str]) -> bool:
    return not all(dim_symbols(v.shape) <= known for v in values)


def _span(members: Iterable[Value], found: Survey) -> tuple[int, int]:
    spans = [found.spans[v] for v in members]
    return min(s for s, _ in spans), max(e for _, e in spans)


def _place_in_arena(
    found: Survey,
    members: Mapping[Value, list[Value]],
    arena: Mapping[Value, None],
    owned: dict[Value, Placement],
    in_place: bool,
) -> Dim:
    """Adds the owners in ``arena`` to ``owned``; the size of the arena."""
    spans = {v: _span(members[v], found) for v in arena}
    alone = {v for v in arena if members[v] == [v]}
    leaders = {v: v for v in arena}
    if in_place:
        leaders = _merge_in_place(found, alone, spans, leaders)
    blocks: dict[Value, list[Value]] = {}
    for value, leader in leaders.items():
        blocks.setdefault(leader, []).append(value)
    packing = pack([_block(vs, found, spans) for vs in blocks.values()])
    for values, offset in zip(blocks.values(), packing.offsets, strict=True):
        owned.update((v, Placement(Storage.ARENA, found.size(v), offset)) for v in values)
    return packing.size


def _block(values: list[Value], found: Survey, spans: Mapping[Value, tuple[int, int]]) -> MemoryBlock:
    own = [spans[v] for v in values]
    return MemoryBlock(found.size(values[0]), min(s for s, _ in own), max(e for _, e in own))


def _merge_in_place(
    found: Survey, alone: set[Value], spans: Mapping[Value, tuple[int, int]], leaders: dict[Value, Value]
) -> dict[Value, Value]:
    """Arena value -> the value whose block it writes over (itself, where it starts a block).

    What was made in parts may be written over as a whole, when none of its parts is read later.
    """
    for step, node in found.groups:
        target = _single_result(node)
        if target is None or target not in alone:
            continue
        overwritable = overwritable_inputs(node)
        for operand in overwritable:
            source = found.roots[operand]
            dies = (source in alone or source in found.wholes) and source in spans and spans[source][1] == step
            mates = [v for v in node.operands if found.home(found.roots[v]).parent == source]
            others = [v for v in mates if found.roots[v] != source or v not in overwritable]
            alike = found.strides.get(operand) == found.strides.get(target)
            if dies and not others and alike and found.size(source) == found.size(target):
                leaders[target] = leaders[source]
                break
    return leaders


def _single_result(node: Node) -> Value | None:
    return node.results[0] if len(node.results) == 1 and not is_view(node) else None


def _place_in_slots(
    found: Survey, members: Mapping[Value, list[Value]], chosen: Iterable[Value], owned: dict[Value, Placement]
) -> int:
    """Adds ``chosen`` to ``owned``; the number of slots. Owners that are never in use at once share one."""
    count = 0
    free: list[int] = []
    taken: list[tuple[int, int]] = []  # the end, and the slot
    for owner in sorted(chosen, key=lambda v: _span(members[v], found)):
        start, end = _span(members[owner], found)
        while taken and taken[0][0] < start:
            heappush(free, heappop(taken)[1])
        slot = heappop(free) if free else count
        count = max(count, slot + 1)
        heappush(taken, (end, slot))
        owned[owner] = Placement(Storage.SLOT, found.size(owner), index=slot)
    return count


def _placement(value: Value, home: Home, owned: Mapping[Value, Placement], strides: Strides | None = None) -> Placement:
    place = owned[home.parent]
    offset = as_dim(place.offset + home.offset)
    return Placement(place.storage, byte_size(value.type, strides), offset, place.index, home.extent)


def _row(home: Home, found: Survey, owned: Mapping[Value, Placement]) -> Placement:
    outer = found.home(home.parent)
    place = owned[outer.parent]
    offset = as_dim(place.offset + outer.offset + home.offset)
    return Placement(place.storage, 0, offset, place.index, max(home.extent, outer.extent))
