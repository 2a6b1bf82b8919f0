"""What the symbols of a function stand for where it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class FunctionType:
    """What a function takes and gives; its symbols are those in the shapes of ``parameters`` and those that its run defines."""

    name: str
    parameters: tuple[TensorType, ...]
    results: tuple[TensorType, ...]

    @classmethod
    def of(cls, graph: Graph) -> FunctionType:
        """That of a graph."""
        return cls(graph.name, tuple(v.type for v in graph.inputs), tuple(v.type for v in graph.outputs))

    def bound(self, operands: Sequence[Value | None]) -> dict[str, Dim]:
        """The extents that symbols of ``parameters`` stand for where the function is called with ``operands``.

        A symbol is the first extent that stands in its place; every other place must be the same extent, whatever the run.

        Raises:
            IngotError: TYPE_MISMATCH, the operands are not of these types.
        """
        if len(operands) != len(self.parameters):
            raise self._misfit(f"{len(self.parameters)} operands", str(len(operands)))
        symbols: dict[str, Dim] = {}
        for parameter, operand in zip(self.parameters, operands, strict=True):
            if operand is None or operand.dtype is not parameter.dtype or operand.type.rank != parameter.rank:
                raise self._misfit(str(parameter), "nothing" if operand is None else str(operand))
            for dim, extent in zip(parameter.shape, operand.shape, strict=True):
                if isinstance(dim, Var):
                    symbols.setdefault(dim.name, extent)
        for parameter, operand in zip(self.parameters, operands, strict=True):
            wanted = bound_type(parameter, symbols)
            if operand is not None and wanted != operand.type:
                raise self._misfit(str(wanted), str(operand))
        return symbols

    def bound_by(self, node: Node) -> dict[str, Dim]:
        """As :meth:`bound` for the operands of a call; symbols of the run stand for those of its results.

        Raises:
            IngotError: TYPE_MISMATCH, operands or results are not of these types; ``node`` is the call.
        """
        try:
            symbols = self.bound(node.inputs)
            if len(node.outputs) > len(self.results):
                raise self._misfit(f"{len(self.results)} results", str(len(node.outputs)))
            pairs = [(t, v) for t, v in zip(self.results, node.outputs, strict=False) if v is not None]
            for type, value in pairs:
                for dim, extent in zip(type.shape, value.shape, strict=False):
                    if isinstance(dim, Var) and isinstance(extent, Var):
                        symbols.setdefault(dim.name, extent)
            for type, value in pairs:
                if bound_type(type, symbols) != value.type:
                    raise self._misfit(f"the result {bound_type(type, symbols)}", str(value))
        except IngotError as error:
            raise error.located(node=str(node)) from error
        return symbols

    def _misfit(self, expected: str, received: str) -> IngotError:
        return IngotError(
            ErrorCode.TYPE_MISMATCH,
            f"a call of the function {self.name!r} does not fit it",
            expected=expected,
            received=received,
            remedy="Extents of a call must be those of the function in every run: the same symbol, or the same number.",
        )


def bound_type(type: TensorType, symbols: Mapping[str, Dim]) -> TensorType:
    return TensorType(type.dtype, tuple(bind(d, symbols) for d in type.shape))
