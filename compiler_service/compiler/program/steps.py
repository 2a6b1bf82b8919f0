"""The steps of a plan: the nodes of a fused graph, in order, with what its control flow does to symbols and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from compiler_service.compiler.graph_passes.analysis.aliases import is_empty, runs_no_kernel
from compiler_service.compiler.graph_passes.analysis.known import known_values
from compiler_service.compiler.graph_passes.analysis.symbols import fresh_symbols, input_symbols
from compiler_service.compiler.graph_passes.analysis.values import Known
from compiler_service.compiler.graph_passes.memory.lifetimes import Extent
from compiler_service.compiler.graph_passes.memory.plan_memory import MemoryPlan, Placement, byte_size
from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute
from compiler_service.compiler.tensor_expr.assumptions import Assumption
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition, group_kernels
from shared_ir.expr import Expr, Var, equal, lift, select
from shared_ir.expr.dim import Dim, as_dim, dim_symbols
from shared_ir.graph.ir import CALL_OP, CHECK_OP, DEFINE_OP, REPEAT_OP, Graph, Node, Value
from shared_ir.plan.program import (
    Branch,
    Call,
    Check,
    Constraint,
    Copy,
    Define,
    Launch,
    Read,
    Repeat,
    Reserve,
    Step,
    Storage,
    Swap,
)

_UNLIMITED = 2**63 - 1

ConstraintKey: TypeAlias = tuple[Dim, Dim, bool]
"""Actual and expected dim of a constraint, and whether it is a lower bound."""


class Numbering(Protocol):
    """Numbers of buffers and kernels in the plan."""

    def launch(self, definition: KernelDefinition) -> Launch: ...

    def assumptions(self, definition: KernelDefinition) -> tuple[Assumption, ...]:
        """What the launch of ``definition`` takes for granted about extents."""
        ...

    def buffer(self, value: Value) -> int:
        """The buffer of a value, constants included."""
        ...

    def place(self, value: Value, placement: Placement) -> int:
        """A buffer for ``value`` somewhere else than in its own memory."""
        ...


@dataclass
class StepBuilder:
    """Builds the steps of a graph; ``constraints`` are those that hold or not before the run begins.

    Attributes:
        definitions: by the value that the kernel computes.
        run_symbols: what the run defines, in order.
        reserved: values of loop bodies whose memory is reserved before the loop.
    """

    memory: MemoryPlan
    definitions: Mapping[Value, KernelDefinition]
    numbering: Numbering
    inputs: frozenset[str]
    fresh: Callable[[str], Var]
    constraints: dict[ConstraintKey, Constraint] = field(default_factory=dict)
    run_symbols: dict[str, None] = field(default_factory=dict)
    reserved: set[Value] = field(default_factory=set)

    @classmethod
    def of(
        cls, graph: Graph, memory: MemoryPlan, definitions: Sequence[KernelDefinition], numbering: Numbering
    ) -> StepBuilder:
        by_result = {d.result: d for d in definitions}
        return cls(memory, by_result, numbering, input_symbols(graph), fresh_symbols(graph))

    def steps(self, graph: Graph) -> tuple[Step, ...]:
        return tuple(_Scope(self, {}, None, set(self.inputs)).graph(graph))


@dataclass
class _Scope:
    """One graph. ``checked`` are the constraints that hold here; None outside of control flow, where the start of the run
    checks those that depend on the inputs alone. ``available`` are the symbols that are defined."""

    builder: StepBuilder
    outer: Known
    checked: set[ConstraintKey] | None
    available: set[str]
    known: Known | None = None

    def graph(self, graph: Graph) -> list[Step]:
        steps: list[Step] = []
        for node in graph.nodes:
            match node.op:
                case "If":
                    steps += self._branch(graph, node)
                case _ if node.op == REPEAT_OP:
                    steps += _Loop(self, graph, node).steps()
                case _ if node.op == DEFINE_OP:
                    steps += self._define(node)
                case _ if node.op == CALL_OP:
                    steps += self._call(node)
                case _ if node.op == CHECK_OP:
                    steps += self.check(*stated(node))
                case _:
                    steps += self._group(graph, node)
            self.available |= dim_symbols(d for v in node.results for d in v.shape)
        return steps

    def inside(self, graph: Graph) -> _Scope:
        """The scope of a graph nested in a node of ``graph``."""
        return _Scope(self.builder, self._known(graph), set(self.checked or ()), set(self.available))

    def _known(self, graph: Graph) -> Known:
        if self.known is None:
            self.known = known_values(graph, self.outer)
        return self.known

    # -- kernels

    def _group(self, graph: Graph, node: Node) -> list[Step]:
        if runs_no_kernel(node):
            if not any(isinstance(d, Expr) for v in (*node.operands, *node.results) for d in v.shape):
                return []
            return [
                step
                for definition in group_kernels(node, self._known(graph))
                for step in self._checks(definition, definition.assumptions)
            ]
        steps: list[Step] = []
        for value in node.results:
            if is_empty(value):
                steps += self.reserve(value)
                continue
            definition = self.builder.definitions[value]
            steps += self._checks(definition, self.builder.numbering.assumptions(definition))
            steps += self.reserve(value)
            steps.append(self.builder.numbering.launch(definition))
        return steps

    def _call(self, node: Node) -> list[Step]:
        own = dict(node.attributes)
        function, takes, gives = (own.pop(k) for k in ("function", "takes", "gives"))
        assert isinstance(function, str)
        assert isinstance(takes, tuple)
        assert isinstance(gives, tuple)
        buffer = self.builder.numbering.buffer
        inputs, outputs = (
            tuple(-1 if v is None else buffer(v) for v in values) for values in (node.inputs, node.outputs)
        )
        kinds = tuple(map(str, takes)), tuple(map(str, gives))
        plain = {k: list(a) if isinstance(a, tuple) else a for k, a in own.items()}
        reserved = [step for v in node.results for step in self.reserve(v)]
        return [*reserved, Call(function, inputs, outputs, *kinds, attributes=plain, nodes=(node.name,))]

    def _checks(self, definition: KernelDefinition, assumptions: Iterable[Assumption]) -> list[Step]:
        """What a definition takes for granted about extents; each once."""
        where = ", ".join(n for n in definition.nodes if n) or definition.label
        return [step for a in assumptions for step in self.check(a, f"node '{where}': {a}")]

    def check(self, assumption: Assumption, message: str) -> list[Step]:
        builder = self.builder
        key = (assumption.actual, assumption.expected, assumption.lower)
        constraint = Constraint(*key[:2], message, assumption.lower)
        if key in builder.constraints or key in (self.checked or ()):
            return []
        if self.checked is None and dim_symbols(key[:2]) <= builder.inputs:
            builder.constraints[key] = constraint
            return []
        if self.checked is not None:
            self.checked.add(key)
        return [Check(constraint)]

    # -- memory

    def reserve(self, value: Value, placement: Placement | None = None) -> list[Step]:
        """Before ``value`` is written: its slot must hold it."""
        builder = self.builder
        place = builder.memory.buffers[value] if placement is None else placement
        if place.storage is not Storage.SLOT or place.extent is Extent.PART:
            return []
        if placement is None and value in builder.reserved:
            return []
        number = builder.numbering.buffer(value) if placement is None else builder.numbering.place(value, place)
        return [Reserve(number, keep=place.extent is Extent.GROWING)]

    def move(self, source: Value, target: Placement) -> list[Step]:
        """``source`` copied to ``target``, unless it was made there."""
        own = self.builder.memory.buffers[source]
        if own.shares(target) and own.storage is not Storage.WEIGHT:
            return []
        numbering = self.builder.numbering
        copy = Copy(numbering.buffer(source), numbering.place(source, target))
        return [*self.reserve(source, target), copy]

    # -- symbols

    def define(self, values: Mapping[str, Dim]) -> list[Step]:
        changed = {name: dim for name, dim in values.items() if dim != Var(name)}
        if not changed:
            return []
        self.builder.run_symbols.update(dict.fromkeys(changed))
        self.available |= set(changed)
        return [Define(tuple(changed), tuple(changed.values()))]

    def read(self, value: Value, symbol: str, index: int = 0) -> Step:
        self.builder.run_symbols[symbol] = None
        self.available.add(symbol)
        return Read(symbol, self.builder.numbering.buffer(value), index)

    def _define(self, node: Node) -> list[Step]:
        symbols = node.attributes["symbols"]
        assert isinstance(symbols, tuple)
        names = [s.name for s in symbols if isinstance(s, Var)]
        steps: list[Step] = [self.read(node.operands[0], name, i) for i, name in enumerate(names)]
        message, expected = node.attributes.get("message"), int_attribute(node, "expected", 0)
        for name in names:
            if isinstance(message, str):
                steps += self.check(Assumption(Var(name), expected), message)
            else:
                steps += self.check(
                    Assumption(Var(name), 0, lower=True), f"node '{node.name}': {name} must be at least 0"
                )
        return steps

    # -- If

    def _branch(self, graph: Graph, node: Node) -> list[Step]:
        condition = self.builder.fresh("condition").name
        steps = [self.read(node.operands[0], condition)]
        arms = [node.attributes[name] for name in ("then_branch", "else_branch")]
        then, otherwise = (self._arm(graph, node, arm) for arm in arms if isinstance(arm, Graph))
        self.available |= dim_symbols(d for v in node.results for d in v.shape)
        return [*steps, Branch(Var(condition), tuple(then), tuple(otherwise))]

    def _arm(self, graph: Graph, node: Node, arm: Graph) -> list[Step]:
        scope = self.inside(graph)
        steps = scope.graph(arm)
        sizes: dict[str, Dim] = {}
        moves: list[Step] = []
        for value, result in zip(node.outputs, arm.outputs, strict=False):
            if value is None:
                continue
            sizes |= changes(value.shape, result.shape, self.available)
            moves += scope.move(result, self.builder.memory.buffers[value])
        return [*steps, *scope.define(sizes), *moves]


def changes(shape: Sequence[Dim], given: Sequence[Dim], available: set[str]) -> dict[str, Dim]:
    """What the symbols of ``shape`` that are not ``available`` must be for it to be the shape ``given``."""
    pairs = zip(shape, given, strict=True)
    return {d.name: g for d, g in pairs if isinstance(d, Var) and d.name not in available}


def stated(node: Node) -> tuple[Assumption, str]:
    """What a check states, and the message of a run where it does not hold."""
    actual, expected, message = (node.attributes[k] for k in ("actual", "expected", "message"))
    assert isinstance(actual, (int, Expr))
    assert isinstance(expected, (int, Expr))
    return Assumption(actual, expected, bool(int_attribute(node, "lower", 0))), str(message)


class _Loop:
    """The steps of a Repeat."""

    def __init__(self, scope: _Scope, graph: Graph, node: Node) -> None:
        (self.body,) = node.subgraphs
        counter = node.attributes["counter"]
        assert isinstance(counter, Var)
        self.scope, self.graph, self.node, self.counter = scope, graph, node, counter
        self.memory = scope.builder.memory.loops[counter.name]
        self.conditional = int_attribute(node, "conditional")
        count = len(self.body.inputs)
        self.initial = [v for v in node.inputs[2:] if v is not None]
        self.results = self.body.outputs[self.conditional : self.conditional + count]
        rows = zip(node.outputs[count:], self.body.outputs[self.conditional + count :], strict=True)
        self.rows = [(v, r) for v, r in rows if v is not None]
        self.finals = list(zip(node.outputs[:count], self.body.inputs, strict=True))

    def steps(self) -> list[Step]:
        scope = self.scope
        before = set(scope.available)
        steps, limit = self._limit()
        condition, more = self._condition()
        steps += more
        sizes = [changes(p.shape, v.shape, before) for p, v in zip(self.body.inputs, self.initial, strict=True)]
        for carried, value, size in zip(self.body.inputs, self.initial, sizes, strict=True):
            steps += scope.define(size)
            steps += scope.move(value, scope.builder.memory.buffers[carried])
        steps += self._rows_before(before)
        steps += self._following_before(before)
        scope.builder.run_symbols[self.counter.name] = None
        steps.append(Repeat(self.counter.name, limit, condition, tuple(self._iteration(condition, before))))
        return [*steps, *self._after(before)]

    def _limit(self) -> tuple[list[Step], Dim]:
        limit = self.node.attributes.get("limit")
        if isinstance(limit, (int, Expr)):
            return [], limit
        most = self.node.inputs[0]
        if most is None:
            return [], _UNLIMITED
        symbol = self.scope.builder.fresh(f"{self.counter.name}_limit")
        return [self.scope.read(most, symbol.name)], symbol

    def _condition(self) -> tuple[str, list[Step]]:
        start = self.node.inputs[1]
        if start is None and not self.conditional:
            return "", []
        symbol = self.scope.builder.fresh(f"{self.counter.name}_goes_on").name
        return symbol, self.scope.define({symbol: 1}) if start is None else [self.scope.read(start, symbol)]

    def _rows_before(self, before: set[str]) -> list[Step]:
        """Rows whose number and size are known are reserved at once; the sizes of the others are 0 until there is a row."""
        steps: list[Step] = []
        for (value, result), place in zip(self.rows, self.memory.rows, strict=True):
            if place.extent is Extent.GROWING:
                inner = changes(value.shape[1:], result.shape, before)
                steps += self.scope.define(dict.fromkeys(inner, 0))
            else:
                steps += self.scope.reserve(value)
        return steps

    def _following_before(self, before: set[str]) -> list[Step]:
        """Memory for next values whose size does not change is reserved once."""
        builder = self.scope.builder
        steps: list[Step] = []
        for carried, result, place in zip(self.body.inputs, self.results, self.memory.following, strict=True):
            if not dim_symbols(result.shape) <= before:
                continue
            if not builder.memory.buffers[carried].shares(place):
                steps += self.scope.reserve(result, place)
            if builder.memory.buffers[result].shares(place):
                builder.reserved.add(result)
        return steps

    def _iteration(self, condition: str, before: set[str]) -> list[Step]:
        scope = self.scope.inside(self.graph)
        scope.available.add(self.counter.name)
        steps = scope.graph(self.body)
        for (value, result), place in zip(self.rows, self.memory.rows, strict=True):
            steps += scope.move(
                result, Placement(place.storage, byte_size(result.type), place.offset, place.index, place.extent)
            )
            if place.extent is Extent.GROWING:
                extents = changes(value.shape[1:], result.shape, before)
                steps += [*self._as_first(value, extents, before), *scope.define(extents)]
        swaps: list[Step] = []
        sizes: dict[str, Dim] = {}
        for carried, result, place in zip(self.body.inputs, self.results, self.memory.following, strict=True):
            own = self.scope.builder.memory.buffers[carried]
            if result != carried:
                steps += scope.move(result, place)
                swaps += [] if own.shares(place) else [Swap(own.index, place.index)]
                sizes |= {
                    d.name: r for d, r in zip(carried.shape, result.shape, strict=True) if isinstance(d, Var) and d != r
                }
        if self.conditional:
            steps.append(scope.read(self.body.outputs[0], condition))
        return [*steps, *scope.define(sizes), *swaps]

    def _as_first(self, value: Value, extents: Mapping[str, Dim], before: set[str]) -> list[Step]:
        """A row that is stacked into ``value`` must have the extents of the row before, but the first."""
        message = f"node '{self.node.name}': the rows that the loop stacks into '{value.name}' must be equally large"
        is_first = equal(self.counter, 0)
        return [
            Check(Constraint(extent, as_dim(select(is_first, lift(extent), Var(name))), message))
            for name, extent in extents.items()
            if not dim_symbols([extent]) <= before
        ]

    def _after(self, before: set[str]) -> list[Step]:
        scope, steps = self.scope, []
        for value, carried in self.finals:
            if value is not None:
                steps += scope.define(changes(value.shape, carried.shape, before))
                steps += scope.move(carried, scope.builder.memory.buffers[value])
        for value, _ in self.rows:
            steps += scope.define(changes(value.shape[:1], (self.counter,), before))
        return steps


__all__ = ["ConstraintKey", "Numbering", "StepBuilder"]
