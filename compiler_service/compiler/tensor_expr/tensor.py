"""Tensor expressions: what a kernel computes, element by element.

Grammar::

    Tensor    = Tensor(name, shape, dtype, op, value, strides)
    op        = Placeholder | Compute(axes, body, reduction)
    reduction = None | Reduction(op, axes)
    Expr     += Load(tensor, indices)

``Compute`` without a reduction: ``T[axes] = body``. With one: ``T[axes] = reduce(op) over reduction.axes of body``,
starting from the identity of ``op``. The body of a reduction is reduced as it is; what follows it is another Compute
(schedules inline it back as an epilogue). Indices must be in bounds wherever they are evaluated: guard with
:func:`shared_ir.expr.select`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler_service.compiler.tensor_expr.strides import Strides
from shared_ir.dtype import DType
from shared_ir.expr import Expr, Scalar, Var, lift, variables, walk
from shared_ir.expr.dim import Dim, as_dim


class ReduceOp(enum.StrEnum):
    """What the terms of a reduction are put together by."""

    SUM = "sum"
    PROD = "prod"
    MIN = "min"
    MAX = "max"
    MAX_NUMBER = "max_number"  # as the operator of this name: what is no number is left out
    AND = "and"
    OR = "or"


def axis_var(name: str) -> Var:
    """The variable of the axis ``name``. The ``$`` keeps it apart from a dim symbol of the same name."""
    return Var(f"${name}")


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop of a compute: ``var`` runs over [0, extent)."""

    name: str
    extent: Dim

    @property
    def var(self) -> Var:
        return axis_var(self.name)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """The tensor is given: an argument of the kernel."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """``op`` over all of ``axes``, in any order.

    Attributes:
        exact: the sum is one that no rounding may touch, of integers that floats hold: it is not computed by way of others.
    """

    op: ReduceOp
    axes: tuple[Axis, ...]
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Compute:
    """The tensor is computed: ``body`` for every index of ``axes``, or its reduction.

    Attributes:
        axes: those of the tensor.
        body: an element, or a term of one, over the variables of the axes.
        reduction: how terms are put together, if they are.
    """

    axes: tuple[Axis, ...]
    body: Expr
    reduction: Reduction | None = None

    @property
    def all_axes(self) -> tuple[Axis, ...]:
        """Those of the tensor, and then those that it is reduced over."""
        return self.axes + (self.reduction.axes if self.reduction else ())


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a kernel; compared by identity. ``T[i, j]`` is one of its elements in an expression.

    Attributes:
        name: what schedules and texts call it.
        shape: an extent for each axis.
        dtype: of its elements.
        op: whether it is given or computed, and how.
        value: the elements where they are known at compile time (a constant, or shape arithmetic): an object array of Python
            numbers and :class:`Expr` over dim symbols, shaped like the (then static) tensor.
        assumes: pairs of dims that must be equal for the definition to hold and that its indices do not show
            (see :mod:`assumptions`).
        partial: whether the definition may read the first elements of a longer axis.
        strides: where the elements of an argument or of the output lie (see :mod:`strides`): without gaps, if None.
    """

    name: str
    shape: tuple[Dim, ...]
    dtype: DType
    op: Placeholder | Compute
    value: np.ndarray | None = None
    assumes: tuple[tuple[Dim, Dim], ...] = ()
    partial: bool = False
    strides: Strides | None = None

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __getitem__(self, indices: Expr | Scalar | tuple[Expr | Scalar, ...]) -> Load:
        """The element at ``indices``, one for each axis, as an expression.

        Raises:
            TypeError: there are more or fewer indices than axes.
        """
        if not isinstance(indices, tuple):
            indices = (indices,)
        if len(indices) != self.rank:
            raise TypeError(f"{self.name} has {self.rank} axes, {len(indices)} indices given")
        return Load(self, tuple(lift(i) for i in indices))

    @property
    def producers(self) -> tuple[Tensor, ...]:
        """Tensors that this one reads, each once, in order of first use."""
        if isinstance(self.op, Placeholder):
            return ()
        return tuple(dict.fromkeys(load.tensor for load in loads(self.op.body)))


@dataclass(frozen=True, eq=False)
class Load(Expr):
    """One element of a tensor; every index is int64."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    def children(self) -> tuple[Expr, ...]:
        return self.indices

    def with_children(self, children: tuple[Expr, ...]) -> Load:
        return Load(self.tensor, children)

    def __str__(self) -> str:
        return f"{self.tensor.name}[{', '.join(map(str, self.indices))}]"

    __repr__ = __str__


def topological(output: Tensor) -> tuple[Tensor, ...]:
    """Every tensor that ``output`` is computed from, producers first, ``output`` last."""
    order: dict[Tensor, None] = {}

    def visit(tensor: Tensor) -> None:
        if tensor not in order:
            for producer in tensor.producers:
                visit(producer)
            order[tensor] = None

    visit(output)
    return tuple(order)


def varies(load: Load, axis: str) -> bool:
    """Whether ``load`` reads other elements where ``axis`` advances."""
    return any(axis_var(axis) in variables(index) for index in load.indices)


def loads(body: Expr) -> Iterator[Load]:
    """Every distinct load in ``body``, those inside indices too."""
    return (node for node in walk(body) if isinstance(node, Load))


def placeholder(
    name: str,
    shape: Sequence[Dim],
    dtype: DType,
    value: np.ndarray | None = None,
    strides: Strides | None = None,
    assumes: Sequence[tuple[Dim, Dim]] = (),
) -> Tensor:
    return Tensor(name, tuple(shape), dtype, Placeholder(), value, assumes=tuple(assumes), strides=strides)


def compute(
    shape: Sequence[Dim],
    body: Callable[..., Expr],
    *,
    name: str = "compute",
    axes: Sequence[str] = (),
    assumes: Sequence[tuple[Dim, Dim]] = (),
    partial: bool = False,
) -> Tensor:
    """``T[i0, i1, ...] = body(i0, i1, ...)``; ``axes`` names the loops for schedules and prints (default i0, ...)."""
    shape = tuple(as_dim(d) for d in shape)
    own = _axes(shape, axes, "i")
    expr = body(*(a.var for a in own))
    return Tensor(name, shape, expr.dtype, Compute(own, expr), assumes=tuple(assumes), partial=partial)


def reduce(
    op: ReduceOp,
    shape: Sequence[Dim],
    over: Sequence[Dim],
    body: Callable[..., Expr],
    *,
    name: str = "reduce",
    axes: Sequence[str] = (),
    reduced: Sequence[str] = (),
    assumes: Sequence[tuple[Dim, Dim]] = (),
    exact: bool = False,
    partial: bool = False,
) -> Tensor:
    """``T[i...] = op over k... of body(i..., k...)`` with ``k`` ranging over the extents ``over``; over none it is ``body(i...)``."""
    shape = tuple(as_dim(d) for d in shape)
    own = _axes(shape, axes, "i")
    inner = _axes(tuple(as_dim(d) for d in over), reduced, "k")
    expr = body(*(a.var for a in own), *(a.var for a in inner))
    found = Compute(own, expr, Reduction(op, inner, exact) if inner else None)
    return Tensor(name, shape, expr.dtype, found, assumes=tuple(assumes), partial=partial)


def _axes(shape: tuple[Dim, ...], names: Sequence[str], prefix: str) -> tuple[Axis, ...]:
    names = names or [f"{prefix}{n}" for n in range(len(shape))]
    if len(names) != len(shape):
        raise TypeError(f"{len(shape)} axes, {len(names)} names")
    return tuple(Axis(n, d) for n, d in zip(names, shape, strict=True))


def identity_of(op: ReduceOp, dtype: DType) -> Any:
    """The Python number that ``op`` starts from in ``dtype`` (floats: -inf / inf for max / min)."""
    match op:
        case ReduceOp.SUM | ReduceOp.OR:
            return 0
        case ReduceOp.PROD | ReduceOp.AND:
            return 1
    largest = op is ReduceOp.MIN
    if dtype.is_float:
        return float("inf") if largest else float("-inf")
    if dtype is DType.BOOL:
        return largest
    value_bits = dtype.bits - dtype.is_signed
    if largest:
        return 2**value_bits - 1
    return -(2**value_bits) if dtype.is_signed else 0
