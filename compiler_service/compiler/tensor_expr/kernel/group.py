"""From a fused group of graph nodes to the tensor expressions of its kernels.

One kernel computes one output of the group. Its definition is brought to a canonical form: small known operands become
constants, axes are coalesced, and every symbolic extent of an argument becomes a parameter ``d0, d1, ...``, so that layers of
equal shape share one kernel whatever the symbols of the model are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from compiler_service.compiler.tensor_expr.assumptions import Assumption, requirements
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.registry import infer
from compiler_service.compiler.tensor_expr.strides import Strides, with_gaps
from compiler_service.compiler.tensor_expr.tensor import (
    Axis,
    Compute,
    Load,
    Placeholder,
    Tensor,
    compute,
    loads,
    placeholder,
    topological,
)
from compiler_service.compiler.tensor_expr.text import print_tensors
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr import RECURSIVE_LEVELS, Cast, Const, Expr, Reinterpret, Var, equal, lift, select, transform, walk
from shared_ir.expr.dim import Dim, as_dim, divisor, product
from shared_ir.graph.ir import Graph, Node, Value

Known = Mapping[Value, np.ndarray]
"""Elements known at compile time, as object arrays of numbers and Expr."""


@dataclass(frozen=True)
class KernelDefinition:
    """What one launch computes.

    Attributes:
        output: the tensor expression, in canonical form.
        arguments: placeholders in the order of the kernel's buffers.
        operands: for each argument, the value of the graph to pass.
        result: the value that the kernel writes.
        parameters: the dims of the model that the symbols ``d0, d1, ...`` stand for, in order.
        nodes: names of the ONNX nodes that it computes.
        flops: floating-point operations, over the symbols of the model.
        assumptions: what must hold for the symbols of the model before the kernel may run.
    """

    output: Tensor
    arguments: tuple[Tensor, ...]
    operands: tuple[Value, ...]
    result: Value
    parameters: tuple[Dim, ...]
    nodes: tuple[str, ...]
    label: str
    flops: Dim
    assumptions: tuple[Assumption, ...] = ()

    @cached_property
    def text(self) -> str:
        """Equal for kernels that differ only in names."""
        return print_tensors(self.output)


_QUANTIZATION = ("QuantizeLinear", "DequantizeLinear")


def measured_operands(node: Node) -> tuple[Value, ...]:
    """Operands that were measured for one layer, steps and zero points: written into kernels as numbers they would keep layers of
    equal shape from sharing one."""
    return tuple(v for v in node.inputs[1:] if v is not None) if node.op in _QUANTIZATION else ()


def group_kernels(
    node: Node, known: Known, strides: Mapping[Value, Strides] = MappingProxyType({}), *, scalars: bool = True
) -> tuple[KernelDefinition, ...]:
    """The kernels of an ``ingot.Group``, one per output.

    Args:
        known: what is known of the operands of ``node`` (small constants, shape arithmetic).
        strides: of values that have gaps in memory (see :mod:`strides`).
        scalars: whether numbers of the body are written into the kernels; else they are arguments where they decide no position.
    """
    body = node.attributes["body"]
    assert isinstance(body, Graph)
    tensors = define_group(body, node, known, strides)
    outer = dict(zip(body.inputs, node.operands, strict=True))
    names = node.attributes.get("nodes", ())
    assert isinstance(names, tuple)
    onnx_nodes = tuple(str(n) for n in names)
    label = "+".join(n.op for n in body.nodes)
    by_tensor = {tensors[v]: outer[v] for v in body.inputs} | {
        t: v for v, t in tensors.items() if v in body.constants and v not in outer
    }
    kept = frozenset() if scalars else frozenset(tensors[v] for v in body_scalars(body))
    return tuple(
        _kernel(tensors[inner], result, by_tensor, onnx_nodes, label, strides.get(result), kept)
        for inner, result in zip(body.outputs, node.results, strict=True)
    )


def body_scalars(body: Graph) -> dict[Value, np.ndarray]:
    """The single numbers that ``body`` holds."""
    return {v: a for v, a in body.constants.items() if a.size == 1}


def define_group(body: Graph, node: Node, known: Known, strides: Mapping[Value, Strides]) -> dict[Value, Tensor]:
    """The tensor of every value of ``body``."""
    tensors: dict[Value, Tensor] = {}
    measured = frozenset(v for n in body.nodes for v in measured_operands(n))
    for inner, operand in zip(body.inputs, node.operands, strict=True):
        elements = None if inner in measured else known.get(operand)
        tensors[inner] = placeholder(inner.name, inner.shape, inner.dtype, elements, strides.get(operand))
    for inner, array in body.constants.items():
        objects = np.array(array.tolist(), dtype=object).reshape(array.shape)
        tensors[inner] = placeholder(inner.name, inner.shape, inner.dtype, objects)
    for inner_node in body.nodes:
        inputs = tuple(None if v is None else tensors[v] for v in inner_node.inputs)
        try:
            outputs = infer(inner_node.op, inputs, inner_node.attributes)
        except IngotError as error:
            raise error.located(node=str(inner_node)) from error
        for value, tensor in zip(inner_node.outputs, outputs, strict=False):
            if value is not None and tensor is not None:
                tensors[value] = tensor
    return tensors


def _kernel(
    tensor: Tensor,
    result: Value,
    operands: Mapping[Tensor, Value],
    nodes: tuple[str, ...],
    label: str,
    strides: Strides | None,
    kept: frozenset[Tensor],
) -> KernelDefinition:
    if isinstance(tensor.op, Placeholder):  # a copy
        source = tensor
        tensor = compute(source.shape, lambda *i: source[i], name="copy")
    flops, assumed = flops_of(tensor), requirements([tensor], fused=True)
    known = _with_known_elements(replace(tensor, strides=strides), kept)
    output, shrunk = coalesce(known)
    original = {new: old for old, new in shrunk.items()}
    arguments = tuple(t for t in topological(output) if isinstance(t.op, Placeholder))
    values = tuple(operands[original[a]] for a in arguments)
    output, arguments, parameters = canonical(output, arguments)
    return KernelDefinition(output, arguments, values, result, parameters, nodes, label, flops, assumed)


# -- known operands


_MOST_ELEMENTS_IN_CODE = 8
"""A known operand of at most this many elements is written into the kernel."""


def _with_known_elements(output: Tensor, kept: frozenset[Tensor]) -> Tensor:
    """Loads of arguments whose elements are known (scalars, shape arithmetic) become constants or dims; not those of ``kept``,
    unless elements decide which ones are read: what is written into the kernel is proven to be inside."""
    new: dict[Tensor, Tensor] = {}
    if kept and _has_positions_from_data(output):
        kept = frozenset()

    def replaced(expr: Expr) -> Expr | None:
        if not isinstance(expr, Load):
            return None
        element = None if expr.tensor in kept else known_element(expr)
        return Load(new[expr.tensor], expr.indices) if element is None else element

    for tensor in topological(output):
        op = tensor.op
        if isinstance(op, Compute):
            op = replace(op, body=transform(op.body, replaced))
            new[tensor] = replace(tensor, op=op)
        else:
            new[tensor] = tensor
    return new[output]


def _has_positions_from_data(output: Tensor) -> bool:
    bodies = (t.op.body for t in topological(output) if isinstance(t.op, Compute))
    return any(True for body in bodies for load in loads(body) for index in load.indices for _ in loads(index))


def known_element(load: Load) -> Expr | None:
    """What ``load`` reads, of an argument whose elements are known and few; None where it must be read."""
    value = load.tensor.value
    if value is None or value.size == 0 or not isinstance(load.tensor.op, Placeholder):
        return None
    symbolic = any(isinstance(e, Expr) for e in value.flat)
    if not symbolic and value.size > 1 and (value.size > _MOST_ELEMENTS_IN_CODE or load.dtype.is_float):
        return None
    if all(isinstance(i, Const) for i in load.indices):
        at = tuple(int(i.value) for i in load.indices if isinstance(i, Const))
        return _element(value[at], load.dtype)
    return _choice(value, load.indices, load.dtype)


def _choice(value: np.ndarray, indices: tuple[Expr, ...], dtype: DType) -> Expr:
    """``value[indices]`` as a chain of selections over the first axis."""
    if not indices:
        return _element(value[()], dtype)
    parts = [_choice(value[i : i + 1].reshape(value.shape[1:]), indices[1:], dtype) for i in range(len(value))]
    result = parts[-1]
    for i in range(len(value) - 2, -1, -1):
        result = select(equal(indices[0], i), parts[i], result)
    return result


def _element(element: object, dtype: DType) -> Expr:
    if isinstance(element, Expr):
        return element
    assert isinstance(element, (bool, int, float))
    return lift(element, dtype)


# -- canonical parameters


def canonical(output: Tensor, arguments: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...], tuple[Dim, ...]]:
    """Symbolic extents of arguments (and what symbols are left) become ``d0, d1, ...``, those of kernels with reductions
    ``d0 * 128`` where that is known to divide them: rows come in whole tiles then. Other kernels are the same for any part."""
    parameters: dict[Expr, Var] = {}
    memo: dict[Expr, Expr] = {}
    reduces = any(isinstance(t.op, Compute) and t.op.reduction for t in topological(output))
    for extent in (d for a in arguments for d in a.shape):
        if isinstance(extent, Expr) and extent not in memo:
            factor = divisor(extent) if reduces else 1
            part = lift(as_dim(extent // factor))
            memo[extent] = lift(as_dim(parameters.setdefault(part, Var(f"d{len(parameters)}")) * factor))

    def renamed(expr: Expr) -> Expr:
        found = memo.get(expr)
        if found is not None:
            return found
        if expr.depth > RECURSIVE_LEVELS and _is_fixed(
            expr
        ):  # computed before the launch: a kernel is no place for long arithmetic on sizes
            return parameters.setdefault(expr, Var(f"d{len(parameters)}"))
        kids = expr.children()
        new = expr.with_children(tuple(renamed(k) for k in kids)) if kids else expr
        if isinstance(expr, Var) and not expr.name.startswith("$"):  # a symbol that no argument has as an extent
            return parameters.setdefault(expr, Var(f"d{len(parameters)}"))
        memo[expr] = new
        return new

    def dim(value: Dim) -> Dim:
        return value if isinstance(value, int) else as_dim(renamed(value))

    rebuilt = _renamed_tensors(output, renamed, dim)
    return rebuilt[output], tuple(rebuilt[a] for a in arguments), tuple(parameters)


def _is_fixed(expr: Expr) -> bool:
    """Whether it is an integer that is the same for every element."""
    return (
        expr.dtype is DType.INT64
        and not any(v.name.startswith("$") for v in expr.variables)
        and not any(isinstance(e, Load) for e in walk(expr))
    )


def _renamed_tensors(
    output: Tensor, renamed: Callable[[Expr], Expr], dim: Callable[[Dim], Dim]
) -> dict[Tensor, Tensor]:
    new: dict[Tensor, Tensor] = {}

    def reload(expr: Expr) -> Expr | None:
        return Load(new[expr.tensor], expr.indices) if isinstance(expr, Load) else None

    def axes(found: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(a.name, dim(a.extent)) for a in found)

    for tensor in topological(output):
        op = tensor.op
        if isinstance(op, Compute):
            reduction = op.reduction
            if reduction is not None:
                reduction = replace(reduction, axes=axes(reduction.axes))
            op = Compute(axes(op.axes), transform(renamed(op.body), reload), reduction)
        strides = None if tensor.strides is None else tuple(dim(d) for d in tensor.strides)
        strides = with_gaps(shape := tuple(dim(d) for d in tensor.shape), strides)
        new[tensor] = Tensor(tensor.name, shape, tensor.dtype, op, strides=strides)
    return new


# -- cost

_FREE = (Const, Var, Load, Cast, Reinterpret)


def flops_of(output: Tensor) -> Dim:
    """Arithmetic operations on floats: one per operator node and element, one more per reduced element."""
    total: Dim = 0
    for tensor in topological(output):
        if isinstance(tensor.op, Compute) and tensor.dtype.is_float:
            each = sum(1 for e in _own_nodes(tensor.op.body) if not isinstance(e, _FREE))
            each += tensor.op.reduction is not None
            total = as_dim(lift(total) + product(a.extent for a in tensor.op.all_axes) * each)
    return total


def _own_nodes(body: Expr) -> Iterator[Expr]:
    """Distinct nodes of ``body`` that compute floats: not those inside indices and conditions."""
    stack, seen = [body], set[Expr]()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(c for c in node.children() if c.dtype.is_float and not isinstance(node, Load))
