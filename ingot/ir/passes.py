"""The passes, each callable alone: ``ir.passes.Fuse()(module)``.

Those of the compiler have the names that they have there, and their options as arguments: ``ir.passes.Fuse(merge=False)``,
``ir.passes.FoldConstants()``, ``ir.passes.EliminateCommonSubexpressions()``; ``dir(ir.passes)`` lists them. Beside them are those of
modules: :func:`EliminateDeadFunctions`, :func:`InlineCalls`, and those that give parts to code generators of others:
:func:`AnnotateTarget`, :func:`MergeRegions`, :func:`PartitionGraph`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler_service.compiler.graph_passes.pipelines import PASSES
from ingot.ir.calls import call_order, linked
from ingot.ir.functions import GraphFunction
from ingot.ir.module import MAIN, Module
from ingot.ir.parts import AnnotateTarget, MergeRegions, PartitionGraph
from ingot.ir.passing import CompilerPass, ModulePass, Pass, module_pass
from shared_ir.errors import ErrorCode, IngotError

__all__ = ("AnnotateTarget", "EliminateDeadFunctions", "InlineCalls", "MergeRegions", "PartitionGraph", "of_name")

_CLASSES = {own.__name__: own for own in PASSES.values()}


def EliminateDeadFunctions() -> ModulePass:
    """Removes functions that ``main`` does not call, by others or at once; a module without ``main`` keeps all."""

    @module_pass("eliminate-dead-functions", level=1)
    def eliminate(module: Module) -> Module:
        alive = call_order(module.by_name, (MAIN,) if MAIN in module else tuple(module.by_name))
        return module.without(*(name for name in module.by_name if name not in alive))

    return eliminate


def InlineCalls() -> ModulePass:
    """Replaces calls by the nodes of the functions that are called, and those of loop functions by their text; functions stay."""

    @module_pass("inline-calls")
    def inline(module: Module) -> Module:
        graphs = [f for f in module if isinstance(f, GraphFunction)]
        found = [(f, linked(module.by_name, f.name)) for f in graphs]
        changed = [GraphFunction(graph) for f, graph in found if graph is not f.graph]
        return module.with_(*changed) if changed else module

    return inline


def of_name(name: str) -> Pass:
    """The pass of the compiler that is called ``name``, ``fold-constants``, with the options that it has by itself.

    Raises:
        IngotError: NOT_FOUND.
    """
    if name not in PASSES:
        message = f"the compiler has no pass {name!r}"
        raise IngotError(ErrorCode.NOT_FOUND, message, expected=f"one of {', '.join(PASSES)}", received=name)
    return CompilerPass.of(PASSES[name]())


def __getattr__(name: str) -> Callable[..., Pass]:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no pass {name!r}")
    own = _CLASSES[name]

    def make(**options: Any) -> Pass:
        return CompilerPass.of(own(**options))

    make.__name__ = make.__qualname__ = name
    make.__doc__ = own.__doc__
    return make


def __dir__() -> list[str]:
    return sorted((*_CLASSES, *__all__))
