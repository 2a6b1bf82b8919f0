"""Passes and the pipeline that runs them.

A pass is a frozen dataclass whose fields are its options; it takes a graph to a graph and returns *the same object*
when it changed nothing. Everything one wants to see or check between passes is an instrument of the context.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from compiler_service.compiler.graph_passes.rewriting.facts import Facts, GraphFact
from compiler_service.compiler.graph_passes.rewriting.limits import check_limits
from compiler_service.compiler.graph_passes.rewriting.option_text import print_options
from compiler_service.compiler.pass_order import check_order
from compiler_service.compiler.reproducer import pass_fault
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import GROUP_OP, Graph, Module, walk_graphs
from shared_ir.graph.text import print_graph


@dataclass(frozen=True)
class Pass(ABC):
    """A transformation of a graph and of the graphs nested in it.

    Attributes:
        name: how the pass is called in options, dumps and errors: ``fold-constants``.
        level: the lowest optimisation level that runs it.
        needs: facts without which it would do nothing, or the wrong thing; whoever gives them comes before.
        gives: facts that hold behind it.
        forbids: facts behind which it would do nothing, or the wrong thing; whoever gives them comes later.
    """

    name: ClassVar[str]
    level: ClassVar[int] = 0
    needs: ClassVar[Facts] = frozenset()
    gives: ClassVar[Facts] = frozenset()
    forbids: ClassVar[Facts] = frozenset()

    def __post_init__(self) -> None:
        check_limits(self, self.name)

    def __str__(self) -> str:
        """As :func:`~compiler_service.compiler.graph_passes.pipeline_text.parse_pipeline` reads it."""
        return f"{self.name}{print_options(self)}"

    @abstractmethod
    def run(self, graph: Graph) -> Graph:
        """The transformed graph; ``graph`` itself when nothing changed."""

    def given(self) -> Facts:
        """``gives``, but for what the options of this pass leave undone."""
        return self.gives

    def ensures(self, graph: Graph) -> None:  # noqa: B027 - optional
        """Raise unless ``graph`` is what this pass promises."""


class Instrument(Protocol):
    """Told about every pass that runs. ``index`` counts the passes of the pipeline from 1."""

    def before(self, index: int, name: str, graph: Graph) -> None: ...

    def after(self, index: int, name: str, graph: Graph, seconds: float) -> None: ...


@dataclass(frozen=True)
class PassContext:
    """What decides which passes run and who watches.

    Attributes:
        opt_level: 0 (only what is needed to run) to 3 (everything).
        disabled: names of passes to leave out.
        instruments: told before and after each pass, in this order.
    """

    opt_level: int = 3
    disabled: frozenset[str] = frozenset()
    instruments: tuple[Instrument, ...] = ()

    def enables(self, item: Pass) -> bool:
        return item.level <= self.opt_level and item.name not in self.disabled


class ModulePasses(Protocol):
    """What a model goes through: the :class:`Pipeline` of a level, or one of somebody else's.

    ``is_own``: whether it is not that of the level, so that the key of an artifact says what it made.
    """

    @property
    def is_own(self) -> bool: ...

    def run(self, module: Module, context: PassContext) -> Module: ...


@dataclass(frozen=True)
class Pipeline:
    """Passes in the order in which they run.

    Raises:
        IngotError: INVALID_ARGUMENT, the order is not what the passes declare; see
            :func:`~compiler_service.compiler.pass_order.check_order`.
    """

    passes: tuple[Pass, ...]
    is_own: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_order(self.passes)

    def __str__(self) -> str:
        return ",".join(map(str, self.passes))

    def run(self, module: Module, context: PassContext) -> Module:
        """``module`` after every enabled pass.

        Raises:
            IngotError: INVALID_ARGUMENT when ``disabled`` names an unknown pass or one of level 0, which code needs; what a pass raised;
                COMPILER_FAULT naming the pass when it broke.
        """
        graph = self.run_graph(module.graph, context)
        return module if graph is module.graph else replace(module, graph=graph)

    def run_graph(self, graph: Graph, context: PassContext) -> Graph:
        self._check_names(context.disabled)
        self._check_needed(context.disabled)
        self._check_grouped(graph, context)
        done: list[str] = []
        for index, item in enumerate(self.passes, start=1):
            if not context.enables(item):
                continue
            for instrument in context.instruments:
                instrument.before(index, item.name, graph)
            start = time.perf_counter()
            graph = _run(item, graph, done)
            seconds = time.perf_counter() - start
            done.append(item.name)
            for instrument in context.instruments:
                instrument.after(index, item.name, graph, seconds)
        return graph

    def _check_grouped(self, graph: Graph, context: PassContext) -> None:
        """NOTE: of all facts this one can be read off a graph, one that has been printed behind fusion for instance."""
        if not any(node.op == GROUP_OP for g in walk_graphs(graph) for node in g.nodes):
            return
        for item in self.passes:
            if context.enables(item) and GraphFact.GROUPED in item.forbids:
                raise IngotError(
                    ErrorCode.INVALID_ARGUMENT,
                    f"pass {item.name!r} must not find {GraphFact.GROUPED!s}, and operators of the graph are in groups already",
                    field="passes",
                    expected="a graph from before fusion",
                    received=f"one with {GROUP_OP}",
                    remedy=f"Leave {item.name} out, or begin with the graph as it was before it was fused.",
                )

    def _check_names(self, names: Iterable[str]) -> None:
        known = {p.name for p in self.passes}
        unknown = sorted(set(names) - known)
        if unknown:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"unknown pass {unknown[0]!r}",
                field="disabled",
                expected=f"one of {', '.join(sorted(known))}",
                received=unknown[0],
                remedy="Name a pass of the pipeline.",
            )

    def _check_needed(self, names: Iterable[str]) -> None:
        needed = sorted({p.name for p in self.passes if p.level == 0} & set(names))
        if needed:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"pass {needed[0]!r} brings the graph to the form that code is made from, at every level",
                field="disabled",
                expected="passes that only optimise",
                received=needed[0],
                remedy="Leave it in.",
            )


def _run(item: Pass, graph: Graph, done: list[str]) -> Graph:
    try:
        with np.errstate(
            all="ignore"
        ):  # a pass computes with numbers of the model: what is infinite or NaN is their answer
            result = item.run(graph)
            item.ensures(result)
    except IngotError:
        raise
    except Exception as error:
        optional = item.level > 0
        raise pass_fault(item.name, str(item), done, print_graph(graph), error, optional=optional) from error
    return result
