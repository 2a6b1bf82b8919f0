"""Passes: those of the compiler, and those that users write."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from compiler_service.compiler.graph_passes.rewriting import pass_manager
from ingot.ir.external_calls import part_names
from ingot.ir.functions import GraphFunction
from ingot.ir.module import Module
from ingot.pass_context import LEVELS, PassContext
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Graph

Facts = frozenset[str]
"""Names of what holds of a module; ``docs/ir.md`` has those of the compiler's passes."""
ANNOTATED = "annotated"
"""Parts are marked for code generators of others: by a pass of the sequence, or before it."""
_EVERYTHING = pass_manager.PassContext()


@dataclass(frozen=True)
class Pass(ABC):
    """A transformation of modules; called with one, it gives one, the same object where it changes nothing.

    Attributes:
        name: how the pass is called in contexts, sequences and errors: ``fold-constants``.
        level: the lowest optimisation level that runs it.
        needs: facts without which it would do nothing, or the wrong thing; whoever gives them comes before. A fact is a name: one of
            those that the compiler's passes give (``docs/ir.md``), or one's own.
        gives: facts that hold behind it.
        forbids: facts behind which it would do nothing, or the wrong thing; whoever gives them comes later.
    """

    name: str
    level: int = field(default=0, kw_only=True)
    needs: Facts = field(default=frozenset(), kw_only=True)
    gives: Facts = field(default=frozenset(), kw_only=True)
    forbids: Facts = field(default=frozenset(), kw_only=True)

    def __call__(self, module: Module) -> Module:
        """``module`` after this pass, which runs whatever the context disables.

        Raises:
            IngotError: INVALID_ARGUMENT, the pass failed, or what it made is no module that fits; COMPILER_FAULT, a pass of the
                compiler is at fault.
        """
        return run_watched(self, module, PassContext.current())

    def given(self) -> Facts:
        """Facts that hold behind it."""
        return self.gives

    @property
    def is_own(self) -> bool:
        """Whether a user wrote it, so that what it makes is checked."""
        return True

    @abstractmethod
    def run(self, module: Module) -> Module:
        """``module`` after this pass; whatever it raises is told by who calls."""


@dataclass(frozen=True)
class CompilerPass(Pass):
    """A pass of the compiler over each graph function of a module; ``str()`` is its name with its options."""

    own: pass_manager.Pass = field(kw_only=True)

    @classmethod
    def of(cls, own: pass_manager.Pass) -> CompilerPass:
        needs, gives, forbids = (frozenset(map(str, facts)) for facts in (own.needs, own.given(), own.forbids))
        return cls(own.name, level=own.level, needs=needs, gives=gives, forbids=forbids, own=own)

    def __str__(self) -> str:
        return str(self.own)

    @property
    def is_own(self) -> bool:
        return False

    def run(self, module: Module) -> Module:
        pipeline = pass_manager.Pipeline((self.own,))
        return over_graphs(module, lambda graph: pipeline.run_graph(graph, _EVERYTHING))


@dataclass(frozen=True)
class FunctionPass(Pass):
    """What :func:`function_pass` makes."""

    function: Callable[[Graph], Graph] = field(kw_only=True)

    def __str__(self) -> str:
        return self.name

    def run(self, module: Module) -> Module:
        return over_graphs(module, self.function)


@dataclass(frozen=True)
class ModulePass(Pass):
    """What :func:`module_pass` makes."""

    function: Callable[[Module], Module] = field(kw_only=True)

    def __str__(self) -> str:
        return self.name

    def run(self, module: Module) -> Module:
        return self.function(module)


def function_pass(
    name: str, level: int = 0, needs: Iterable[str] = (), gives: Iterable[str] = (), forbids: Iterable[str] = ()
) -> Callable[[Callable[[Graph], Graph]], FunctionPass]:
    """Makes a pass of a function from a graph to a graph; it is called for every graph function of a module::

        @ir.function_pass("square-by-product", level=1, forbids=["grouped"])
        def square_by_product(graph: ir.Graph) -> ir.Graph:
            return ir.rewrite(graph, [ir.rule("Pow", product)])

    The attributes are those of :class:`Pass`. Where nothing is to be done the function gives back the graph that it was given.

    Raises:
        IngotError: INVALID_ARGUMENT, there is no such level, or facts are no list of names.
    """
    ordered = _declared(name, level, needs, gives, forbids)
    return lambda function: FunctionPass(name, **ordered, function=function)


def module_pass(
    name: str, level: int = 0, needs: Iterable[str] = (), gives: Iterable[str] = (), forbids: Iterable[str] = ()
) -> Callable[[Callable[[Module], Module]], ModulePass]:
    """As :func:`function_pass`, of a function from a module to a module: it may add functions and take them away."""
    ordered = _declared(name, level, needs, gives, forbids)
    return lambda function: ModulePass(name, **ordered, function=function)


def _declared(name: str, level: int, *facts: Iterable[str]) -> dict[str, Any]:
    if not isinstance(name, str) or not name:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a pass has a name",
            field="name",
            expected='@ir.function_pass("name")',
            received=getattr(name, "__name__", None) or repr(name),
        )
    if type(level) is not int or level not in LEVELS:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"pass {name!r} is of no optimisation level",
            field="level",
            expected="0, 1, 2 or 3",
            received=repr(level),
        )
    for given in facts:
        if isinstance(given, str):
            message = f"the facts of pass {name!r} are a list of names"
            raise IngotError(ErrorCode.INVALID_ARGUMENT, message, expected=f"[{given!r}]", received=repr(given))
    needs, gives, forbids = map(frozenset, facts)
    return {"level": level, "needs": needs, "gives": gives, "forbids": forbids}


def over_graphs(module: Module, function: Callable[[Graph], Graph]) -> Module:
    """``module`` with ``function`` applied to every graph function but those that code generators of others take: these are theirs."""
    changed: list[GraphFunction] = []
    parts = part_names(module.by_name)
    for each in module:
        if isinstance(each, GraphFunction) and each.name not in parts:
            graph = function(each.graph)
            if not isinstance(graph, Graph):
                raise TypeError(f"it gives {type(graph).__name__} for a graph")
            if graph is not each.graph:
                changed.append(GraphFunction(graph))
    return module.with_(*changed) if changed else module


def run_watched(item: Pass, module: Module, context: PassContext) -> Module:
    """``module`` after ``item``, which the instruments of ``context`` are told of; what a user's pass makes is verified."""
    for instrument in context.instruments:
        instrument.before(item.name, module)
    start = time.perf_counter()
    result = _checked(item, module) if item.is_own else item.run(module)
    seconds = time.perf_counter() - start
    for instrument in context.instruments:
        instrument.after(item.name, result, seconds)
    return result


def _checked(item: Pass, module: Module) -> Module:
    try:
        result = item.run(module)
    except IngotError as error:
        code = ErrorCode.INVALID_ARGUMENT if error.code is ErrorCode.COMPILER_FAULT else error.code
        raise replace(error, code=code, message=f"in pass {item.name!r}: {error.message}") from error
    except Exception as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"pass {item.name!r} failed",
            field="passes",
            received=f"{type(error).__name__}: {error}",
        ) from error
    if not isinstance(result, Module):
        message = f"pass {item.name!r} gives no module"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, expected="a Module", received=type(result).__name__)
    if result is not module:
        try:
            result.verify()
        except IngotError as error:
            raise replace(error, message=f"after pass {item.name!r}: {error.message}") from error
    return result
