"""Symbolic dims: an ``int``, or an integer expression over named symbols.

Dims are kept in the normal form of :mod:`shared_ir.expr.simplify`, so that equal dims are equal values.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache, reduce

from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import BinaryOp, Const, Expr, Var, binary, lift, select, substitute, to_text
from shared_ir.expr.simplify import simplify, total, unbounded
from shared_ir.sizes import Sizes

Dim = int | Expr
"""One extent of a shape."""


def as_dim(value: Dim) -> Dim:
    """Normal form: constants become ``int``, everything else is simplified."""
    if isinstance(value, int):
        return value
    return _normal(value)


@lru_cache(maxsize=1 << 14)
def _normal(value: Expr) -> Dim:
    """Layers repeat their shapes: without the memory most of a compile would go into this."""
    expr = simplify(value)
    return int(expr.value) if isinstance(expr, Const) else expr


def static(dim: Dim) -> int:
    """``dim``, which is a number.

    Raises:
        IngotError: COMPILER_FAULT, it is none.
    """
    if isinstance(dim, int):
        return dim
    raise IngotError(
        ErrorCode.COMPILER_FAULT, "an extent should be known here", expected="a number", received=to_text(dim)
    )


def numbers_of(dims: Iterable[Dim]) -> tuple[int, ...] | None:
    """``dims`` where all are numbers; else None."""
    found = tuple(dims)
    numbers = tuple(d for d in found if isinstance(d, int))
    return numbers if len(numbers) == len(found) else None


def symbol(name: str) -> Var:
    """A named dim. Symbols stand for integers >= 0."""
    if not name.isidentifier():
        raise ValueError(f"dim symbol {name!r} is not an identifier")
    return Var(name)


def product(dims: Iterable[Dim]) -> Dim:
    """Number of elements of a shape."""
    total: Dim = 1
    for d in dims:
        total = total * d
    return as_dim(total)


def sum_of(dims: Iterable[Dim]) -> Dim:
    """Their sum, however many they are."""
    return as_dim(total(dims))


def divisor(dim: Dim) -> int:
    """The largest number that is known to divide ``dim``, which is no constant 0: 128 of ``128 * batch``."""
    return abs(dim) if isinstance(dim, int) else math.gcd(*unbounded().polynomial(dim).values())


def dim_symbols(dims: Iterable[Dim]) -> frozenset[str]:
    """Names of the symbols that occur in ``dims``."""
    return frozenset([v.name for d in dims if isinstance(d, Expr) for v in d.variables])


def bind(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """``dim`` with symbols replaced; unknown symbols stay."""
    if isinstance(dim, int):
        return dim
    return as_dim(substitute(dim, {Var(k): lift(v) for k, v in values.items()}))


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """The integer that ``dim`` stands for, as a run computes it: a divisor of 0 counts as 1.

    Raises:
        KeyError: a symbol of ``dim`` has no value.
        IngotError: RESOURCE_EXHAUSTED, it is more than an int64 holds.
    """
    try:
        return Sizes(values).value(dim)
    except IngotError as error:
        if error.code is ErrorCode.RESOURCE_EXHAUSTED:
            raise
        missing = ", ".join(sorted(dim_symbols([dim]) - values.keys()))
        raise KeyError(f"no value for {missing or 'an operator'} in {dim_text(dim)}") from error


def evaluate_alike(dim: Dim, extent: int) -> int | None:
    """The integer that ``dim`` stands for where each symbol is ``extent``; None where an int64 does not hold it."""
    try:
        return evaluate(dim, dict.fromkeys(dim_symbols([dim]), extent))
    except (KeyError, IngotError):
        return None


def dim_text(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else to_text(dim)


def dims_text(dims: Iterable[Dim]) -> str:
    """``batch, 3, (w + 1) // 2``."""
    return ", ".join(dim_text(d) for d in dims)


_OPERATORS: dict[type[ast.AST], BinaryOp] = {
    ast.Add: BinaryOp.ADD,
    ast.Sub: BinaryOp.SUB,
    ast.Mult: BinaryOp.MUL,
    ast.FloorDiv: BinaryOp.FLOOR_DIV,
    ast.Mod: BinaryOp.FLOOR_MOD,
    ast.Lt: BinaryOp.LT,
    ast.LtE: BinaryOp.LE,
    ast.Gt: BinaryOp.GT,
    ast.GtE: BinaryOp.GE,
    ast.Eq: BinaryOp.EQ,
    ast.NotEq: BinaryOp.NE,
    ast.And: BinaryOp.AND,
    ast.Or: BinaryOp.OR,
}
_FUNCTIONS = {
    "min": BinaryOp.MIN,
    "max": BinaryOp.MAX,
    "trunc_div": BinaryOp.TRUNC_DIV,
    "trunc_mod": BinaryOp.TRUNC_MOD,
}


_LARGEST = 1 << 63
"""Behind a minus sign int64 holds it."""


def parse_dim(text: str) -> Dim:
    """The inverse of :func:`dim_text`.

    Raises:
        ValueError: ``text`` is not an integer expression over ``+ - * // % min max select`` and comparisons.
    """
    try:
        if "\0" in text:  # a ValueError of its own before Python 3.11.4
            raise SyntaxError("a null character")
        expr = _from_ast(ast.parse(text, mode="eval").body, text)
        if expr.dtype is not DType.INT64:
            raise ValueError(f"not a dim: {text!r}")
        return as_dim(expr)
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"not a dim: {text[:200]!r}") from error


def _from_ast(node: ast.expr, text: str) -> Expr:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool) and value <= _LARGEST:
            return Const(value)
        case ast.Name(id=name):
            return Var(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_from_ast(operand, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return binary(_OPERATORS[type(op)], _from_ast(left, text), _from_ast(right, text))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            return binary(_OPERATORS[type(op)], _from_ast(left, text), _from_ast(right, text))
        case ast.BoolOp(op=op, values=[first, *rest]):
            return reduce(
                lambda a, b: binary(_OPERATORS[type(op)], a, _from_ast(b, text)), rest, _from_ast(first, text)
            )
        case ast.Call(func=ast.Name(id=name), args=[a, b], keywords=[]) if name in _FUNCTIONS:
            return binary(_FUNCTIONS[name], _from_ast(a, text), _from_ast(b, text))
        case ast.Call(func=ast.Name(id="select"), args=[a, b, c], keywords=[]):
            return select(_condition(a, text), _from_ast(b, text), _from_ast(c, text))
    raise ValueError(f"not a dim: {text!r}")


def _condition(node: ast.expr, text: str) -> Expr:
    found = _from_ast(node, text)
    if found.dtype is not DType.BOOL:
        raise ValueError(f"not a dim: {text!r}")
    return found
