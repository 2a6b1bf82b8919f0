"""Reads the expressions of :mod:`compiler_service.compiler.loop_ir.text`, a line at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler_service.compiler.loop_ir.ir import Broadcast, Buffer, BufferLoad, Ramp, Shuffle, VectorReduce
from compiler_service.compiler.loop_ir.text import SHORT_KINDS
from compiler_service.compiler.tensor_expr.tensor import ReduceOp
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import (
    COMPARISONS,
    INFIX,
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
)
from shared_ir.expr.dim import Dim

Names = Mapping[str, Var | Buffer]

_NAME = re.compile(r"[^\W\d]\w*")
_CALLED = re.compile(r"([^\W\d]\w*(?:\.\w+)?)\s*\(")
_SIGN = re.compile(r"//|<=|>=|==|!=|(?:and|or)\b|[-+*/%<>]")
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|(?:inf|nan)\b)")
_SHORT_NUMBER = re.compile(r"-?\d{1,18}(?!\d)")
_TYPE_BEHIND = re.compile(r"(bf|[fiu])(\d+)|:([a-z]\w*)")
_WHOLE = re.compile(r"-?\d{1,20}")
_SPACE = re.compile(r"\s*")

_SIGNS = {sign: op for op, (sign, _) in INFIX.items()}
_KINDS = {short: kind for kind, short in SHORT_KINDS.items()}
_UNARY = {op.value: op for op in UnaryOp}
_BINARY = {op.value: op for op in BinaryOp if op not in INFIX}
_TYPES = {t.value: t for t in DType}
_TRUTH = {"true": True, "false": False}
_LOOSEST, _TIGHTEST = 1, 9
_MOST_NESTED = 250
"""Operators around an operand: printers, verifier and passes walk an expression by recursion."""


@dataclass
class LineParser:
    """One line and how much of it has been read. ``names`` are those that are bound there."""

    text: str
    number: int
    names: Names
    position: int = 0

    # -- tokens

    def error(self, expected: str, message: str = "the loop IR text does not parse") -> IngotError:
        found = self.text[self.position : self.position + 24]
        return IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"line {self.number}, column {self.position + 1}: {message}",
            expected=expected,
            received=repr(found) if found else "end of line",
        )

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What ``pattern`` finds here, which is then read."""
        space = _SPACE.match(self.text, self.position)
        start = space.end() if space else self.position
        found = pattern.match(self.text, start)
        self.position = found.end() if found else start
        return found

    def accept(self, sign: str) -> bool:
        return self.match(re.compile(re.escape(sign))) is not None

    def take(self, sign: str) -> None:
        if not self.accept(sign):
            raise self.error(repr(sign))

    def name(self, what: str) -> str:
        found = self.match(_NAME)
        if found is None:
            raise self.error(what)
        return found[0]

    def integer(self) -> int:
        found = self.match(_SHORT_NUMBER)
        if found is None:
            raise self.error("a whole number")
        return int(found[0])

    def end(self) -> None:
        if self.match(re.compile("$")) is None:
            raise self.error("end of line")

    def dtype(self) -> DType:
        name = self.name("an element type")
        if name not in _TYPES:
            self.position -= len(name)
            raise self.error("an element type")
        return _TYPES[name]

    # -- expressions

    def dims(self) -> tuple[Dim, ...]:
        """``[n, 32]``"""
        self.take("[")
        found: list[Dim] = []
        while not self.accept("]"):
            if found:
                self.take(",")
            found.append(self.dim())
        return tuple(found)

    def dim(self) -> Dim:
        expr = self.expr()
        return int(expr.value) if isinstance(expr, Const) and expr.type is DType.INT64 else expr

    def expr(self, level: int = _LOOSEST) -> Expr:
        """An expression whose signs bind at least as tightly as ``level``."""
        lhs = self.operand()
        ceiling = _TIGHTEST
        while True:
            start = self.position
            found = self.match(_SIGN)
            op = None if found is None else _SIGNS[found[0]]
            own = 0 if op is None else INFIX[op][1]
            if op is None or own < level:
                self.position = start
                return lhs
            if own > ceiling:
                raise self.error("brackets that say which comparison comes first")
            lhs = self.same_type(op, lhs, self.expr(own + 1))
            ceiling = own - 1 if op in COMPARISONS else _TIGHTEST

    def same_type(self, op: BinaryOp, lhs: Expr, rhs: Expr) -> Expr:
        if lhs.dtype is not rhs.dtype:
            raise self.error(f"operands of {op} of one type", f"these are {lhs.dtype} and {rhs.dtype}")
        if max(lhs.depth, rhs.depth) >= _MOST_NESTED:
            raise self.error(
                "parts that let gives a name", f"more than {_MOST_NESTED} operators are around one operand"
            )
        return Binary(op, lhs, rhs)

    def operand(self) -> Expr:
        if self.accept("("):
            inner = self.expr()
            self.take(")")
            return inner
        number = self.match(_NUMBER)
        if number is not None:
            return self.literal(number[0])
        called = self.match(_CALLED)
        if called is not None:
            return self.call(called[1])
        name = self.name("an expression")
        if name in _TRUTH:
            return Const(_TRUTH[name], DType.BOOL)
        bound = self.names.get(name)
        if bound is None:
            self.position -= len(name)
            raise self.error("a name that is bound here", "this name is not bound")
        return bound if isinstance(bound, Var) else BufferLoad(bound, *self.indices())

    def literal(self, text: str) -> Const:
        dtype = DType.INT64 if text.lstrip("-").isdigit() else DType.FLOAT32
        behind = _TYPE_BEHIND.match(self.text, self.position)
        if behind is not None:
            named = behind[3] or f"{_KINDS[behind[1]]}{behind[2]}"
            if named not in _TYPES:
                raise self.error("an element type")
            dtype, self.position = _TYPES[named], behind.end()
        if dtype.is_float:
            return Const(float(text), dtype)
        whole = int(text) if _WHOLE.fullmatch(text) else None
        least, most = dtype.limits if dtype.is_integer else (0, 1)
        if whole is None or not least <= whole <= most:
            raise self.error(f"a whole number of {dtype}")
        return Const(whole, dtype)

    # -- accesses

    def access(self) -> tuple[Buffer, tuple[Expr, ...], Expr | None]:
        """``x[i, j:+4, mask=m]``: where a store or a prefetch goes."""
        name = self.name("a buffer")
        buffer = self.names.get(name)
        if not isinstance(buffer, Buffer):
            self.position -= len(name)
            raise self.error("a buffer", "this is none")
        return (buffer, *self.indices())

    def indices(self) -> tuple[tuple[Expr, ...], Expr | None]:
        self.take("[")
        found: list[Expr] = []
        mask: Expr | None = None
        while not self.accept("]"):
            if found or mask is not None:
                self.take(",")
            if self.match(re.compile(r"mask\s*=(?!=)")):
                mask = self.expr()
            else:
                found.append(self.index())
        return tuple(found), mask

    def index(self) -> Expr:
        base = self.expr()
        if not self.accept(":"):
            return base
        if self.accept("+"):
            return Ramp(base, Const(1), self.integer())
        if not isinstance(base, Const) or base.type is not DType.INT64:
            raise self.error("'+' and a number of lanes")
        return Ramp(base, Const(1), self.integer() - int(base.value))

    # -- calls

    def call(self, name: str) -> Expr:
        """``exp(x)``, ``float32(x)``, ``select(c, x, y)``, behind the bracket."""
        special = _SPECIAL.get(name)
        if special is not None:
            made = special(self)
        elif name in _UNARY:
            made = Unary(_UNARY[name], self.expr())
        elif name in _BINARY:
            made = self.same_type(_BINARY[name], self.expr(), self.following())
        elif name in _TYPES:
            made = Cast(_TYPES[name], self.expr())
        elif name.startswith("bits.") and name.removeprefix("bits.") in _TYPES:
            made = Reinterpret(_TYPES[name.removeprefix("bits.")], self.expr())
        elif name.startswith("reduce.") and name.removeprefix("reduce.") in set(ReduceOp):
            made = VectorReduce(ReduceOp(name.removeprefix("reduce.")), self.expr())
        else:
            raise self.error("an operator, an element type or a vector form", f"there is no function {name!r}")
        self.take(")")
        return made

    def following(self) -> Expr:
        self.take(",")
        return self.expr()

    def select(self) -> Expr:
        return Select(self.expr(), self.following(), self.following())

    def ramp(self) -> Expr:
        return Ramp(self.expr(), self.following(), self.lanes())

    def splat(self) -> Expr:
        return Broadcast(self.expr(), self.lanes())

    def lanes(self) -> int:
        self.take(",")
        return self.integer()

    def shuffle(self) -> Expr:
        lhs, rhs = self.expr(), self.following()
        self.take(",")
        self.take("[")
        order: list[int] = []
        while not self.accept("]"):
            if order:
                self.take(",")
            order.append(self.integer())
        return Shuffle(lhs, rhs, tuple(order))


_SPECIAL: Mapping[str, Callable[[LineParser], Expr]] = {
    "select": LineParser.select,
    "ramp": LineParser.ramp,
    "splat": LineParser.splat,
    "shuffle": LineParser.shuffle,
}
