"""The ways through a model: one for every run, and one for the runs in which extents that broadcasting joins are equal.

Where two extents meet of which either may turn out to be 1 (see :mod:`compiler_service.tensor_expr.extents`), code for every run reads
stretched operands through ``Expand``, which keeps products, what follows them, and attention in kernels of their own. Nearly every
run of nearly every model finds these extents equal. So such a model is compiled twice, and a run takes the way that is open to it; the
kernels that both ways share, most of them, are compiled once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from compiler_service.frontend.inference import Inference
from compiler_service.frontend.load import import_model
from compiler_service.frontend.options import ImportOptions
from compiler_service.frontend.source import ModelSource
from compiler_service.graph_passes.plan_memory import MemoryPlan
from compiler_service.graph_passes.symbols import input_symbols
from compiler_service.tensor_expr.extents import Agreement, agreeing, all_equal, is_stretched
from compiler_service.tensor_expr.group import KernelDefinition
from shared_ir.dim import Dim, dim_symbols
from shared_ir.errors import IngotError
from shared_ir.graph import Graph, Module, Node, Value, all_constants, walk_graphs


@dataclass(frozen=True)
class Variant:
    """One way through a model, for the runs in which ``agreement`` holds; ``None``: all of them.

    Attributes:
        memory: where its values live, once its graph is optimised.
        definitions: the kernels that it launches, in order.
    """

    module: Module
    agreement: Agreement | None = None
    memory: MemoryPlan = field(default_factory=lambda: MemoryPlan({}, 0, 0))
    definitions: tuple[KernelDefinition, ...] = ()

    def within(self) -> AbstractContextManager[None]:
        """What is done to the graph, and what is made of it, is done inside this."""
        return agreeing(self.agreement)

    @property
    def condition(self) -> Dim:
        """1 in the runs that may take this way, else 0."""
        return 1 if self.agreement is None else all_equal(self.agreement.pairs)

    @property
    def constants(self) -> Mapping[Value, np.ndarray]:
        return all_constants(self.module.graph)


def import_variants(
    source: ModelSource, options: ImportOptions, inference: Inference, *, most: int
) -> tuple[Variant, ...]:
    """The ways through ``source``, at most ``most``; the last is open to every run.

    Raises:
        IngotError: of the model.
    """
    general = Variant(import_model(source, options, inference))
    symbols = input_symbols(general.module.graph)
    if most < 2 or not _stretches(general.module.graph, symbols):
        return (general,)
    agreement = Agreement(symbols)
    try:
        with agreeing(agreement):
            equal = Variant(import_model(source, options, inference), agreement)
    except IngotError:  # of a model that no run with equal extents fits
        return (general,)
    return (equal, general) if _interface(equal.module) == _interface(general.module) else (general,)


def _interface(module: Module) -> tuple[object, ...]:
    """What two ways through a model must have in common."""
    return module.graph.inputs, module.output_names, module.strings, dict(module.objects)


def _stretches(graph: Graph, symbols: frozenset[str]) -> bool:
    """Whether something is stretched of which the inputs alone say how far."""
    return any(_is_stretching(n, symbols) for g in walk_graphs(graph) for n in g.nodes)


def _is_stretching(node: Node, symbols: frozenset[str]) -> bool:
    if node.op != "Expand":
        return False
    pairs: Sequence[tuple[Dim, Dim]] = list(
        zip(reversed(node.operands[0].shape), reversed(node.results[0].shape), strict=False)
    )
    return any(is_stretched(own, full) and dim_symbols((own, full)) <= symbols for own, full in pairs)
