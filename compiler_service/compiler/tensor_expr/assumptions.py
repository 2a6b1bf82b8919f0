"""What a definition takes for granted about symbolic extents.

Broadcasting ``[a]`` with ``[b]`` is legal only where ``a == b``; ONNX leaves that to the run. Code made from such a
definition reads out of bounds where it is not so: the run must check the assumptions first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from compiler_service.compiler.tensor_expr.extents import (
    fitting,
    inhabited,
    inhabited_extent,
    joined_extents,
    stretched_extent,
    stretched_reads,
)
from compiler_service.compiler.tensor_expr.tensor import Load, Placeholder, Tensor
from shared_ir.dtype import DType
from shared_ir.expr import Const, Expr, Select, Var, equal, lift, select, variables, walk
from shared_ir.expr.corners import corners
from shared_ir.expr.dim import Dim, as_dim, dim_symbols, dim_text, product
from shared_ir.expr.polynomials import with_remainders
from shared_ir.expr.simplify import simplify, unbounded


@dataclass(frozen=True, slots=True)
class Assumption:
    """``actual == expected``, or ``actual >= expected`` with ``lower``; false when both are numbers."""

    actual: Dim
    expected: Dim
    lower: bool = False

    def __str__(self) -> str:
        stretched = stretched_extent(self.actual, self.expected)
        if stretched is not None:
            met = joined_extents(self.expected)
            if len(met) > 1:
                return f"{' and '.join(map(_short, met[:_MOST_NAMED]))} must be equal or 1"
            return f"{_short(stretched)} must be 1 or {_short(self.expected)}"
        needed = inhabited_extent(self.actual, self.expected)
        if needed is not None:
            return f"{_short(needed)} must be at least 1"
        relation, actual = "at least " if self.lower else "", self.actual
        if isinstance(actual, Select) and self.lower and actual.then == lift(self.expected):  # of :func:`reached`
            actual = as_dim(actual.otherwise)
        return f"{_short(actual)} must be {relation}{_short(self.expected)}"


_MOST_CHARACTERS = 80
_MOST_NAMED = 8


def _short(dim: Dim) -> str:
    """``dim``, or where that is nothing to read, what it is made of."""
    text = dim_text(dim)
    if len(text) <= _MOST_CHARACTERS:
        return text
    symbols = sorted(dim_symbols((dim,)))
    more = f" and {len(symbols) - _MOST_NAMED} more" if len(symbols) > _MOST_NAMED else ""
    return f"an extent computed from {', '.join(symbols[:_MOST_NAMED])}{more}"


def assumptions(
    outputs: Sequence[Tensor], *, fused: bool = False, given: Iterable[Tensor] = ()
) -> tuple[Assumption, ...]:
    """What must hold for the definitions of ``outputs`` and is not known to, each once; not for those of what is ``given``.

    An operand whose axis is walked element by element is as long as the walk: one that were longer would be cut in silence. Only
    what is ``partial``, or ``fused`` with it, reads the first elements of a longer axis.
    """
    stated: dict[Assumption, None] = {}
    tensors = tuple(tensors_of(outputs, given))
    for t in tensors:
        stated.update(dict.fromkeys(Assumption(*pair) for pair in t.assumes if pair[0] != pair[1]))
    equals = _equals(stated)
    for t in _computes(tensors):
        for own, extent in _walks(t):
            if Assumption(own, extent) in stated:
                continue
            if not (fused or t.partial):
                stated[Assumption(own, extent)] = None
            elif not _is_within(extent, own):
                stated[Assumption(own, extent, lower=True)] = None
        stated.update(dict.fromkeys(Assumption(*fitting(own, full)) for own, full in stretched_reads(t)))
        stated.update(dict.fromkeys(_reaches(t, equals)))
    return tuple(stated)


def reached(extent: Dim, least: Dim, elements: Dim) -> Assumption:
    """``extent`` is at least ``least`` where there are ``elements``."""
    if least == 1:
        return Assumption(*inhabited(extent, elements))
    return Assumption(as_dim(select(equal(lift(elements), 0), lift(least), lift(extent))), least, lower=True)


def requirements(outputs: Sequence[Tensor], *, fused: bool = False) -> tuple[Assumption, ...]:
    """What must hold for the symbols of a run: the assumptions of the definitions, and that no computed extent is negative."""
    extents = dict.fromkeys(d for t in _computes(tensors_of(outputs)) for d in t.shape if isinstance(d, Expr))
    negative = [d for d in extents if simplify(d >= 0) != Const(True, DType.BOOL)]
    return (*assumptions(outputs, fused=fused), *(Assumption(d, 0, lower=True) for d in negative))


def _computes(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    return (t for t in tensors if not isinstance(t.op, Placeholder))


def tensors_of(outputs: Sequence[Tensor], given: Iterable[Tensor] = ()) -> Iterator[Tensor]:
    """``outputs`` and all that they are computed from, each once, up to what is ``given``."""
    seen = {*given}
    pending = [t for t in dict.fromkeys(outputs) if t not in seen]
    seen.update(pending)
    while pending:
        t = pending.pop()
        yield t
        new = [p for p in t.producers if p not in seen]
        seen.update(new)
        pending.extend(new)


def _walks(t: Tensor) -> Iterator[tuple[Dim, Dim]]:
    """Extents of operands that a loop walks, and of that loop, where they may differ."""
    assert not isinstance(t.op, Placeholder)
    yield from _misfits(t.op.body, {axis.var: axis.extent for axis in t.op.all_axes})


def _misfits(body: Expr, axes: Mapping[Var, Dim]) -> Iterator[tuple[Dim, Dim]]:
    """Of each part of ``body`` with the axes that no select around it keeps in bounds, once."""
    pending = [(body, axes, frozenset(axes))]
    seen: set[tuple[Expr, frozenset[Var]]] = set()
    while pending:
        expr, walked, names = pending.pop()
        if (expr, names) in seen:
            continue
        seen.add((expr, names))
        outer = (walked, names)
        match expr:
            case Load(tensor=tensor, indices=indices):
                for index, own in zip(indices, tensor.shape, strict=True):
                    extent = walked.get(index) if isinstance(index, Var) else None
                    if extent is not None and not _is_equal(extent, own):
                        yield own, extent
            case Select(cond=cond):
                guarded = variables(cond)
                walked = {v: extent for v, extent in walked.items() if v not in guarded}
                names = frozenset(walked)
        pending.extend((child, walked, names) for child in reversed(expr.children()))
        if isinstance(expr, Select):  # always evaluated: nothing guards it
            pending.append((expr.cond, *outer))


def _equals(stated: Iterable[Assumption]) -> Mapping[Dim, Dim]:
    """Extents, and what they must be."""
    pairs = [(a.actual, a.expected) for a in stated if not a.lower]
    return {**{b: a for a, b in pairs}, **dict(pairs)}


def _reaches(t: Tensor, equals: Mapping[Dim, Dim]) -> Iterator[Assumption]:
    """Axes of operands must have the elements that are read wherever there is anything to compute: those at the corners of what is
    walked, and those at fixed positions, whatever elements choose between them."""
    assert not isinstance(t.op, Placeholder)
    elements = product(axis.extent for axis in t.op.all_axes)
    if elements == 0:
        return
    for own, index, walked in _positions(t):
        if isinstance(index, Var) or any(isinstance(e, Load) for e in walk(index)):
            continue  # of an axis that is walked itself, extents are compared; where elements decide, the loop program is proven
        found = corners(index, walked)
        if found is None:
            continue
        least = as_dim(lift(found.most) + 1)
        if not (_is_within(least, own) or _is_within(least, equals.get(own, own))):
            yield reached(own, least, elements)
        if not _is_within(0, found.least):
            yield Assumption(as_dim(select(equal(lift(elements), 0), 0, lift(found.least))), 0, lower=True)


def _positions(t: Tensor) -> Iterator[tuple[Dim, Expr, Mapping[Var, Dim]]]:
    """The extents and positions of what ``t`` reads, each once, with the axes that no condition around it keeps inside."""
    assert not isinstance(t.op, Placeholder)
    axes = {axis.var: axis.extent for axis in t.op.all_axes}
    pending, seen = [(t.op.body, frozenset(axes), True)], set()
    while pending:
        item = pending.pop()
        if item in seen:
            continue
        seen.add(item)
        expr, free, is_certain = item
        if isinstance(expr, Load):
            for own, index in zip(expr.tensor.shape, expr.indices, strict=True):
                own_axes = {v for v in variables(index) if v in axes}
                if own_axes <= free and (own_axes or is_certain):
                    yield own, index, axes
        if isinstance(expr, Select):
            pending.append((expr.cond, free, is_certain))
            free -= variables(expr.cond)
            is_certain = is_certain and any(isinstance(e, Load) for e in walk(expr.cond))
            pending += [(expr.then, free, is_certain), (expr.otherwise, free, is_certain)]
        else:
            pending += [(child, free, is_certain) for child in expr.children()]


def _is_equal(extent: Dim, own: Dim) -> bool:
    return extent == own or simplify(equal(lift(extent), lift(own))) == Const(True, DType.BOOL)


def _is_within(extent: Dim, own: Dim) -> bool:
    verdict = simplify(lift(extent) <= lift(own))
    if isinstance(verdict, Const):
        return bool(verdict.value)
    low, _ = unbounded().interval(unbounded()(with_remainders(unbounded().polynomial(lift(own) - extent))))
    return low is not None and low >= 0
