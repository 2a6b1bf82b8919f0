"""Steps of a reduction that add nothing are skipped, and the condition is asked as far out as it is known.

::

    for kh in 0..3:                                            for kh in 0..3:
        for kw in 0..3:                                            if oh + kh >= 1:
            acc = acc + select(oh + kh >= 1, x[..], 0) * w[..]  ->     for kw in 0..3:
                                                                           acc = acc + x[..] * w[..]

A factor of a sum that is 0 outside of an image skips its product, whatever the other factor is: NaN and infinity in weights
do not spread from the padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from compiler_service.compiler.loop_ir.ir import (
    BufferLoad,
    For,
    ForKind,
    Function,
    If,
    Let,
    Statement,
    Store,
    substatements,
)
from compiler_service.compiler.loop_ir.passes.rewrite import with_substatements
from compiler_service.compiler.tensor_expr.tensor import ReduceOp, identity_of
from shared_ir.dtype import DType
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, Select, Var, binary, cast, lift, variables, walk

_REDUCTIONS = {
    BinaryOp.ADD: ReduceOp.SUM,
    BinaryOp.MUL: ReduceOp.PROD,
    BinaryOp.MIN: ReduceOp.MIN,
    BinaryOp.MAX: ReduceOp.MAX,
    BinaryOp.MAX_NUMBER: ReduceOp.MAX_NUMBER,
}


def skip(function: Function) -> Function:
    """The same function with reduction steps under a condition, where their operand is the identity outside of it."""
    body = _statement(function.body, frozenset())
    return function if body is function.body else replace(function, body=body)


def _statement(statement: Statement, lanes: frozenset[Var]) -> Statement:
    match statement:
        case Store():
            return _store(statement, lanes)
        case For(var=var, kind=kind, body=body):
            inside = lanes | {var} if kind is ForKind.VECTORIZED else lanes
            return _pulled(with_substatements(statement, (_statement(body, inside),)), var)
        case Let(var=var, body=body):
            return _pulled(with_substatements(statement, (_statement(body, lanes),)), var)
    parts = tuple(_statement(part, lanes) for part in substatements(statement))
    return with_substatements(statement, parts)


def _store(store: Store, lanes: frozenset[Var]) -> Statement:
    value = store.value
    if not isinstance(value, Binary) or value.op not in _REDUCTIONS:
        return store
    total = value.lhs
    if not isinstance(total, BufferLoad) or (total.buffer, total.indices) != (store.buffer, store.indices):
        return store
    identity = _identity(_REDUCTIONS[value.op], value.dtype)
    operand, conditions = _stripped(value.rhs, identity, lanes)
    if not conditions:
        return store
    return _under(conditions, Store(store.buffer, store.indices, binary(value.op, total, operand), store.mask))


def _identity(op: ReduceOp, dtype: DType) -> Const:
    found = lift(identity_of(op, dtype), dtype)
    assert isinstance(found, Const)
    return found


def _stripped(expr: Expr, identity: Const, lanes: frozenset[Var]) -> tuple[Expr, list[Expr]]:
    """``expr`` where it is not the identity, and the conditions outside of which it is."""
    match expr:
        case Select(cond=cond, then=then, otherwise=otherwise) if otherwise == identity:
            inner, more = _stripped(then, identity, lanes)
            asked = list(_conjuncts(cond))
            if all(_is_known_early(c, lanes) for c in asked):
                return inner, [*asked, *more]
            return expr, []
        case Binary(op=BinaryOp.MUL, lhs=lhs, rhs=rhs) if identity.value == 0 and expr.dtype.is_float:
            left, first = _stripped(lhs, identity, lanes)
            right, second = _stripped(rhs, identity, lanes)
            return binary(BinaryOp.MUL, left, right), [*first, *second]
        case Cast(type=dtype, x=x) if identity.value == 0:
            inner, conditions = _stripped(x, _identity(ReduceOp.SUM, x.dtype), lanes)
            return cast(inner, dtype), conditions
    return expr, []


def _conjuncts(cond: Expr) -> Iterator[Expr]:
    if isinstance(cond, Binary) and cond.op is BinaryOp.AND and cond.dtype is DType.BOOL:
        yield from _conjuncts(cond.lhs)
        yield from _conjuncts(cond.rhs)
    else:
        yield cond


def _is_known_early(cond: Expr, lanes: frozenset[Var]) -> bool:
    """Not different for each lane of a vector, and not read from memory."""
    return not any(isinstance(e, BufferLoad) or e in lanes for e in walk(cond))


def _pulled(statement: Statement, var: Var) -> Statement:
    """A loop or let with the conditions of its body that do not depend on ``var`` around it."""
    (body,) = substatements(statement)
    conditions: list[Expr] = []
    while isinstance(body, If) and body.otherwise is None and _is_known_early(body.cond, frozenset()):
        conditions.append(body.cond)
        body = body.then
    outside = [c for c in conditions if var not in variables(c)]
    if not outside:
        return statement
    inside = _under([c for c in conditions if var in variables(c)], body)
    return _under(outside, with_substatements(statement, (inside,)))


def _under(conditions: Sequence[Expr], body: Statement) -> Statement:
    for cond in reversed(dict.fromkeys(conditions)):
        body = If(cond, body)
    return body
