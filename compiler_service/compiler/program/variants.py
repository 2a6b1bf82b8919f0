"""The ways through a model that a run may take.

Where an If asks whether two dims are equal, and its branches differ in their number of axes, there is a way for either answer.

Where two extents meet of which either may turn out to be 1 (see :mod:`extents`), code for every run reads
stretched operands through ``Expand``, which keeps products, what follows them, and attention in kernels of their own. Nearly every
run of nearly every model finds these extents equal. So such a model is compiled twice, and a run takes the way that is open to it; the
kernels that both ways share, most of them, are compiled once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import numpy as np

from compiler_service.compiler.frontend.importing.choices import Choices, chosen
from compiler_service.compiler.frontend.importing.inference import Inference
from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.graph_passes.algebra.broadcast import stretches
from compiler_service.compiler.graph_passes.analysis.symbols import input_symbols
from compiler_service.compiler.graph_passes.memory.plan_memory import LoopMemory, MemoryPlan, Placement
from compiler_service.compiler.program.module_source import ModuleSource
from compiler_service.compiler.tensor_expr.extents import Agreement, agreeing, all_equal
from compiler_service.compiler.tensor_expr.kernel.group import KernelDefinition
from shared_ir.errors import IngotError
from shared_ir.expr.dim import Dim, dim_symbols
from shared_ir.graph.ir import Graph, Module, Value, all_constants, walk_graphs
from shared_ir.plan.program import Storage

MOST_CHOICES = 2
"""Equalities that a model asks about, of which every combination is compiled; of more, all are taken as who asks usually finds them."""


@dataclass(frozen=True)
class Variant:
    """One way through a model.

    Attributes:
        agreement: extents that are equal in the runs that take it; ``None``: any may differ.
        choices: dims that are equal in these runs, or are not (see :mod:`compiler_service.compiler.frontend.importing.choices`).
        memory: where its values live, once its graph is optimised.
        definitions: the kernels that it launches, in order.
    """

    module: Module
    agreement: Agreement | None = None
    choices: Mapping[tuple[Dim, Dim], bool] = field(default_factory=dict)
    memory: MemoryPlan = field(default_factory=lambda: MemoryPlan({}, 0, 0))
    definitions: tuple[KernelDefinition, ...] = ()

    def within(self) -> AbstractContextManager[None]:
        """What is done to the graph, and what is made of it, is done inside this."""
        return agreeing(self.agreement)

    @property
    def condition(self) -> Dim:
        """1 in the runs that may take this way, else 0."""
        made = [(chosen(pair, equals), 1) for pair, equals in self.choices.items()]
        agreed = [] if self.agreement is None else list(self.agreement.pairs)
        return all_equal([*made, *agreed])

    @property
    def constants(self) -> Mapping[Value, np.ndarray]:
        return all_constants(self.module.graph)


def import_variants(
    source: ModelSource | ModuleSource, options: ImportOptions, inference: Inference, *, fast: bool
) -> tuple[Variant, ...]:
    """The ways through ``source``, in the order in which a run looks for one that is open to it; the last is to all that any is.

    Args:
        fast: whether runs with equal extents have one of their own, where ``source`` is no graph yet.

    Raises:
        IngotError: of the model.
    """
    if isinstance(source, ModuleSource):
        return (Variant(source.module),)
    ways = _chosen_ways(source, options, inference)
    if not fast or len(ways) > 1:
        return ways
    (general,) = ways
    symbols = input_symbols(general.module.graph)
    if not _stretches(general.module.graph, symbols):
        return ways
    agreement = Agreement(symbols)
    try:
        with agreeing(agreement):
            equal = Variant(import_model(source, options, inference), agreement)
    except IngotError:  # of a model that no run with equal extents fits
        return ways
    return (equal, general) if _interface(equal.module) == _interface(general.module) else ways


def _chosen_ways(source: ModelSource, options: ImportOptions, inference: Inference) -> tuple[Variant, ...]:
    """One for every combination of choices that can be imported."""
    choices = Choices()
    found: list[Variant] = []
    first: IngotError | None = None
    try:
        found.append(Variant(import_model(source, options, inference, choices)))
    except IngotError as error:
        first = error
    usual = dict(choices.met) if len(choices.met) <= MOST_CHOICES else {}
    for values in itertools.product((True, False), repeat=len(usual)):
        given = dict(zip(usual, values, strict=True))
        if given == usual:
            continue
        try:
            found.append(Variant(import_model(source, options, inference, Choices(given)), choices=given))
        except IngotError:  # the branch that is taken, or what follows, fits no run
            continue
    if first is not None and not found:
        raise first
    if first is None:
        found[0] = replace(found[0], choices=usual)
    return tuple(v for v in found if _interface(v.module) == _interface(found[0].module))


def side_by_side(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """``variants`` whose outputs live in the same places; ways that need others for them are left out.

    An output that the run sizes is in a slot: the last way says in which.
    """
    places = [variants[-1].memory.buffers[v] for v in variants[-1].module.graph.outputs]
    found: list[Variant] = []
    for variant in variants:
        own = [variant.memory.buffers[v] for v in variant.module.graph.outputs]
        if [p.storage for p in own] == [p.storage for p in places]:
            slots = {a.index: b.index for a, b in zip(own, places, strict=True) if a.storage is Storage.SLOT}
            memory = with_slots(variant.memory, slots)
            found.append(replace(variant, memory=memory))
    return tuple(found)


def with_slots(memory: MemoryPlan, wanted: Mapping[int, int]) -> MemoryPlan:
    """``memory`` with slots numbered anew: those in ``wanted`` as it says, the others one after the other."""
    if all(old == new for old, new in wanted.items()):
        return memory
    others = (n for n in itertools.count() if n not in wanted.values())
    numbers = {old: wanted[old] if old in wanted else next(others) for old in range(memory.slots)}

    def moved(place: Placement) -> Placement:
        return place if place.storage is not Storage.SLOT else replace(place, index=numbers[place.index])

    return replace(
        memory,
        buffers={v: moved(p) for v, p in memory.buffers.items()},
        loops={
            name: LoopMemory(tuple(map(moved, loop.following)), tuple(map(moved, loop.rows)))
            for name, loop in memory.loops.items()
        },
        slots=max(numbers.values(), default=-1) + 1,
    )


def _interface(module: Module) -> tuple[object, ...]:
    """What ways through a model must have in common."""
    given = input_symbols(module.graph)
    outputs = tuple((v.dtype, tuple(_of_run(d, given) for d in v.shape)) for v in module.graph.outputs)
    return module.graph.inputs, module.output_names, outputs, module.strings, dict(module.objects)


def _of_run(dim: Dim, given: frozenset[str]) -> Dim | None:
    """An extent that the run defines: only a way that defines it too has the same output."""
    return None if dim_symbols([dim]) <= given else dim


def _stretches(graph: Graph, symbols: frozenset[str]) -> bool:
    """Whether something is stretched of which the inputs alone say how far."""
    nodes = (n for g in walk_graphs(graph) for n in g.nodes if stretches(n))
    return any(dim_symbols((*n.operands[0].shape, *n.results[0].shape)) <= symbols for n in nodes)
