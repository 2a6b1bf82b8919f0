"""The nodes of scalar expressions, and the functions that make them; the grammar is in :mod:`shared_ir.expr`."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from shared_ir.dtype import DType
from shared_ir.expr.interning import DerivedAttribute, Interned
from shared_ir.expr.operations import COMPARISONS, INFIX, INTEGER_MEANING, PREDICATES, BinaryOp, UnaryOp

Scalar = int | float | bool
"""A Python number that an operator overload lifts to :class:`Const`."""


@dataclass(frozen=True, eq=False)
class Expr(metaclass=Interned):
    """Base of every expression. Equal expressions are the same object."""

    @property
    def dtype(self) -> DType:
        """The element type; of a vector, that of its lanes."""
        raise TypeError(f"{type(self).__name__} has no dtype")

    @DerivedAttribute
    def depth(self) -> int:
        """Levels of operations, 0 of a leaf."""
        kids = self.children()
        if not kids:
            return 0
        if any("depth" not in kid.__dict__ for kid in kids):
            _compute_below(self, "depth")
        return 1 + max([kid.depth for kid in kids])

    @DerivedAttribute
    def variables(self) -> frozenset[Var]:
        """The variables that occur in it."""
        if self.depth > RECURSIVE_LEVELS:
            _compute_below(self, "variables")
        first, *others = self.children() or (None,)
        if first is None:
            return _NO_VARIABLES
        found = first.variables
        for other in others:
            if not other.variables <= found:
                found |= other.variables
        return found

    @DerivedAttribute
    def length(self) -> int:
        """Nodes that :func:`to_text` prints, those of shared parts as often as they occur; at most ``MOST_PRINTED_NODES``."""
        if self.depth > RECURSIVE_LEVELS:
            _compute_below(self, "length")
        return min(MOST_PRINTED_NODES, 1 + sum([kid.length for kid in self.children()]))

    @DerivedAttribute
    def text(self) -> str:
        """What sorts expressions: what :func:`to_text` prints, or a digest where that is long."""
        return to_text(self) if self.length < MOST_PRINTED_NODES else f"~{self._digest}"

    @DerivedAttribute
    def _digest(self) -> str:
        """Equal for equal expressions, in every process."""
        if self.depth > RECURSIVE_LEVELS:
            _compute_below(self, "_digest")
        kids = [kid.text if kid.length < MOST_PRINTED_NODES else kid._digest for kid in self.children()]
        own = getattr(self, "op", "")
        return sha256("\0".join([type(self).__name__, str(own), self.dtype.value, *kids]).encode()).hexdigest()

    def children(self) -> tuple[Expr, ...]:
        """Direct sub-expressions, in field order."""
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """The same node over other sub-expressions."""
        return self

    # Arithmetic builds unsimplified nodes but for constants and identities (see `binary`).
    def __add__(self, other: Expr | Scalar) -> Expr:
        return binary(BinaryOp.ADD, self, other)

    def __radd__(self, other: Scalar) -> Expr:
        return binary(BinaryOp.ADD, other, self)

    def __sub__(self, other: Expr | Scalar) -> Expr:
        return binary(BinaryOp.SUB, self, other)

    def __rsub__(self, other: Scalar) -> Expr:
        return binary(BinaryOp.SUB, other, self)

    def __mul__(self, other: Expr | Scalar) -> Expr:
        return binary(BinaryOp.MUL, self, other)

    def __rmul__(self, other: Scalar) -> Expr:
        return binary(BinaryOp.MUL, other, self)

    def __truediv__(self, other: Expr | Scalar) -> Expr:
        return binary(BinaryOp.DIV, self, other)

    def __rtruediv__(self, other: Scalar) -> Expr:
        return binary(BinaryOp.DIV, other, self)

    def __floordiv__(self, other: Expr | Scalar) -> Expr:
        return binary(BinaryOp.FLOOR_DIV, self, other)

    def __rfloordiv__(self, other: Scalar) -> Expr:
        return binary(BinaryOp.FLOOR_DIV, other, self)

    def __mod__(self, other: Expr | Scalar) -> Expr:
        return binary(BinaryOp.FLOOR_MOD, self, other)

    def __rmod__(self, other: Scalar) -> Expr:
        return binary(BinaryOp.FLOOR_MOD, other, self)

    def __neg__(self) -> Expr:
        return binary(BinaryOp.SUB, 0, self) if self.dtype.is_integer else Unary(UnaryOp.NEG, self)

    # Comparisons other than == and != build nodes; use `equal` / `not_equal` for those two.
    def __lt__(self, other: Expr | Scalar) -> Expr:
        return binary(BinaryOp.LT, self, other)

    def __le__(self, other: Expr | Scalar) -> Expr:
        return binary(BinaryOp.LE, self, other)

    def __gt__(self, other: Expr | Scalar) -> Expr:
        return binary(BinaryOp.GT, self, other)

    def __ge__(self, other: Expr | Scalar) -> Expr:
        return binary(BinaryOp.GE, self, other)

    def __bool__(self) -> bool:
        raise TypeError(f"the value of the symbolic expression {to_text(self)} is not known at compile time")

    def __str__(self) -> str:
        return to_text(self)


class _InternedConst(Interned):
    def __call__(cls, value: Scalar, type: DType = DType.INT64) -> Any:
        # repr tells -0.0 from 0.0 and 1 from True, and makes NaN equal to itself
        key = (value if value.__class__ is int else repr(value), type)
        reference = cls._table.get(key)
        node = None if reference is None else reference()
        return cls._create(key, (value, type)) if node is None else node


@dataclass(frozen=True, eq=False)
class Const(Expr, metaclass=_InternedConst):
    """A number of the element type ``type``."""

    value: Scalar
    type: DType = DType.INT64

    @DerivedAttribute
    def dtype(self) -> DType:
        return self.type


@dataclass(frozen=True, eq=False)
class Var(Expr):
    """What is called ``name``: a loop, a symbol of an extent, or what a ``Let`` defines."""

    name: str
    type: DType = DType.INT64

    @property  # not kept: an object that holds itself is found by the garbage collector alone
    def variables(self) -> frozenset[Var]:
        return frozenset((self,))

    @DerivedAttribute
    def dtype(self) -> DType:
        return self.type


@dataclass(frozen=True, eq=False)
class Unary(Expr):
    """``op(x)``, of the element type of ``x``; bool of what asks a question."""

    op: UnaryOp
    x: Expr

    @DerivedAttribute
    def dtype(self) -> DType:
        return DType.BOOL if self.op in PREDICATES else self.x.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.x,)

    def with_children(self, children: tuple[Expr, ...]) -> Unary:
        return Unary(self.op, *children)


@dataclass(frozen=True, eq=False)
class Binary(Expr):
    """``op(lhs, rhs)`` of two operands of one element type, which is that of the result; bool of comparisons."""

    op: BinaryOp
    lhs: Expr
    rhs: Expr

    @DerivedAttribute
    def dtype(self) -> DType:
        return DType.BOOL if self.op in COMPARISONS else self.lhs.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.lhs, self.rhs)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return binary(self.op, *children)


@dataclass(frozen=True, eq=False)
class Cast(Expr):
    """Conversion with the semantics of the ONNX ``Cast`` operator (floats to integers truncate)."""

    type: DType
    x: Expr

    @DerivedAttribute
    def dtype(self) -> DType:
        return self.type

    def children(self) -> tuple[Expr, ...]:
        return (self.x,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return cast(children[0], self.type)


@dataclass(frozen=True, eq=False)
class Reinterpret(Expr):
    """The bit pattern of ``x`` read as another element type of the same width."""

    type: DType
    x: Expr

    @DerivedAttribute
    def dtype(self) -> DType:
        return self.type

    def children(self) -> tuple[Expr, ...]:
        return (self.x,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return reinterpret(children[0], self.type)


@dataclass(frozen=True, eq=False)
class Select(Expr):
    """``then`` where ``cond`` holds, else ``otherwise``; loads in the branch not taken are not performed."""

    cond: Expr
    then: Expr
    otherwise: Expr

    @DerivedAttribute
    def dtype(self) -> DType:
        return self.then.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.cond, self.then, self.otherwise)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return select(*children)


RECURSIVE_LEVELS = 64
"""Levels that may be walked by recursion; below them lie landings (:func:`shared_ir.expr.landings`)."""

MOST_PRINTED_NODES = 1024
_MOST_PIECES = 1 << 15

_NO_VARIABLES: frozenset[Var] = frozenset()
_SMALL = tuple(Const(value) for value in range(-8, 257))
"""Kept, so that the constants of index arithmetic are not made again and again."""


def lift(value: Expr | Scalar, dtype: DType = DType.INT64) -> Expr:
    """A Python number as a constant of ``dtype``; expressions pass through."""
    if isinstance(value, Expr):
        return value
    if dtype.is_float:
        return Const(float(value), dtype)
    return Const(bool(value) if dtype is DType.BOOL else int(value), dtype)


_DIVISIONS = frozenset({BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD})
_CONNECTIVES = frozenset({BinaryOp.AND, BinaryOp.OR})


def binary(op: BinaryOp, lhs: Expr | Scalar, rhs: Expr | Scalar) -> Expr:
    """``op(lhs, rhs)``, folded when both are int64 constants or one is an identity of integer arithmetic.

    Floating-point identities are left alone: ``x * 0`` is not 0 for NaN.

    Raises:
        TypeError: the operands have different element types.
    """
    if not isinstance(lhs, Expr):
        lhs = lift(lhs, rhs.dtype if isinstance(rhs, Expr) else DType.INT64)
    if not isinstance(rhs, Expr):
        rhs = lift(rhs, lhs.dtype)
    dtype = lhs.dtype
    if dtype is not rhs.dtype:
        raise TypeError(f"{op}: operands are {dtype} and {rhs.dtype}: {to_text(lhs)} and {to_text(rhs)}")
    # `type(x) is Const` and not isinstance: the metaclass makes that slow, and this function is where compile time goes
    if type(lhs) is Const or type(rhs) is Const:
        if dtype is DType.INT64:
            return _integer(op, lhs, rhs)
        if dtype is DType.BOOL and op in _CONNECTIVES:
            return _connective(op, lhs, rhs)
    elif lhs is rhs and dtype is DType.BOOL and op in _CONNECTIVES:  # x & x -> x
        return lhs
    return Binary(op, lhs, rhs)


def _connective(op: BinaryOp, lhs: Expr, rhs: Expr) -> Expr:
    """``true & x -> x``, ``false & x -> false``, and the duals."""
    known, other = (lhs, rhs) if isinstance(lhs, Const) else (rhs, lhs)
    assert isinstance(known, Const)
    return other if bool(known.value) == (op is BinaryOp.AND) else known


def _integer(op: BinaryOp, lhs: Expr, rhs: Expr) -> Expr:
    a = lhs.value if isinstance(lhs, Const) else None
    b = rhs.value if isinstance(rhs, Const) else None
    if a is not None and b is not None and op in INTEGER_MEANING and not (op in _DIVISIONS and b == 0):
        value = INTEGER_MEANING[op](a, b)
        return Const(value, DType.BOOL if op in COMPARISONS else DType.INT64)
    if op is BinaryOp.ADD or op is BinaryOp.SUB:
        if b == 0:  # x + 0 -> x, x - 0 -> x
            return lhs
        if a == 0 and op is BinaryOp.ADD:  # 0 + x -> x
            return rhs
    elif op is BinaryOp.MUL:
        if a == 0 or b == 1:  # 0 * x -> 0, x * 1 -> x
            return lhs
        if b == 0 or a == 1:
            return rhs
    elif b == 1 and op in _DIVISIONS:  # x // 1 -> x, x % 1 -> 0
        return lhs if op is BinaryOp.FLOOR_DIV else Const(0)
    return Binary(op, lhs, rhs)


def cast(x: Expr, dtype: DType) -> Expr:
    """``x`` converted to ``dtype``; no node when it already has it."""
    return x if x.dtype is dtype else Cast(dtype, x)


def reinterpret(x: Expr, dtype: DType) -> Expr:
    """The bits of ``x`` as ``dtype``; no node when it already has it."""
    return x if x.dtype is dtype else Reinterpret(dtype, x)


def select(cond: Expr, then: Expr | Scalar, otherwise: Expr | Scalar) -> Expr:
    """:class:`Select`, folded when the condition is constant or the branches are equal."""
    if not isinstance(then, Expr):
        then = lift(then, otherwise.dtype if isinstance(otherwise, Expr) else DType.INT64)
    otherwise = lift(otherwise, then.dtype)
    if isinstance(cond, Const):
        return then if cond.value else otherwise
    return then if then == otherwise else Select(cond, then, otherwise)


def minimum(a: Expr | Scalar, b: Expr | Scalar) -> Expr:
    return binary(BinaryOp.MIN, a, b)


def maximum(a: Expr | Scalar, b: Expr | Scalar) -> Expr:
    return binary(BinaryOp.MAX, a, b)


def equal(a: Expr | Scalar, b: Expr | Scalar) -> Expr:
    return binary(BinaryOp.EQ, a, b)


def not_equal(a: Expr | Scalar, b: Expr | Scalar) -> Expr:
    return binary(BinaryOp.NE, a, b)


def logical_and(a: Expr | Scalar, b: Expr | Scalar) -> Expr:
    return binary(BinaryOp.AND, a, b)


def logical_or(a: Expr | Scalar, b: Expr | Scalar) -> Expr:
    return binary(BinaryOp.OR, a, b)


def ceil_div(a: Expr | int, b: Expr | int) -> Expr:
    """``ceil(a / b)`` for positive ``b``."""
    return lift(a) if b == 1 else (lift(a) + (lift(b) - 1)) // lift(b)


def _compute_below(root: Expr, fact: str) -> None:
    """The facts of the operands of ``root``, from the leaves up: recursion ends where Python's stack does."""
    stack = [kid for kid in root.children() if fact not in kid.__dict__]
    while stack:
        missing = [kid for kid in stack[-1].children() if fact not in kid.__dict__ and not isinstance(kid, Var)]
        if missing:
            stack += missing
        else:
            getattr(stack.pop(), fact)


def to_text(expr: Expr, precedence: int = 0) -> str:
    """Python syntax; integer forms are read back by :func:`shared_ir.expr.dim.parse_dim`. What is longer than anybody reads ends in
    dots: where parts are shared, the text may be as long as two to the power of the depth."""
    pieces: list[str] = []
    stack: list[str | tuple[Expr, int]] = [(expr, precedence)]
    while stack:
        if len(pieces) > _MOST_PIECES:
            return "".join([*pieces, " ..."])
        item = stack.pop()
        if isinstance(item, str):
            pieces.append(item)
        else:
            stack.extend(reversed(_pieces(*item)))
    return "".join(pieces)


def _pieces(expr: Expr, precedence: int) -> list[str | tuple[Expr, int]]:
    """Text and what is still to be printed, with the precedence around it."""
    match expr:
        case Const(value=value, type=dtype):
            return [str(value) if dtype in (DType.INT64, DType.BOOL, DType.FLOAT32) else f"{dtype}({value})"]
        case Var(name=name):
            return [name]
        case Binary(op=op, lhs=lhs, rhs=rhs) if op in INFIX:
            sign, level = INFIX[op]
            found: list[str | tuple[Expr, int]] = [(lhs, level), f" {sign} ", (rhs, level + 1)]
            return ["(", *found, ")"] if level < precedence else found
        case Unary(op=op) | Binary(op=op):
            name = op.value
        case Cast(type=dtype):
            name = dtype.value
        case Reinterpret(type=dtype):
            name = f"bits_{dtype}"
        case Select():
            name = "select"
        case _:
            return [repr(expr)]
    first, *others = expr.children()
    return [f"{name}(", (first, 0), *(piece for other in others for piece in (", ", (other, 0))), ")"]
