"""Functions that call each other: in which order, whether calls fit, and a function with all that it calls in one graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from compiler_service.compiler.graph_passes.calls.binding import FunctionType, callee, calls
from compiler_service.compiler.graph_passes.calls.inline import inline
from compiler_service.compiler.graph_passes.parts.regions import unmark
from compiler_service.compiler.graph_passes.rewriting.nested import map_graphs
from compiler_service.compiler.loop_ir.algorithms.called import arguments_of
from compiler_service.compiler.loop_ir.positions.proof import required_extents
from compiler_service.compiler.tensor_expr.operators.sequential import LOOPS_OP
from ingot.ir.external_calls import with_parts
from ingot.ir.functions import Function, GraphFunction
from ingot.ir.loops import LoopFunction
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Var
from shared_ir.expr.dim import dim_symbols
from shared_ir.graph.ir import INVOKE_OP, Attribute, Graph, Node, walk_graphs
from shared_ir.printable import some_of
from shared_ir.types import TensorType

Functions = Mapping[str, Function]
MOST_NODES = 1 << 20
"""Of a function with all that it calls."""


def call_order(functions: Functions, roots: tuple[str, ...]) -> tuple[str, ...]:
    """What ``roots`` call, themselves included, each behind those that it calls.

    Raises:
        IngotError: NOT_FOUND, a function is called that is not there; INVALID_ARGUMENT, one calls itself, by others or at once.
    """
    order: dict[str, None] = {}
    path: dict[str, Iterator[Node]] = {}
    for root in roots:
        if root not in order:
            path[root] = _calls_of(functions[root])
        while path:
            name = next(reversed(path))
            node = next(path[name], None)
            if node is None:
                order[name] = None
                del path[name]
            elif callee(node) in path:
                raise _recursion((*path, callee(node)))
            elif callee(node) not in functions:
                raise _missing(node, functions)
            elif callee(node) not in order:
                path[callee(node)] = _calls_of(functions[callee(node)])
    return tuple(order)


def _calls_of(function: Function) -> Iterator[Node]:
    return iter(calls(function.graph) if isinstance(function, GraphFunction) else ())


def _recursion(path: tuple[str, ...]) -> IngotError:
    name = path[-1]
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        f"the function {name!r} calls itself, which has no end that a compiler could see",
        expected="functions that do not call themselves",
        received=" calls ".join(path[path.index(name) :]),
        remedy="Repeat with a Loop or a Scan, which say how often.",
    )


def _missing(node: Node, functions: Functions) -> IngotError:
    return IngotError(
        ErrorCode.NOT_FOUND,
        f"the module has no function {callee(node)!r}",
        node=str(node),
        expected=f"one of {some_of(tuple(functions))}",
        received=callee(node),
    )


def check_calls(graph: Graph, functions: Functions) -> None:
    """Raises IngotError: TYPE_MISMATCH, a call in ``graph`` does not fit the function; INVALID_ARGUMENT, loops cannot be called."""
    for node in calls(graph):
        type_of(functions[callee(node)]).bound_by(node)


def type_of(function: Function) -> FunctionType:
    """What ``function`` takes and gives where a graph calls it.

    Raises:
        IngotError: INVALID_ARGUMENT, it is a loop function that no graph can call.
    """
    return function.type if isinstance(function, GraphFunction) else _loop_type(function)


def _loop_type(loops: LoopFunction) -> FunctionType:
    arguments, results = arguments_of(loops.function)
    types = [TensorType(b.dtype, b.shape) for b in (*arguments, *results)]
    told = {d.name for t in types[: len(arguments)] for d in t.shape if isinstance(d, Var)}
    asked = dim_symbols([d for t in types for d in t.shape] + list(loops.function.symbols) + [loops.function.tasks])
    if len(results) != 1 or not arguments:
        raise _uncallable(loops, "one result, and at least one argument", f"{len(results)} and {len(arguments)}")
    if asked - told:
        missing = ", ".join(sorted(asked - told))
        raise _uncallable(loops, "symbols that are extents of its arguments", missing)
    if any(b.strides is not None for b in (*arguments, *results)):
        raise _uncallable(loops, "arguments without gaps", "one with strides")
    try:
        required_extents(loops.function)
    except IngotError as error:
        raise _uncallable(
            loops, "positions that data give to be proven inside of their buffers", error.field
        ) from error
    return FunctionType(loops.name, tuple(types[:-1]), (types[-1],))


def _uncallable(loops: LoopFunction, expected: str, received: str) -> IngotError:
    message = f"no graph can call the loop function {loops.name!r}"
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, expected=expected, received=received)


def linked(functions: Functions, name: str, *, external: bool = False) -> Graph:
    """The graph function ``name`` without calls: those of graphs are replaced by their nodes, those of loops say their text; with
    ``external`` those that ask for a code generator of somebody else say the text of their part.

    Raises:
        IngotError: as :func:`call_order` and :func:`check_calls`.
    """
    order = call_order(functions, (name,))
    _check_size(functions, order)
    called = {n: f for n in order if isinstance(f := functions[n], LoopFunction)}
    done: dict[str, Graph] = {}
    for each in order:
        function = functions[each]
        if isinstance(function, GraphFunction):
            check_calls(function.graph, functions)
            graph = unmark(with_parts(function.graph, functions)) if external else function.graph
            own = map_graphs(graph, lambda body, _: _with_loops(body, called))
            done[each] = inline(own, done)
    return done[name]


def _check_size(functions: Functions, order: tuple[str, ...]) -> None:
    """Raises IngotError: LIMIT_EXCEEDED; each call is a copy, and functions that call others twice double what they call."""
    sizes: dict[str, int] = {}
    for name in order:
        function = functions[name]
        if isinstance(function, GraphFunction):
            own = sum(len(g.nodes) for g in walk_graphs(function.graph))
            sizes[name] = own + sum(sizes.get(callee(node), 1) for node in calls(function.graph))
            if sizes[name] > MOST_NODES:
                raise IngotError(
                    ErrorCode.LIMIT_EXCEEDED,
                    f"the function {name!r} has too many nodes with all that it calls",
                    expected=f"at most {MOST_NODES}",
                    received=str(sizes[name]),
                    remedy="Call less often, or repeat with a Loop.",
                )


def _with_loops(graph: Graph, loops: Mapping[str, LoopFunction]) -> Graph:
    nodes = tuple(_with_text(n, loops) for n in graph.nodes)
    return graph if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)) else graph.with_(nodes=nodes)


def _with_text(node: Node, loops: Mapping[str, LoopFunction]) -> Node:
    if node.op != INVOKE_OP or callee(node) not in loops:
        return node
    (result,) = node.results
    attributes: dict[str, Attribute] = {"program": str(loops[callee(node)]), "type": result.type}
    return replace(node, op=LOOPS_OP, attributes=attributes, name=node.name or callee(node))
