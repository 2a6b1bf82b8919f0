"""Proves that the steps of a plan read what they mean to read.

The steps run on contents in place of data (:mod:`memory_contents`): every write makes a content and destroys those whose memory it
touches; every read must find the content that the graph asks for. Bodies of loops run twice, the second time on what the first left
behind; both branches of an If run, and what follows them may rely on what both leave. Lifetimes play no part in it, so it finds
the faults of whoever planned by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from compiler_service.compiler.graph_passes.analysis.symbols import node_dims
from compiler_service.compiler.graph_passes.memory.memory_contents import Contents, Holding, Structure, fault
from compiler_service.compiler.graph_passes.memory.memory_regions import (
    Mask,
    MemoryRegions,
    SampledSizes,
    StorageRegion,
)
from compiler_service.compiler.graph_passes.memory.plan_memory import MemoryPlan, Placement
from compiler_service.compiler.graph_passes.memory.reads_in_place import reads_in_place
from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute, ints_attribute
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition
from shared_ir.expr import Expr, Var, lift
from shared_ir.expr.dim import as_dim, dim_symbols, product
from shared_ir.graph.ir import DEFINE_OP, GROUP_OP, REPEAT_OP, Graph, Node, Value, all_constants
from shared_ir.plan.program import (
    Branch,
    BufferSpec,
    Call,
    Check,
    Constraint,
    Copy,
    Launch,
    Read,
    Repeat,
    Reserve,
    Step,
    Storage,
    Swap,
    walk_steps,
)


@dataclass(frozen=True)
class ProvedProgram:
    """What is proved.

    Attributes:
        graph: what the steps were made of; ``memory`` is where its values live.
        definitions: the kernels that are launched.
        constraints: what holds in the runs that get here.
        output_slots: of outputs that the run sizes, their slot, as in :class:`shared_ir.plan.program.Plan`.
    """

    graph: Graph
    memory: MemoryPlan
    definitions: Sequence[KernelDefinition]
    steps: Sequence[Step]
    buffers: Sequence[BufferSpec]
    constraints: Sequence[Constraint] = ()
    output_slots: Sequence[int] = ()


def verify_memory(program: ProvedProgram) -> None:
    """Raises IngotError COMPILER_FAULT where a step reads memory that something else was written to since."""
    _Verifier.of(program).run(program)


@dataclass(frozen=True)
class _Loop:
    """A Repeat, the samples for which it has an iteration, and the symbols that are known before."""

    node: Node
    runs: Mask
    known: frozenset[str]


@dataclass
class _Verifier:
    memory: MemoryPlan
    buffers: Sequence[BufferSpec]
    structure: Structure
    kernels: Mapping[Value, KernelDefinition]
    regions: MemoryRegions
    values: Mapping[str, Value]
    loops: Mapping[str, _Loop]
    arena: StorageRegion
    ids: count[int] = field(default_factory=count)

    @classmethod
    def of(cls, program: ProvedProgram) -> _Verifier:
        graph, memory = program.graph, program.memory
        constants, sizes = all_constants(graph), SampledSizes()
        values = {v.name: v for v in (*constants, *memory.buffers)}
        sized = (d for v in values.values() for d in (*v.shape, product(v.shape) * v.dtype.itemsize))
        dims = dict.fromkeys(d for d in sized if isinstance(d, Expr))
        checks = (s.constraint for s in walk_steps(program.steps) if isinstance(s, Check))
        sizes.settle(program.constraints, checks, (d for d in dims if not dim_symbols([d]) & memory.loops.keys()))
        loops = dict(_loops(graph, sizes, set(), sizes.all()))
        structure = Structure.of(graph)
        structure.constants.update(constants)
        kernels, arena = (
            {d.result: d for d in program.definitions},
            StorageRegion(Storage.ARENA, 0, 0, memory.arena_size),
        )
        regions = MemoryRegions(sizes, sizes.all())
        return cls(memory, program.buffers, structure, kernels, regions, values, loops, arena)

    def run(self, program: ProvedProgram) -> None:
        state = Contents(self.structure)
        for value in program.graph.inputs:
            self._put(state, value, self._home(value))
        state = self._steps(program.graph, program.steps, state)
        slots = program.output_slots or [-1] * len(program.graph.outputs)
        for i, (value, slot) in enumerate(zip(program.graph.outputs, slots, strict=True)):
            place = (Storage.OUTPUT, i) if slot < 0 else (Storage.SLOT, slot)
            self._need(state, value, StorageRegion(*place, 0, None), "the end of the run")

    # -- steps

    def _steps(self, graph: Graph, steps: Iterable[Step], state: Contents) -> Contents:
        outside = self.regions
        state = self._run(graph, steps, state)
        self.regions = outside
        return state

    def _run(self, graph: Graph, steps: Iterable[Step], state: Contents) -> Contents:
        branches = iter([n for n in graph.nodes if n.op == "If"])
        for step in steps:
            match step:
                case Check(constraint=constraint):  # what fails it gets no further
                    self._narrow(self.regions.sizes.holds(constraint))
                case Branch():
                    state = self._branch(next(branches), step, state)
                case Repeat():
                    state = self._repeat(self.loops[step.counter], step, state)
                case _:
                    self._simple(state, step)
        return state

    def _simple(self, state: Contents, step: Step) -> None:
        match step:
            case Launch():
                self._launch(state, step)
            case Copy(source=source, target=target):
                self._copy(state, self._read(state, source, "a copy"), self._region(target))
            case Reserve(buffer=buffer, keep=False):
                state.forget_slot(self._region(buffer), self.regions, self._value(buffer))
            case Swap(first=first, second=second):
                state.swap(first, second)
            case Read(buffer=buffer, symbol=symbol):
                self._read(state, buffer, f"the reading of {symbol}")
            case Call(inputs=inputs, outputs=outputs):
                for number in (b for b in inputs if b >= 0):
                    self._read(state, number, f"the call of {step.function}")
                for number in (b for b in outputs if b >= 0):
                    self._write(state, self._value(number), self._region(number), f"the call of {step.function}")

    def _launch(self, state: Contents, step: Launch) -> None:
        *operands, target = step.buffers
        result, region = self._value(target), self._region(target)
        where = f"the kernel of {result}"
        for number in operands:
            value, own = self._read(state, number, where), self._region(number)
            if self.regions.overlap(own, region) and not self._in_place(value, own, result, region):
                raise fault(f"{where} reads {value} in memory that it writes", ", ".join(step.nodes))
        self._write(state, result, region, where)

    def _in_place(self, value: Value, own: StorageRegion, result: Value, region: StorageRegion) -> bool:
        """Whether the kernel of ``result`` reads each element of ``value`` where it writes, before it writes."""
        if self.structure.lie_apart(value, result):
            return True
        alike = self.structure.strides.get(value) == self.structure.strides.get(result)
        same = self.regions.start_together(own, region) and self.regions.end_together(own, region)
        return alike and same and reads_in_place(self.kernels[result], value)

    # -- control flow

    def _branch(self, node: Node, step: Branch, state: Contents) -> Contents:
        before, outer = next(self.ids), list(state.current)
        ends: list[Contents] = []
        for name, steps in (("then_branch", step.then), ("else_branch", step.otherwise)):
            arm = node.attributes[name]
            assert isinstance(arm, Graph)
            end = self._steps(arm, steps, state.copy())
            for value, result in zip(node.outputs, arm.outputs, strict=False):
                if value is not None:
                    self._need(end, result, self._home(value), f"{value} of {node}")
            ends.append(end.restricted(outer, before))
        after = ends[0].meet(ends[1])
        for value in node.results:
            self._put(after, value, self._home(value))
        return after

    def _repeat(self, loop: _Loop, step: Repeat, state: Contents) -> Contents:
        node = loop.node
        (body,) = node.subgraphs
        for carried, initial in zip(body.inputs, [v for v in node.inputs[2:] if v is not None], strict=True):
            self._need(state, initial, self._home(carried), f"{carried} of {node} before the first iteration")
        for carried in body.inputs:
            self._put(state, carried, self._home(carried))
        stacked = [v for v in node.outputs[len(body.inputs) :] if v is not None]
        outside = self.regions
        self._narrow(loop.runs)
        reverse = ints_attribute(node, "reverse", (0,) * len(stacked))
        rows = {
            v: self._row(v, r, step, bool(back))
            for v, r, back in zip(stacked, self._row_results(node), reverse, strict=True)
        }
        for value, row in rows.items():
            whole = self._home(value)
            region = whole if dim_symbols(value.shape) <= loop.known else replace(whole, size=None)
            self._put(state, value, region, row)
        after = state
        for _ in range(0 if step.limit == 0 else 2):
            state = self._iteration(node, step, state, rows)
            after = after.meet(state)
        self.regions = outside
        for value in stacked:
            self._need(after, value, self._home(value), f"{value} of {node} after the last iteration")
            self._put(after, value, self._home(value))
        for final, carried in zip(node.outputs, body.inputs, strict=False):
            if final is not None:
                after.current[final] = after.current[carried]
        return after

    def _iteration(self, node: Node, step: Repeat, start: Contents, rows: Mapping[Value, StorageRegion]) -> Contents:
        (body,) = node.subgraphs
        before, outer = next(self.ids), list(start.current)
        end = self._steps(body, step.body, start.copy())
        for row, result in zip(rows.values(), self._row_results(node), strict=True):
            self._need(end, result, row, f"a row of {node}")
        results = body.outputs[int_attribute(node, "conditional") :]
        for carried, result in zip(body.inputs, results, strict=False):
            self._need(end, result, self._home(carried), f"{carried} of {node} in the next iteration")
        end = end.restricted(outer, before)
        for carried in body.inputs:
            content = start.current[carried]
            end.drop(content)
            end.current[carried] = content
            holding = Holding(content, carried, self._home(carried))
            end.held[holding.region.place] = (*end.held.get(holding.region.place, ()), holding)
        return end

    def _row_results(self, node: Node) -> tuple[Value, ...]:
        (body,) = node.subgraphs
        results = body.outputs[int_attribute(node, "conditional") + len(body.inputs) :]
        outputs = node.outputs[len(body.inputs) :]
        return tuple(r for r, v in zip(results, outputs, strict=True) if v is not None)

    def _row(self, value: Value, result: Value, step: Repeat, backward: bool) -> StorageRegion:
        """Where this iteration's row of ``value`` belongs."""
        number = lift(step.limit) - 1 - Var(step.counter) if backward else Var(step.counter)
        home, size = self._home(value), product((*result.shape, result.dtype.itemsize))
        return replace(home, offset=as_dim(home.offset + number * size), size=size)

    def _narrow(self, mask: Mask) -> None:
        self.regions = replace(self.regions, mask=self.regions.mask & mask)

    # -- values and their memory

    def _value(self, buffer: int) -> Value:
        return self.values[self.buffers[buffer].name]

    def _region(self, buffer: int) -> StorageRegion:
        spec = self.buffers[buffer]
        return StorageRegion(spec.storage, spec.index, spec.offset, spec.size)

    def _home(self, value: Value) -> StorageRegion:
        place: Placement = self.memory.buffers[value]
        return StorageRegion(place.storage, place.index, place.offset, place.size)

    def _read(self, state: Contents, buffer: int, where: str) -> Value:
        value = self._value(buffer)
        if self.buffers[buffer].storage is not Storage.WEIGHT:
            self._need(state, value, self._region(buffer), where)
        return value

    def _need(self, state: Contents, value: Value, region: StorageRegion, where: str) -> None:
        found = state.missing(value, region, self.regions)
        if found is None:
            return
        piece, culprit = found
        part = "" if piece == value else f"{piece}, of "
        why = "is not there" if culprit is None else f"was written over by {culprit}"
        raise fault(f"{where} needs {part}{value} in {region.storage} {region.index}, but it {why}", where)

    def _copy(self, state: Contents, value: Value, region: StorageRegion) -> None:
        content = state.current.setdefault(value, next(self.ids))
        state.put(Holding(content, value, region), self.regions)

    def _write(self, state: Contents, value: Value, region: StorageRegion, where: str) -> None:
        if region.storage in (Storage.INPUT, Storage.WEIGHT):
            raise fault(f"{where} writes {value} to {region.storage} {region.index}", where)
        if not self.regions.counts(region):
            raise fault(f"{where} writes {value}, whose {region.size} bytes may be fewer than none", where)
        if region.storage is Storage.ARENA and not self.regions.within(region, self.arena):
            raise fault(f"{where} writes {value} behind the end of the arena", where)
        self._put(state, value, region)

    def _put(self, state: Contents, value: Value, region: StorageRegion, hole: StorageRegion | None = None) -> None:
        content = next(self.ids)
        state.current[value] = content
        state.put(Holding(content, value, region, hole), self.regions)


def _loops(graph: Graph, sizes: SampledSizes, seen: set[str], inside: Mask) -> Iterable[tuple[str, _Loop]]:
    """Every Repeat by its counter; ``seen`` are the symbols defined above, ``inside`` the samples that get here."""
    seen |= dim_symbols(d for v in graph.inputs for d in v.shape)
    for node in graph.nodes:
        runs = inside
        if node.op == REPEAT_OP:
            counter, limit = node.attributes["counter"], node.attributes.get("limit")
            assert isinstance(counter, Var)
            runs = inside & sizes.iterate(counter.name, limit if isinstance(limit, (int, Expr)) else None)
            yield counter.name, _Loop(node, runs, frozenset(seen))
            seen.add(counter.name)
        for body in () if node.op == GROUP_OP else node.subgraphs:
            yield from _loops(body, sizes, set(seen), runs)
        seen |= (
            dim_symbols(node_dims(node))
            if node.op == DEFINE_OP
            else dim_symbols(d for v in node.results for d in v.shape)
        )
