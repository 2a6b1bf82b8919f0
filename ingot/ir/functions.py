"""Graph functions: typed SSA over tensors, with nested graphs for control flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from compiler_service.compiler.graph_passes.analysis.types import check_types
from compiler_service.compiler.graph_passes.calls.binding import FunctionType, calls
from compiler_service.compiler.reference.interpret import run_graph
from ingot.ir.loops import LoopFunction
from shared_ir.arrays import dtype_of
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Graph
from shared_ir.graph.text import large_constants, parse_graph, print_graph
from shared_ir.graph.verify import verify
from shared_ir.types import TensorType

Array = np.ndarray[Any, Any]
"""An array of numpy, of any element type."""


@dataclass(frozen=True)
class GraphFunction:
    """A function of tensors: ``str()`` prints it, :meth:`parse` reads it back, :meth:`interpret` runs it.

    Attributes:
        graph: its nodes, to look at and to write passes on.
    """

    graph: Graph

    @property
    def name(self) -> str:
        """What the module and its calls name it by."""
        return self.graph.name

    @property
    def type(self) -> FunctionType:
        """The types that it takes and gives."""
        return FunctionType.of(self.graph)

    @property
    def constants(self) -> Mapping[str, Array]:
        """Digest -> array, for the arrays that the text names by digest."""
        return large_constants(self.graph)

    def __str__(self) -> str:
        return print_graph(self.graph)

    @classmethod
    def parse(cls, text: str, constants: Mapping[str, Array] | None = None) -> Self:
        """The function that prints as ``text``.

        Args:
            constants: digest -> array, for the arrays that the text names by digest.

        Raises:
            IngotError: INVALID_ARGUMENT, with line and column.
        """
        return cls(parse_graph(text, constants or {}))

    def verify(self) -> None:
        """Check that values are defined once and before they are read, and that types are those that the operators give.

        Raises:
            IngotError: INVALID_ARGUMENT, TYPE_MISMATCH, UNSUPPORTED_OPERATOR, naming the node and the value.
        """
        try:
            verify(self.graph)
        except IngotError as error:
            raise replace(error, code=ErrorCode.INVALID_ARGUMENT) from error
        check_types(self.graph)

    def interpret(self, *arrays: Array) -> tuple[Array, ...]:
        """What it gives for ``arrays``, one for each input, by the definitions of the operators: slow, and meant to be so.

        Raises:
            IngotError: INVALID_ARGUMENT, arrays do not fit, or it calls functions, which the module knows.
        """
        if calls(self.graph):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"the function {self.name!r} calls others",
                remedy="Interpret it in its module: module.interpret(*arrays, function=name).",
            )
        return interpreted(self.graph, arrays)


Function = GraphFunction | LoopFunction
"""What a module holds."""


def interpreted(graph: Graph, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    if len(arrays) != len(graph.inputs):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"the function takes {len(graph.inputs)} arrays",
            expected=", ".join(map(str, graph.inputs)) or "none",
            received=f"{len(arrays)} arrays",
        )
    arrays = tuple(map(np.asarray, arrays))
    for value, array in zip(graph.inputs, arrays, strict=True):
        given = TensorType(value.dtype, value.shape)
        if dtype_of(array) is not value.dtype:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "an array is of another element type",
                tensor=value.name,
                expected=str(given),
                received=str(array.dtype),
            )
    return tuple(run_graph(graph, {v.name: a for v, a in zip(graph.inputs, arrays, strict=True)}))
