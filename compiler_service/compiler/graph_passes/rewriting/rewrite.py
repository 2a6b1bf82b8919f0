"""The rewrite driver: rules are rows of a table, tried on every node until none applies.

A rule sees one node and the nodes above it. It either answers ``None``, or builds nodes through its :class:`Site` and answers
the value (for several outputs: the values) that takes the place of the node's output. What it leaves unused is removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from compiler_service.compiler.graph_passes.rewriting.dead_code import eliminate_dead_code
from compiler_service.compiler.graph_passes.rewriting.nested import Constants, map_graphs
from compiler_service.compiler.tensor_expr.extents import joined_extents
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Graph, Node, Value, free_values, fresh_names, replace_values

MOST_SWEEPS = 50
MOST_REWRITES_OF_ONE_NODE = 200

Replacement = Value | tuple[Value | None, ...] | None
"""What a rule answers: what takes the place of the outputs of a node, or None where it does not fit."""


@dataclass
class Site(Builder):
    """Where a rule looks and builds.

    Attributes:
        uses: readers as of the start of the sweep: a hint about cost, no more.
        unrounded: float64 numbers of the constants that rules made of others, for as long as the rewriting lasts: what passes
            from rule to rule is rounded once, at the end.
    """

    producers: dict[Value, Node] = field(default_factory=dict)
    uses: Counter[Value] = field(default_factory=Counter)
    unrounded: dict[Value, np.ndarray] = field(default_factory=dict)

    def producer(self, value: Value | None, *ops: str) -> Node | None:
        """The node that defines ``value``, if it is one of ``ops`` (any, when none is given)."""
        node = None if value is None else self.producers.get(value)
        return node if node is not None and (not ops or node.op in ops) else None

    def only_user(self, value: Value | None) -> bool:
        """Whether ``value`` is read once, so that a rewrite over it removes its producer."""
        return value is not None and self.uses[value] <= 1

    def array(self, value: Value | None) -> np.ndarray | None:
        """The elements of a constant."""
        return None if value is None else self.constants.get(value)

    def exact(self, value: Value | None) -> np.ndarray | None:
        """The elements of a constant in float64, as they were before they were rounded to its type."""
        if value is not None and value in self.unrounded:
            return self.unrounded[value]
        array = self.array(value)
        if array is not None and array.size > 1 and _is_repeated(array):  # it may be as large as it likes
            return np.broadcast_to(array[(0,) * array.ndim].astype(np.float64), array.shape)
        return None if array is None else array.astype(np.float64)

    def rounded(self, numbers: np.ndarray, dtype: DType, name: str = "constant") -> Value:
        """A new constant of the type ``dtype``, whose float64 ``numbers`` :meth:`exact` remembers."""
        with np.errstate(over="ignore"):
            value = self.constant(np.array(numbers, storage_dtype(dtype), order="C"), name)
        self.unrounded[value] = numbers
        return value

    def scalar(self, value: Value | None) -> float | None:
        """The number that a constant with equal elements (or one element) stands for."""
        array = self.array(value)
        if array is None or array.size == 0 or array.dtype.kind not in "fiub":
            return None
        first = array.flat[0]
        return first.item() if array.size == 1 or _uniform(array) else None


def _uniform(array: np.ndarray) -> bool:
    if _is_repeated(array):
        return True
    return array.size <= 4096 and bool((array == array.flat[0]).all())


def _is_repeated(array: np.ndarray) -> bool:
    """Whether it is a broadcast view of one element."""
    return all(stride == 0 for stride in array.strides)


@dataclass(frozen=True)
class RewriteRule:
    """``ops`` that the rule looks at, and what it does with one."""

    ops: tuple[str, ...]
    apply: Callable[[Node, Site], Replacement]


def rule(ops: str, apply: Callable[[Node, Site], Replacement]) -> RewriteRule:
    """A row of a rule table; ``ops`` are separated by spaces."""
    return RewriteRule(tuple(ops.split()), apply)


def rewrite(graph: Graph, rules: Sequence[RewriteRule]) -> Graph:
    """``graph`` and its nested graphs with ``rules`` applied until none does.

    Raises:
        IngotError: COMPILER_FAULT when the rules do not come to rest.
    """
    table: dict[str, list[RewriteRule]] = {}
    for item in rules:
        for op in item.ops:
            table.setdefault(op, []).append(item)
    fresh = fresh_names(graph)
    unrounded: dict[Value, np.ndarray] = {}

    def to_rest(body: Graph, outer: Constants) -> Graph:
        for _ in range(MOST_SWEEPS):
            swept = _Sweep(body, outer, table, fresh, unrounded).run()
            if swept is body:
                return body
            body = absorb_output_identities(eliminate_dead_code(swept))
        raise IngotError(ErrorCode.COMPILER_FAULT, f"rewriting {body.name!r} did not end after {MOST_SWEEPS} sweeps")

    result = map_graphs(graph, to_rest)
    return graph if result is graph else eliminate_dead_code(result)  # a body may have been the last reader


@dataclass
class _Sweep:
    """One pass over the nodes in order; what a rule builds is tried again at once."""

    graph: Graph
    outer: Constants
    table: dict[str, list[RewriteRule]]
    fresh: Callable[[str], str]
    unrounded: dict[Value, np.ndarray]
    mapping: dict[Value, Value] = field(default_factory=dict)
    emitted: list[Node] = field(default_factory=list)
    fired: int = 0
    outputs: frozenset[Value] = frozenset()

    def run(self) -> Graph:
        site = Site(self.fresh, {**self.outer, **self.graph.constants}, unrounded=self.unrounded)
        site.uses = count_uses(self.graph)
        self.outputs = frozenset(self.graph.outputs)
        for node in self.graph.nodes:
            self._settle(node, site)
        if not self.fired:
            return self.graph
        return self.graph.with_(nodes=tuple(self.emitted), constants={**self.graph.constants, **site.added})

    def _settle(self, node: Node, site: Site) -> None:
        pending = [node]
        budget = MOST_REWRITES_OF_ONE_NODE
        while pending:
            current = replace_values(pending.pop(), self.mapping)
            built = self._try(current, site)
            if built is None:
                self.emitted.append(current)
                site.producers.update((v, current) for v in current.results)
                continue
            self.fired += 1
            budget -= 1
            if budget < 0:
                raise IngotError(ErrorCode.COMPILER_FAULT, "rewrite rules do not come to rest", node=str(node))
            pending.extend(reversed(built))

    def _try(self, node: Node, site: Site) -> list[Node] | None:
        if node.op == "Identity" and node.outputs[0] in self.outputs:
            return None  # it only gives the output its name
        for item in self.table.get(node.op, ()):
            site.nodes = []
            replacement = item.apply(node, site)
            if replacement is not None:
                values = replacement if isinstance(replacement, tuple) else (replacement,)
                _check_types(item, node, values)
                return self._bind(node, values, site.nodes)
        return None

    def _bind(self, node: Node, values: tuple[Value | None, ...], built: list[Node]) -> list[Node]:
        """``built`` with its results renamed to the outputs of ``node``, as far as ``node`` itself is not needed for it."""
        nodes = [n if n.name else replace(n, name=node.name) for n in built]
        made = {v for n in nodes for v in n.results}
        for old, new in zip(node.outputs, values, strict=False):
            if old is None or new is None or old == new:
                continue
            if new in made:
                nodes = [rename(n, new, old) for n in nodes]
                made.discard(new)
            elif old in self.outputs:
                nodes.append(Node("Identity", (new,), (old,), name=node.name))
            else:
                self.mapping[old] = new
        return nodes


def _check_types(item: RewriteRule, node: Node, values: tuple[Value | None, ...]) -> None:
    """A rule that answers something of another type is at fault: what reads the value would compute nonsense."""
    for old, new in zip(node.outputs, values, strict=False):
        if old is not None and new is not None and not (old.type.may_be(new.type) and _keeps_joints(old, new)):
            raise IngotError(
                ErrorCode.COMPILER_FAULT,
                f"the rewrite rule {item.apply.__name__.strip('_')!r} changed a type",
                node=str(node),
                tensor=old.name,
                expected=str(old.type),
                received=str(new.type),
            )


def _keeps_joints(old: Value, new: Value) -> bool:
    """Whether no axis whose extent several are joined to has but one of them."""
    pairs = zip(old.shape, new.shape, strict=True)
    return all(a == b or b not in joined_extents(a) for a, b in pairs)


def rename(node: Node, old: Value, new: Value) -> Node:
    """``node`` with ``old`` called ``new`` wherever it occurs."""
    node = replace_values(node, {old: new})
    if old not in node.outputs:
        return node
    return replace(node, outputs=tuple(new if v == old else v for v in node.outputs))


def count_uses(graph: Graph) -> Counter[Value]:
    """How many operands read each value; being an output counts as one."""
    uses: Counter[Value] = Counter(graph.outputs)
    for node in graph.nodes:
        uses.update(node.operands)
        uses.update(free_values(node))
    return uses


def absorb_output_identities(graph: Graph) -> Graph:
    """``y = Identity(x)`` before an output ``y``: the producer of ``x`` defines ``y`` itself, if it is free to."""
    renamed: dict[Value, Value] = {}
    outputs = frozenset(graph.outputs)
    for node in graph.nodes:
        source = node.inputs[0] if node.op == "Identity" and node.outputs[0] in outputs else None
        if source is None or source in renamed or source in outputs or source not in graph.producers:
            continue
        (target,) = node.results
        if source.type == target.type:
            renamed[source] = target
    if not renamed:
        return graph
    kept = [n for n in graph.nodes if not (n.op == "Identity" and renamed.get(n.inputs[0]) == n.outputs[0])]  # type: ignore[arg-type]
    return graph.with_(nodes=tuple(_renamed(kept, renamed)))


def _renamed(nodes: Iterable[Node], names: dict[Value, Value]) -> Iterable[Node]:
    for node in nodes:
        changed = replace_values(node, names)
        if any(v in names for v in changed.results):
            changed = replace(changed, outputs=tuple(None if v is None else names.get(v, v) for v in changed.outputs))
        yield changed
