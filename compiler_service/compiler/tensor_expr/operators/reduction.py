"""Reductions over axes, and positions of extremes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from compiler_service.compiler.tensor_expr.axes import normal_axis, replaced
from compiler_service.compiler.tensor_expr.broadcast import converted, elementwise, widen
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.operators.chosen_axes import ChosenAxes
from compiler_service.compiler.tensor_expr.scalar import absolute, exp, inverse, is_inf, is_nan, log, sqrt
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, Tensor, compute, reduce
from shared_ir.dtype import DType
from shared_ir.expr import BinaryOp, Expr, binary, cast, equal, lift, logical_or, select
from shared_ir.expr.dim import Dim, as_dim, product

_ON_BOOL = {ReduceOp.MAX: ReduceOp.OR, ReduceOp.MIN: ReduceOp.AND}


def reduced_over(
    op: ReduceOp,
    x: Tensor,
    axes: ChosenAxes,
    name: str,
    term: Callable[[Expr], Expr] = lambda v: v,
    *,
    keep: bool = True,
) -> Tensor:
    """As :func:`reduced`, over axes that may be chosen by the run: every axis has a loop, of extent 1 where it is kept."""
    numbers = axes.numbers
    if numbers is not None:
        return reduced(op, x, numbers, name, term, keep=keep)
    op = _ON_BOOL.get(op, op) if x.dtype is DType.BOOL else op
    kept, over = _chosen_extents(x, axes)
    shape = kept if keep else axes.dropped(x.shape)

    def body(*index: Expr) -> Expr:
        own, k = index[: len(shape)], index[len(shape) :]
        at = _chosen_index(axes, own, k) if keep else axes.index(own, k)
        return term(widen(x[at]))

    return reduce(op, shape, over, body, name=name)


def _chosen_extents(x: Tensor, axes: ChosenAxes) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """The extents that are kept and those that are reduced, one of each for every axis of ``x``: 1 where it is not."""
    kept = tuple(as_dim(select(axes.has(axis), 1, lift(d))) for axis, d in enumerate(x.shape))
    return kept, tuple(as_dim(select(axes.has(axis), lift(d), 1)) for axis, d in enumerate(x.shape))


def _chosen_index(axes: ChosenAxes, own: Sequence[Expr], reduced: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(select(axes.has(axis), k, i) for axis, (i, k) in enumerate(zip(own, reduced, strict=True)))


def reduced(
    op: ReduceOp,
    x: Tensor,
    axes: Iterable[int],
    name: str,
    term: Callable[[Expr], Expr] = lambda v: v,
    *,
    keep: bool = True,
) -> Tensor:
    """``op`` over ``axes`` of ``term`` of the elements; reduced axes stay with extent 1 when ``keep``.

    Narrow floats are accumulated, and left, in float32.
    """
    gone = tuple(axes)
    op = _ON_BOOL.get(op, op) if x.dtype is DType.BOOL else op
    rest = [axis for axis in range(x.rank) if axis not in gone]
    shape = [1 if axis in gone else x.shape[axis] for axis in (range(x.rank) if keep else rest)]

    def body(*index: Expr) -> Expr:
        own = index[: len(shape)]
        at = dict(zip(range(x.rank) if keep else rest, own, strict=True))
        at |= dict(zip(gone, index[len(shape) :], strict=True))
        return term(widen(x[tuple(at[axis] for axis in range(x.rank))]))

    if not gone:
        return compute(shape, body, name=name)
    return reduce(op, shape, [x.shape[axis] for axis in gone], body, name=name)


def mean_of(total: Tensor, x: Tensor, axes: Sequence[int], name: str = "mean") -> Tensor:
    """A sum over ``axes`` of ``x`` divided by the number of its terms (integers truncate)."""
    return divided(total, product(x.shape[axis] for axis in axes), name)


def divided(total: Tensor, count: Dim, name: str = "mean") -> Tensor:
    """Every element divided by a count (integers truncate)."""

    def body(v: Expr) -> Expr:
        if v.dtype.is_float:
            return v * inverse(lift(count), v.dtype)
        return binary(BinaryOp.TRUNC_DIV, v, cast(lift(count), v.dtype))

    return elementwise(name, body, total)


@dataclass(frozen=True)
class _Reduce:
    """An ONNX ``Reduce*`` operator: ``finish(reduce(op) of term(x))``, where ``real`` by way of float64 for integers."""

    name: str
    op: ReduceOp
    term: Callable[[Expr], Expr] = lambda v: v
    finish: Callable[[Expr], Expr] | None = None
    real: bool = False

    def __call__(
        self, x: Tensor, axes: Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        over = reduced_axes(x, axes, noop_with_empty_axes)
        given = _real(x) if self.real else x
        total = reduced_over(self.op, given, over, self.name, self.term, keep=bool(keepdims))
        finished = total if self.finish is None else elementwise(self.name, self.finish, total)
        return converted(finished, x.dtype)


def _real(x: Tensor) -> Tensor:
    """Integers as float64, which holds their squares and sums; others as they are."""
    return x if x.dtype.is_float else converted(x, DType.FLOAT64)


def reduced_axes(x: Tensor, axes: Tensor | None, noop_with_empty_axes: int) -> ChosenAxes:
    """The axes that a ``Reduce*`` reduces: no axes means all of them, or none."""
    if axes is not None and axes.shape != (0,):
        return ChosenAxes.of(axes, "axes", x.rank)
    return ChosenAxes(x.rank, () if noop_with_empty_axes else tuple(range(x.rank)))


def reduce_mean(x: Tensor, axes: Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
    over = reduced_axes(x, axes, noop_with_empty_axes)
    count = product(as_dim(select(over.has(axis), lift(d), 1)) for axis, d in enumerate(x.shape))
    summed = converted(x, DType.INT64) if x.dtype.is_integer and x.dtype.bits < DType.INT64.bits else x
    return converted(divided(reduced_over(ReduceOp.SUM, summed, over, "sum", keep=bool(keepdims)), count), x.dtype)


def _summed_powers(x: Tensor, largest: Tensor, axes: ChosenAxes) -> Tensor:
    """The sum over ``axes`` of ``exp(x - largest)``, where the largest has an extent of 1 along these."""
    if (
        axes.numbers is None
    ):  # the largest is that of an index of the result: of one of the data, nobody could say which it is
        kept, over = _chosen_extents(x, axes)

        def term(*index: Expr) -> Expr:
            own, k = index[: x.rank], index[x.rank :]
            return exp(widen(x[_chosen_index(axes, own, k)]) - largest[own])

        return reduce(ReduceOp.SUM, kept, over, term, name="sum")

    def power(*index: Expr) -> Expr:
        at = tuple(lift(0) if axis in gone else i for axis, i in enumerate(index))
        return exp(widen(x[index]) - largest[at])

    gone = axes.numbers
    return reduced(ReduceOp.SUM, compute(x.shape, power, name="exp"), gone, "sum")


def reduce_log_sum_exp(
    x: Tensor, axes: Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    """The largest element is taken out first, so that exp does not overflow."""
    over, dtype, x = reduced_axes(x, axes, noop_with_empty_axes), x.dtype, _real(x)
    largest = reduced_over(ReduceOp.MAX, x, over, "max")
    finite = elementwise("finite_max", lambda v: select(is_inf(v), 0, v), largest)

    total = _summed_powers(x, finite, over)
    result = elementwise("reduce_log_sum_exp", lambda s, m: log(s) + m, total, finite)
    return converted(result if keepdims else _dropped(result, over), dtype)


def _dropped(x: Tensor, axes: ChosenAxes) -> Tensor:
    """``x`` without ``axes`` of extent 1."""
    return compute(axes.dropped(x.shape), lambda *own: x[axes.index(own, [lift(0)] * x.rank)], name=x.name)


def position_of(op: ReduceOp) -> Callable[..., Tensor]:
    def define(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        axis = normal_axis(axis, x.rank)
        best = reduced(op, x, (axis,), "best")
        last = bool(select_last_index)

        def body(*index: Expr) -> Expr:
            *own, k = index
            at = replaced(own, axis, k)
            element, extreme = widen(x[at]), best[replaced(own, axis, lift(0))]
            found = equal(element, extreme)
            if x.dtype.is_float:  # the extreme of NaN is NaN, which equals nothing
                found = logical_or(found, is_nan(element))
            return select(found, k, lift(-1) if last else lift(x.shape[axis]))

        pick = ReduceOp.MAX if last else ReduceOp.MIN
        result = reduce(pick, replaced(x.shape, axis, 1), [x.shape[axis]], body, name="position")
        return result if keepdims else _dropped(result, ChosenAxes(x.rank, (axis,)))

    return define


def cumulative(op: ReduceOp, name: str) -> Callable[..., Tensor]:
    """A reduction over a triangle: every element combines those before it."""
    start = 1 if op is ReduceOp.PROD else 0

    def define(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
        chosen = ChosenAxes.of(axis, "axis", x.rank)

        def body(*index: Expr) -> Expr:
            *own, k = index
            at = tuple(select(chosen.has(a), k, i) for a, i in enumerate(own))
            here = chosen.pick_index(own)
            first, second = (here, k) if reverse else (k, here)
            included = first < second if exclusive else first <= second
            return select(included, widen(x[at]), start)

        return converted(reduce(op, x.shape, [chosen.pick(x.shape)], body, name=name), x.dtype)

    return define


OPERATORS = (
    Operator("ReduceSum", _Reduce("reduce_sum", ReduceOp.SUM)),
    Operator("ReduceProd", _Reduce("reduce_prod", ReduceOp.PROD)),
    Operator("ReduceMax", _Reduce("reduce_max", ReduceOp.MAX)),
    Operator("ReduceMin", _Reduce("reduce_min", ReduceOp.MIN)),
    Operator("ReduceL1", _Reduce("reduce_l1", ReduceOp.SUM, absolute)),
    Operator("ReduceL2", _Reduce("reduce_l2", ReduceOp.SUM, lambda v: v * v, sqrt, real=True)),
    Operator("ReduceSumSquare", _Reduce("reduce_sum_square", ReduceOp.SUM, lambda v: v * v)),
    Operator("ReduceLogSum", _Reduce("reduce_log_sum", ReduceOp.SUM, finish=log, real=True)),
    Operator("ReduceMean", reduce_mean),
    Operator("ReduceLogSumExp", reduce_log_sum_exp),
    Operator("ArgMax", position_of(ReduceOp.MAX)),
    Operator("ArgMin", position_of(ReduceOp.MIN)),
    Operator("CumSum", cumulative(ReduceOp.SUM, "cumulative_sum")),
    Operator("CumProd", cumulative(ReduceOp.PROD, "cumulative_product")),
)
