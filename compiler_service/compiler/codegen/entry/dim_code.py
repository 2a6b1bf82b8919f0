"""Dims as LLVM IR: int64 arithmetic, every repeated subexpression computed once per function.

A request chooses sizes, so no result is used that has left the range of int64: the function is left first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

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

_BEYOND = 1 << 63
_LEAST = -_BEYOND

DECLARATIONS = tuple(
    [f"declare i64 @{name}(i64, i64)" for name in _EXTREMES.values()]
    + [f"declare {{ i64, i1 }} @llvm.s{name}.with.overflow.i64(i64, i64)" for name in _PLAIN.values()]
)
"""Intrinsics that the emitted code calls."""


class Body:
    """Lines of one function body. Registers and labels are unique within it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._exits: dict[str, str] = {}
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

    def leave_if(self, condition: str, instruction: str) -> None:
        """End the function with ``instruction``, such as ``ret i64 -1``, where the i1 ``condition`` holds."""
        leaves = self._exits.setdefault(instruction, f"leaves{len(self._exits)}")
        goes_on = self.fresh_label("goes_on")
        self.add(f"br i1 {condition}, label %{leaves}, label %{goes_on}")
        self.label(goes_on)

    def text(self) -> str:
        """All lines, ways out last."""
        exits = [line for instruction, name in self._exits.items() for line in (f"{name}:", f"  {instruction}")]
        return "\n".join([*self.lines, *exits])

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


class _Computed(NamedTuple):
    """A constant or register, and the register of an i1 that says whether it is wrong, as int64 did not hold it; None: it is right."""

    operand: str
    overflow: str | None = None


class DimCode:
    """Emits dims into a :class:`Body`. A value once computed is used again: while every line dominates the later ones that
    is right; around branches :attr:`known` is to be saved and restored, and what changes is to be forgotten.

    ``load_symbol`` gives the operand of a symbol. Where a dim leaves the range of int64 the function ends with ``overflow``, such as
    ``ret i64 -1``; in the part of a selection that is not chosen it may.
    """

    def __init__(self, body: Body, load_symbol: Callable[[str], str], overflow: str) -> None:
        self._body = body
        self._load_symbol = load_symbol
        self._overflow = overflow
        self.known: dict[Expr, _Computed] = {}

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
        found = self._register(dim)
        if found.overflow is not None:
            self._body.leave_if(found.overflow, self._overflow)
            self._prove(dim)
        return found.operand

    def _prove(self, dim: Expr) -> None:
        """``dim`` is right from here on, and so is what it is computed from."""
        pending = [dim]
        while pending:
            expr = pending.pop()
            found = self.known.get(expr)
            if found is not None and found.overflow is not None:
                self.known[expr] = _Computed(found.operand)
                pending += [expr.cond] if isinstance(expr, Select) else expr.children()

    def _register(self, dim: Expr) -> _Computed:
        found = self.known.get(dim)
        if found is None:
            self.known[dim] = found = self._emit(dim)
        return found

    def _emit(self, expr: Expr) -> _Computed:
        match expr:
            case Const(value=constant, type=DType.BOOL):
                return _Computed(str(bool(constant)).lower())
            case Const(value=constant):
                fits = -_BEYOND <= constant < _BEYOND
                return _Computed(str(int(constant))) if fits else _Computed("0", "true")
            case Var(name=name):
                return _Computed(self._load_symbol(name))
            case Binary(op=op, lhs=lhs, rhs=rhs):
                return self._binary(expr, op, self._register(lhs), self._register(rhs))
            case Select(cond=cond, then=then, otherwise=otherwise):
                return self._selection(self._register(cond), self._register(then), self._register(otherwise))
        raise self._unknown(expr)

    def _unknown(self, expr: Expr) -> IngotError:
        return IngotError(
            ErrorCode.COMPILER_FAULT,
            f"no code for the dim {to_text(expr)}",
            expected="+ - * // % min max select and comparisons over symbols",
        )

    def _binary(self, expr: Binary, op: BinaryOp, a: _Computed, b: _Computed) -> _Computed:
        value, own = self._body.value, None
        if op in _PLAIN:
            operand, own = self._plain(_PLAIN[op], a.operand, b.operand)
        elif op in _EXTREMES:
            operand = value(f"call i64 @{_EXTREMES[op]}(i64 {a.operand}, i64 {b.operand})")
        elif op in _DIVISIONS:
            operand, own = self._division(op, a.operand, b.operand)
        elif op in _COMPARISONS and expr.lhs.dtype is DType.INT64:
            operand = value(f"icmp {_COMPARISONS[op]} i64 {a.operand}, {b.operand}")
        elif op in (BinaryOp.AND, BinaryOp.OR) and expr.lhs.dtype is DType.BOOL:
            operand = value(f"{op} i1 {a.operand}, {b.operand}")
        else:
            raise self._unknown(expr)
        return _Computed(operand, self._any(a.overflow, b.overflow, own))

    def _selection(self, condition: _Computed, then: _Computed, otherwise: _Computed) -> _Computed:
        value = self._body.value
        operand = value(f"select i1 {condition.operand}, i64 {then.operand}, i64 {otherwise.operand}")
        chosen = None
        if then.overflow is not None or otherwise.overflow is not None:
            first, second = then.overflow or "false", otherwise.overflow or "false"
            chosen = value(f"select i1 {condition.operand}, i1 {first}, i1 {second}")
        return _Computed(operand, self._any(condition.overflow, chosen))

    def _any(self, *overflows: str | None) -> str | None:
        found = list(dict.fromkeys(o for o in overflows if o is not None))
        while len(found) > 1:
            found.append(self._body.value(f"or i1 {found.pop(0)}, {found.pop(0)}"))
        return found[0] if found else None

    def _plain(self, op: str, a: str, b: str) -> tuple[str, str]:
        pair = self._body.value(f"call {{ i64, i1 }} @llvm.s{op}.with.overflow.i64(i64 {a}, i64 {b})")
        operand = self._body.value(f"extractvalue {{ i64, i1 }} {pair}, 0")
        return operand, self._body.value(f"extractvalue {{ i64, i1 }} {pair}, 1")

    def _division(self, op: BinaryOp, a: str, b: str) -> tuple[str, str | None]:
        """Quotient or remainder, floored or truncated. A divisor of 0 counts as 1: an empty input must not trap."""
        value, overflow = self._body.value, None
        if b == "0":
            b = "1"
        elif not b.isdigit():
            # the one quotient that int64 does not hold traps
            least = value(f"icmp eq i64 {a}, {_LEAST}")
            overflow = value(f"and i1 {least}, {value(f'icmp eq i64 {b}, -1')}")
            replaced = value(f"or i1 {overflow}, {value(f'icmp eq i64 {b}, 0')}")
            b = value(f"select i1 {replaced}, i64 1, i64 {b}")
        if op is BinaryOp.TRUNC_DIV:
            return value(f"sdiv i64 {a}, {b}"), overflow
        remainder = value(f"srem i64 {a}, {b}")
        if op is BinaryOp.TRUNC_MOD:
            return remainder, None  # that of the least number and -1 is 0, as that of 1
        differ = value(f"icmp slt i64 {value(f'xor i64 {remainder}, {b}')}, 0")
        adjust = value(f"and i1 {differ}, {value(f'icmp ne i64 {remainder}, 0')}")
        if op is BinaryOp.FLOOR_MOD:
            return value(f"select i1 {adjust}, i64 {value(f'add i64 {remainder}, {b}')}, i64 {remainder}"), None
        quotient = value(f"sdiv i64 {a}, {b}")
        return value(f"sub i64 {quotient}, {value(f'zext i1 {adjust} to i64')}"), overflow
