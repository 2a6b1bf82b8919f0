"""Writing graph functions node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_service.compiler.graph_passes.analysis.symbols import fresh_symbols
from compiler_service.compiler.graph_passes.calls.binding import bound_type
from compiler_service.compiler.graph_passes.rewriting.builder import Builder as NodeBuilder
from compiler_service.compiler.tensor_expr.registry import OPERATORS
from ingot.ir.calls import type_of
from ingot.ir.functions import Function, GraphFunction
from ingot.ir.names import FUNCTION_NAMES
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim, dim_symbols
from shared_ir.expr.dim import symbol as dim_symbol
from shared_ir.graph.ir import INVOKE_OP, Attribute, Graph, Node, Value, fresh_names
from shared_ir.types import TensorType

Operand = Value | np.ndarray[Any, Any] | int | float | bool | tuple[int, ...] | None
"""What an operator takes: values; numbers and arrays become constants; None where an input is left out."""
_NO_GRAPH = Graph("", (), (), ())


class GraphBuilder:
    """Writes one graph function; types follow from the operators.

    ::

        n = ir.symbol("n")
        b = ir.GraphBuilder("main")
        x = b.input("x", (n, 4))
        y = b.relu(b.mat_mul(x, np.ones((4, 8), np.float32)))
        main = b.function(y)

    Every operator of the inventory is a method, called after its ONNX operator in small letters, words apart
    (``BatchNormalization``: ``batch_normalization``; ``And``: ``and_``). It takes the inputs of the operator in order and its attributes
    by name, and gives a :class:`ingot.ir.Value`; ``outputs=2`` asks for several, which come as a tuple. What the importer of models
    writes with other operators (TopK, NonZero) comes by :func:`ingot.ir.from_onnx`, repetition (Loop, Scan) also by text.
    """

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self._inputs: list[Value] = []
        self._nodes = NodeBuilder(fresh_names(_NO_GRAPH))

    def input(self, name: str, shape: Sequence[Dim], dtype: str = "float32") -> Value:
        """A further input. A dim is a number or an expression over symbols (:func:`ingot.ir.symbol`), ``dtype`` as ``float32``.

        Raises:
            IngotError: INVALID_ARGUMENT, the name is taken, or there is no such element type.
        """
        if dtype not in set(DType):
            raise _refused("there is no such element type", ", ".join(DType), dtype)
        value = Value(self._nodes.fresh(name), TensorType(DType(dtype), tuple(shape)))
        if value.name != name:
            raise _refused("the name of an input is taken", "a name of its own", name)
        self._inputs.append(value)
        return value

    def constant(self, array: Any, name: str = "constant") -> Value:
        """A constant; an array that is given must not be written to afterwards."""
        return self._nodes.constant(np.asarray(array), name)

    def op(self, op: str, /, *inputs: Operand, outputs: int | None = None, name: str = "", **attributes: Any) -> Any:
        """The result of the operator that ONNX calls ``op``; a tuple of as many as ``outputs`` says.

        Args:
            name: of the node, for errors and profiles, and of its first result.

        Raises:
            IngotError: UNSUPPORTED_OPERATOR, TYPE_MISMATCH, UNSUPPORTED_ATTRIBUTE, UNSUPPORTED_DTYPE.
        """
        given: dict[str, Attribute] = {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}
        operands = self._operands(inputs)
        tensors = self._nodes.define(op, operands, given)
        if outputs is None:
            return self._nodes.write(op, operands, given, name, name)
        if outputs > len(tensors):
            raise _refused(f"{op} has fewer results", f"at most {len(tensors)}", str(outputs))
        wanted = [t for t in tensors[:outputs] if t is not None]
        base = name or op.lower()
        results = tuple(Value(self._nodes.fresh(base), TensorType(t.dtype, t.shape)) for t in wanted)
        self._nodes.nodes.append(Node(op, tuple(operands), results, given, name))
        return results

    def call(self, function: Function, *inputs: Operand, name: str = "") -> Any:
        """The result of ``function``, which the module will hold too; a tuple where it has several.

        Raises:
            IngotError: TYPE_MISMATCH, the operands are not of the types that it takes; INVALID_ARGUMENT, loops cannot be called.
        """
        operands = self._operands(inputs)
        type = type_of(function)
        symbols = type.bound(operands)
        of_the_run = dim_symbols(d for t in type.results for d in t.shape) - symbols.keys()
        fresh = fresh_symbols(self._graph(()))
        symbols |= {s: fresh(s) for s in sorted(of_the_run)}
        base = name or function.name
        results = tuple(Value(self._nodes.fresh(base), bound_type(t, symbols)) for t in type.results)
        self._nodes.nodes.append(Node(INVOKE_OP, tuple(operands), results, {"function": function.name}, name))
        return results[0] if len(results) == 1 else results

    def branch(self, condition: Value, then: Callable[[], Operand], otherwise: Callable[[], Operand]) -> Value:
        """What ``then`` writes where ``condition``, a bool, is true, else what ``otherwise`` does; both may read all that is above.

        Raises:
            IngotError: TYPE_MISMATCH, they give different types.
        """
        bodies = [self._scope(title, write) for title, write in (("then", then), ("otherwise", otherwise))]
        (first,), (second,) = (body.outputs for body in bodies)
        if first.type != second.type:
            message = "the branches give different types"
            raise IngotError(ErrorCode.TYPE_MISMATCH, message, expected=str(first.type), received=str(second.type))
        result = Value(self._nodes.fresh("branch"), first.type)
        attributes: dict[str, Attribute] = {"then_branch": bodies[0], "else_branch": bodies[1]}
        self._nodes.nodes.append(Node("If", (condition,), (result,), attributes))
        return result

    def function(self, *outputs: Value) -> GraphFunction:
        """The function that gives ``outputs``, verified.

        Raises:
            IngotError: as :meth:`GraphFunction.verify`.
        """
        found = GraphFunction(self._graph(outputs))
        found.verify()
        return found

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in FUNCTION_NAMES:
            raise AttributeError(f"there is no operator {name!r}")
        op = FUNCTION_NAMES[name]

        def write(*inputs: Operand, **attributes: Any) -> Any:
            return self.op(op, *inputs, **attributes)

        write.__name__ = write.__qualname__ = name
        write.__doc__ = OPERATORS[op].definition.__doc__
        return write

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *FUNCTION_NAMES]

    # -- how

    def _operands(self, inputs: Sequence[Operand]) -> list[Value | None]:
        return [x if x is None or isinstance(x, Value) else self._literal(x) for x in inputs]

    def _literal(self, x: Any) -> Value:
        return self.constant(np.float32(x) if isinstance(x, float) else np.asarray(x))

    def _graph(self, outputs: Sequence[Value]) -> Graph:
        return Graph(self.name, tuple(self._inputs), tuple(outputs), tuple(self._nodes.nodes), self._nodes.added)

    def _scope(self, title: str, write: Callable[[], Operand]) -> Graph:
        outer = self._nodes.nodes
        self._nodes.nodes = []
        try:
            (result,) = self._operands((write(),))
            nodes = self._nodes.nodes
        finally:
            self._nodes.nodes = outer
        if result is None:
            raise _refused("a branch gives nothing", "a value", "None")
        return Graph(title, (), (result,), tuple(nodes))


def symbol(name: str) -> Dim:
    """An extent that each run brings along.

    Raises:
        IngotError: INVALID_ARGUMENT, the name is no identifier.
    """
    try:
        return dim_symbol(name)
    except ValueError as error:
        raise _refused("a symbol is called by an identifier", "letters, digits and _", name) from error


def _refused(message: str, expected: str, received: str) -> IngotError:
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, expected=expected, received=received)
