"""Values of expressions: one method per node of the grammar, equal pure expressions written once per scope."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compiler_service.codegen import arithmetic
from compiler_service.codegen.arithmetic import Knowledge
from compiler_service.codegen.builder import FunctionBuilder, Value
from compiler_service.codegen.casts import cast
from compiler_service.codegen.facts import (
    LANE_BOUNDS,
    Facts,
    LaneBound,
    as_linear,
    constant_of,
    fits_integer,
    is_not_nan,
    lane_bound,
    logistic_argument,
)
from compiler_service.codegen.llvm_types import REGISTER, constant, register_type, splat, vector
from compiler_service.codegen.memory import Memory, Place
from compiler_service.codegen.reduction import reduce_lanes
from compiler_service.loop_ir.ir import Broadcast, Buffer, BufferLoad, Ramp, Shuffle, Store, VectorReduce, VectorVar
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, Reinterpret, Select, Unary, Var

_DIVISIONS = frozenset({BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD})


class Expressions:
    """Writes the instructions that compute expressions and perform stores.

    A *guard* is the mask of lanes that take part, while a branch of a Select with a vector condition is written: loads
    outside it are not performed.
    """

    def __init__(self, builder: FunctionBuilder) -> None:
        self.builder = builder
        self.facts = Facts()
        self.memory = Memory(builder)
        self.places: dict[Buffer, Place] = {}
        self._variables: dict[str, Value] = {}
        self._known: dict[Expr, Value] = {}
        self._order: list[Expr] = []
        self._loaded: dict[Buffer, dict[Expr, Value]] = {}
        self._read: dict[tuple[Expr, str], Value] = {}  # what depends on memory, by guard; until the next store
        self._loads_written = 0
        self._guard: Value | None = None

    # -- scopes

    def bind(self, name: str, value: Value, *, nonnegative: bool) -> None:
        self._variables[name] = value
        self.facts.learn(name, nonnegative)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A block that does not dominate what follows; memory may change in it."""
        mark = len(self._order)
        self._loaded.clear()
        self._read.clear()
        yield
        self._loaded.clear()
        self._read.clear()
        self._forget(mark)

    @contextmanager
    def _branch_scope(self) -> Iterator[None]:
        """A block within an expression, where memory does not change."""
        mark = len(self._order)
        loaded = {buffer: dict(values) for buffer, values in self._loaded.items()}
        read = dict(self._read)
        yield
        self._loaded, self._read = loaded, read
        self._forget(mark)

    def _forget(self, mark: int) -> None:
        for expr in self._order[mark:]:
            del self._known[expr]
        del self._order[mark:]

    # -- expressions

    def emit(self, expr: Expr) -> Value:
        """The value of ``expr``.

        Raises:
            IngotError: UNSUPPORTED_DTYPE or COMPILER_FAULT, naming operator and type.
        """
        if isinstance(expr, Const):
            register_type(expr.type, 1)
            return Value(constant(expr.value, expr.type), expr.type)
        if isinstance(expr, Var):
            return self._variable(expr)
        found = self._known.get(expr)
        if found is not None:
            return found
        guard = "" if self._guard is None else self._guard.text
        found = self._read.get((expr, "")) or self._read.get((expr, guard))
        before = self._loads_written
        if found is not None:
            self._loads_written += 1
            return found
        value = self._compute(expr)
        if self._loads_written > before:
            self._read[expr, guard] = value
        else:
            self._known[expr] = value
            self._order.append(expr)
        return value

    def _variable(self, var: Var) -> Value:
        found = self._variables.get(var.name)
        if found is None:
            raise IngotError(ErrorCode.COMPILER_FAULT, f"the loop program uses the variable {var.name!r} out of scope")
        return found

    def _compute(self, expr: Expr) -> Value:
        match expr:
            case Binary():
                return self._binary(expr)
            case BufferLoad():
                return self._load(expr)
            case Broadcast():
                return self._broadcast(expr)
            case Ramp():
                return self._ramp(expr)
            case Unary(op=op, x=x):
                return arithmetic.unary(self.builder, op, self.emit(x))
            case Cast(type=dtype, x=x):
                in_range = x.dtype.is_float and dtype.is_integer and fits_integer(x, dtype)
                return cast(self.builder, self.emit(x), dtype, in_range=in_range)
            case Reinterpret(type=dtype, x=x):
                return self.memory.reinterpret(self.emit(x), dtype)
            case Select():
                return self._select(expr)
            case Shuffle():
                return self._shuffle(expr)
            case VectorReduce(op=op, x=x):
                return reduce_lanes(self.builder, op, self.emit(x))
        raise IngotError(ErrorCode.COMPILER_FAULT, f"no code is generated for the expression {type(expr).__name__}")

    def _binary(self, expr: Binary) -> Value:
        op, lhs, rhs = expr.op, expr.lhs, expr.rhs
        if op is BinaryOp.POW:
            exponent = constant_of(rhs)
            if exponent in arithmetic.SIMPLE_POWERS and (lhs.dtype.is_float or exponent in (1, 2, 3)):
                return arithmetic.simple_power(self.builder, self.emit(lhs), float(exponent))
        if op in LANE_BOUNDS and lhs.dtype is DType.INT64:
            bound = lane_bound(op, lhs, rhs)
            if bound is not None and not self.facts.has_loads(bound.limit):
                return self._lane_mask_of(bound)
        if op is BinaryOp.DIV and lhs.dtype is DType.FLOAT32 and (x := logistic_argument(rhs)) is not None:
            return arithmetic.logistic_quotient(self.builder, self.emit(lhs), self.emit(x))
        if op in _DIVISIONS and lhs.dtype.is_integer:
            divisor = constant_of(rhs)
            known = Knowledge(
                nonnegative=self.facts.is_nonnegative(lhs) and self.facts.is_nonnegative(rhs),
                nonzero=divisor is not None and divisor not in (0, -1),
            )
        elif op in (BinaryOp.MIN, BinaryOp.MAX) and lhs.dtype.is_float:
            known = Knowledge(lhs_not_nan=is_not_nan(lhs), rhs_not_nan=is_not_nan(rhs))
        else:
            known = arithmetic.NOTHING_KNOWN
        return arithmetic.binary(self.builder, op, self.emit(lhs), self.emit(rhs), known=known)

    def _lane_mask_of(self, bound: LaneBound) -> Value:
        """Lanes below (or from) a number of lanes, compared as int32: half the work of comparing int64 indices."""
        builder, lanes = self.builder, bound.lanes
        count = self.emit(bound.limit).text
        count = builder.call("llvm.smax", "i64", 1, [count, "0"])
        count = builder.call("llvm.smin", "i64", 1, [count, str(lanes)])
        limit = builder.splat(builder.emit(f"trunc i64 {count} to i32"), "i32", lanes)
        steps = ", ".join(f"i32 {lane}" for lane in range(lanes))
        predicate = "ugt" if bound.below else "ule"
        text = builder.emit(f"icmp {predicate} {vector('i32', lanes)} {limit}, <{steps}>")
        return Value(text, DType.BOOL, lanes)

    def _broadcast(self, expr: Broadcast) -> Value:
        x, lanes = expr.x, expr.lanes
        element = REGISTER.get(x.dtype, "")
        if isinstance(x, Const):
            return Value(splat(constant(x.value, x.type), element, lanes), x.type, lanes)
        memo = self._loaded.get(x.buffer) if isinstance(x, BufferLoad) else None
        if memo is not None and expr in memo:
            self._loads_written += 1
            return memo[expr]
        scalar = self.emit(x)
        value = Value(self.builder.splat(scalar.text, element, lanes), x.dtype, lanes)
        if isinstance(x, BufferLoad) and self._guard is None:
            self._loaded.setdefault(x.buffer, {})[expr] = value
        return value

    def _shuffle(self, expr: Shuffle) -> Value:
        lhs, rhs, lanes = self.emit(expr.lhs), self.emit(expr.rhs), len(expr.order)
        order = ", ".join(f"i32 {i}" for i in expr.order)
        text = f"shufflevector {lhs.type} {lhs.text}, {rhs.type} {rhs.text}, <{lanes} x i32> <{order}>"
        return Value(self.builder.emit(text), lhs.dtype, lanes)

    def _ramp(self, expr: Ramp) -> Value:
        return self._linear(self.emit(expr.base).text, self.emit(expr.stride).text, expr.lanes)

    def _linear(self, base: str, stride: str, lanes: int) -> Value:
        builder, kind = self.builder, vector("i64", lanes)
        if base.lstrip("-").isdigit() and stride.lstrip("-").isdigit():
            numbers = (int(base) + int(stride) * i for i in range(lanes))
            return Value(f"<{', '.join(f'i64 {n}' for n in numbers)}>", DType.INT64, lanes)
        steps = f"<{', '.join(f'i64 {i}' for i in range(lanes))}>"
        if stride != "1":
            steps = builder.emit(f"mul {kind} {builder.splat(stride, 'i64', lanes)}, {steps}")
        text = builder.emit(f"add {kind} {builder.splat(base, 'i64', lanes)}, {steps}")
        return Value(text, DType.INT64, lanes)

    # -- selection

    def _select(self, expr: Select) -> Value:
        cond = expr.cond
        if isinstance(cond, Broadcast):
            cond = cond.x
        condition = self.emit(cond)
        loads = self.facts.has_loads(expr.then) or self.facts.has_loads(expr.otherwise)
        if condition.lanes == 1 and loads:
            return self._branch(condition.text, expr.then, expr.otherwise)
        if condition.lanes == 1:
            then, otherwise = self.emit(expr.then), self.emit(expr.otherwise)
        else:
            then = self._under(condition, expr.then)
            guarded = self.facts.has_loads(expr.otherwise)
            otherwise = self._under(self._negate(condition), expr.otherwise) if guarded else self.emit(expr.otherwise)
        text = f"select {condition.type} {condition.text}, {then.type} {then.text}, {otherwise.type} {otherwise.text}"
        return then._replace(text=self.builder.emit(text))

    def _branch(self, condition: str, then: Expr, otherwise: Expr) -> Value:
        builder = self.builder
        labels = builder.label("then"), builder.label("else")
        join = builder.label("join")
        builder.branch_if(condition, *labels)
        arms: list[tuple[Value, str]] = []
        for label, arm in zip(labels, (then, otherwise), strict=True):
            builder.start(label)
            with self._branch_scope():
                arms.append((self.emit(arm), builder.block))
            builder.branch(join)
        builder.start(join)
        incoming = ", ".join(f"[ {value.text}, %{block} ]" for value, block in arms)
        value = arms[0][0]
        return value._replace(text=builder.emit(f"phi {value.type} {incoming}"))

    def _under(self, mask: Value, expr: Expr) -> Value:
        """``expr`` with the loads outside ``mask`` switched off."""
        if not self.facts.has_loads(expr):
            return self.emit(expr)
        outer = self._guard
        self._guard = mask if outer is None else self._both(outer, mask)
        try:
            return self.emit(expr)
        finally:
            self._guard = outer

    def _negate(self, mask: Value) -> Value:
        text = self.builder.emit(f"xor {mask.type} {mask.text}, {splat('true', 'i1', mask.lanes)}")
        return mask._replace(text=text)

    def _both(self, a: Value, b: Value) -> Value:
        if a.lanes != b.lanes:
            a = self._resize(a, b.lanes)
        return b._replace(text=self.builder.emit(f"and {b.type} {a.text}, {b.text}"))

    def _resize(self, mask: Value, lanes: int) -> Value:
        """Whether any lane of ``mask`` takes part, for accesses of another lane count."""
        some = reduce_lanes(self.builder, "or", mask)
        return Value(self.builder.splat(some.text, "i1", lanes), DType.BOOL, lanes)

    # -- memory

    def _load(self, load: BufferLoad) -> Value:
        self._loads_written += 1
        memo = self._loaded.get(load.buffer)
        if memo is not None and load in memo:
            return memo[load]
        value = self._perform(load)
        if self._guard is None:
            self._loaded.setdefault(load.buffer, {})[load] = value
        return value

    def _perform(self, load: BufferLoad) -> Value:
        place = self._place(load.buffer)
        (index,) = load.indices
        lanes = _lanes_hint(index)
        mask = self._mask(load.mask, lanes)
        if lanes == 1:
            return self.memory.load(place, self.emit(index).text, 1, mask)
        linear = as_linear(index)
        if linear is not None and isinstance(linear.stride, Const):
            base, stride = self.emit(linear.base).text, int(linear.stride.value)
            if stride == 1:
                if load.buffer.prefetch:
                    self.memory.prefetch(place, base, load.buffer.prefetch)
                return self.memory.load(place, base, lanes, mask)
            if stride == 0 and mask is None:
                value = self.memory.load(place, base, 1)
                return Value(self.builder.splat(value.text, REGISTER[value.dtype], lanes), value.dtype, lanes)
            strided = self.memory.load_strided(place, base, stride, lanes) if mask is None else None
            if strided is not None:
                return strided
        return self.memory.gather(place, self.emit(index).text, lanes, mask)

    def store(self, store: Store) -> None:
        place = self._place(store.buffer)
        (index,) = store.indices
        value = self.emit(store.value)
        mask = None if store.mask is None else self._lane_mask(store.mask, value.lanes)
        linear = as_linear(index) if value.lanes > 1 else None
        stride = int(linear.stride.value) if linear is not None and isinstance(linear.stride, Const) else None
        if value.lanes == 1:
            self.memory.store(place, self.emit(index).text, value, mask)
        elif linear is not None and stride == 1:
            self.memory.store(place, self.emit(linear.base).text, value, mask)
        elif linear is not None and stride == -1 and mask is None:
            self.memory.store_reversed(place, self.emit(linear.base).text, value)
        else:
            self.memory.scatter(place, self.emit(index).text, value, mask)
        self._loaded.pop(store.buffer, None)
        self._read.clear()

    def _place(self, buffer: Buffer) -> Place:
        found = self.places.get(buffer)
        if found is None:
            raise IngotError(ErrorCode.COMPILER_FAULT, f"the loop program uses the buffer {buffer.name!r} out of scope")
        return found

    def _lane_mask(self, mask: Expr, lanes: int) -> str:
        value = self.emit(mask)
        return value.text if value.lanes == lanes else self.builder.splat(value.text, "i1", lanes)

    def _mask(self, own: Expr | None, lanes: int) -> str | None:
        """The mask of a load: its own and the guard of the selects around it."""
        text = None if own is None else self._lane_mask(own, lanes)
        if self._guard is None:
            return text
        guard = self._guard if self._guard.lanes == lanes else self._resize(self._guard, lanes)
        if text is None:
            return guard.text
        return self.builder.emit(f"and {guard.type} {guard.text}, {text}")


def _lanes_hint(expr: Expr) -> int:
    """Lanes of an expression, looking no further than it must."""
    match expr:
        case Ramp(lanes=lanes) | Broadcast(lanes=lanes) | VectorVar(lanes=lanes):
            return lanes
        case Shuffle(order=order):
            return len(order)
        case Const() | Var() | VectorReduce():
            return 1
        case Unary(x=x) | Cast(x=x) | Reinterpret(x=x):
            return _lanes_hint(x)
        case BufferLoad(indices=indices):
            return max(_lanes_hint(i) for i in indices)
        case Select(then=then):
            return _lanes_hint(then)
        case Binary(lhs=lhs):
            return _lanes_hint(lhs)
    return 1
