"""Where every buffer of a fused graph lives: model inputs and outputs, weights, and one arena shared over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from compiler_service.graph_passes.aliases import is_view, memory_roots
from compiler_service.graph_passes.classify import overwritable_inputs
from compiler_service.graph_passes.pack_memory import Block, pack
from shared_ir.dim import Dim, as_dim, product
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph import GROUP_OP, Graph, Node, Value
from shared_ir.plan import Storage
from shared_ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Placement:
    """The memory of one value, in the terms of :class:`shared_ir.plan.BufferSpec`.

    ``index`` counts model inputs and outputs; ``offset`` and ``size`` are bytes. The offset of a weight is not decided here.
    """

    storage: Storage
    size: Dim
    offset: Dim = 0
    index: int = 0


@dataclass(frozen=True)
class MemoryPlan:
    """Placements of every value of a graph.

    Attributes:
        buffers: value -> placement; values that share memory have equal storage, offset and index.
        arena_size: bytes of the arena.
        unshared_size: bytes that the arena would take if no two values shared memory over time.
    """

    buffers: Mapping[Value, Placement]
    arena_size: Dim
    unshared_size: Dim


def plan_memory(graph: Graph, *, in_place: bool = True) -> MemoryPlan:
    """Place every value of ``graph``, whose nodes are fused groups in the order in which they will run.

    Outputs of the model are written where they belong, also through views, and never live in the arena
    (:class:`SeparateOutputs` has seen to it that they can be).

    Args:
        in_place: let a purely elementwise group write over an input of the same size that nothing reads later. Its
            kernel must then have read an element before it writes that element, and write it once.

    Raises:
        IngotError: UNSUPPORTED_OPERATOR for a node that is not a group.
    """
    _check_groups(graph)
    roots = memory_roots(graph)
    owned: dict[Value, Placement] = {}
    for index, value in enumerate(graph.inputs):
        owned[value] = Placement(Storage.INPUT, byte_size(value.type), index=index)
    for value in graph.constants:
        owned[value] = Placement(Storage.WEIGHT, byte_size(value.type))
    for index, value in enumerate(graph.outputs):
        owned[roots[value]] = Placement(Storage.OUTPUT, byte_size(value.type), index=index)
    arena = dict.fromkeys(r for r in roots.values() if r not in owned)
    lifetimes = _lifetimes(graph, roots)
    blocks = _merge_in_place(graph, roots, arena, lifetimes) if in_place else {v: v for v in arena}
    members: dict[Value, list[Value]] = {}
    for value, leader in blocks.items():
        members.setdefault(leader, []).append(value)
    packing = pack([_block(vs, lifetimes) for vs in members.values()])
    for values, offset in zip(members.values(), packing.offsets, strict=True):
        owned.update((v, Placement(Storage.ARENA, byte_size(v.type), offset)) for v in values)
    buffers = {v: owned[r] for v, r in roots.items()}
    return MemoryPlan(MappingProxyType(buffers), packing.size, as_dim(sum((byte_size(v.type) for v in arena), start=0)))


def byte_size(type: TensorType) -> Dim:
    """Bytes of a dense tensor; types below 8 bits take one byte per element."""
    return as_dim(product(type.shape) * type.dtype.itemsize)


def _check_groups(graph: Graph) -> None:
    for node in graph.nodes:
        if node.op != GROUP_OP:
            raise IngotError(
                ErrorCode.UNSUPPORTED_OPERATOR,
                f"{node.op} cannot be placed in a static memory plan",
                node=str(node),
                remedy="Models with control flow that depends on data cannot be compiled yet.",
            )


def _lifetimes(graph: Graph, roots: Mapping[Value, Value]) -> dict[Value, tuple[int, int]]:
    """First and last step at which the memory of each root is in use."""
    spans: dict[Value, tuple[int, int]] = {}
    for step, node in enumerate(graph.nodes):
        for value in (*node.results, *node.operands):
            root = roots[value]
            spans[root] = (spans.get(root, (step, step))[0], step)
    return spans


def _block(values: list[Value], lifetimes: Mapping[Value, tuple[int, int]]) -> Block:
    spans = [lifetimes[v] for v in values]
    return Block(byte_size(values[0].type), min(s for s, _ in spans), max(e for _, e in spans))


def _merge_in_place(
    graph: Graph, roots: Mapping[Value, Value], arena: Mapping[Value, None], lifetimes: Mapping[Value, tuple[int, int]]
) -> dict[Value, Value]:
    """Arena value -> the value whose block it writes over (itself, where it starts a block)."""
    leaders: dict[Value, Value] = {v: v for v in arena}
    for step, node in enumerate(graph.nodes):
        target = _single_result(node)
        if target is None or target not in arena:
            continue
        overwritable = overwritable_inputs(node)
        for operand in overwritable:
            source = roots[operand]
            dies = source in arena and lifetimes[source][1] == step
            others = [v for v in node.operands if roots[v] == source and v not in overwritable]
            if dies and not others and byte_size(source.type) == byte_size(target.type):
                leaders[target] = leaders[source]
                break
    return leaders


def _single_result(node: Node) -> Value | None:
    return node.results[0] if len(node.results) == 1 and not is_view(node) else None
