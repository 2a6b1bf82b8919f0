"""Modules: functions by name, graphs and loops side by side, that call each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from compiler_service.compiler.program.module_source import ModuleSource
from ingot.arguments import require_kind
from ingot.ir.calls import call_order, check_calls, linked
from ingot.ir.files import read_module, write_module
from ingot.ir.functions import Function, GraphFunction, interpreted
from ingot.ir.loops import LoopFunction
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Graph
from shared_ir.graph.ir import Module as Model
from shared_ir.graph.text import large_arrays, parse_graphs, print_graph, print_interface
from shared_ir.printable import some_of
from shared_ir.types import ObjectType

MAIN = "main"
"""The function of a module that is compiled."""

Array = np.ndarray[Any, Any]
"""An array of numpy, of any element type."""
_NO_GRAPH = Graph("", (), (), ())
_LOOPS = re.compile(r"^function\b", re.MULTILINE)
_NAME = re.compile(r"[^\W\d]\w*", re.ASCII)


@dataclass(frozen=True)
class ModelInterface:
    """What a model says of itself beside its graph: of the function ``main``.

    Attributes:
        opset: version of the operators that the model was written in; 0: of none.
        metadata: whatever it came with.
        input_names: how users call the inputs of ``main``, which need not be identifiers; none: as ``main`` does.
        output_names: the same of its outputs.
        objects: which of them are no plain arrays of numbers.
        strings: the strings in the model, in the order of their numbers.
        defaults: what inputs are, by name, that a caller need not give.
    """

    opset: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    objects: Mapping[str, ObjectType] = field(default_factory=dict)
    strings: tuple[str, ...] = ()
    defaults: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def _of(cls, model: Model) -> Self:
        return cls(**{own.name: getattr(model, own.name) for own in fields(cls)})

    def _model(self, graph: Graph) -> Model:
        """``graph`` with this interface."""
        return Model(graph, **{own.name: getattr(self, own.name) for own in fields(self)})


@dataclass(frozen=True)
class Module:
    """Functions by name, of which ``main`` is the one that :func:`ingot.compile` compiles; ``module["scale"]`` is one of them.

    ``str(module)`` is its text, which :meth:`parse` reads back; large arrays stand there as digests, and are in ``constants``. A
    module never changes: passes and :meth:`with_` give another one.

    Raises:
        IngotError: INVALID_ARGUMENT, two functions have one name, or one has no name that can be called.
    """

    functions: tuple[Function, ...]
    interface: ModelInterface = ModelInterface()

    def __post_init__(self) -> None:
        given: Any = self.functions
        found = tuple(given) if isinstance(given, Iterable) else (given,)
        object.__setattr__(self, "functions", found)
        strange = [type(f).__qualname__ for f in found if not isinstance(f, GraphFunction | LoopFunction)]
        if strange:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "a module holds functions",
                expected="GraphFunction and LoopFunction",
                received=", ".join(strange),
            )
        counts = Counter(f.name for f in found)
        for name, count in counts.items():
            if _NAME.fullmatch(name) is None or count > 1:
                raise IngotError(
                    ErrorCode.INVALID_ARGUMENT,
                    "each function of a module has a name of its own",
                    expected="distinct identifiers",
                    received=repr(name),
                )

    @classmethod
    def _of(cls, model: Model) -> Self:
        """The module of a model's graph, called ``main``."""
        return cls((GraphFunction(replace(model.graph, name=MAIN)),), ModelInterface._of(model))

    @property
    def by_name(self) -> Mapping[str, Function]:
        """The functions by their names, in their order."""
        return MappingProxyType({f.name: f for f in self.functions})

    def __getitem__(self, name: str) -> Function:
        """The function of this name.

        Raises:
            IngotError: NOT_FOUND, there is none.
        """
        found = self.by_name.get(name)
        if found is None:
            message = f"the module has no function {name!r}"
            raise IngotError(
                ErrorCode.NOT_FOUND, message, expected=f"one of {some_of(tuple(self.by_name))}", received=name
            )
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __iter__(self) -> Iterator[Function]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    @property
    def main(self) -> GraphFunction:
        """The graph function ``main``.

        Raises:
            IngotError: NOT_FOUND, there is none; INVALID_ARGUMENT, it is a loop function.
        """
        found = self[MAIN]
        if isinstance(found, LoopFunction):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "the function 'main' is of loops",
                expected="a graph function",
                remedy="Call it from a graph function 'main', or build its schedule with ingot.te.",
            )
        return found

    def with_(self, *functions: Function) -> Self:
        """A module with ``functions`` in place of those of the same names, or behind the others."""
        return replace(self, functions=tuple({f.name: f for f in (*self.functions, *functions)}.values()))

    def without(self, *names: str) -> Self:
        """A module that lacks the functions ``names``."""
        return replace(self, functions=tuple(f for f in self.functions if f.name not in names))

    # -- text

    @property
    def constants(self) -> Mapping[str, Array]:
        """Digest -> array, for the arrays that the text names by digest."""
        found = large_arrays(self.interface.defaults.values())
        for function in self.functions:
            found |= function.constants if isinstance(function, GraphFunction) else {}
        return found

    def __str__(self) -> str:
        graphs = [print_graph(f.graph) for f in self.functions if isinstance(f, GraphFunction)]
        loops = [f"{f}\n" for f in self.functions if isinstance(f, LoopFunction)]
        return print_interface(self.interface._model(_NO_GRAPH)) + "".join((*graphs, *loops))

    @classmethod
    def parse(cls, text: str, constants: Mapping[str, Array] | None = None) -> Self:
        """The module that prints as ``text``: graph functions first, then loop functions.

        Args:
            constants: digest -> array, for the arrays that the text names by digest.

        Raises:
            IngotError: INVALID_ARGUMENT, with line and, in graphs, column.
        """
        require_kind(text, str, "text", "what str(module) gives")
        model, graphs, end = parse_graphs(text, constants or {})
        starts = [found.start() for found in _LOOPS.finditer(text, end)]
        if text[end : starts[0] if starts else None].strip():
            line = text.count("\n", 0, end) + 1
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"line {line}: the text of a module holds graphs, and behind them loop functions",
                expected="graph NAME(, or function NAME( at the start of a line",
                received=repr(text[end : end + 24].split("\n")[0]),
            )
        ends = [*starts, len(text)][1:]
        above = ["\n" * text.count("\n", 0, start) for start in starts]  # so that errors name lines of this text
        loops = [LoopFunction.parse(a + text[s:e]) for a, s, e in zip(above, starts, ends, strict=True)]
        return cls((*map(GraphFunction, graphs), *loops), ModelInterface._of(model))

    # -- meaning

    def verify(self) -> None:
        """Check every function, that calls fit, that no function calls itself, and that names of the interface fit ``main``.

        Raises:
            IngotError: INVALID_ARGUMENT, TYPE_MISMATCH, NOT_FOUND, UNSUPPORTED_OPERATOR, naming the function, node or value.
        """
        call_order(self.by_name, tuple(self.by_name))
        for function in self.functions:
            function.verify()
            if isinstance(function, GraphFunction):
                check_calls(function.graph, self.by_name)
        if MAIN in self:
            self._model(self.main.graph)

    def _model(self, graph: Graph) -> Model:
        """``graph``, whose inputs and outputs are those of ``main``, as a model.

        Raises:
            IngotError: INVALID_ARGUMENT, it has another number of them than the interface has names.
        """
        own = self.interface
        names = own.input_names or tuple(v.name for v in graph.inputs)
        results = own.output_names or tuple(v.name for v in graph.outputs)
        if len(names) != len(graph.inputs) or len(results) != len(graph.outputs):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "the interface of the module does not fit its function main",
                expected=f"{len(graph.inputs)} inputs and {len(graph.outputs)} outputs",
                received=f"names for {len(names)} and {len(results)}",
            )
        return replace(own, input_names=names, output_names=results)._model(graph)

    def interpret(self, *arrays: Array, function: str = MAIN) -> tuple[Array, ...]:
        """What ``function`` gives for ``arrays``, one for each of its inputs, by the definitions of operators and loops.

        Raises:
            IngotError: NOT_FOUND; INVALID_ARGUMENT, arrays do not fit; what :meth:`verify` says of calls.
        """
        found = self[function]
        if isinstance(found, LoopFunction):
            return found.interpret(*arrays)
        return interpreted(linked(self.by_name, function), arrays)

    def _compiler_source(self) -> ModuleSource:
        """What the compiler takes: ``main`` with all that it calls.

        Raises:
            IngotError: as :meth:`verify`, and where there is no graph function ``main``.
        """
        main = self.main
        self.verify()
        return ModuleSource(self._model(linked(self.by_name, main.name, external=True)))

    # -- files

    def save(self, path: str | Path) -> None:
        """Write the text and the large arrays into one file, a ZIP archive; :func:`ingot.ir.load` reads it.

        Raises:
            IngotError: the file cannot be written.
        """
        write_module(Path(path), str(self), self.constants)


def load(path: str | Path) -> Module:
    """The module that :meth:`Module.save` wrote.

    A loop function reads and writes where it says: load files of people whose code you would run.

    Raises:
        IngotError: NOT_FOUND; INVALID_ARGUMENT, the file is none, or is damaged.
    """
    text, constants = read_module(Path(path))
    return Module.parse(text, constants)
