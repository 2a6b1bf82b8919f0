"""Concatenations whose operands are made where they belong, so that nothing is copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from compiler_service.compiler.graph_passes.analysis.aliases import memory_roots
from compiler_service.compiler.graph_passes.analysis.sizes import elements
from compiler_service.compiler.graph_passes.analysis.symbols import input_symbols
from compiler_service.compiler.graph_passes.memory.concatenations import Concatenation
from compiler_service.compiler.graph_passes.memory.parts import StridedPart, find_parts, offsets, readers, side_by_side
from compiler_service.compiler.graph_passes.memory.separate_outputs import copy_group
from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import at_least
from compiler_service.compiler.graph_passes.rewriting.nested import map_graphs
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass
from compiler_service.compiler.tensor_expr.strides import Strides, reshaped, row_major, with_gaps
from shared_ir.expr.dim import dim_symbols
from shared_ir.graph.ir import GROUP_OP, Graph, Node, Value, fresh_names


@dataclass(frozen=True)
class PlaceParts(Pass):
    """A concatenation runs no kernel where kernels of ours write its operands into their places in its memory, one after the
    other; the operands of which that cannot be said are copied there. Runs when kernels and outputs are settled.

    The largest concatenation is arranged first: one of operands that lie side by side in a larger one is a view of it (the
    growing prefixes of a dense block). A group that computes on the way to a concatenation, or from it, is cut around it, where
    that moves less memory.

    Attributes:
        launch_bytes: memory that is moved in the time of a launch.
        least_run: bytes that must follow each other without a gap.
    """

    name: ClassVar[str] = "place-parts"
    level: ClassVar[int] = 3
    needs: ClassVar[Facts] = frozenset({GraphFact.GROUPED, GraphFact.OUTPUTS_APART})
    gives: ClassVar[Facts] = frozenset({GraphFact.PARTS_PLACED})
    forbids: ClassVar[Facts] = frozenset({GraphFact.CONCATENATIONS_SPLIT, GraphFact.ROWS_PADDED})

    launch_bytes: int = field(default=1 << 17, metadata=at_least(0))
    least_run: int = field(default=64, metadata=at_least(0))

    def run(self, graph: Graph) -> Graph:
        known, fresh = input_symbols(graph), fresh_names(graph)
        return map_graphs(graph, lambda nested, _: self._placed(nested, known, fresh))

    def _placed(self, graph: Graph, known: frozenset[str], fresh: Callable[[str], str]) -> Graph:
        found = [c for n in graph.nodes if (c := Concatenation.of(n)) is not None]
        if not found:
            return graph
        places = _Places(graph, self, known, fresh)
        order = sorted(range(len(found)), key=lambda i: (-elements(found[i].result), -i))
        changed = {id(found[i].group): nodes for i in order if (nodes := places.arrange(found[i]))}
        if not changed:
            return graph
        return graph.with_(nodes=tuple(m for n in graph.nodes for m in changed.get(id(n), (n,))))

    def ensures(self, graph: Graph) -> None:
        find_parts(graph)


@dataclass
class _Places:
    """What lies where so far, in terms of the graph before any change. ``known`` are the symbols whose values are known before the
    run."""

    graph: Graph
    limits: PlaceParts
    known: frozenset[str]
    fresh: Callable[[str], str]
    parts: dict[Value, StridedPart] = field(default_factory=dict)
    roots: Mapping[Value, Value] = field(init=False)
    outputs: frozenset[Value] = field(init=False)

    def __post_init__(self) -> None:
        self.roots = memory_roots(self.graph)
        self.outputs = frozenset(self.roots.get(v, v) for v in self.graph.outputs)

    def arrange(self, item: Concatenation) -> tuple[Node, ...]:
        """The groups in place of that of ``item``; none where it stays."""
        if not self._is_sized(item.result) or any(d == 0 for d in item.result.shape):
            return ()
        return self._as_view(item) or self._as_whole(item)

    def _is_sized(self, value: Value) -> bool:
        return dim_symbols(value.shape) <= self.known

    # -- parts that lie side by side already

    def _as_view(self, item: Concatenation) -> tuple[Node, ...]:
        operands = item.concat.operands
        if item.before or item.result in self.parts or self.roots.get(item.result) in self.outputs:
            return ()
        if any(self.roots.get(v, v) != v for v in operands) or not side_by_side(operands, self.parts, item.axis):
            return ()
        first = self.parts[operands[0]]
        if not self._is_readable(item.result, first.strides, item.after != ()):
            return ()
        self.parts[item.result] = StridedPart(first.whole, first.offset, first.strides)
        _, after = item.cut()
        return (item.joined(operands, view=True), *after)

    # -- parts that find their place

    def _as_whole(self, item: Concatenation) -> tuple[Node, ...]:
        whole, operands = item.result, item.concat.operands
        strides = self.parts[whole].strides if whole in self.parts else row_major(whole.shape)
        placed: dict[Value, StridedPart] = {}
        copied: list[int] = []
        for i, (value, offset) in enumerate(zip(operands, offsets(operands, item.axis, strides), strict=True)):
            root = self.roots.get(value, value)
            own = reshaped(value.shape, strides, root.shape)
            part = None if own is None else StridedPart(whole, offset, own)
            if part is not None and root not in placed and self._may_lie(root, part, value in item.before):
                placed[root] = part
            else:
                copied.append(i)
        kept = [v for v in placed if v not in item.before]
        if not self._is_worth_it(item, kept, len(copied)):
            return ()
        self.parts |= placed
        copies = {i: Value(self.fresh(f"{operands[i].name}_placed"), operands[i].type) for i in copied}
        before, after = item.cut()
        moved = (copy_group(operands[i], copy) for i, copy in copies.items())
        joined = item.joined(tuple(copies.get(i, v) for i, v in enumerate(operands)), parts=True)
        return (*before, *moved, joined, *after)

    def _may_lie(self, root: Value, part: StridedPart, is_inside: bool) -> bool:
        """Whether ``root`` may be made at ``part``; ``is_inside`` where the concatenation's own group computes it."""
        if not self._has_runs(root, part.strides):
            return False
        if is_inside:
            return True
        producer = self.graph.producers.get(root)
        if producer is None or producer.op != GROUP_OP or root in self.parts or root in self.outputs:
            return False
        return self._is_sized(root) and self._is_readable(root, part.strides, False)

    def _has_runs(self, value: Value, strides: Strides) -> bool:
        """Whether the elements that follow each other without a gap are worth a vector."""
        if with_gaps(value.shape, strides) is None:
            return True
        run = 1
        for extent, stride in zip(reversed(value.shape), reversed(strides), strict=True):
            if extent != 1 and (stride != run or not isinstance(extent, int)):
                break
            run = run * extent if isinstance(extent, int) else run
        return run * value.dtype.itemsize >= self.limits.least_run

    def _is_readable(self, value: Value, strides: Strides, is_inside: bool) -> bool:
        """Whether all that read ``value`` can do so through ``strides``: kernels do, and views whose strides are known."""
        return is_inside or readers(self.graph, value, strides) is not None

    # -- what is gained

    def _is_worth_it(self, item: Concatenation, kept: list[Value], copies: int) -> bool:
        """Whether less memory is moved: operands that are in memory anyway are not read and written again. What is computed from
        the whole reads it instead of its operands: that gains nothing, but costs nothing where no operand must be made apart."""
        if not kept:
            return False
        made = copies + len(item.before)
        if item.after:
            return made == 0
        saved = 2 * sum(elements(v) * v.dtype.itemsize for v in kept)
        return saved >= (made - 1) * self.limits.launch_bytes
