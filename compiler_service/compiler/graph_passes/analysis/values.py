"""The bridge from graph values to tensor expressions: placeholders for operands, inferred types, known elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from compiler_service.compiler.tensor_expr import registry
from compiler_service.compiler.tensor_expr.meaning.evaluate import EvaluationBudget, LeftToRun, evaluate
from compiler_service.compiler.tensor_expr.meaning.known import as_objects, may_be_known
from compiler_service.compiler.tensor_expr.meaning.symbolic import evaluate_symbolic
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr import Expr
from shared_ir.expr.dim import Dim, as_dim, numbers_of
from shared_ir.graph.ir import Attribute, Node, Value

Known = Mapping[Value, np.ndarray]
"""Elements known at compile time: constants, and object arrays of numbers and Expr."""


def define(
    op: str, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute], known: Known
) -> tuple[Tensor | None, ...]:
    """The tensor expressions of one operator over placeholders named after ``inputs``.

    Raises:
        IngotError: the operator is unknown or does not take these operands.
    """
    operands = tuple(None if v is None else operand(v, known.get(v)) for v in inputs)
    return registry.infer(op, operands, attributes)


def define_node(node: Node, known: Known) -> tuple[Tensor | None, ...]:
    return define(node.op, node.inputs, node.attributes, known)


def operand(value: Value, elements: np.ndarray | None) -> Tensor:
    """A placeholder for ``value``, with its elements where they are few and known."""
    if elements is not None and not may_be_known(value.dtype, elements.size):
        elements = None
    if elements is not None and elements.dtype != object:
        elements = as_objects(elements)
    return placeholder(value.name, value.shape, value.dtype, elements)


def dims_of(elements: np.ndarray) -> tuple[Dim, ...] | None:
    """A known int64 array as dims, in row-major order; ``None`` when an element is no integer."""
    dims = []
    for element in elements.ravel().tolist():
        if isinstance(element, bool) or not isinstance(element, (int, Expr)):
            return None
        if isinstance(element, Expr) and element.dtype is not DType.INT64:
            return None
        dims.append(as_dim(element))
    return tuple(dims)


def integers(elements: np.ndarray | None) -> tuple[int, ...] | None:
    """A known integer array as ints; ``None`` when any element is symbolic or unknown."""
    dims = None if elements is None else dims_of(elements)
    return None if dims is None else numbers_of(dims)


def known_tensor(tensor: Tensor) -> np.ndarray | None:
    """The elements of a tensor expression where they are known."""
    return tensor.value if tensor.value is not None else evaluate_symbolic(tensor)


def evaluate_node(node: Node, arrays: Known, budget: EvaluationBudget | None = None) -> dict[Value, np.ndarray] | None:
    """The results of ``node``, whose operands are static and all in ``arrays``; ``None`` when the operator is not understood, or
    it is left to the run: targets differ in what they give, or it takes long, or more than ``budget`` has."""
    operands = tuple(None if v is None else operand(v, arrays[v]) for v in node.inputs)
    try:
        outputs = registry.infer(node.op, operands, node.attributes)
    except IngotError:
        return None  # refused with its own words where the node is compiled
    feeds = {t: arrays[v] for t, v in zip(operands, node.inputs, strict=True) if t is not None and v is not None}
    pairs = [(v, t) for v, t in zip(node.outputs, outputs, strict=False) if v is not None and t is not None]
    try:
        found = evaluate([t for _, t in pairs], feeds, {}, on_every_target=True, budget=budget)
    except LeftToRun:
        return None
    return dict(zip((v for v, _ in pairs), found, strict=True))
