"""Well-formedness of loop programs: what every pass and the code generator may rely on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferScope,
    Checkpoint,
    For,
    ForKind,
    Function,
    If,
    Let,
    Prefetch,
    Ramp,
    Shuffle,
    Statement,
    Store,
    VectorReduce,
    VectorVar,
)
from compiler_service.compiler.loop_ir.text import expression_text, statement_head
from compiler_service.compiler.tensor_expr.strides import Strides
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, Reinterpret, Select, Unary, UnaryOp, Var, lift

_LOGICAL = frozenset({BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR})
_ON_INTEGERS = frozenset({BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_DIV, BinaryOp.SHL, BinaryOp.SHR})
_ON_FLOATS = frozenset({BinaryOp.DIV, BinaryOp.ATAN2})
_MODULAR = frozenset({BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL})
"""Are right modulo 2^64, whatever their constants."""
_BEYOND = 1 << 63


def verify(function: Function, flat: bool = False) -> None:
    """Check every rule of :mod:`compiler_service.compiler.loop_ir.ir`.

    Args:
        flat: also demand what code generation takes: one index per access, no UNROLLED or VECTORIZED loop.

    Raises:
        IngotError: COMPILER_FAULT; ``node`` is the function, ``field`` the first line of the statement.
    """
    _Verifier(function, flat).run()


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a well-formed expression is, apart from its dtype."""

    lanes: int
    variables: frozenset[Var]
    buffers: frozenset[Buffer]


_NOTHING: frozenset[Buffer] = frozenset()


@dataclass
class _Verifier:
    function: Function
    flat: bool
    where: Statement | None = None
    scope: set[Var] = field(default_factory=set)
    buffers: set[Buffer] = field(default_factory=set)
    memo: dict[Expr, _Facts] = field(default_factory=dict)

    def run(self) -> None:
        for symbol in self.function.symbols:
            self.bind(symbol, DType.INT64)
        for buffer in self.function.buffers:
            if buffer.scope is not BufferScope.ARGUMENT:
                self.fault(f"argument {buffer.name} has scope {buffer.scope}")
            if buffer in self.buffers:
                self.fault(f"argument {buffer.name} is listed twice")
            for extent in buffer.shape:
                self.expect_integer(lift(extent), f"an extent of {buffer.name}")
            for stride in self.strides(buffer):
                self.expect_integer(lift(stride), f"a stride of {buffer.name}")
            self.buffers.add(buffer)
        self.expect_integer(lift(self.function.tasks), "the number of tasks")
        self.bind(self.function.task, DType.INT64)
        self.statement(self.function.body)

    def strides(self, buffer: Buffer) -> Strides:
        strides = buffer.strides or ()
        if strides and len(strides) != len(buffer.shape):
            self.fault(f"number of strides of {buffer.name}", len(buffer.shape), len(strides))
        return strides

    def fault(self, message: str, expected: object = "", received: object = "") -> NoReturn:
        raise IngotError(
            ErrorCode.COMPILER_FAULT,
            f"malformed loop function: {message}",
            node=self.function.name,
            field="the signature" if self.where is None else statement_head(self.where),
            expected=str(expected),
            received=str(received),
        )

    # -- statements

    def statement(self, statement: Statement) -> None:
        match statement:
            case Block(statements=statements):
                for inner in statements:
                    self.statement(inner)
                return
        self.where = statement  # written out for a fault alone: what is shared prints at every place
        match statement:
            case For():
                self.loop(statement)
            case If(cond=cond, then=then, otherwise=otherwise):
                self.expect(cond, DType.BOOL, 1, "the condition")
                self.statement(then)
                if otherwise is not None:
                    self.statement(otherwise)
            case Let(var=var, value=value, body=body):
                lanes = var.lanes if isinstance(var, VectorVar) else 1
                self.expect(value, var.dtype, lanes, f"the value of {var.name}")
                self.within(var, body)
            case Allocate():
                self.allocate(statement)
            case Store() | Prefetch():
                self.accessed(statement)
            case Checkpoint():
                pass
            case _:
                self.fault(f"unknown statement {type(statement).__name__}")

    def loop(self, loop: For) -> None:
        if self.flat and loop.kind is not ForKind.SERIAL:
            self.fault("loop kind in a flat function", ForKind.SERIAL, loop.kind)
        self.expect_integer(loop.extent, "the extent")
        if loop.kind is not ForKind.SERIAL and not isinstance(loop.extent, Const):
            self.fault(f"extent of the {loop.kind} loop {loop.var.name}", "a constant", expression_text(loop.extent))
        if loop.var.dtype is not DType.INT64 or isinstance(loop.var, VectorVar):
            self.fault(f"loop variable {loop.var.name}", "a scalar int64", loop.var.dtype)
        self.within(loop.var, loop.body)

    def within(self, var: Var, body: Statement) -> None:
        self.bind(var, var.dtype)
        self.statement(body)
        self.scope.discard(var)

    def bind(self, var: Var, dtype: DType) -> None:
        if any(other.name == var.name for other in self.scope):
            self.fault(f"{var.name} is bound again inside its own scope")
        if var.dtype is not dtype:
            self.fault(f"dtype of {var.name}", dtype, var.dtype)
        self.scope.add(var)

    def allocate(self, allocate: Allocate) -> None:
        buffer = allocate.buffer
        if buffer.scope is BufferScope.ARGUMENT:
            self.fault(f"{buffer.name} is allocated", "scope scratch or stack", buffer.scope)
        if buffer.strides is not None:
            self.fault(f"the {buffer.scope} buffer {buffer.name} has strides", "no gaps", buffer.strides)
        if not all(isinstance(extent, int) for extent in buffer.shape):
            self.fault(f"shape of the {buffer.scope} buffer {buffer.name}", "constant extents", "symbolic ones")
        if buffer in self.buffers:
            self.fault(f"{buffer.name} is allocated again inside its own scope")
        self.buffers.add(buffer)
        self.statement(allocate.body)
        self.buffers.discard(buffer)

    def accessed(self, statement: Store | Prefetch) -> None:
        if isinstance(statement, Store):
            self.store(statement)
            return
        buffer, indices = statement.buffer, statement.indices
        if buffer not in self.buffers:
            self.fault(f"prefetch of {buffer.name}, which is not in scope")
        if len(indices) != len(buffer.shape):
            self.fault(f"indices of a prefetch of {buffer.name}", len(buffer.shape), len(indices))
        for index in indices:
            self.expect_integer(index, "a prefetched index")

    def store(self, store: Store) -> None:
        if store.buffer not in self.buffers:
            self.fault(f"store to {store.buffer.name}, which is not in scope")
        lanes = self.access(store.buffer, store.indices, store.mask)
        self.expect(store.value, store.buffer.dtype, lanes, "the stored value")
        for expr in (*store.indices, *(() if store.mask is None else (store.mask,))):
            self.check(expr)

    # -- expressions

    def expect_integer(self, expr: Expr, what: str) -> None:
        self.expect(expr, DType.INT64, 1, what)

    def expect(self, expr: Expr, dtype: DType, lanes: int, what: str) -> None:
        facts = self.check(expr)
        if expr.dtype is not dtype:
            self.fault(f"dtype of {what}", dtype, expr.dtype)
        if facts.lanes != lanes:
            self.fault(f"lanes of {what}", lanes, facts.lanes)

    def check(self, expr: Expr) -> _Facts:
        """Facts of ``expr`` once everything it mentions is known to be in scope."""
        facts = self.facts(expr)
        for missing in sorted(v.name for v in facts.variables - self.scope):
            self.fault(f"{missing} is not defined")
        for lost in sorted(b.name for b in facts.buffers - self.buffers):
            self.fault(f"load of {lost}, which is not in scope")
        return facts

    def facts(self, expr: Expr) -> _Facts:
        found = self.memo.get(expr)
        if found is None:
            children = [self.facts(child) for child in expr.children()]
            variables: frozenset[Var] = frozenset().union(*(c.variables for c in children))
            buffers = _NOTHING.union(*(c.buffers for c in children))
            match expr:
                case Var():
                    variables |= {expr}
                case BufferLoad(buffer=buffer):
                    buffers |= {buffer}
            found = self.memo[expr] = _Facts(self.lanes(expr, [c.lanes for c in children]), variables, buffers)
        return found

    def lanes(self, expr: Expr, children: list[int]) -> int:
        match expr:
            case Const():
                return 1
            case Var():
                return expr.lanes if isinstance(expr, VectorVar) else 1
            case Unary() | Cast() | Reinterpret():
                self.unary(expr)
                return children[0]
            case Binary():
                self.binary(expr)
                return self.equal_lanes(expr, children)
            case Select():
                return self.select(expr, children)
            case BufferLoad(buffer=buffer, indices=indices, mask=mask):
                return self.access(buffer, indices, mask)
            case Ramp() | Broadcast() | VectorReduce():
                return self.vector(expr, children)
            case Shuffle():
                return self.shuffle(expr, children)
        return self.fault(f"{type(expr).__name__} does not belong in loop IR")

    def unary(self, expr: Unary | Cast | Reinterpret) -> None:
        if isinstance(expr, Unary) and (expr.op is UnaryOp.NOT) != (expr.x.dtype is DType.BOOL):
            self.fault(f"operand of {expr.op} in {expression_text(expr)}", "bool for not alone", expr.x.dtype)

    def binary(self, expr: Binary) -> None:
        dtype = expr.lhs.dtype
        if dtype is not expr.rhs.dtype:
            self.fault(f"operands of {expr.op} in {expression_text(expr)}", dtype, expr.rhs.dtype)
        if expr.op in _LOGICAL and dtype.is_float:
            self.fault(f"operands of {expr.op} in {expression_text(expr)}", "bool or integers", dtype)
        if expr.op in _ON_INTEGERS and not dtype.is_integer:
            self.fault(f"operands of {expr.op} in {expression_text(expr)}", "integers", dtype)
        if expr.op not in _MODULAR and dtype is DType.INT64:
            for part in (expr.lhs, expr.rhs):
                if isinstance(part, Const) and not -_BEYOND <= part.value < _BEYOND:
                    self.fault(f"operands of {expr.op} in {expression_text(expr)}", "what int64 holds", part.value)
        if expr.op in _ON_FLOATS and not dtype.is_float:
            self.fault(f"operands of {expr.op} in {expression_text(expr)}", "floats", dtype)

    def select(self, expr: Select, children: list[int]) -> int:
        if expr.cond.dtype is not DType.BOOL:
            self.fault(f"condition of {expression_text(expr)}", DType.BOOL, expr.cond.dtype)
        if expr.then.dtype is not expr.otherwise.dtype:
            self.fault(f"branches of {expression_text(expr)}", expr.then.dtype, expr.otherwise.dtype)
        return self.equal_lanes(expr, children[1:] if children[0] == 1 else children)

    def equal_lanes(self, expr: Expr, children: list[int]) -> int:
        if len(set(children)) != 1:
            self.fault(f"lanes of the operands of {expression_text(expr)}", children[0], children[1:])
        return children[0]

    def vector(self, expr: Ramp | Broadcast | VectorReduce, children: list[int]) -> int:
        if isinstance(expr, VectorReduce):
            if children[0] == 1:
                self.fault(f"operand of {expression_text(expr)}", "a vector", "a scalar")
            return 1
        if set(children) != {1}:
            self.fault(f"operands of {expression_text(expr)}", "scalars", "vectors")
        if any(child.dtype is not DType.INT64 for child in expr.children()) and isinstance(expr, Ramp):
            self.fault(f"operands of {expression_text(expr)}", DType.INT64, expr.base.dtype)
        if expr.lanes < 2:
            self.fault(f"lanes of {expression_text(expr)}", "at least 2", expr.lanes)
        return expr.lanes

    def shuffle(self, expr: Shuffle, children: list[int]) -> int:
        lanes = self.equal_lanes(expr, children)
        if expr.lhs.dtype is not expr.rhs.dtype:
            self.fault(f"operands of {expression_text(expr)}", expr.lhs.dtype, expr.rhs.dtype)
        if lanes < 2 or len(expr.order) < 2 or not all(0 <= i < 2 * lanes for i in expr.order):
            self.fault(f"order of {expression_text(expr)}", f"at least 2 lanes below {2 * lanes}", expr.order)
        return len(expr.order)

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], mask: Expr | None) -> int:
        """Lanes of an access: those of its vector indices, which must agree, or 1."""
        if len(indices) != len(buffer.shape):
            self.fault(f"number of indices of {buffer.name}", len(buffer.shape), len(indices))
        if self.flat and len(indices) != 1:
            self.fault(f"number of indices of {buffer.name} in a flat function", 1, len(indices))
        for index in indices:
            if index.dtype is not DType.INT64:
                self.fault(f"dtype of an index of {buffer.name}", DType.INT64, index.dtype)
        vectors = {n for n in (self.facts(index).lanes for index in indices) if n != 1}
        if len(vectors) > 1:
            self.fault(f"lanes of the indices of {buffer.name}", "equal counts", sorted(vectors))
        lanes = vectors.pop() if vectors else 1
        if mask is not None and mask.dtype is not DType.BOOL:
            self.fault(f"dtype of the mask of {buffer.name}", DType.BOOL, mask.dtype)
        if mask is not None and self.facts(mask).lanes != lanes:
            self.fault(f"lanes of the mask of {buffer.name}", lanes, self.facts(mask).lanes)
        return lanes
