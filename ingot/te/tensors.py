"""Tensors and what computes their elements.

::

    n = te.var("n")
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    Y = te.sum((m, n), k, lambda i, j, r: X[i, r] * W[r, j], name="Y")

The parameters of a body are the axes of the tensor, and then those that it is reduced over; schedules call loops after them.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence

from compiler_service.compiler.tensor_expr import tensor as definitions
from compiler_service.compiler.tensor_expr.tensor import Placeholder, ReduceOp, Tensor
from compiler_service.compiler.tensor_expr.text import print_tensors
from ingot.arguments import require_kind
from ingot.te.expressions import Dim, dtype_of
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr

__all__ = ("Tensor", "compute", "is_placeholder", "max", "min", "placeholder", "reduce", "sum", "text")

Body = Callable[..., Expr]
"""An element, given its axes."""
Shape = Dim | Sequence[Dim]
"""An extent for each axis; one alone is that of a vector."""


def placeholder(shape: Shape, dtype: str | DType = DType.FLOAT32, name: str = "x") -> Tensor:
    """A tensor that the function is called with, of this shape and element type.

    Raises:
        IngotError: UNSUPPORTED_DTYPE; INVALID_ARGUMENT, an extent is none.
    """
    return definitions.placeholder(name, _dims(shape), dtype_of(dtype))


def compute(shape: Shape, body: Body, name: str = "compute") -> Tensor:
    """``T[i, j, ...] = body(i, j, ...)`` for every index of ``shape``; the element type is that of the body.

    Indices that ``body`` reads other tensors at must be inside of them; guard those that may not be with :func:`select`.

    Raises:
        IngotError: INVALID_ARGUMENT, ``body`` does not take as many axes as ``shape`` has, or an extent is none; TYPE_MISMATCH,
            operands of different element types.
    """
    dims = _dims(shape)
    with_types = _typed(body)
    return definitions.compute(dims, with_types, name=name, axes=_axes(body, len(dims), "i"))


def reduce(op: str, shape: Shape, over: Shape, body: Body, name: str = "reduce") -> Tensor:
    """``T[i...] = op over all k... of body(i..., k...)``, the k up to the extents ``over``; the order of the terms is free.

    Args:
        op: ``sum``, ``prod``, ``min``, ``max``, ``and``, ``or``.

    Raises:
        IngotError: as :func:`compute`; INVALID_ARGUMENT, there is no such ``op``.
    """
    dims, inner = _dims(shape), _dims(over)
    names = _axes(body, len(dims) + len(inner), "i")
    if op not in set(ReduceOp):
        expected = ", ".join(ReduceOp)
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "there is no such reduction", expected=expected, received=op)
    outer, reduced = names[: len(dims)], names[len(dims) :]
    return definitions.reduce(ReduceOp(op), dims, inner, _typed(body), name=name, axes=outer, reduced=reduced)


def sum(shape: Shape, over: Shape, body: Body, name: str = "sum") -> Tensor:
    """:func:`reduce` by addition."""
    return reduce("sum", shape, over, body, name)


def max(shape: Shape, over: Shape, body: Body, name: str = "max") -> Tensor:
    """:func:`reduce` to the largest; NaN where one is NaN, and the least value of the type over nothing."""
    return reduce("max", shape, over, body, name)


def min(shape: Shape, over: Shape, body: Body, name: str = "min") -> Tensor:
    """:func:`reduce` to the smallest; NaN where one is NaN, and the largest value of the type over nothing."""
    return reduce("min", shape, over, body, name)


def text(tensor: Tensor) -> str:
    """The definition of ``tensor`` and of all that it is computed from, one line each."""
    return print_tensors(tensor)


def is_placeholder(tensor: Tensor) -> bool:
    """Whether the tensor is given, and not computed."""
    return isinstance(tensor.op, Placeholder)


def _dims(shape: Shape) -> tuple[Dim, ...]:
    return tuple(map(_dim, shape if isinstance(shape, Sequence) else (shape,)))


def _dim(extent: Dim) -> Dim:
    """``extent`` as an int, also of numpy, or as the expression that it is."""
    if isinstance(extent, Expr):
        return extent
    try:
        number = operator.index(extent)
    except TypeError:
        number = -1
    if number < 0:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "an extent is no whole number",
            field="shape",
            expected="an int of at least 0, or arithmetic on what te.var makes",
            received=repr(extent)[:80],
        )
    return number


def _axes(body: Body, count: int, prefix: str) -> tuple[str, ...]:
    """The names of the parameters of ``body`` that have no default; for ``*i`` numbered ones."""
    require_kind(body, Callable, "body", "a function of the axes, such as lambda i, j: A[i, j] * 2.0")  # type: ignore[arg-type]
    parameters = [p for p in inspect.signature(body).parameters.values() if p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return tuple(f"{prefix}{number}" for number in range(count))
    if len(parameters) != count:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the body does not take the axes of the tensor",
            expected=f"{count} parameters, one for each axis",
            received=", ".join(p.name for p in parameters) or "none",
        )
    return tuple(p.name for p in parameters)


def _typed(body: Body) -> Body:
    """``body``, whose faults are errors of its author."""

    def checked(*axes: Expr) -> Expr:
        try:
            found = body(*axes)
        except TypeError as error:
            raise IngotError(ErrorCode.TYPE_MISMATCH, f"the body of a computation does not fit: {error}") from error
        if not isinstance(found, Expr):
            expected = "an expression; te.const makes one of a number"
            raise IngotError(
                ErrorCode.TYPE_MISMATCH, "the body of a computation gives none", expected=expected, received=repr(found)
            )
        return found

    return checked
