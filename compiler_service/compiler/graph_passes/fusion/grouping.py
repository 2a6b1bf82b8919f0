"""Deciding which nodes share a kernel.

Groups grow from a node to its immediate post-dominator, together with everything in between, so that only the last node of a
group is read from outside and no group can depend on itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler_service.compiler.graph_passes.analysis.classify import AccessPattern, Classification, OperatorKind
from compiler_service.compiler.graph_passes.analysis.dominators import PostDominators, post_dominators
from compiler_service.compiler.graph_passes.analysis.sizes import elements
from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute, text_attribute
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import Graph, Node, Value, free_values

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
"""Operators that change no byte: between groups they cost nothing, inside a group they cost index arithmetic."""

READS_ONCE = frozenset({"Transpose", "Concat", "Pad", "Slice", "DepthToSpace", "SpaceToDepth"})
"""Data movement that reads every element of its operands at most once, so that computing it on the way repeats no work."""


PRODUCTS = frozenset({"MatMul", "Einsum"})

SOFTMAX = frozenset({"Softmax", "ingot.SafeSoftmax"})

NORMALISATIONS = frozenset({"LayerNormalization", "RMSNormalization"})

_MOST_POOLED = 1 << 16
"""Elements that one core adds up in less time than it takes to hand them out to several."""


@dataclass(frozen=True)
class GroupLimits:
    """What keeps kernels readable: most nodes of a group, most operands of a concatenation that is fused."""

    nodes: int = 32
    concatenated: int = 4
    prologues: bool = False


_WEIGHTS = {"QuantizeLinear": 8, "DequantizeLinear": 4}
"""Operators that count for several: rounding, shifting and clamping make long expressions."""
_VARIADIC = frozenset({"Max", "Mean", "Min", "Sum"})
_OPERANDS_TOGETHER = 4
"""Of an operator that has any number, which count as one: the expression of an element is as deep as there are operands."""


def _weight(node: Node) -> int:
    if node.op in _VARIADIC:
        return 1 + len(node.operands) // _OPERANDS_TOGETHER
    return _WEIGHTS.get(node.op, 1)


@dataclass
class Grouping:
    """A partition of the nodes ``0 .. n - 1`` of a graph under construction.

    ``leader[i]`` names the group of node ``i``; ``members`` and ``anchors`` (how many reductions) are kept per leader.
    """

    nodes: Sequence[Node]
    kinds: Sequence[Classification]
    paths: PostDominators
    limits: GroupLimits
    leader: list[int] = field(default_factory=list)
    members: dict[int, list[int]] = field(default_factory=dict)
    producers: dict[Value, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.producers = {v: i for i, n in enumerate(self.nodes) for v in n.results}
        self.leader = list(range(len(self.nodes)))
        self.members = {i: [i] for i in self.leader}

    def run(self) -> list[list[int]]:
        """The groups, each in topological order, ordered by their last node."""
        for i in range(len(self.nodes)):
            if self._is_anchor(i):
                self._absorb(i)
        for i in range(len(self.nodes)):
            self._attend(i)
        for i in range(len(self.nodes)):
            self._pool(i)
        for i in range(len(self.nodes)):
            self._join(i)
        return sorted((sorted(m) for m in self.members.values()), key=lambda m: m[-1])

    # -- an anchor absorbs what follows it

    def _absorb(self, anchor: int) -> None:
        """The anchor's group grows as long as what follows is elementwise over the anchor's result."""
        end: int | None = anchor
        while end is not None and len(self.nodes[end].results) == 1:
            target = self.paths.immediate[end]
            path = None if target is None else self._path(end, target)
            if path is None or not self._is_epilogue(end, path):
                return
            self._merge([end, *path])
            end = target

    def _is_epilogue(self, start: int, path: Sequence[int]) -> bool:
        shape = self.nodes[start].results[0].shape
        inside = {start, *path}
        for i in path:
            node = self.nodes[i]
            if not self._is_mergeable(i) or self._has_anchor(i) or node.results[0].shape != shape:
                return False
            if any(self._access(i, j) is not AccessPattern.IDENTITY for j in inside if self._reads(i, j)):
                return False
        return self._fits([start, *path])

    # -- product, softmax and product are one kernel

    def _attend(self, softmax: int) -> None:
        """Softmax over the columns of a product whose result a product reads as its rows: attention."""
        if not _is_over_columns(self.nodes[softmax]):
            return
        target = self.paths.immediate[softmax]
        source = self._producer(self.nodes[softmax].operands[0])
        if target is None or source is None:
            return
        if len(self.members[self.leader[softmax]]) > 1 or self.paths.immediate[source] != softmax:
            return
        scores = [m for m in self.members[self.leader[source]] if self._is_anchor(m)]
        rows, columns = self.nodes[target].operands[:2] if self.nodes[target].op in PRODUCTS else (None, None)
        (weights,) = self.nodes[softmax].results
        if len(scores) != 1 or self.nodes[scores[0]].op not in PRODUCTS or rows != weights or columns == weights:
            return
        kept = (*_summed(self.nodes[scores[0]]), *self.nodes[target].results[0].shape[-1:])
        if all(isinstance(d, int) for d in kept) and self._fits(
            [source, softmax, target]
        ):  # the nest keeps blocks of such rows
            self._merge([source, softmax, target])

    # -- a mean and the normalisation of it are one kernel

    def _pool(self, start: int) -> None:
        """A few rows become one, along which the next node normalises it: the head of a network."""
        target = self.paths.immediate[start]
        if target is None or not self.kinds[start].down or self.nodes[target].op not in NORMALISATIONS:
            return
        (pooled,), read = self.nodes[start].results, self.nodes[start].operands[0]
        if self.nodes[target].operands[0] != pooled or self.paths.between(start, target, 1) is None:
            return
        channels, known = pooled.shape[-1], all(isinstance(d, int) for d in read.shape[1:])
        if not _is_along_last_axis(self.nodes[target]) or not known or not isinstance(channels, int):
            return
        rows = elements(pooled) // channels
        if elements(read) <= _MOST_POOLED * rows and self._fits([start, target]):
            self._merge([start, target])

    def _producer(self, value: Value) -> int | None:
        return self.producers.get(value)

    # -- elementwise operators and data movement join what follows them

    def _join(self, start: int) -> None:
        target = self.paths.immediate[start]
        if target is None or not self._is_mergeable(start) or self._has_anchor(start):
            return
        if self.leader[start] == self.leader[target]:
            return
        path = self._path(start, target)
        if path is not None and self._may_join(start, path) and self._fits([start, *path]):
            self._merge([start, *path])

    def _may_join(self, start: int, path: Sequence[int]) -> bool:
        inside = {start, *path}
        anchored = {self.leader[i] for i in path if self._has_anchor(i)}
        if len(anchored) > 1:
            return False
        for i in path:
            is_target = i == path[-1]
            prologue = self.limits.prologues and is_target and self._is_anchor(i)
            if not self._is_mergeable(i) and not prologue:
                return False
            if not all(self._is_cheap(j, i) for j in inside if self._reads(i, j)):
                return False
        return True

    def _is_cheap(self, source: int, reader: int) -> bool:
        """Whether computing ``source`` while ``reader`` reads it repeats no work worth saving."""
        members = self.members[self.leader[source]]
        match self._access(reader, source):
            case AccessPattern.IDENTITY | AccessPattern.UNUSED:
                return True
            case AccessPattern.BROADCAST:
                return all(self.kinds[m].free for m in members)
            case AccessPattern.INDEXED if self.nodes[reader].op == "Concat":
                return False  # vector code computes every operand of a selection everywhere
        if self.nodes[reader].op in READS_ONCE or not any(self.kinds[m].heavy for m in members):
            return True
        return elements(self.nodes[reader].results[0]) <= elements(self.nodes[source].results[0])

    # -- questions about nodes

    def _path(self, start: int, end: int) -> tuple[int, ...] | None:
        """The nodes from ``start`` to ``end``; None where they are more than a group may have."""
        return self.paths.between(start, end, self.limits.nodes)

    def _is_anchor(self, i: int) -> bool:
        return self.kinds[i].kind is OperatorKind.REDUCTION

    def _has_anchor(self, i: int) -> bool:
        return any(self._is_anchor(m) for m in self.members[self.leader[i]])

    def _is_mergeable(self, i: int) -> bool:
        node = self.nodes[i]
        if (
            self.kinds[i].kind not in (OperatorKind.ELEMENTWISE, OperatorKind.INJECTIVE)
            or node.op in VIEWS
            or len(node.results) != 1
        ):
            return False
        return node.op != "Concat" or len(node.operands) <= self.limits.concatenated

    def _reads(self, reader: int, source: int) -> bool:
        return any(v in self.nodes[reader].operands for v in self.nodes[source].results)

    def _access(self, reader: int, source: int) -> AccessPattern:
        return self.kinds[reader].access(self.nodes[reader], self.nodes[source].results[0])

    def _fits(self, nodes: Sequence[int]) -> bool:
        leaders = {self.leader[i] for i in nodes}
        members = (i for x in leaders for i in self.members[x])
        return sum(_weight(self.nodes[i]) for i in members) <= self.limits.nodes

    def _merge(self, nodes: Sequence[int]) -> None:
        first, *others = dict.fromkeys(self.leader[i] for i in nodes)
        for other in others:
            moved = self.members.pop(other)
            self.members[first].extend(moved)
            for i in moved:
                self.leader[i] = first


def _summed(product: Node) -> tuple[Dim, ...]:
    """The extents that a product adds up along; more than those, where its equation has dots."""
    if product.op == "MatMul":
        return product.operands[0].shape[-1:]
    terms, _, output = text_attribute(product, "equation", "").replace(" ", "").partition("->")
    pairs = list(zip(terms.split(","), product.operands, strict=True))
    if any(len(term) != v.type.rank for term, v in pairs):
        return tuple(d for _, v in pairs for d in v.shape)
    return tuple(d for term, v in pairs for letter, d in zip(term, v.shape, strict=True) if letter not in output)


def _is_over_columns(node: Node) -> bool:
    """Whether it is softmax over the last axis, in single precision."""
    if node.op not in SOFTMAX:
        return False
    return node.results[0].dtype is DType.FLOAT32 and _is_along_last_axis(node)


def _is_along_last_axis(node: Node) -> bool:
    """Whether the attribute ``axis`` names the last axis of the first result."""
    return int_attribute(node, "axis", -1) in (-1, node.results[0].type.rank - 1)


def paths_of(nodes: Sequence[Node], graph: Graph) -> PostDominators:
    """Post-dominators of ``nodes``, some of the nodes of ``graph``; what any other node reads leaves the graph."""
    chosen = {id(n) for n in nodes}
    leaving: set[Value] = set(graph.outputs)
    for node in graph.nodes:
        leaving.update(free_values(node) if id(node) in chosen else (*node.operands, *free_values(node)))
    readers: dict[Value, list[int]] = {}
    for i, node in enumerate(nodes):
        for value in dict.fromkeys(node.operands):
            readers.setdefault(value, []).append(i)
    consumers = [tuple(dict.fromkeys(r for v in n.results for r in readers.get(v, ()))) for n in nodes]
    ends = {i: any(v in leaving for v in n.results) for i, n in enumerate(nodes)}
    return post_dominators(consumers, ends)
