"""Splitting: an axis of the output that is read as a quotient and a remainder only becomes two axes.

A transposed convolution of stride 2 computes even and odd pixels apart; written as [h, 2, w, 2] its output is a plain product
of matrices. Only shapes change, not memory.

before: ``y[o] = relu(m[o // 2, o % 2])``    with ``y`` of shape [2 * n]
after:  ``y[q, r] = relu(m[q, r])``          with ``y`` of shape [n, 2]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from compiler_service.compiler.tensor_expr.strides import Strides
from compiler_service.compiler.tensor_expr.tensor import Axis, Compute, Load, Placeholder, Tensor, loads, topological
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Var, lift, substitute, transform
from shared_ir.expr.dim import Dim, as_dim, product
from shared_ir.expr.simplify import Interval, simplify

_DIVISIONS = (BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD)


def split_axes(output: Tensor) -> Tensor:
    """``output`` with every axis split that allows it; its placeholders stay as they are."""
    found = next(_candidates(output), None)
    while found is not None:
        output = _apply(output, *found)
        found = next(_candidates(output), None)
    return output


def _candidates(output: Tensor) -> Iterator[tuple[Tensor, int, int]]:
    """(tensor, position, factor): all that the axis at ``position`` is used for is its quotient and remainder by ``factor``."""
    tensors = topological(output)
    for tensor in tensors:
        op = tensor.op
        if not isinstance(op, Compute) or op.reduction is not None:
            continue
        for position, axis in enumerate(op.axes):
            factor = _factor(op, axis)
            if factor is not None and _walked_to_output(tensor, position, output, tensors):
                yield tensor, position, factor


def _factor(op: Compute, axis: Axis) -> int | None:
    """The one number that ``op`` divides ``axis`` by wherever it mentions it in indices of computed tensors."""
    factors: set[int | None] = set()
    for load in loads(op.body):
        if isinstance(load.tensor.op, Compute):
            for index in load.indices:
                factors |= set(_divisors(index, axis.var))
    if len(factors) != 1:
        return None
    (factor,) = factors
    if factor is None or factor < 2 or simplify(lift(axis.extent) % factor) != Const(0):
        return None
    return factor


def _divisors(expr: Expr, var: Var) -> Iterator[int | None]:
    """What ``var`` is divided by at each place; None where it is used otherwise."""
    if expr == var:
        yield None
    elif isinstance(expr, Binary) and expr.op in _DIVISIONS and expr.lhs == var:
        yield expr.rhs.value if isinstance(expr.rhs, Const) and isinstance(expr.rhs.value, int) else None
    else:
        for child in expr.children():
            yield from _divisors(child, var)


def _walked_to_output(tensor: Tensor, position: int, output: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Whether every reader of ``tensor`` up to the output walks its dim ``position`` by an axis of its own."""
    if tensor is output:
        return True
    for user in tensors:
        op = user.op
        if not isinstance(op, Compute):
            continue
        for load in loads(op.body):
            if load.tensor is not tensor:
                continue
            own = [
                i
                for i, a in enumerate(op.axes)
                if a.var == load.indices[position] and a.extent == tensor.shape[position]
            ]
            if op.reduction is not None or not own or not _walked_to_output(user, own[0], output, tensors):
                return False
    return True


def _apply(output: Tensor, target: Tensor, position: int, factor: int) -> Tensor:
    """``output`` with the axis of ``target`` split, whose readers then divide their own axis by ``factor``."""
    new: dict[Tensor, Tensor] = {}

    def reread(expr: Expr) -> Expr | None:
        if not isinstance(expr, Load):
            return None
        indices = expr.indices
        if expr.tensor is target:
            index = indices[position]
            indices = (*indices[:position], index // factor, index % factor, *indices[position + 1 :])
        return Load(new[expr.tensor], indices)

    for tensor in topological(output):
        if isinstance(tensor.op, Placeholder):
            new[tensor] = tensor
            continue
        rebuilt = replace(tensor, op=replace(tensor.op, body=transform(tensor.op.body, reread)))
        new[tensor] = _split(rebuilt, position, factor) if tensor is target else rebuilt
    return new[output]


def _split(tensor: Tensor, position: int, factor: int) -> Tensor:
    op = tensor.op
    assert isinstance(op, Compute)
    axis = op.axes[position]
    quotient = Axis(f"{axis.name}q", as_dim(lift(axis.extent) // factor))
    remainder = Axis(f"{axis.name}r", factor)
    axes = (*op.axes[:position], quotient, remainder, *op.axes[position + 1 :])
    body = substitute(op.body, {axis.var: quotient.var * factor + remainder.var})
    bounds: dict[str, Interval] = {a.var.name: (0, _last(a.extent)) for a in axes}
    shape = tuple(a.extent for a in axes)
    op = replace(op, axes=axes, body=_simplified(body, bounds))
    return replace(tensor, shape=shape, op=op, strides=_split_strides(tensor.strides, position, factor))


def _split_strides(strides: Strides | None, position: int, factor: int) -> Strides | None:
    if strides is None:
        return None
    inner = strides[position]
    return (*strides[:position], product((inner, factor)), inner, *strides[position + 1 :])


def _simplified(body: Expr, bounds: dict[str, Interval]) -> Expr:
    def indices(expr: Expr) -> Expr | None:
        return Load(expr.tensor, tuple(simplify(i, bounds) for i in expr.indices)) if isinstance(expr, Load) else None

    return simplify(transform(body, indices), bounds)


def _last(extent: Dim) -> int | None:
    return extent - 1 if isinstance(extent, int) else None
