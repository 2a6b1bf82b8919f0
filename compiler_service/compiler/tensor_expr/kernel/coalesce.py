"""Coalescing: adjacent axes that every access walks together become one axis.

A 1x1 convolution over ``n, oh, ow`` becomes a matrix product over ``n * oh * ow`` rows; an elementwise kernel of any rank becomes
one loop. Only shapes change, not memory: a merged tensor has the same elements in the same order. Axes between which memory has
gaps stay apart.

before: ``y[a, b, c] = f(x[a, b, c], bias[c])``     with ``x`` and ``y`` of shape [A, B, C]
after:  ``y[ab, c]   = f(x[ab, c], bias[c])``       with ``x`` and ``y`` of shape [A * B, C]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from compiler_service.compiler.tensor_expr.kernel.split_axes import split_axes
from compiler_service.compiler.tensor_expr.strides import Strides, merges
from compiler_service.compiler.tensor_expr.tensor import (
    Axis,
    Compute,
    Load,
    Placeholder,
    Reduction,
    Tensor,
    loads,
    topological,
)
from shared_ir.expr import Expr, Var, lift, substitute, transform, variables
from shared_ir.expr.dim import Dim, product, static
from shared_ir.expr.simplify import simplify


def coalesce(output: Tensor) -> tuple[Tensor, Mapping[Tensor, Tensor]]:
    """``output`` with as few axes as possible, and what each placeholder became (shapes differ, elements do not).

    Axes of which only quotients and remainders are used are split first.
    """
    output, placeholders = _squeezed(output)
    output = split_axes(output)
    changed = True
    while changed:
        changed = False
        for merge in list(_candidates(output)):
            plan = _Merge.of(output, *merge)
            if plan is not None:
                output, renamed = plan.apply(output)
                placeholders = {old: renamed.get(new, new) for old, new in placeholders.items()}
                changed = True
                break
    return output, placeholders


def _squeezed(output: Tensor) -> tuple[Tensor, dict[Tensor, Tensor]]:
    """Dims and axes of extent 1 removed (a tensor of one element keeps one dim); reductions keep an axis."""
    new: dict[Tensor, Tensor] = {}
    for tensor in topological(output):
        keep = _wide(tensor.shape)
        shape = tuple(tensor.shape[i] for i in keep)
        op = tensor.op
        if isinstance(op, Compute):
            reduction = op.reduction
            if reduction is not None:
                reduction = replace(reduction, axes=tuple(reduction.axes[i] for i in _wide_axes(reduction.axes)))
            axes = tuple(op.axes[i] for i in keep)
            gone = {a.var for a in op.all_axes} - {a.var for a in (*axes, *(reduction.axes if reduction else ()))}
            body = transform(substitute(op.body, {v: lift(0) for v in gone}), lambda e: _squeezed_load(e, new))
            op = Compute(axes, _in_range(body, axes, reduction), reduction)
        value = None if tensor.value is None else tensor.value.reshape([static(d) for d in shape])
        new[tensor] = Tensor(tensor.name, shape, tensor.dtype, op, value, strides=_kept(tensor.strides, keep))
    return new[output], {old: t for old, t in new.items() if isinstance(old.op, Placeholder)}


def _kept(strides: Strides | None, keep: Sequence[int]) -> Strides | None:
    return None if strides is None else tuple(strides[i] for i in keep)


def _in_range(body: Expr, axes: tuple[Axis, ...], reduction: Reduction | None) -> Expr:
    """``body`` simplified under what is known of its axes: ``oc // 64`` is 0 when there are 64 channels."""
    every = (*axes, *(reduction.axes if reduction else ()))
    return simplify(body, {a.var.name: (0, a.extent - 1 if isinstance(a.extent, int) else None) for a in every})


def _wide(shape: Sequence[Dim]) -> list[int]:
    return [i for i, d in enumerate(shape) if d != 1] or list(range(len(shape)))[-1:]


def _wide_axes(axes: Sequence[Axis]) -> list[int]:
    return _wide([a.extent for a in axes])


def _squeezed_load(expr: Expr, new: Mapping[Tensor, Tensor]) -> Expr | None:
    if not isinstance(expr, Load):
        return None
    return Load(new[expr.tensor], tuple(expr.indices[i] for i in _wide(expr.tensor.shape)))


def _candidates(output: Tensor) -> Iterator[tuple[Tensor, int]]:
    """(tensor, i): axes i and i + 1 of its compute (spatial or reduction axes, not one of each)."""
    for tensor in reversed(topological(output)):
        if isinstance(tensor.op, Compute):
            spatial = len(tensor.op.axes)
            total = len(tensor.op.all_axes)
            yield from ((tensor, i) for i in range(total - 1) if i + 1 != spatial)


_T = TypeVar("_T")


@dataclass
class _Merge:
    """Dims to merge: for each tensor the positions p such that dims p and p + 1 become one; likewise for compute axes."""

    dims: dict[Tensor, set[int]] = field(default_factory=dict)
    axes: dict[Tensor, set[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, output: Tensor, tensor: Tensor, axis: int) -> _Merge | None:
        """Everything that must merge when axes ``axis`` and ``axis + 1`` of ``tensor`` do, or None when something cannot."""
        merge = cls()
        users = [t for t in topological(output) if isinstance(t.op, Compute)]
        pending: list[tuple[Tensor, int]] = [(tensor, axis)]
        while pending:
            current, at = pending.pop()
            if at in merge.axes.setdefault(current, set()):
                continue
            merge.axes[current].add(at)
            demanded = merge._demands(current, at)
            if demanded is None:
                return None
            for source, position in demanded:
                if not merge._merge_dims(source, position, users, pending):
                    return None
            assert isinstance(current.op, Compute)
            if at < len(current.op.axes) - 1 and not merge._merge_dims(current, at, users, pending):
                return None
        return None if merge._overlaps() else merge

    def _overlaps(self) -> bool:
        """Merging three axes at once is left to a second round."""
        return any(p + 1 in found for group in (self.dims, self.axes) for found in group.values() for p in found)

    def _merge_dims(
        self, tensor: Tensor, position: int, users: Sequence[Tensor], pending: list[tuple[Tensor, int]]
    ) -> bool:
        """Merge dims of ``tensor`` and ask the same of every place that reads it."""
        if position in self.dims.setdefault(tensor, set()):
            return True
        if not merges(tensor.shape, tensor.strides, position):
            return False
        self.dims[tensor].add(position)
        if isinstance(tensor.op, Compute):
            pending.append((tensor, position))
        for user in users:
            assert isinstance(user.op, Compute)
            for load in loads(user.op.body):
                if load.tensor is not tensor:
                    continue
                axis = _axis_pair(user.op, load.indices[position], load.indices[position + 1])
                if axis is None:
                    return False
                pending.append((user, axis))
        return True

    def _demands(self, tensor: Tensor, axis: int) -> list[tuple[Tensor, int]] | None:
        """Where the body of ``tensor`` uses its axes ``axis`` and ``axis + 1``: always side by side in a load, in full."""
        assert isinstance(tensor.op, Compute)
        first, second = tensor.op.all_axes[axis : axis + 2]
        found: list[tuple[Tensor, int]] = []
        seen: set[Expr] = set()

        def visit(expr: Expr) -> bool:
            if expr in seen:
                return True
            seen.add(expr)
            if isinstance(expr, Load):
                for p, index in enumerate(expr.indices):
                    if index == first.var and p + 1 < len(expr.indices) and expr.indices[p + 1] == second.var:
                        if expr.tensor.shape[p + 1] != second.extent or expr.tensor.shape[p] != first.extent:
                            return False
                        found.append((expr.tensor, p))
                    elif index == second.var and p > 0 and expr.indices[p - 1] == first.var:
                        continue
                    elif {first.var, second.var} & variables(index) or not visit(index):
                        return False
                return True
            if isinstance(expr, Var):
                return expr not in (first.var, second.var)
            return all(visit(c) for c in expr.children())

        return found if visit(tensor.op.body) else None

    def apply(self, output: Tensor) -> tuple[Tensor, dict[Tensor, Tensor]]:
        new: dict[Tensor, Tensor] = {}
        for tensor in topological(output):
            new[tensor] = self._rebuilt(tensor, new)
        return new[output], {old: t for old, t in new.items() if isinstance(old.op, Placeholder)}

    def _rebuilt(self, tensor: Tensor, new: Mapping[Tensor, Tensor]) -> Tensor:
        shape = _joined(tensor.shape, self.dims.get(tensor, set()), _product)
        if isinstance(tensor.op, Placeholder):
            if tensor not in self.dims:
                return tensor
            value = None if tensor.value is None else tensor.value.reshape(tuple(static(d) for d in shape))
            return Tensor(tensor.name, shape, tensor.dtype, tensor.op, value, strides=self._strides(tensor))
        spatial = len(tensor.op.axes)
        merged = self.axes.get(tensor, set())
        joined = _joined(tensor.op.axes, {p for p in merged if p < spatial}, _join_axes)
        reduction = tensor.op.reduction
        if reduction is not None:
            own = {p - spatial for p in merged if p >= spatial}
            reduction = replace(reduction, axes=_joined(reduction.axes, own, _join_axes))
        body = transform(tensor.op.body, lambda e: self._reload(e, new))
        if any(variables(body) & {a.var for a in tensor.op.all_axes[p : p + 2]} for p in merged):
            body = substitute(body, self._variables(tensor.op, merged))
        op = Compute(joined, body, reduction)
        return Tensor(tensor.name, shape, tensor.dtype, op, tensor.value, strides=self._strides(tensor))

    def _strides(self, tensor: Tensor) -> Strides | None:
        """Of two dims that merge the inner one says how far apart elements are."""
        if tensor.strides is None:
            return None
        return _joined(tensor.strides, self.dims.get(tensor, set()), lambda _, inner: inner)

    def _variables(self, op: Compute, merged: set[int]) -> dict[Var, Expr]:
        """After loads were rebuilt only the first axis of a merged pair is left, standing for both."""
        pairs = [op.all_axes[p : p + 2] for p in merged]
        return {a.var: _join_axes(a, b).var for a, b in pairs}

    def _reload(self, expr: Expr, new: Mapping[Tensor, Tensor]) -> Expr | None:
        if not isinstance(expr, Load):
            return None
        indices = _joined(expr.indices, self.dims.get(expr.tensor, set()), lambda a, b: a)
        return Load(new[expr.tensor], indices)


def _axis_pair(op: Compute, first: Expr, second: Expr) -> int | None:
    """The axis i of ``op`` with ``first`` = axis i and ``second`` = axis i + 1, both spatial or both reduced."""
    variables_of = [a.var for a in op.all_axes]
    for i in range(len(variables_of) - 1):
        if (first, second) == (variables_of[i], variables_of[i + 1]) and i + 1 != len(op.axes):
            return i
    return None


def _joined(items: tuple[_T, ...], positions: set[int], join: Callable[[_T, _T], _T]) -> tuple[_T, ...]:
    result: list[_T] = []
    for i, item in enumerate(items):
        if i - 1 in positions:
            result[-1] = join(result[-1], item)
        else:
            result.append(item)
    return tuple(result)


def _product(a: Dim, b: Dim) -> Dim:
    return product((a, b))


def _join_axes(a: Axis, b: Axis) -> Axis:
    return Axis(f"{a.name}_{b.name}", _product(a.extent, b.extent))
