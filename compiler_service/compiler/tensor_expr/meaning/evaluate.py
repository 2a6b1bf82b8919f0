"""The reference meaning of tensor expressions: numpy, vectorised over the axes of a compute.

Every loop variable is an open grid (an array that varies along its own axis only), so a subexpression costs as much as
the axes that it mentions. Reductions go through their domain in blocks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler_service.compiler.tensor_expr.meaning.contraction import contract, product_in_order
from compiler_service.compiler.tensor_expr.meaning.rounding import Array
from compiler_service.compiler.tensor_expr.meaning.scalar_semantics import (
    BINARY,
    EXTREMA,
    UNARY,
    cast,
    has_both_zeros,
    is_left_to_target,
    reinterpret,
)
from compiler_service.compiler.tensor_expr.tensor import Axis, Compute, Load, Placeholder, ReduceOp, Tensor, identity_of
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Reinterpret,
    Select,
    Unary,
    UnaryOp,
    Var,
    variables,
    walk,
)
from shared_ir.expr.dim import Dim
from shared_ir.expr.dim import evaluate as evaluate_dim

MOST_ELEMENTS_AT_ONCE = 1 << 22
"""Elements that one step of a reduction may touch at once."""

_REDUCERS: Mapping[ReduceOp, np.ufunc] = {
    ReduceOp.SUM: np.add,
    ReduceOp.PROD: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.MAX_NUMBER: np.fmax,
    ReduceOp.AND: np.logical_and,
    ReduceOp.OR: np.logical_or,
}


MOST_STEPS = 1 << 33
"""Of one reduction that is computed ahead of the run; some seconds of float64."""
_PRODUCTS_AT_ONCE = 8
"""A sum of products takes less than other operations, one by one."""


class LeftToRun(ArithmeticError):
    """The target decides what comes of an operation, or it takes long."""


@dataclass
class EvaluationBudget:
    """Operations of elements that may still be computed ahead of the run, asked before they are."""

    steps: int

    def spend(self, steps: int) -> None:
        """
        Raises:
            LeftToRun: it is more than there is; none of it is spent.
        """
        if steps > self.steps:
            raise LeftToRun
        self.steps -= steps


_EXTREMA = (ReduceOp.MIN, ReduceOp.MAX, ReduceOp.MAX_NUMBER)


def evaluate(
    outputs: Sequence[Tensor],
    feeds: Mapping[Tensor, Array],
    symbols: Mapping[str, int],
    *,
    on_every_target: bool = False,
    budget: EvaluationBudget | None = None,
) -> list[Array]:
    """The elements of ``outputs``, given those of the placeholders and the values of the dim symbols.

    Placeholders without a feed must have a value of their own.

    Raises:
        LeftToRun: with ``on_every_target``, where targets would not all give these elements, or after :data:`MOST_STEPS`;
            more than ``budget`` has.
        KeyError: a placeholder or a symbol has no value.
        ValueError: a feed does not have the shape or dtype of its placeholder.
        IndexError: an unguarded index is out of bounds.
    """
    evaluator = _Evaluator(symbols, on_every_target, budget)
    for tensor, array in feeds.items():
        evaluator.feed(tensor, array)
    return [evaluator.tensor(t) for t in outputs]


@dataclass
class _Evaluator:
    symbols: Mapping[str, int]
    on_every_target: bool
    budget: EvaluationBudget | None = None
    _arrays: dict[Tensor, Array] = field(default_factory=dict)

    def feed(self, tensor: Tensor, array: Array) -> None:
        shape = self._shape(tensor.shape)
        if array.shape != shape or array.dtype != storage_dtype(tensor.dtype):
            raise ValueError(f"{tensor.name} is {tensor.dtype}{list(shape)}, fed {array.dtype}{list(array.shape)}")
        self._arrays[tensor] = array

    def tensor(self, tensor: Tensor) -> Array:
        found = self._arrays.get(tensor)
        if found is None:
            found = self._arrays[tensor] = self._constant(tensor) if tensor.value is not None else self._run(tensor)
        return found

    def _constant(self, tensor: Tensor) -> Array:
        assert tensor.value is not None
        flat = [evaluate_dim(v, self.symbols) if isinstance(v, Expr) else v for v in tensor.value.reshape(-1)]
        given = np.uint64 if tensor.dtype is DType.UINT64 else None  # which numpy would make floats of, beside others
        return np.array(flat, given).astype(storage_dtype(tensor.dtype)).reshape(tensor.value.shape)

    def _run(self, tensor: Tensor) -> Array:
        if isinstance(tensor.op, Placeholder):
            raise KeyError(f"placeholder {tensor.name} has no value")
        shape = self._shape(tensor.shape)
        dtype = storage_dtype(tensor.dtype)
        if 0 in shape:
            return np.zeros(shape, dtype)
        self._spend(tensor.op, shape)
        if tensor.op.reduction is None:
            values = _Body(self, _grids(tensor.op.axes, shape, [(0, n) for n in shape])).value(tensor.op.body)
        else:
            values = self._reduce(tensor.op, tensor.dtype, shape)
        return np.array(np.broadcast_to(values, shape), dtype, order="C")

    def _reduce(self, op: Compute, dtype: DType, shape: tuple[int, ...]) -> Array:
        assert op.reduction is not None
        reduction, kept = op.reduction, len(shape)
        domain = self._shape(tuple(a.extent for a in reduction.axes))
        if self.on_every_target and math.prod((*shape, *domain)) > MOST_STEPS:
            raise LeftToRun
        total = np.full(shape, identity_of(reduction.op, dtype), storage_dtype(dtype))
        factors = _factors(op)
        combine = _REDUCERS[reduction.op]
        budget = max(1, MOST_ELEMENTS_AT_ONCE // max(self._varying(f, op.axes) for f in factors or (op.body,)))
        for block in _blocks(domain, budget):
            sizes = shape + tuple(stop - start for start, stop in block)
            body = _Body(self, _grids(op.all_axes, shape + domain, [(0, n) for n in shape] + list(block)))
            if len(factors) == 2:
                product = product_in_order if self.on_every_target else np.matmul
                part = contract(body.value(factors[0]), body.value(factors[1]), sizes, kept, product)
            else:
                values = np.broadcast_to(body.value(op.body), sizes)
                if reduction.op in _EXTREMA and self.on_every_target and has_both_zeros(values, values):
                    raise LeftToRun
                part = combine.reduce(values, axis=tuple(range(kept, len(sizes))), dtype=total.dtype)
            with np.errstate(all="ignore"):
                combine(total, part, out=total)
        return self.agreed(BinaryOp(reduction.op) if reduction.op in _EXTREMA else None, total)

    def _spend(self, op: Compute, shape: tuple[int, ...]) -> None:
        if self.budget is None:
            return
        domain = () if op.reduction is None else self._shape(tuple(a.extent for a in op.reduction.axes))
        points = math.prod((*shape, *domain))
        self.budget.spend(points // _PRODUCTS_AT_ONCE if _factors(op) else points * sum(1 for _ in walk(op.body)))

    def agreed(self, op: UnaryOp | BinaryOp | None, array: Array) -> Array:
        """``array``, computed by ``op``."""
        if self.on_every_target and is_left_to_target(op, array):
            raise LeftToRun
        return array

    def _varying(self, expr: Expr, axes: tuple[Axis, ...]) -> int:
        """Number of values that ``expr`` takes over ``axes``."""
        mentioned = variables(expr)
        return math.prod(self._shape(tuple(a.extent for a in axes if a.var in mentioned)))

    def _shape(self, dims: tuple[Dim, ...]) -> tuple[int, ...]:
        return tuple(evaluate_dim(d, self.symbols) for d in dims)


def _factors(op: Compute) -> tuple[Expr, ...]:
    """The two factors of a floating-point sum of products, or nothing."""
    match op.body:
        case Binary(op=BinaryOp.MUL, lhs=lhs, rhs=rhs) if (
            op.reduction is not None and op.reduction.op is ReduceOp.SUM and lhs.dtype in (DType.FLOAT32, DType.FLOAT64)
        ):
            return lhs, rhs
    return ()


def _blocks(extents: tuple[int, ...], budget: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Boxes of at most ``budget`` points that tile the domain; the last axes stay whole for longest."""
    steps: list[int] = []
    for extent in reversed(extents):
        steps.insert(0, max(1, min(extent, budget)))
        budget //= max(1, extent)
    ranges = (
        [(start, min(start + step, n)) for start in range(0, n, step)] for n, step in zip(extents, steps, strict=True)
    )
    return itertools.product(*ranges)


@dataclass(frozen=True)
class _Grid:
    """A loop variable: ``start`` to ``stop`` along axis ``position`` of ``rank``."""

    position: int
    rank: int
    start: int
    stop: int
    whole: bool

    def values(self) -> Array:
        shape = [1] * self.rank
        shape[self.position] = self.stop - self.start
        return np.arange(self.start, self.stop, dtype=np.int64).reshape(shape)


def _grids(axes: Sequence[Axis], extents: Sequence[int], ranges: Sequence[tuple[int, int]]) -> dict[Var, _Grid]:
    rank = len(axes)
    return {
        axis.var: _Grid(i, rank, start, stop, (start, stop) == (0, extent))
        for i, (axis, extent, (start, stop)) in enumerate(zip(axes, extents, ranges, strict=True))
    }


@dataclass
class _Body:
    """Values of the subexpressions of one body over one block of its domain."""

    evaluator: _Evaluator
    grids: Mapping[Var, _Grid]
    _values: dict[tuple[Expr, bool], Array] = field(default_factory=dict)

    def value(self, expr: Expr, guarded: bool = False) -> Array:
        """``guarded`` expressions are branches of a select: their indices are brought into bounds."""
        found = self._values.get((expr, guarded))
        if found is None:
            found = self._values[expr, guarded] = self._compute(expr, guarded)
        return found

    def _compute(self, expr: Expr, guarded: bool) -> Array:
        match expr:
            case Const(value=value, type=dtype):
                return np.asarray(value).astype(storage_dtype(dtype))
            case Var():
                return self._variable(expr)
            case Load():
                return self._load(expr, guarded)
            case Unary(op=op, x=x):
                return self.evaluator.agreed(op, UNARY[op](self.value(x, guarded)))
            case Binary(op=op, lhs=lhs, rhs=rhs):
                a, b = self.value(lhs, guarded), self.value(rhs, guarded)
                if op in EXTREMA and self.evaluator.on_every_target and has_both_zeros(a, b):
                    raise LeftToRun
                return self.evaluator.agreed(op, BINARY[op](a, b))
            case Cast(type=dtype, x=x):
                found = cast(self.value(x, guarded), dtype)
                return self.evaluator.agreed(None, found) if x.dtype is DType.FLOAT64 else found
            case Reinterpret(type=dtype, x=x):
                return reinterpret(self.value(x, guarded), dtype)
            case Select(cond=cond, then=then, otherwise=otherwise):
                chosen = self.value(cond, guarded)
                return np.where(chosen, self.value(then, True), self.value(otherwise, True))
        raise TypeError(f"no meaning for {type(expr).__name__} in a tensor expression: {expr}")

    def _variable(self, var: Var) -> Array:
        grid = self.grids.get(var)
        if grid is not None:
            return grid.values()
        return np.asarray(self.evaluator.symbols[var.name], np.int64)

    def _load(self, load: Load, guarded: bool) -> Array:
        array = self.evaluator.tensor(load.tensor)
        view = self._view(load, array)
        if view is not None:
            return view
        indices = [self.value(i, guarded) for i in load.indices]
        if guarded:
            if array.size == 0:
                return np.zeros((), array.dtype)
            indices = [np.clip(i, 0, n - 1) for i, n in zip(indices, array.shape, strict=True)]
        for index, extent in zip(indices, array.shape, strict=True):
            if index.size and (index.min() < 0 or index.max() >= extent):
                raise IndexError(f"{load}: index {index.min()}..{index.max()} of an axis of extent {extent}")
        return np.asarray(array[tuple(indices)])

    def _view(self, load: Load, array: Array) -> Array | None:
        """The tensor itself, its axes moved to where their variables are, when every index is a variable of its own."""
        grids = [self.grids.get(i) if isinstance(i, Var) else None for i in load.indices]
        positions = [g.position for g in grids if g is not None and g.whole]
        full = [g is not None and g.stop == n for g, n in zip(grids, array.shape, strict=True)]
        if len(set(positions)) != len(grids) or not all(full) or not grids:
            return None
        order = np.argsort(positions)
        shape = [1] * len(self.grids)
        for axis, position in enumerate(positions):
            shape[position] = array.shape[axis]
        return array.transpose(order).reshape(shape)
