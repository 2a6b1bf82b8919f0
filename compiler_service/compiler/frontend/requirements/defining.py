"""Operands that decide a shape and that only the run knows: each unknown element becomes a symbol that the run defines.

``Reshape(x, s)`` becomes ``u = the unknown elements of s; ingot.Define(u) {symbols=(a, b)}; Reshape(x, (a, 64, b))``, so that every
definition sees arithmetic on dims, as it does for shapes of inputs. Symbols are at least 0: conventions about negative numbers
and 0 are resolved by nodes before (see :mod:`normalising`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.inference import infer_outputs, tensor_type
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.scope import GraphDraft
from compiler_service.compiler.frontend.requirements.conditions import append_check, append_checked, conditions_of
from compiler_service.compiler.frontend.requirements.decided_lengths import decided_length
from compiler_service.compiler.frontend.requirements.normalising import NORMALISERS, Elements, Operand, OperandWriter
from compiler_service.compiler.tensor_expr.assumptions import Assumption
from compiler_service.compiler.tensor_expr.extents import stretched_operands
from compiler_service.compiler.tensor_expr.refusal import UnknownValueError, unknown_extent, unknown_value
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Var
from shared_ir.expr.dim import Dim, as_dim, static
from shared_ir.graph.ir import DEFINE_OP, Attribute, Node, Value
from shared_ir.types import TensorType

MOST_DEFINED = 64
"""An operand with more elements than this is no shape."""

_INTEGERS = frozenset({DType.INT32, DType.INT64})
_WHOLE_FLOATS = frozenset({("OneHot", 1)})
"""Operands (operator, number) that may hold a count as a float."""
_POSITIVE = frozenset({("Resize", 2)})
"""Operands of floats that are refused unless they are above 0."""
SYMBOL_BIAS = 1 << 32
"""Added to numbers of any sign that become symbols, which are at least 0, and subtracted from those again."""


@dataclass(frozen=True)
class Nodes(OperandWriter):
    """Appends nodes of the graph IR beside the node that is being imported.

    Attributes:
        shared: whether a node that was made before, of equal operands, is taken again.
    """

    source: SourceNode
    draft: GraphDraft
    context: Context
    shared: bool = False

    def write(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute],
        title: str = "",
        output: str = "",
    ) -> Value:
        operands = tuple(inputs)
        if not self.shared:
            return self._new_node(op, operands, attributes, title, output)
        key = (op, operands, tuple((k, type(a), a) for k, a in sorted(attributes.items())))
        return self._once(key, lambda: self._new_node(op, operands, attributes, title, output))

    def _once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        made = self.draft.made
        if key not in made:
            made[key] = make()
        return made[key]

    def _new_node(
        self, op: str, inputs: tuple[Value | None, ...], attributes: Mapping[str, Attribute], title: str, output: str
    ) -> Value:
        context, title = self.context, title or self.source.title
        (tensor, *_) = infer_outputs(context.inference, op, inputs, attributes, context.known)
        assert tensor is not None
        value = self._value(tensor, output or f"{title}_{op}")
        context.ranges.learn(op, attributes, inputs, (value,))
        node = Node(op, inputs, (value,), attributes, title)
        append_checked(self.draft, node, conditions_of(inputs, [tensor], context.known), self.source)
        return value

    def _value(self, tensor: Tensor, name: str) -> Value:
        value = self.context.value(name.replace("ingot.", ""), tensor_type(tensor))
        self.context.known.add(value, tensor.value)
        return value

    def constant(self, array: np.ndarray, name: str = "constant") -> Value:
        if not self.shared:
            return self._new_constant(array, name)
        return self._once((str(array.dtype), array.shape, array.tobytes()), lambda: self._new_constant(array, name))

    def _new_constant(self, array: np.ndarray, name: str) -> Value:
        value = Value(self.context.names.fresh(f"{self.source.title}_{name}"), TensorType(DType.of(array), array.shape))
        self.draft.constants[value] = array
        self.context.known.add_constant(value, array)
        self.context.ranges.arrays[value] = array
        return value

    def scalar(self, number: float, dtype: DType = DType.INT64) -> Value:
        return self.constant(np.array(number, dtype.numpy), "number")

    def like(self, vector: Value, operand: Value) -> Value:
        """``vector`` in the shape and element type of ``operand``."""
        if operand.shape != vector.shape:
            vector = self.node("Reshape", vector, self.dims(operand.shape), allowzero=1)
        return self.cast(vector, operand.dtype)

    def vector(self, operand: Value) -> Value:
        """The elements of ``operand`` as an int64 vector."""
        operand = self.cast(operand, DType.INT64)
        return operand if operand.type.rank == 1 else self.node("Reshape", operand, self.integers(-1))

    def of_shape(self, value: Value, shape: Sequence[Dim]) -> Value:
        """``value``, whose extents are taken to be ``shape``: the run checks them one by one."""
        for own, extent in zip(value.shape, shape, strict=True):
            if own != extent:
                condition = Assumption(own, extent)
                append_check(self.draft, condition, f"node '{self.source.title}': {condition}", self.source)
        return self.node("Reshape", value, self.dims(shape), allowzero=1)

    def require(self, count: Value, message: str) -> None:
        """The run ends with ``message`` unless the one element of ``count`` is 0."""
        label = f"{self.source.title}_wrong"
        symbols = (self.context.symbols.fresh(label),)
        text = f"node '{self.source.title}' ({self.source.op}): {message}"
        attributes: dict[str, Attribute] = {"symbols": symbols, "expected": 0, "message": text}
        self._new_node(DEFINE_OP, (count,), attributes, "", f"{label}_checked")

    def state(self, condition: Assumption, message: str) -> None:
        """The run ends with ``message`` unless ``condition`` holds of its sizes."""
        text = f"node '{self.source.title}' ({self.source.op}): {message}: {condition}"
        append_check(self.draft, condition, text, self.source)

    def elements(self, value: Value | None) -> Elements | None:
        """The elements of a value that is known, as dims."""
        known = self.context.known.get(value)
        return None if known is None else tuple(as_dim(e) for e in known.reshape(-1).tolist())

    def define(self, vector: Value, label: str) -> tuple[Var, ...]:
        """Symbols for the elements of an int64 vector that the run computes: those that it has, if it has some."""
        (count,) = vector.shape
        assert isinstance(count, int)
        found = self.draft.symbols.get(vector)
        if found is None:
            found = tuple(self.context.symbols.fresh(f"{label}_{i}" if count > 1 else label) for i in range(count))
            self.draft.symbols[vector] = found
            self.node(DEFINE_OP, vector, output=f"{label}_defined", symbols=found)
        return found


def infer_defined(
    source: SourceNode,
    inputs: tuple[Value | None, ...],
    attributes: Mapping[str, Attribute],
    draft: GraphDraft,
    context: Context,
) -> tuple[tuple[Value | None, ...], tuple[Tensor | None, ...]]:
    """The outputs of an operator, and its operands: those whose elements must be known are, in the end.

    Raises:
        IngotError: from the definition.
    """
    from_run = Definer(Nodes(source, draft, context, shared=True))
    for _ in range(2 * len(inputs) + 1):
        try:
            return inputs, infer_outputs(context.inference, source.qualified, inputs, attributes, context.known)
        except UnknownValueError as error:
            index = next((i for i, v in enumerate(inputs) if v is not None and v.name == error.tensor), None)
            if index is None:
                raise
            known = from_run.next_form(inputs, index, attributes, error.field)
            inputs = (*inputs[:index], known, *inputs[index + 1 :])
    return inputs, infer_outputs(context.inference, source.qualified, inputs, attributes, context.known)


def aligned(
    source: SourceNode,
    inputs: tuple[Value | None, ...],
    outputs: tuple[Tensor | None, ...],
    attributes: Mapping[str, Attribute],
    draft: GraphDraft,
    context: Context,
) -> tuple[tuple[Value | None, ...], tuple[Tensor | None, ...]]:
    """Operands and outputs, where operands that only the run knows to be broadcast or not go through an ``Expand``.

    So it is the one operator that reads stretched extents (see :mod:`extents`), and what is known of all
    others, how they are rewritten, laid out and scheduled, needs no second case for them.
    """
    stretched = {t.name: shape for t, shape in stretched_operands([t for t in outputs if t is not None]).items()}
    if not stretched or source.qualified == "Expand":
        return inputs, outputs
    nodes = Nodes(source, draft, context)
    wide = tuple(
        v if v is None or v.name not in stretched else nodes.node("Expand", v, nodes.dims(stretched[v.name]))
        for v in inputs
    )
    return wide, infer_outputs(context.inference, source.qualified, wide, attributes, context.known)


@dataclass(frozen=True)
class Definer:
    """Makes operands known."""

    nodes: Nodes

    def next_form(
        self, inputs: Sequence[Value | None], index: int, attributes: Mapping[str, Attribute], name: str
    ) -> Value:
        """What to read in place of operand ``index``, which ONNX calls ``name``: the same with a known number of elements, or
        with known elements.

        Raises:
            IngotError: UNSUPPORTED_ATTRIBUTE, the run cannot tell its elements.
        """
        operand, source = inputs[index], self.nodes.source
        assert operand is not None
        if not operand.type.is_static:
            length = decided_length(source, inputs, index)
            if operand.type.rank != 1 or length is None:
                why = "its elements decide a shape, and nothing says how many there are"
                raise unknown_extent(name, operand.name, operand.shape, why)
            return self.nodes.of_shape(operand, (length,))
        if not self._can_define(operand):
            raise unknown_value(name, operand.name)
        return self.operand(inputs, index, attributes)

    def _can_define(self, operand: Value) -> bool:
        if self.nodes.context.known.get(operand) is not None:
            return False
        if operand.dtype not in _INTEGERS and not operand.dtype.is_float:
            return False
        return prod(static(d) for d in operand.shape) <= MOST_DEFINED

    def operand(self, inputs: Sequence[Value | None], index: int, attributes: Mapping[str, Attribute]) -> Value:
        """What to read in place of operand ``index``."""
        operand = inputs[index]
        assert operand is not None
        if operand.dtype.is_float and (self.nodes.source.qualified, index) not in _WHOLE_FLOATS:
            return self._fractions(operand, 0 if (self.nodes.source.qualified, index) in _POSITIVE else SYMBOL_BIAS)
        vector, known = self.nodes.vector(operand), self.known_elements(operand)
        normalise = NORMALISERS.get((self.nodes.source.qualified, index))
        if normalise is not None:
            vector, known = normalise(Operand(self.nodes, inputs, attributes, vector, known))
        unknown = [i for i, e in enumerate(known) if e is None]
        if unknown:
            chosen = (
                vector
                if len(unknown) == len(known)
                else self.nodes.node("Gather", vector, self.nodes.integers(*unknown))
            )
            symbols = iter(self.nodes.define(chosen, operand.name))
            known = tuple(next(symbols) if e is None else e for e in known)
        return self.nodes.like(self.nodes.dims([d for d in known if d is not None]), operand)

    def _fractions(self, operand: Value, bias: int) -> Value:
        """Floats become quotients of symbols; ``bias`` makes numerators at least 0, as symbols are."""
        nodes = self.nodes
        flat = operand if operand.type.rank == 1 else nodes.node("Reshape", operand, nodes.integers(-1))
        symbols = nodes.define(nodes.node("ingot.Fractions", flat, bias=bias), operand.name)
        half = len(symbols) // 2
        numerators, denominators = tuple(as_dim(s - bias) for s in symbols[:half]), symbols[half:]
        found = nodes.node("ingot.Ratios", numerators=numerators, denominators=denominators, dtype=operand.dtype)
        return found if found.shape == operand.shape else nodes.node("Reshape", found, nodes.dims(operand.shape))

    def known_elements(self, operand: Value) -> Elements:
        """What is known of the elements: those that were put together with unknown ones."""
        producers = {v: n for n in self.nodes.draft.nodes for v in n.results}
        return self._elements(operand, producers)

    def _elements(self, operand: Value, producers: Mapping[Value, Node]) -> Elements:
        count = prod(d for d in operand.shape if isinstance(d, int))
        known = self.nodes.context.known.get(operand)
        if known is not None:
            elements = known.reshape(-1).tolist()
            return tuple(
                as_dim(e) if isinstance(e, (int, Expr)) and not isinstance(e, bool) else None for e in elements
            )
        node = producers.get(operand)
        if node is not None and node.op == "Concat":
            return tuple(e for v in node.operands for e in self._elements(v, producers))
        passes_on = node is not None and node.op in ("Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape")
        if node is not None and passes_on and node.operands[0].type.is_static:
            return self._elements(node.operands[0], producers)
        return (None,) * count
