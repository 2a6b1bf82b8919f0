"""Passes in the order in which they run."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from compiler_service.compiler.graph_passes import pipelines
from compiler_service.compiler.graph_passes.parts.regions import region_of
from compiler_service.compiler.graph_passes.rewriting import pass_manager
from compiler_service.compiler.graph_passes.rewriting.facts import GraphFact
from compiler_service.compiler.pass_order import check_order
from ingot.arguments import require_kind
from ingot.ir.external_calls import with_parts
from ingot.ir.module import Module
from ingot.ir.passing import ANNOTATED, CompilerPass, Pass, run_watched
from ingot.pass_context import LEVELS, Instrument, PassContext
from ingot.target import chosen_target
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Module as Model
from shared_ir.machine.target import Target


@dataclass(frozen=True)
class Sequential:
    """Passes that run one after the other, a value: :meth:`before`, :meth:`after` and :meth:`without` give others.

    Called with a module, it runs those that the :class:`ingot.ir.PassContext` around it enables. What the passes of users make is
    verified, types and all.

    Raises:
        IngotError: INVALID_ARGUMENT, a pass comes before another that gives what it needs, or behind one that gives what it forbids; or
            it needs a fact that nobody gives and the compiler does not know.
    """

    passes: tuple[Pass, ...]

    def __init__(self, passes: Iterable[Pass | Sequential]) -> None:
        require_kind(passes, Iterable, "passes", "a list of passes")
        flat = [p for item in passes for p in (item.passes if isinstance(item, Sequential) else (item,))]
        strange = [getattr(p, "__name__", type(p).__qualname__) for p in flat if not isinstance(p, Pass)]
        if strange:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "a sequence is of passes",
                field="passes",
                expected="ir.passes.Fuse(), or what @ir.function_pass and @ir.module_pass make",
                received=", ".join(strange),
            )
        object.__setattr__(self, "passes", tuple(flat))
        check_order(self.passes)
        _check_facts(self.passes)

    def __call__(self, module: Module) -> Module:
        """``module`` after every pass that is enabled.

        Raises:
            IngotError: what a pass raises, see :class:`ingot.ir.Pass`.
        """
        context = PassContext.current()
        for item in self.passes:
            if context.enables(item.name, item.level):
                module = run_watched(item, module, context)
        return module

    def __iter__(self) -> Iterator[Pass]:
        return iter(self.passes)

    def __len__(self) -> int:
        return len(self.passes)

    def __str__(self) -> str:
        """Their names with their options, separated by commas."""
        return ",".join(map(str, self.passes))

    @property
    def names(self) -> tuple[str, ...]:
        """Those of its passes, in order."""
        return tuple(p.name for p in self.passes)

    def before(self, name: str, *passes: Pass) -> Sequential:
        """A sequence with ``passes`` in front of the pass ``name``; of several with this name, of the first.

        Raises:
            IngotError: NOT_FOUND, there is no such pass; INVALID_ARGUMENT, they do not belong there.
        """
        place = self._place(name, self.names)
        return Sequential((*self.passes[:place], *passes, *self.passes[place:]))

    def after(self, name: str, *passes: Pass) -> Sequential:
        """A sequence with ``passes`` behind the pass ``name``; of several with this name, behind the last.

        Raises:
            IngotError: as :meth:`before`.
        """
        place = len(self.passes) - self._place(name, self.names[::-1])
        return Sequential((*self.passes[:place], *passes, *self.passes[place:]))

    def without(self, *names: str) -> Sequential:
        """A sequence that lacks every pass with one of ``names``.

        Raises:
            IngotError: NOT_FOUND, there is no such pass.
        """
        for name in names:
            self._place(name, self.names)
        return Sequential(p for p in self.passes if p.name not in names)

    def _place(self, name: str, names: tuple[str, ...]) -> int:
        if name in names:
            return names.index(name)
        near = difflib.get_close_matches(name, names, n=3)
        raise IngotError(
            ErrorCode.NOT_FOUND,
            f"the sequence has no pass {name!r}",
            field="passes",
            expected=f"one of {', '.join(dict.fromkeys(near or sorted(names)))}",
            received=name,
        )


def default_pipeline(
    target: str | Target = "host", opt_level: int | None = None, *, winograd: bool = True
) -> Sequential:
    """What :func:`ingot.compile` runs for ``target``, to put passes into::

        ingot.compile(module, pipeline=ir.default_pipeline("host").before("fuse", my_pass))

    Args:
        target: as :func:`ingot.compile` takes it; its instructions and cores decide what is worth while.
        opt_level: 0 to 3; by default that of the context around.
        winograd: whether convolutions may be filtered by Winograd's algorithm, at level 3.
    """
    level = PassContext.current().opt_level if opt_level is None else opt_level
    PassContext(level)  # refuses what is no level
    found = pipelines.default_pipeline(level, chosen_target(target), filters=winograd and level == max(LEVELS))
    return Sequential(map(CompilerPass.of, found.passes))


def _check_facts(passes: tuple[Pass, ...]) -> None:
    known = {ANNOTATED, *map(str, GraphFact), *(fact for p in passes for fact in p.given())}
    for item in passes:
        for fact in sorted(item.needs - known):
            near = difflib.get_close_matches(fact, sorted(known), n=3)
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"pass {item.name!r} needs {fact!r}, which no pass gives",
                field="needs",
                expected=f"one of {', '.join(near or sorted(known))}",
                received=fact,
            )


@dataclass(frozen=True)
class InCompiler:
    """A sequence in the place of the compiler's own pipeline."""

    sequence: Sequential
    instruments: tuple[Instrument, ...]
    is_own: bool

    def run(self, module: Model, context: pass_manager.PassContext) -> Model:
        """``module`` after the passes that ``context`` enables.

        Raises:
            IngotError: INVALID_ARGUMENT, it disables passes that are none of the sequence, or that code needs.
        """
        needed = needed_names()
        for name in sorted(context.disabled):
            if name not in self.sequence.names or name in needed:
                raise IngotError(
                    ErrorCode.INVALID_ARGUMENT,
                    f"pass {name!r} is needed at every level" if name in needed else f"unknown pass {name!r}",
                    field="disabled",
                    expected=f"some of {', '.join(n for n in dict.fromkeys(self.sequence.names) if n not in needed)}",
                    received=name,
                )
        watchers = tuple(_Watcher(i) for i in context.instruments)
        with PassContext(context.opt_level, context.disabled, (*self.instruments, *watchers)):
            own = Module._of(module)
            result = self.sequence(own)
        _check_parts(result)
        return module if result is own else Module._model(result, with_parts(result.main.graph, result.by_name))


def _check_parts(module: Module) -> None:
    marked = next((n for n in module.main.graph.nodes if region_of(n)), None)
    if marked is not None:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the pipeline marks parts for a code generator, and makes no functions of them",
            node=str(marked),
            expected="'partition-graph' behind 'annotate-target'",
            remedy="Put ir.passes.PartitionGraph() into the pipeline, or leave the annotation out.",
        )


class _Watcher(Instrument):
    """Tells an instrument of the compiler of the graph ``main``."""

    def __init__(self, own: pass_manager.Instrument) -> None:
        self.own, self.index = own, 0

    def before(self, name: str, module: Module) -> None:
        self.index += 1
        self.own.before(self.index, name, module.main.graph)

    def after(self, name: str, module: Module, seconds: float) -> None:
        self.own.after(self.index, name, module.main.graph, seconds)


def needed_names() -> tuple[str, ...]:
    """Names of the passes that bring a graph to the form that code is made from, in their order."""
    return tuple(p.name for p in pipelines.default_pipeline(0).passes)


def in_compiler(sequence: Sequential, instruments: Iterable[Instrument], *, is_own: bool) -> InCompiler:
    """What takes the place of the compiler's pipeline.

    Args:
        is_own: whether it is another one, and not watched alone.

    Raises:
        IngotError: INVALID_ARGUMENT, ``sequence`` lacks a pass that brings graphs to the form that code is made from.
    """
    if not isinstance(sequence, Sequential):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a pipeline is a sequence of passes",
            field="pipeline",
            expected="ir.Sequential, such as ir.default_pipeline(target)",
            received=type(sequence).__qualname__,
        )
    missing = [name for name in needed_names() if name not in sequence.names]
    if missing and len(sequence):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the pipeline lacks passes that bring a graph to the form that code is made from",
            field="pipeline",
            expected=", ".join(missing),
            received=str(sequence),
            remedy="Begin with ir.default_pipeline(target), and put passes into it or leave others out.",
        )
    return InCompiler(sequence, tuple(instruments), is_own)
