"""Dims as LLVM IR: int64 arithmetic, every repeated subexpression computed once per function."""

from __future__ import annotations

from collections.abc import Callable

from shared_ir.dim import Dim
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Const, Expr, Var, to_text

_PLAIN = {BinaryOp.ADD: "add", BinaryOp.SUB: "sub", BinaryOp.MUL: "mul"}
_EXTREMES = {BinaryOp.MIN: "llvm.smin.i64", BinaryOp.MAX: "llvm.smax.i64"}

DECLARATIONS = tuple(
    [f"declare i64 @{name}(i64, i64)" for name in _EXTREMES.values()]
    + [f"declare {{ i64, i1 }} @llvm.s{name}.with.overflow.i64(i64, i64)" for name in _PLAIN.values()]
)
"""Intrinsics that the emitted code calls."""


class Body:
    """Lines of one straight-line function body. Register numbers are unique within it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._registers = 0

    def add(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

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
    """Emits dims into a :class:`Body`. Every line dominates the later ones, so a value once computed stays usable.

    ``load_symbol`` gives the operand of a symbol. With ``checked``, ``overflows`` collects an i1 per operation that may
    leave the range of int64.
    """

    def __init__(self, body: Body, load_symbol: Callable[[str], str], checked: bool = False) -> None:
        self._body = body
        self._load_symbol = load_symbol
        self._checked = checked
        self._known: dict[Expr, str] = {}
        self.overflows: list[str] = []

    def operand(self, dim: Dim) -> str:
        """A constant or a register with the value of ``dim``.

        Raises:
            IngotError: COMPILER_FAULT, ``dim`` is not built from ``+ - * // % min max``.
        """
        if isinstance(dim, int):
            return str(dim)
        found = self._known.get(dim)
        if found is None:
            self._known[dim] = found = self._emit(dim)
        return found

    def _emit(self, expr: Expr) -> str:
        match expr:
            case Const(value=value):
                return str(int(value))
            case Var(name=name):
                return self._load_symbol(name)
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _PLAIN:
                return self._plain(_PLAIN[op], self.operand(lhs), self.operand(rhs))
            case Binary(op=op, lhs=lhs, rhs=rhs) if op in _EXTREMES:
                arguments = f"i64 {self.operand(lhs)}, i64 {self.operand(rhs)}"
                return self._body.value(f"call i64 @{_EXTREMES[op]}({arguments})")
            case Binary(op=BinaryOp.FLOOR_DIV | BinaryOp.FLOOR_MOD as op, lhs=lhs, rhs=rhs):
                return self._division(op, self.operand(lhs), self.operand(rhs))
        raise IngotError(
            ErrorCode.COMPILER_FAULT, f"no code for the dim {to_text(expr)}", expected="+ - * // % min max over symbols"
        )

    def _plain(self, op: str, a: str, b: str) -> str:
        if not self._checked:
            return self._body.value(f"{op} i64 {a}, {b}")
        pair = self._body.value(f"call {{ i64, i1 }} @llvm.s{op}.with.overflow.i64(i64 {a}, i64 {b})")
        self.overflows.append(self._body.value(f"extractvalue {{ i64, i1 }} {pair}, 1"))
        return self._body.value(f"extractvalue {{ i64, i1 }} {pair}, 0")

    def _division(self, op: BinaryOp, a: str, b: str) -> str:
        """Floor division and its remainder. Division by an extent of 0 gives ``a // 1``, not a trap."""
        value = self._body.value
        if not b.lstrip("-").isdigit():
            zero = value(f"icmp eq i64 {b}, 0")
            b = value(f"select i1 {zero}, i64 1, i64 {b}")
        remainder = value(f"srem i64 {a}, {b}")
        signs = value(f"xor i64 {remainder}, {b}")
        differ = value(f"icmp slt i64 {signs}, 0")
        inexact = value(f"icmp ne i64 {remainder}, 0")
        adjust = value(f"and i1 {differ}, {inexact}")
        if op is BinaryOp.FLOOR_MOD:
            lifted = value(f"add i64 {remainder}, {b}")
            return value(f"select i1 {adjust}, i64 {lifted}, i64 {remainder}")
        quotient = value(f"sdiv i64 {a}, {b}")
        return value(f"sub i64 {quotient}, {value(f'zext i1 {adjust} to i64')}")
