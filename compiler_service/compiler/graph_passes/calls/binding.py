"""What the symbols of a function stand for where it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim, bind
from shared_ir.graph.ir import INVOKE_OP, Graph, Node, Value, walk_graphs
from shared_ir.types import TensorType


def calls(graph: Graph) -> tuple[Node, ...]:
    """The nodes of ``graph`` and of the graphs nested in it that call functions of the module."""
    return tuple(n for g in walk_graphs(graph) for n in g.nodes if n.op == INVOKE_OP)


def callee(node: Node) -> str:
    """The name of the function that ``node`` calls.

    Raises:
        IngotError: INVALID_ARGUMENT, it names none.
    """
    name = node.attributes.get("function")
    if not isinstance(name, str):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"{INVOKE_OP} does not say which function it calls",
            node=str(node),
            expected='{function="name"}',
        )
    return name


def bound_symbols(
    function: str, parameters: Sequence[TensorType], operands: Sequence[Value | None]
) -> Mapping[str, Dim]:
    """The extents that the symbols in the shapes of ``parameters`` stand for where ``function`` is called with ``operands``.

    A symbol is the first extent that stands in its place; every other place must be the same extent, whatever the run.

    Raises:
        IngotError: TYPE_MISMATCH, the operands are not of these types.
    """
    if len(operands) != len(parameters):
        raise _misfit(function, f"{len(parameters)} operands", str(len(operands)))
    symbols: dict[str, Dim] = {}
    for parameter, operand in zip(parameters, operands, strict=True):
        if operand is None or operand.dtype is not parameter.dtype or operand.type.rank != parameter.rank:
            raise _misfit(function, str(parameter), "nothing" if operand is None else str(operand))
        for dim, extent in zip(parameter.shape, operand.shape, strict=True):
            if isinstance(dim, Var):
                symbols.setdefault(dim.name, extent)
    for parameter, operand in zip(parameters, operands, strict=True):
        assert operand is not None
        wanted = bound_type(parameter, symbols)
        if wanted != operand.type:
            raise _misfit(function, str(wanted), str(operand))
    return symbols


def bound_type(type: TensorType, symbols: Mapping[str, Dim]) -> TensorType:
    return TensorType(type.dtype, tuple(bind(d, symbols) for d in type.shape))


def _misfit(function: str, expected: str, received: str) -> IngotError:
    return IngotError(
        ErrorCode.TYPE_MISMATCH,
        f"the function {function!r} does not take these operands",
        expected=expected,
        received=received,
        remedy="Extents of a call must be those of the function in every run: the same symbol, or the same number.",
    )
