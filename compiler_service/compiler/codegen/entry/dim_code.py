"""Dims as LLVM IR: int64 arithmetic, every repeated subexpression computed once per function."""

from __future__ import annotations

from collections.abc import Callable, Collection

from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Select, Var, landings, to_text
from shared_ir.expr.dim import Dim, dim_symbols

_PLAIN = {BinaryOp.ADD: "add", BinaryOp.SUB: "sub", BinaryOp.MUL: "mul"}
_EXTREMES = {BinaryOp.MIN: "llvm.smin.i64", BinaryOp.MAX: "llvm.smax.i64"}

_DIVISIONS = frozenset({BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD})
_COMPARISONS = {
    BinaryOp.LT: "slt",
    BinaryOp.LE: "sle",
    BinaryOp.GT: "sgt",
    BinaryOp.GE: "sge",
    BinaryOp.EQ: "eq",
    BinaryOp.NE: "ne",
}

DECLARATIONS = tuple(
    [f"declare i64 @{name}(i64, i64)" for name in _EXTREMES.values()]
    + [f"declare {{ i64, i1 }} @llvm.s{name}.with.overflow.i64(i64, i64)" for name in _PLAIN.values()]
)
"""Intrinsics that the emitted code calls."""


class Body:
    """Lines of one function body. Registers and labels are unique within it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._registers = 0
        self._labels = 0

    def add(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def fresh_label(self, name: str) -> str:
        """A label that nothing else is called: ``name``, numbered."""
        self._labels += 1
        return f"{name}{self._labels}"

    def value(self, instruction: str) -> str:
        """Append ``%new = instruction`` and return ``%new``."""
        name = f"%v{self._registers}"
        self._registers += 1
        self.add(f"{name} = {instruction}")
        return name

    def element(self, base: str, index: int, kind: str = "i64") -> str:
        """The loaded value of ``base[index]``."""
        return self.value(f"load {kind}, ptr {self.address(base, index, kind)}")

    def address(self, base: str, index: int, kind: str = "i64") -> str:
        return base if index == 0 else self.value(f"getelementptr inbounds {kind}, ptr {base}, i64 {index}")


class DimCode:
    """Emits dims into a :class:`Body`. A value once computed is used again: while every line dominates the later ones that
    is right; around branches :attr:`known` is to be saved and restored, and what changes is to be forgotten.

    ``load_symbol`` gives the operand of a symbol. With ``checked``, ``overflows`` collects an i1 per operation that may
    leave the range of int64.
    """

    def __init__(self, body: Body, load_symbol: Callable[[str], str], checked: bool = False) -> None:
        self._body = body
        self._load_symbol = load_symbol
        self._checked = checked
        self.known: dict[Expr, str] = {}
        self.overflows: list[str] = []

    def forget(self, symbols: Collection[str]) -> None:
        """``symbols`` have new values from here on."""
        if symbols:
            self.known = {e: v for e, v in self.known.items() if dim_symbols([e]).isdisjoint(symbols)}

    def operand(self, dim: Dim) -> str:
        """A constant or a register with the value of ``dim``.

        Raises:
            IngotError: COMPILER_FAULT, ``dim`` uses an operator that dims do not have.
        """
        if isinstance(dim, int):
            return str(dim)
        if dim not in self.known:
            for part in landings(dim, self.known):
                self._register(part)
        return self._register(dim)

    def _register(self, dim: Expr) -> str:
        found = self.known.get(dim)
        if found is None:
            self.known[dim] = found = self._emit(dim)
        return found

    def _emit(self, expr: Expr) -> str:
        value = self._body.value
        match expr:
            case Const(value=constant, type=dtype):
                return str(bool(constant)).lower() if dtype is DType.BOOL else str(int(constant))
            case Var(name=name):
                return self._load_symbol(name)
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _PLAIN:
                return self._plain(_PLAIN[op], self._register(lhs), self._register(rhs))
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _EXTREMES:
                return value(f"call i64 @{_EXTREMES[op]}(i64 {self._register(lhs)}, i64 {self._register(rhs)})")
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _DIVISIONS:
                return self._division(op, self._register(lhs), self._register(rhs))
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _COMPARISONS and lhs.dtype is DType.INT64:
                return value(f"icmp {_COMPARISONS[op]} i64 {self._register(lhs)}, {self._register(rhs)}")
            case Binary(op=BinaryOp.AND | BinaryOp.OR as op, lhs=lhs, rhs=rhs) if lhs.dtype is DType.BOOL:
                return value(f"{op} i1 {self._register(lhs)}, {self._register(rhs)}")
            case Select(cond=cond, then=then, otherwise=otherwise):
                condition, first = self._register(cond), self._register(then)
                return value(f"select i1 {condition}, i64 {first}, i64 {self._register(otherwise)}")
        raise IngotError(
            ErrorCode.COMPILER_FAULT,
            f"no code for the dim {to_text(expr)}",
            expected="+ - * // % min max select and comparisons over symbols",
        )

    def _plain(self, op: str, a: str, b: str) -> str:
        if not self._checked:
            return self._body.value(f"{op} i64 {a}, {b}")
        pair = self._body.value(f"call {{ i64, i1 }} @llvm.s{op}.with.overflow.i64(i64 {a}, i64 {b})")
        self.overflows.append(self._body.value(f"extractvalue {{ i64, i1 }} {pair}, 1"))
        return self._body.value(f"extractvalue {{ i64, i1 }} {pair}, 0")

    def _division(self, op: BinaryOp, a: str, b: str) -> str:
        """Quotient or remainder, floored or truncated. A divisor of 0 counts as 1: an empty input must not trap."""
        value = self._body.value
        if b == "0":
            b = "1"
        elif not b.lstrip("-").isdigit():
            b = value(f"select i1 {value(f'icmp eq i64 {b}, 0')}, i64 1, i64 {b}")
        if op is BinaryOp.TRUNC_DIV:
            return value(f"sdiv i64 {a}, {b}")
        remainder = value(f"srem i64 {a}, {b}")
        if op is BinaryOp.TRUNC_MOD:
            return remainder
        differ = value(f"icmp slt i64 {value(f'xor i64 {remainder}, {b}')}, 0")
        adjust = value(f"and i1 {differ}, {value(f'icmp ne i64 {remainder}, 0')}")
        if op is BinaryOp.FLOOR_MOD:
            return value(f"select i1 {adjust}, i64 {value(f'add i64 {remainder}, {b}')}, i64 {remainder}")
        quotient = value(f"sdiv i64 {a}, {b}")
        return value(f"sub i64 {quotient}, {value(f'zext i1 {adjust} to i64')}")
