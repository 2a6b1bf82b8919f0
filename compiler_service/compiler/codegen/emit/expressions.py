"""Values of expressions: one method per node of the grammar, equal pure expressions written once per scope."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compiler_service.compiler.codegen.emit import arithmetic
from compiler_service.compiler.codegen.emit.arithmetic import Knowledge
from compiler_service.compiler.codegen.emit.blocks import CodeBlocks, Keeps
from compiler_service.compiler.codegen.emit.byte_dots import add_dot4
from compiler_service.compiler.codegen.emit.casts import Fit, cast
from compiler_service.compiler.codegen.emit.facts import (
    LANE_BOUNDS,
    Facts,
    LaneBound,
    as_linear,
    constant_of,
    fits_integer,
    is_not_nan,
    lane_bound,
    logistic_argument,
    sum_of,
)
from compiler_service.compiler.codegen.emit.memory import BufferPlace, MemoryEmitter
from compiler_service.compiler.codegen.emit.reduction import reduce_lanes
from compiler_service.compiler.codegen.emit.short_indices import shortened
from compiler_service.compiler.codegen.llvm.builder import FunctionBuilder, Lines, LlvmValue
from compiler_service.compiler.codegen.llvm.llvm_types import REGISTER, constant, register_type, splat, vector
from compiler_service.compiler.loop_ir.ir import (
    Broadcast,
    Buffer,
    BufferLoad,
    Prefetch,
    Ramp,
    Shuffle,
    Store,
    VectorReduce,
    VectorVar,
)
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, Reinterpret, Select, Unary, UnaryOp, Var

_DOTS = (BinaryOp.DOT4, BinaryOp.SIGNED_DOT4)
_DIVISIONS = frozenset({BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD})


class Expressions:
    """Writes the instructions that compute expressions and perform stores.

    A *guard* is the mask of lanes that take part, while a branch of a Select with a vector condition is written: loads
    outside it are not performed.
    """

    def __init__(self, builder: FunctionBuilder) -> None:
        self.builder = builder
        self.facts = Facts()
        self.memory = MemoryEmitter(builder)
        self.blocks = CodeBlocks(builder)
        self.places: dict[Buffer, BufferPlace] = {}
        self._variables: dict[str, LlvmValue] = {}
        self._loaded: dict[Buffer, dict[Expr, LlvmValue]] = {}
        self._read: dict[tuple[Expr, str], LlvmValue] = {}  # what depends on memory, by guard; until the next store
        self._loads_written = 0
        self._guard: LlvmValue | None = None

    # -- scopes

    def bind(self, name: str, value: LlvmValue, *, nonnegative: bool, level: int | None = None) -> None:
        """``level``: the block in which ``value`` is known, by default the innermost."""
        self._variables[name] = value
        self.facts.learn(name, nonnegative)
        self.blocks.bind(name, self.blocks.innermost if level is None else level)

    def let(self, var: Var, value: Expr) -> None:
        """``var`` stands for ``value`` from here on."""
        nonnegative = var.dtype.is_integer and self.facts.is_nonnegative(value)
        level = self.blocks.level(value) if self.facts.moves(value) else None
        self.bind(var.name, self.emit(value), nonnegative=nonnegative, level=level)

    @contextmanager
    def scope(self, before: Lines, keeps: Keeps) -> Iterator[None]:
        """A block that does not dominate what follows; memory may change in it. See :class:`CodeBlocks`."""
        self._loaded.clear()
        self._read.clear()
        with self.blocks.inside(before, keeps):
            yield
        self._loaded.clear()
        self._read.clear()

    @contextmanager
    def _branch_scope(self, before: Lines) -> Iterator[None]:
        """A block within an expression, where memory does not change."""
        loaded = {buffer: dict(values) for buffer, values in self._loaded.items()}
        read = dict(self._read)
        with self.blocks.inside(before, Keeps.CHANGING):
            yield
        self._loaded, self._read = loaded, read

    # -- expressions

    def emit(self, expr: Expr) -> LlvmValue:
        """The value of ``expr``.

        Raises:
            IngotError: UNSUPPORTED_DTYPE or COMPILER_FAULT, naming operator and type.
        """
        if isinstance(expr, Const):
            register_type(expr.type, 1)
            return LlvmValue(constant(expr.value, expr.type), expr.type)
        if isinstance(expr, Var):
            return self._variable(expr)
        found = self.blocks.known(expr)
        if found is not None:
            return found
        if self.facts.moves(expr):
            level = self.blocks.level(expr)
            with self.blocks.at(level):
                value = self._compute(expr)
            self.blocks.learn(expr, value, level)
            return value
        return self._emit_here(expr)

    def _emit_here(self, expr: Expr) -> LlvmValue:
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
            self.blocks.learn(expr, value, self.blocks.innermost)
        return value

    def _variable(self, var: Var) -> LlvmValue:
        found = self._variables.get(var.name)
        if found is None:
            raise IngotError(ErrorCode.COMPILER_FAULT, f"the loop program uses the variable {var.name!r} out of scope")
        return found

    def _compute(self, expr: Expr) -> LlvmValue:
        match expr:
            case Binary():
                return self._binary(expr)
            case BufferLoad():
                return self._load(expr)
            case Unary(op=UnaryOp.EXP, x=Binary(op=BinaryOp.SUB) as x) if x.dtype is DType.FLOAT32:
                return arithmetic.exponential_of_difference(self.builder, self.emit(x))
            case Unary(op=op, x=x):
                return arithmetic.unary(self.builder, op, self.emit(x))
            case Cast(type=dtype, x=x):
                return cast(self.builder, self.emit(x), dtype, fit=_fit(x, dtype))
            case Reinterpret(type=dtype, x=x):
                return self.memory.reinterpret(self.emit(x), dtype)
            case Select():
                return self._select(expr)
        return self._of_lanes(expr)

    def _of_lanes(self, expr: Expr) -> LlvmValue:
        """What takes lanes apart or puts them together."""
        match expr:
            case Broadcast():
                return self._broadcast(expr)
            case Ramp():
                return self._ramp(expr)
            case Shuffle():
                return self._shuffle(expr)
            case VectorReduce(op=op, x=x):
                return reduce_lanes(self.builder, op, self.emit(x))
        raise IngotError(ErrorCode.COMPILER_FAULT, f"no code is generated for the expression {type(expr).__name__}")

    def _binary(self, expr: Binary) -> LlvmValue:
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
        if op is BinaryOp.ADD and isinstance(rhs, Binary) and rhs.op in _DOTS:
            return add_dot4(self.builder, rhs.op, self.emit(lhs), self.emit(rhs.lhs), self.emit(rhs.rhs))
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

    def _lane_mask_of(self, bound: LaneBound) -> LlvmValue:
        """Lanes below (or from) a number of lanes, compared as int32: half the work of comparing int64 indices."""
        builder, lanes = self.builder, bound.lanes
        count = self.emit(bound.limit).text
        count = builder.call("llvm.smax", "i64", 1, [count, "0"])
        count = builder.call("llvm.smin", "i64", 1, [count, str(lanes)])
        limit = builder.splat(builder.emit(f"trunc i64 {count} to i32"), "i32", lanes)
        steps = ", ".join(f"i32 {lane}" for lane in range(lanes))
        predicate = "ugt" if bound.below else "ule"
        text = builder.emit(f"icmp {predicate} {vector('i32', lanes)} {limit}, <{steps}>")
        return LlvmValue(text, DType.BOOL, lanes)

    def _broadcast(self, expr: Broadcast) -> LlvmValue:
        x, lanes = expr.x, expr.lanes
        element = REGISTER.get(x.dtype, "")
        if isinstance(x, Const):
            return LlvmValue(splat(constant(x.value, x.type), element, lanes), x.type, lanes)
        memo = self._loaded.get(x.buffer) if isinstance(x, BufferLoad) else None
        if memo is not None and expr in memo:
            self._loads_written += 1
            return memo[expr]
        scalar = self.emit(x)
        value = LlvmValue(self.builder.splat(scalar.text, element, lanes), x.dtype, lanes)
        if isinstance(x, BufferLoad) and self._guard is None:
            self._loaded.setdefault(x.buffer, {})[expr] = value
        return value

    def _shuffle(self, expr: Shuffle) -> LlvmValue:
        lhs, rhs, lanes = self.emit(expr.lhs), self.emit(expr.rhs), len(expr.order)
        order = ", ".join(f"i32 {i}" for i in expr.order)
        text = f"shufflevector {lhs.type} {lhs.text}, {rhs.type} {rhs.text}, <{lanes} x i32> <{order}>"
        return LlvmValue(self.builder.emit(text), lhs.dtype, lanes)

    def _ramp(self, expr: Ramp) -> LlvmValue:
        return self._linear(self.emit(expr.base).text, self.emit(expr.stride).text, expr.lanes)

    def _linear(self, base: str, stride: str, lanes: int) -> LlvmValue:
        builder, kind = self.builder, vector("i64", lanes)
        if base.lstrip("-").isdigit() and stride.lstrip("-").isdigit():
            numbers = (int(base) + int(stride) * i for i in range(lanes))
            return LlvmValue(f"<{', '.join(f'i64 {n}' for n in numbers)}>", DType.INT64, lanes)
        steps = f"<{', '.join(f'i64 {i}' for i in range(lanes))}>"
        if stride != "1":
            steps = builder.emit(f"mul {kind} {builder.splat(stride, 'i64', lanes)}, {steps}")
        text = builder.emit(f"add {kind} {builder.splat(base, 'i64', lanes)}, {steps}")
        return LlvmValue(text, DType.INT64, lanes)

    # -- selection

    def _select(self, expr: Select) -> LlvmValue:
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

    def _branch(self, condition: str, then: Expr, otherwise: Expr) -> LlvmValue:
        builder = self.builder
        labels = builder.label("then"), builder.label("else")
        join = builder.label("join")
        before = builder.place()
        builder.branch_if(condition, *labels)
        arms: list[tuple[LlvmValue, str]] = []
        for label, arm in zip(labels, (then, otherwise), strict=True):
            builder.start(label)
            with self._branch_scope(before):
                arms.append((self.emit(arm), builder.block))
            builder.branch(join)
        builder.start(join)
        incoming = ", ".join(f"[ {value.text}, %{block} ]" for value, block in arms)
        value = arms[0][0]
        return value._replace(text=builder.emit(f"phi {value.type} {incoming}"))

    def _under(self, mask: LlvmValue, expr: Expr) -> LlvmValue:
        """``expr`` with the loads outside ``mask`` switched off."""
        if not self.facts.has_loads(expr):
            return self.emit(expr)
        outer = self._guard
        self._guard = mask if outer is None else self._both(outer, mask)
        try:
            return self.emit(expr)
        finally:
            self._guard = outer

    def _negate(self, mask: LlvmValue) -> LlvmValue:
        text = self.builder.emit(f"xor {mask.type} {mask.text}, {splat('true', 'i1', mask.lanes)}")
        return mask._replace(text=text)

    def _both(self, a: LlvmValue, b: LlvmValue) -> LlvmValue:
        if a.lanes != b.lanes:
            a = self._resize(a, b.lanes)
        return b._replace(text=self.builder.emit(f"and {b.type} {a.text}, {b.text}"))

    def _resize(self, mask: LlvmValue, lanes: int) -> LlvmValue:
        """Whether any lane of ``mask`` takes part, for accesses of another lane count."""
        some = reduce_lanes(self.builder, "or", mask)
        return LlvmValue(self.builder.splat(some.text, "i1", lanes), DType.BOOL, lanes)

    # -- memory

    def _load(self, load: BufferLoad) -> LlvmValue:
        self._loads_written += 1
        memo = self._loaded.get(load.buffer)
        if memo is not None and load in memo:
            return memo[load]
        value = self._perform(load)
        if self._guard is None:
            self._loaded.setdefault(load.buffer, {})[load] = value
        return value

    def _perform(self, load: BufferLoad) -> LlvmValue:
        place = self._place(load.buffer)
        (index,) = load.indices
        lanes = _lanes_hint(index)
        mask = self._mask(load.mask, lanes)
        if lanes == 1:
            return self.memory.load(place, self._pointer(place, index), 1, mask)
        linear = as_linear(index)
        if linear is not None and isinstance(linear.stride, Const):
            stride = int(linear.stride.value)
            if stride == 1:
                pointer = self._pointer(place, linear.base)
                if load.buffer.prefetch:
                    self.memory.prefetch(pointer, load.buffer.prefetch)
                return self.memory.load(place, pointer, lanes, mask)
            if stride == 0 and mask is None:
                value = self.memory.load(place, self._pointer(place, linear.base), 1)
                return LlvmValue(self.builder.splat(value.text, REGISTER[value.dtype], lanes), value.dtype, lanes)
            pointer = self._pointer(place, linear.base)
            strided = self.memory.load_strided(place, pointer, stride, lanes) if mask is None else None
            if strided is not None:
                return strided
        return self.memory.gather(place, self._indices(place, index), mask)

    def prefetch(self, prefetch: Prefetch) -> None:
        (index,) = prefetch.indices
        self.memory.prefetch(self._pointer(self._place(prefetch.buffer), index), level=prefetch.level)

    def store(self, store: Store) -> None:
        place = self._place(store.buffer)
        (index,) = store.indices
        value = self.emit(store.value)
        mask = None if store.mask is None else self._lane_mask(store.mask, value.lanes)
        linear = as_linear(index) if value.lanes > 1 else None
        stride = int(linear.stride.value) if linear is not None and isinstance(linear.stride, Const) else None
        if value.lanes == 1:
            self.memory.store(place, self._pointer(place, index), value, mask)
        elif linear is not None and stride == 1:
            self.memory.store(place, self._pointer(place, linear.base), value, mask)
        elif linear is not None and stride == -1 and mask is None:
            self.memory.store_reversed(place, self._pointer(place, linear.base), value)
        else:
            self.memory.scatter(place, self._indices(place, index), value, mask)
        self._read.clear()
        self._forward(store, place, value, mask)

    def _forward(self, store: Store, place: BufferPlace, value: LlvmValue, mask: str | None) -> None:
        """Loads of what was just stored need not go through memory; what the store cannot have changed is still known."""
        known = self._loaded.pop(store.buffer, {})
        if place.is_stack:  # LLVM makes registers of it
            return
        kept: dict[Expr, LlvmValue] = {
            e: v for e, v in known.items() if isinstance(e, BufferLoad) and self._apart(e, store)
        }
        if place.element == REGISTER[value.dtype]:
            if mask is not None:
                zero = splat(constant(0, value.dtype), place.element, value.lanes)
                lanes = vector("i1", value.lanes)
                text = f"select {lanes} {mask}, {value.type} {value.text}, {value.type} {zero}"
                value = value._replace(text=self.builder.emit(text))
            kept[BufferLoad(store.buffer, store.indices, store.mask)] = value
        self._loaded[store.buffer] = kept

    def _apart(self, load: BufferLoad, store: Store) -> bool:
        """Both are contiguous, a constant distance from each other, and do not overlap."""
        one, other = self._contiguous(load.indices[0]), self._contiguous(store.indices[0])
        if one is None or other is None or one[0] != other[0]:
            return False
        (_, first, lanes), (_, second, others) = one, other
        return first + lanes <= second or second + others <= first

    def _contiguous(self, index: Expr) -> tuple[tuple[Expr, ...], int, int] | None:
        """Terms of the first index, its constant, and the number of elements."""
        lanes = _lanes_hint(index)
        if lanes > 1:
            linear = as_linear(index)
            if linear is None or linear.stride != Const(1):
                return None
            index = linear.base
        return (*self.facts.sum(index), lanes)

    def _indices(self, place: BufferPlace, index: Expr) -> LlvmValue:
        return self.emit(shortened(index) if place.has_short_indices else index)

    def _pointer(self, place: BufferPlace, index: Expr) -> str:
        """The address of element ``index``, whose terms are added from the outermost block to the innermost: accesses of one tile
        then differ by a constant from a pointer that each loop moves by as much."""
        terms, offset = self.facts.sum(index)
        if not terms and place.is_stack:
            return self._stack_pointer(place, offset)
        pointer = place.pointer
        blocks, here = self.blocks, self.blocks.innermost
        by_level: dict[int, list[Expr]] = {}
        for term in terms:
            by_level.setdefault(blocks.level(term) if self.facts.moves(term) else here, []).append(term)
        for level in sorted(by_level):
            key = (pointer, tuple(by_level[level]), 0)
            found = blocks.pointer(key)
            if found is None:
                with blocks.at(level):
                    found = self.memory.offset(place, pointer, self.emit(sum_of(key[1])).text)
                blocks.learn_pointer(key, found, level)
            pointer = found
        if offset:
            key = (pointer, (), offset)
            found = blocks.pointer(key)
            if found is None:
                found = self.memory.offset(place, pointer, offset)
                blocks.learn_pointer(key, found, here)
            pointer = found
        return pointer

    def _stack_pointer(self, place: BufferPlace, offset: int) -> str:
        """A register-to-be."""
        if offset == 0:
            return place.pointer
        key = (place.pointer, (), offset)
        found = self.blocks.pointer(key)
        if found is None:
            text = f"getelementptr inbounds {place.element}, ptr {place.pointer}, i64 {offset}"
            found = self.builder.at_entry(text)
            self.blocks.learn_pointer(key, found, 0)
        return found

    def _place(self, buffer: Buffer) -> BufferPlace:
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


def _fit(x: Expr, dtype: DType) -> Fit:
    if not (x.dtype.is_float and dtype.is_integer and fits_integer(x, dtype)):
        return Fit.UNKNOWN
    return Fit.CERTAIN if is_not_nan(x) else Fit.OR_NAN


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
