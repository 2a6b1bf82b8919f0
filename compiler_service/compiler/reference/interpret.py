"""The reference interpreter of the graph IR: what a graph means, over numpy, through the operator definitions.

Slow and plain on purpose. Every node is defined anew on the concrete shapes of its operands, so shapes that depend on data need
no special care; passes are proved by running a graph before and after them. Operators that a pass turns into graphs (LSTM) mean
that graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from compiler_service.compiler.graph_passes.normal_form.expand_operators import ExpandOperators
from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute, ints_attribute
from compiler_service.compiler.loop_ir.algorithms.table import algorithm_function
from compiler_service.compiler.loop_ir.interpret import run as run_loops
from compiler_service.compiler.tensor_expr import registry
from compiler_service.compiler.tensor_expr.kernel.algorithm import algorithm_kernel
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.meaning.known import as_objects, may_be_known
from compiler_service.compiler.tensor_expr.operators.sequential import EXTERNAL_OP, SEQUENTIAL
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr, Var
from shared_ir.expr.dim import dim_symbols, dims_text, static
from shared_ir.expr.dim import evaluate as dim_value
from shared_ir.graph.ir import CHECK_OP, DEFINE_OP, GROUP_OP, REPEAT_OP, Graph, Node, Value
from shared_ir.graph.text import parse_graph
from shared_ir.types import TensorType

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Environment: TypeAlias = dict[Value, Array]


def run_graph(graph: Graph, feeds: Mapping[str, Array], symbols: Mapping[str, int] | None = None) -> list[Array]:
    """The outputs of ``graph`` in order, given its inputs by name.

    Args:
        symbols: sizes that the inputs do not tell: a group's body may mention symbols of the model that none of its own
            inputs has as an extent.

    Raises:
        IngotError: INVALID_ARGUMENT for a missing input or a wrong shape; what the operator definitions raise, with the node.
    """
    inputs = []
    for value in graph.inputs:
        if value.name not in feeds:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT, "an input is missing", tensor=value.name, expected=str(value.type)
            )
        inputs.append(np.asarray(feeds[value.name]))
    return _Interpreter(dict(symbols or {})).call(ExpandOperators().run(graph), inputs, {})


@dataclass
class _Interpreter:
    symbols: dict[str, int] = field(default_factory=dict)

    def call(self, graph: Graph, inputs: Sequence[Array], outer: Environment) -> list[Array]:
        known = {**outer, **graph.constants}
        for value, array in zip(graph.inputs, inputs, strict=True):
            self._bind(value, array)
            known[value] = array
        for node in graph.nodes:
            results = self._node(node, known)
            for output, array in zip(node.outputs, results, strict=False):
                if output is not None:
                    self._bind(output, array)
                    known[output] = array
        return [known[v] for v in graph.outputs]

    def _bind(self, value: Value, array: Array) -> None:
        """Give the symbols of ``value`` the sizes of ``array``; sizes that are numbers must agree."""
        fits = len(array.shape) == len(value.shape)
        for dim, size in zip(value.shape, array.shape, strict=False):
            if isinstance(dim, Var):
                self.symbols[dim.name] = size
            elif isinstance(dim, int):
                fits = fits and dim == size
        if not fits:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "a tensor has a wrong shape",
                tensor=value.name,
                expected=f"[{dims_text(value.shape)}]",
                received=str(list(array.shape)),
            )

    def _node(self, node: Node, known: Environment) -> list[Array]:
        operands = [None if v is None else known[v] for v in node.inputs]
        match node.op:
            case _ if node.op == GROUP_OP:
                (body,) = node.subgraphs
                return self.call(body, [x for x in operands if x is not None], {})
            case "If":
                return self._if(node, operands, known)
            case "Loop":
                return self._loop(node, operands, known)
            case "Scan":
                return self._scan(node, operands, known)
            case _ if node.op == REPEAT_OP:
                return self._repeat(node, operands, known)
            case _ if node.op == DEFINE_OP:
                return self._define(node, operands)
            case _ if node.op == CHECK_OP:
                self._check(node)
                return []
            case _ if node.op in SEQUENTIAL:
                return self._sequential(node, operands)
        try:
            return self._apply(node, operands)
        except IngotError as error:
            raise error.located(node=str(node)) from error

    def _apply(self, node: Node, operands: Sequence[Array | None]) -> list[Array]:
        tensors = [
            None if v is None or x is None else _operand(v, x) for v, x in zip(node.inputs, operands, strict=True)
        ]
        feeds = {t: x for t, x in zip(tensors, operands, strict=True) if t is not None and x is not None}
        outputs = registry.infer(node.op, tuple(tensors), node.attributes)
        wanted = [t for t, v in zip(outputs, node.outputs, strict=False) if v is not None and t is not None]
        arrays = iter(evaluate(wanted, feeds, self.symbols))
        return [next(arrays) if v is not None else np.empty(0) for v in node.outputs]

    def _sequential(self, node: Node, operands: Sequence[Array | None]) -> list[Array]:
        if node.op == EXTERNAL_OP:
            return self.call(parse_graph(str(node.attributes["program"]), {}), [_present(x) for x in operands], {})
        return [self._algorithm(node, operands)]

    def _algorithm(self, node: Node, operands: Sequence[Array | None]) -> Array:
        arrays = [np.ascontiguousarray(_present(x)) for x in operands]
        inputs = [Value(v.name, TensorType(v.dtype, x.shape)) for v, x in zip(node.operands, arrays, strict=True)]
        (result,) = node.results
        output = Value(result.name, TensorType(result.dtype, tuple(self._dim(d) for d in result.shape)))
        definition = algorithm_kernel(Node(node.op, tuple(inputs), (output,), node.attributes))
        function = algorithm_function(node.op, "algorithm", definition.arguments, definition.output, 0, node.attributes)
        array = np.zeros([static(d) for d in output.shape], result.dtype.numpy)
        run_loops(function, [*arrays, array])
        return array

    # -- control flow; the words are those of the ONNX operators

    def _if(self, node: Node, operands: Sequence[Array | None], known: Environment) -> list[Array]:
        branch = node.attributes["then_branch" if bool(_present(operands[0])) else "else_branch"]
        assert isinstance(branch, Graph)
        return self.call(branch, [], known)

    def _loop(self, node: Node, operands: Sequence[Array | None], known: Environment) -> list[Array]:
        (body,) = node.subgraphs
        trips = None if operands[0] is None else int(operands[0].item())
        condition = True if operands[1] is None else bool(operands[1].item())
        carried = [_present(x) for x in operands[2:]]
        scanned: list[list[Array]] = [[] for _ in body.outputs[1 + len(carried) :]]
        step = 0
        counter = node.attributes.get("counter")
        while condition and (trips is None or step < trips):
            if isinstance(counter, Var):
                self.symbols[counter.name] = step
            first = [np.array(step, dtype=np.int64).reshape(_shape(body.inputs[0]))]
            second = [np.array(condition).reshape(_shape(body.inputs[1]))]
            results = self.call(body, [*first, *second, *carried], known)
            condition = bool(results[0])
            carried = results[1 : 1 + len(carried)]
            for rows, row in zip(scanned, results[1 + len(carried) :], strict=True):
                rows.append(row)
            step += 1
        return [
            *carried,
            *(self._stack(rows, v) for rows, v in zip(scanned, body.outputs[1 + len(carried) :], strict=True)),
        ]

    def _scan(self, node: Node, operands: Sequence[Array | None], known: Environment) -> list[Array]:
        (body,) = node.subgraphs
        count = int_attribute(node, "num_scan_inputs")
        arrays = [_present(x) for x in operands]
        carried, scanned = arrays[: len(arrays) - count], arrays[len(arrays) - count :]
        outputs = len(body.outputs) - len(carried)
        in_axes, in_directions = (
            _numbers(node, "scan_input_axes", count),
            _numbers(node, "scan_input_directions", count),
        )
        out_axes = _numbers(node, "scan_output_axes", outputs)
        out_directions = _numbers(node, "scan_output_directions", outputs)
        length = scanned[0].shape[in_axes[0]]
        rows: list[list[Array]] = [[] for _ in range(outputs)]
        for step in range(length):
            picked = [
                np.take(x, length - 1 - step if backward else step, axis=axis)
                for x, axis, backward in zip(scanned, in_axes, in_directions, strict=True)
            ]
            results = self.call(body, [*carried, *picked], known)
            carried = results[: len(carried)]
            for found, row in zip(rows, results[len(carried) :], strict=True):
                found.append(row)
        stacked = [
            np.moveaxis(self._stack(found[::-1] if backward else found, v), 0, axis)
            for found, axis, backward, v in zip(
                rows, out_axes, out_directions, body.outputs[len(carried) :], strict=True
            )
        ]
        return [*carried, *stacked]

    def _repeat(self, node: Node, operands: Sequence[Array | None], known: Environment) -> list[Array]:
        (body,) = node.subgraphs
        counter, conditional = node.attributes["counter"], int_attribute(node, "conditional")
        limit, condition = operands[:2]
        trips = self._dim(node.attributes["limit"]) if limit is None else int(limit.reshape(()))
        running = True if condition is None else bool(condition.reshape(()))
        carried = [_present(x) for x in operands[2:]]
        assert isinstance(counter, Var)
        elements = body.outputs[conditional + len(carried) :]
        rows: list[list[Array]] = [[] for _ in elements]
        step = 0
        while running and step < trips:
            self.symbols[counter.name] = step
            results = self.call(body, carried, known)
            running = bool(results[0].reshape(())) if conditional else True
            carried = results[conditional : conditional + len(carried)]
            for found, row in zip(rows, results[conditional + len(carried) :], strict=True):
                found.append(row)
            step += 1
        backward = _numbers(node, "reverse", len(rows))
        stacked = [self._stack(r[::-1] if b else r, v) for r, b, v in zip(rows, backward, elements, strict=True)]
        return [*carried, *stacked]

    def _define(self, node: Node, operands: Sequence[Array | None]) -> list[Array]:
        array = _present(operands[0])
        symbols = node.attributes["symbols"]
        assert isinstance(symbols, tuple)
        message, expected = node.attributes.get("message"), int_attribute(node, "expected", 0)
        for symbol, number in zip(symbols, array.tolist(), strict=True):
            assert isinstance(symbol, Var)
            self.symbols[symbol.name] = number
            if isinstance(message, str) and number != expected:
                raise IngotError(ErrorCode.INVALID_ARGUMENT, message, expected=str(expected), received=str(number))
        return [array]

    def _check(self, node: Node) -> None:
        actual, expected = (self._dim(node.attributes[k]) for k in ("actual", "expected"))
        if actual < expected or (actual > expected and not int_attribute(node, "lower", 0)):
            message = str(node.attributes["message"])
            raise IngotError(ErrorCode.INVALID_ARGUMENT, message, expected=str(expected), received=str(actual))

    def _stack(self, rows: list[Array], element: Value) -> Array:
        """``rows`` above each other; where there are none, sizes that nothing else tells are 0."""
        if rows:
            return np.stack(rows)
        known = self.symbols.keys()
        shape = (self._dim(d) if dim_symbols([d]) <= known else 0 for d in element.shape)
        return np.zeros((0, *shape), element.dtype.numpy)

    def _dim(self, value: object) -> int:
        assert isinstance(value, (int, Expr))
        return dim_value(value, self.symbols)


def _operand(value: Value, array: Array) -> Tensor:
    """A placeholder of the shape that the operand has in this run, with its elements where they may decide a shape."""
    is_known = value.dtype is not DType.STRING and may_be_known(value.dtype, array.size)
    return placeholder(value.name, array.shape, value.dtype, as_objects(array) if is_known else None)


def _present(array: Array | None) -> Array:
    if array is None:
        raise IngotError(ErrorCode.INVALID_MODEL, "a required operand of a control-flow node is absent")
    return array


def _shape(value: Value) -> tuple[int, ...]:
    return (1,) * len(value.shape)


def _numbers(node: Node, attribute: str, count: int) -> tuple[int, ...]:
    return ints_attribute(node, attribute, (0,) * count)
