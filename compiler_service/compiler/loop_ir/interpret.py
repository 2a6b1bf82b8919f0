"""The meaning of loop programs: a numpy interpreter for every stage, before and after the passes.

A VECTORIZED loop means the serial loop; its iterations are independent but for reductions. Where every store of its
body moves with the loop variable they are run as one numpy operation, else one by one. Uninitialised memory reads as
NaN (floats) or as the byte pattern 0xA5 (integers), so that a program which reads it gives itself away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from compiler_service.compiler.loop_ir.interpreted_operations import Array, Thunk, Value, constant, operation
from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Buffer,
    BufferLoad,
    Checkpoint,
    For,
    ForKind,
    Function,
    If,
    Let,
    Prefetch,
    Statement,
    Store,
    walk_statements,
)
from compiler_service.compiler.loop_ir.text import statement_head
from compiler_service.compiler.tensor_expr.strides import span
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Const, Expr, Select, Var, variables
from shared_ir.expr.dim import evaluate


def run(
    function: Function,
    arrays: Sequence[Array] | Mapping[str, Array],
    symbols: Mapping[str, int] | None = None,
    tasks: Iterable[int] | None = None,
    check_bounds: bool = True,
) -> None:
    """Run ``tasks`` (default: all) of ``function``, writing its outputs in place.

    Args:
        arrays: one C-contiguous array per buffer, in order or by buffer name, of its dtype and number of elements (for a
            buffer with strides, all memory from its first element to its last).
        symbols: the value of every symbol.
        check_bounds: check every index of every access against its own extent.

    Raises:
        IngotError: INVALID_ARGUMENT, an array or symbol does not fit; COMPILER_FAULT, an access leaves its buffer.
    """
    values = dict(symbols or {})
    for symbol in function.symbols:
        if symbol.name not in values:
            raise IngotError(ErrorCode.INVALID_ARGUMENT, f"symbol {symbol.name} has no value", node=function.name)
    machine = _Machine(function, check_bounds, dict(values))
    given = _in_order(function, arrays)
    if len(given) != len(function.buffers):
        _refuse(function, "number of arrays", len(function.buffers), len(given))
    for buffer, array in zip(function.buffers, given, strict=True):
        machine.memory[buffer] = _view(function, buffer, array, values)
    body = machine.statement(function.body)
    with np.errstate(all="ignore"):
        for task in range(evaluate(function.tasks, values)) if tasks is None else tasks:
            machine.values[function.task.name] = task
            body()


def _in_order(function: Function, arrays: Sequence[Array] | Mapping[str, Array]) -> list[Array]:
    if not isinstance(arrays, Mapping):
        return list(arrays)
    missing = [b.name for b in function.buffers if b.name not in arrays]
    if missing:
        _refuse(function, "arrays by name", ", ".join(b.name for b in function.buffers), f"none for {missing}")
    return [arrays[b.name] for b in function.buffers]


def _refuse(function: Function, what: str, expected: object, received: object) -> NoReturn:
    raise IngotError(
        ErrorCode.INVALID_ARGUMENT, what, node=function.name, expected=str(expected), received=str(received)
    )


def _view(function: Function, buffer: Buffer, array: Array, symbols: Mapping[str, int]) -> Array:
    shape = tuple(evaluate(extent, symbols) for extent in buffer.shape)
    if array.dtype != storage_dtype(buffer.dtype):
        _refuse(function, f"dtype of the array for {buffer.name}", buffer.dtype, array.dtype)
    if array.size != evaluate(span(buffer.shape, buffer.strides), symbols):
        _refuse(function, f"shape of the array for {buffer.name}", shape, array.shape)
    if not array.flags.c_contiguous:
        _refuse(function, f"the array for {buffer.name}", "a C-contiguous array", "a strided one")
    if buffer.strides is None:
        return array.reshape(shape)
    strides = [evaluate(stride, symbols) * array.itemsize for stride in buffer.strides]
    return np.lib.stride_tricks.as_strided(array, shape, strides)


@dataclass
class _Machine:
    """Turns statements and expressions into closures over one set of variables and one memory."""

    function: Function
    check_bounds: bool
    values: dict[str, Value]
    memory: dict[Buffer, Array] = field(default_factory=dict)
    active: Array | None = None
    """Lanes that take part, inside the branches of vector conditions; ``None`` is all of them."""

    # -- statements

    def statement(self, statement: Statement) -> Callable[[], None]:
        match statement:
            case Block(statements=statements):
                return self.block(tuple(self.statement(s) for s in statements))
            case For():
                return self.loop(statement)
            case If():
                return self.branch(statement)
            case Let(var=var, value=value, body=body):
                return self.let(var.name, self.expr(value, statement), self.statement(body))
            case Allocate(buffer=buffer, body=body):
                return self.allocate(buffer, self.statement(body))
            case Store():
                return self.store(statement)
            case Prefetch() | Checkpoint():
                return self.block(())
        raise TypeError(f"no meaning for {type(statement).__name__}")

    def block(self, parts: tuple[Callable[[], None], ...]) -> Callable[[], None]:
        def run_block() -> None:
            for part in parts:
                part()

        return run_block

    def loop(self, loop: For) -> Callable[[], None]:
        values, name = self.values, loop.var.name
        extent, body = self.expr(loop.extent, loop), self.statement(loop.body)

        def run_serial() -> None:
            for index in range(int(extent())):
                values[name] = index
                body()

        def run_lanes() -> None:
            values[name] = np.arange(int(extent()))
            body()

        return run_lanes if loop.kind is ForKind.VECTORIZED and _lanes_are_independent(loop) else run_serial

    def branch(self, statement: If) -> Callable[[], None]:
        cond, then = self.expr(statement.cond, statement), self.statement(statement.then)
        otherwise = self.block(()) if statement.otherwise is None else self.statement(statement.otherwise)

        def run_branch() -> None:
            chosen = cond()
            if np.ndim(chosen):
                self.where(chosen, then)
                self.where(~chosen, otherwise)
            elif chosen:
                then()
            else:
                otherwise()

        return run_branch

    def let(self, name: str, value: Thunk, body: Callable[[], None]) -> Callable[[], None]:
        def run_let() -> None:
            self.values[name] = value()
            body()

        return run_let

    def allocate(self, buffer: Buffer, body: Callable[[], None]) -> Callable[[], None]:
        shape = tuple(evaluate(extent, {}) for extent in buffer.shape)

        def run_allocate() -> None:
            self.memory[buffer] = _uninitialised(shape, buffer.dtype)
            body()

        return run_allocate

    def store(self, store: Store) -> Callable[[], None]:
        address = self.address(store.buffer, store.indices, store)
        value = self.expr(store.value, store)
        mask = None if store.mask is None else self.expr(store.mask, store)

        def run_store() -> None:
            lanes = self.lanes(mask)
            index = address(lanes)
            array = self.memory[store.buffer]
            if lanes is None or lanes is True:
                array[index] = value()
            elif lanes is not False and lanes.any():
                where = tuple(np.broadcast_to(i, lanes.shape)[lanes] for i in index)
                array[where] = np.broadcast_to(value(), lanes.shape)[lanes]

        return run_store

    # -- lanes

    def where(self, mask: Array, part: Thunk) -> Value:
        """``part`` with the lanes outside ``mask`` switched off."""
        outer = self.active
        self.active = mask if outer is None else outer & mask
        try:
            return part()
        finally:
            self.active = outer

    def lanes(self, mask: Thunk | None) -> Any:
        """The lanes that an access performs: ``None`` for all, a bool for a scalar access, or one bool per lane."""
        if mask is None:
            return self.active
        own = mask()
        combined = own if self.active is None else own & self.active
        return combined if np.ndim(combined) else bool(combined)

    # -- expressions

    def expr(self, expr: Expr, where: Statement) -> Thunk:
        match expr:
            case Const():
                value = constant(expr)
                return lambda: value
            case Var(name=name):
                values = self.values
                return lambda: values[name]
            case BufferLoad():
                return self.load(expr, where)
            case Select():
                return self.select(expr, where)
        parts = [self.expr(child, where) for child in expr.children()]
        return operation(expr, parts)

    def select(self, expr: Select, where: Statement) -> Thunk:
        cond, then, otherwise = (self.expr(child, where) for child in expr.children())

        def choose() -> Value:
            chosen = cond()
            if not np.ndim(chosen):
                return then() if chosen else otherwise()
            return np.where(chosen, self.where(chosen, then), self.where(~chosen, otherwise))

        return choose

    def load(self, load: BufferLoad, where: Statement) -> Thunk:
        address = self.address(load.buffer, load.indices, where)
        mask = None if load.mask is None else self.expr(load.mask, where)
        buffer = load.buffer

        def read() -> Value:
            lanes = self.lanes(mask)
            array = self.memory[buffer]
            if lanes is None or lanes is True:
                return array[address(None)]
            nothing = array.dtype.type(0)
            if lanes is False or not lanes.any():
                return nothing
            index = address(lanes)
            if all(np.ndim(i) == 0 for i in index) and mask is None:
                return array[index]
            inside = tuple(np.where(lanes, i, 0) for i in index)
            return np.where(lanes, array[inside], nothing)

        return read

    def address(
        self, buffer: Buffer, indices: tuple[Expr, ...], where: Statement
    ) -> Callable[[Any], tuple[Value, ...]]:
        """Indices of an access, checked on the lanes given (``None``: all)."""
        parts = [self.expr(index, where) for index in indices]

        def locate(lanes: Any) -> tuple[Value, ...]:
            index = tuple([part() for part in parts])
            if self.check_bounds and lanes is not False:
                shape = self.memory[buffer].shape
                for axis, (position, extent) in enumerate(zip(index, shape, strict=True)):
                    if not _inside(position, extent, lanes):
                        self.out_of_bounds(buffer, axis, position, extent, where)
            return index

        return locate

    def out_of_bounds(self, buffer: Buffer, axis: int, position: Value, extent: int, where: Statement) -> NoReturn:
        raise IngotError(
            ErrorCode.COMPILER_FAULT,
            f"an access leaves {buffer.name} along axis {axis}",
            node=self.function.name,
            field=statement_head(where),
            expected=f"an index in [0, {extent})",
            received=str(position),
        )


def _inside(position: Value, extent: int, lanes: Any) -> bool:
    if not np.ndim(position):
        return bool(0 <= position < extent) or (lanes is not None and lanes is not True and not lanes.any())
    outside = (position < 0) | (position >= extent)
    return not (outside if lanes is None else outside & lanes).any()


def _uninitialised(shape: tuple[int, ...], dtype: DType) -> Array:
    array = np.empty(shape, storage_dtype(dtype))
    if dtype.is_float or dtype is DType.BOOL:
        array.fill(np.nan if dtype.is_float else True)
    else:
        array.view(np.uint8).fill(0xA5)
    return array


def _lanes_are_independent(loop: For) -> bool:
    """Every store moves with the loop variable and nothing else stands in the way of running all lanes at once."""
    moving = {loop.var}
    for statement in walk_statements(loop.body):
        match statement:
            case Let(var=var, value=value) if variables(value) & moving:
                moving.add(var)
            case Allocate():
                return False
            case For(extent=extent, kind=kind) if kind is ForKind.VECTORIZED or variables(extent) & moving:
                return False
            case Store(indices=indices) if not any(variables(index) & moving for index in indices):
                return False
    return True
