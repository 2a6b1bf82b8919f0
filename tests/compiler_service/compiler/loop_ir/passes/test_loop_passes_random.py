"""Random small loop programs mean the same before and after every pass.

Arrays hold small integers in float64, so that sums are exact in every order; the interpreter checks every access.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from compiler_service.compiler.loop_ir.interpret import run as interpret
from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Buffer,
    BufferScope,
    For,
    ForKind,
    Function,
    If,
    Let,
    Statement,
)
from compiler_service.compiler.loop_ir.passes import LOOP_PASSES
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.loop_ir.verify import verify
from shared_ir.dtype import DType
from shared_ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Unary,
    UnaryOp,
    Var,
    binary,
    lift,
    logical_and,
    logical_or,
    select,
)
from shared_ir.expr.dim import as_dim, evaluate
from tests.compiler_service.compiler.loop_ir.loop_programs import load, loops, store

FLOAT = DType.FLOAT64
N, T = Var("n"), Var("t")
TASKS, WIDTH = 2, 6
INTEGER_OPERATORS = [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX]
FLOAT_OPERATORS = [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MIN, BinaryOp.MAX, BinaryOp.MUL]
COMPARISONS = [BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE, BinaryOp.EQ, BinaryOp.NE]
REDUCTIONS = [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MIN, BinaryOp.MAX]


@dataclass(frozen=True)
class Context:
    """What an expression may mention."""

    draw: Any
    inputs: tuple[Buffer, ...]
    integers: tuple[Var, ...]
    floats: tuple[Var, ...] = ()

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def chance(self, of: int) -> bool:
        return bool(self.draw(st.integers(1, of)) == 1)

    def integer(self, depth: int = 2) -> Expr:
        if depth == 0 or self.chance(3):
            return self.pick(self.integers) if not self.chance(4) else Const(self.draw(st.integers(-3, 5)))
        if self.chance(3):
            op = self.pick([BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD])
            return binary(op, self.integer(depth - 1), self.draw(st.integers(1, 8)))
        return binary(self.pick(INTEGER_OPERATORS), self.integer(depth - 1), self.integer(depth - 1))

    def condition(self, depth: int = 2) -> Expr:
        if depth and self.chance(3):
            combine = self.pick([logical_and, logical_or])
            both: Expr = combine(self.condition(depth - 1), self.condition(depth - 1))
            return both
        if depth and self.chance(5):
            return Unary(UnaryOp.NOT, self.condition(depth - 1))
        if self.chance(4):
            return binary(self.pick(COMPARISONS), self.number(0), self.number(0))
        return binary(self.pick(COMPARISONS), self.integer(1), self.integer(1))

    def number(self, depth: int = 2) -> Expr:
        if depth == 0 or self.chance(4):
            return self.leaf()
        if self.chance(4):
            return select(self.condition(1), self.number(depth - 1), self.number(depth - 1))
        return Binary(self.pick(FLOAT_OPERATORS), self.number(depth - 1), self.number(depth - 1))

    def leaf(self) -> Expr:
        choice = self.draw(st.integers(0, 5))
        if choice == 0:
            return Const(float(self.draw(st.integers(-2, 2))), FLOAT)
        if choice == 1:
            return Cast(FLOAT, self.integer(1))
        if choice == 2 and self.floats:
            value: Expr = self.pick(self.floats)
            return value
        return self.access(self.pick(self.inputs))

    def access(self, buffer: Buffer) -> Expr:
        """A load inside its buffer: by construction, or under a condition that says so."""
        indices = [self.integer(1) for _ in buffer.shape]
        if self.chance(2):
            wrapped = [i % lift(extent) for i, extent in zip(indices, buffer.shape, strict=True)]
            return load(buffer, *wrapped)
        inside: Expr = Const(True, DType.BOOL)
        for index, extent in zip(indices, buffer.shape, strict=True):
            inside = logical_and(inside, logical_and(lift(0) <= index, index < lift(extent)))
        return select(inside, load(buffer, *indices), Const(float(self.pick([0, 0, 7])), FLOAT))


@st.composite
def functions(draw: Any) -> Function:
    """Loops over the elements of ``y``, each computed by lets, guards and a store or an accumulation."""
    x = Buffer("x", FLOAT, (draw(st.integers(1, 5)), draw(st.sampled_from([3, N, N + 2]))))
    z = Buffer("z", FLOAT, (draw(st.integers(1, 9)),))
    axes = draw_axes(draw)
    y = Buffer("y", FLOAT, (TASKS, *(as_dim(extent) for _, extent, _ in axes)))
    context = Context(draw, (x, z), (T, N, *(var for var, _, _ in axes)))
    statements = tuple(nest(context, y, axes, number) for number in range(draw(st.integers(1, 2))))
    return Function("random", (x, z, y), (N,), T, TASKS, Block(statements))


def draw_axes(draw: Any) -> list[tuple[Var, Expr, ForKind]]:
    """Up to three loops, at most one of them vectorized."""
    axes: list[tuple[Var, Expr, ForKind]] = []
    for number in range(draw(st.integers(1, 3))):
        used = any(kind is ForKind.VECTORIZED for _, _, kind in axes)
        kind = draw(st.sampled_from([k for k in ForKind if not (used and k is ForKind.VECTORIZED)]))
        extent = lift(draw(st.integers(1, 4)))
        if kind is ForKind.SERIAL and draw(st.booleans()):
            extent = N
        axes.append((Var(f"i{number}"), extent, kind))
    return axes


def nest(context: Context, y: Buffer, axes: list[tuple[Var, Expr, ForKind]], number: int) -> Statement:
    own = [(Var(f"{var.name}_{number}"), extent, kind) for var, extent, kind in axes]
    context = replace(context, integers=(T, N, *(var for var, _, _ in own)))
    return loops(leaf(context, y, [var for var, _, _ in own], number), *own)


def leaf(context: Context, y: Buffer, place: list[Var], number: int) -> Statement:
    j, f = Var(f"j{number}"), Var(f"f{number}", FLOAT)
    named, value = context.integer(), context.number()
    context = replace(context, integers=(*context.integers, j), floats=(f,))
    at: list[Expr] = [T, *place]
    finish = elementwise
    shared = context.chance(5)
    if shared:  # one location for a whole loop, by one operator: the order of its iterations must not matter
        at[context.draw(st.integers(1, len(place)))] = Const(0)
        finish = accumulate
    body = finish(context, y, at, number)
    if context.chance(3):
        other = None if shared or context.chance(2) else finish(context, y, at, number)
        body = If(context.condition(), body, other)
    return Let(j, named, Let(f, value, body))


def elementwise(context: Context, y: Buffer, at: list[Expr], number: int) -> Statement:
    choice = context.draw(st.integers(1, 5))
    if choice == 1:
        return accumulate(context, y, at, number)
    if choice == 2:  # through private memory
        local = Buffer(f"local{number}", FLOAT, (2,), BufferScope.STACK)
        first, second = store(local, [1], context.number()), store(local, [0], context.number(1))
        total = store(y, at, load(local, 0) + load(local, 1))
        return Allocate(local, Block((first, second, total)))
    if choice == 3:  # a loop inside
        k = Var(f"k{number}")
        inner = replace(context, integers=(*context.integers, k))
        kind = context.pick([ForKind.SERIAL, ForKind.UNROLLED])
        return For(k, lift(context.draw(st.integers(1, 3))), kind, accumulate(inner, y, at, number))
    return store(y, at, context.number())


def accumulate(context: Context, y: Buffer, at: list[Expr], number: int) -> Statement:
    return store(y, at, Binary(context.pick(REDUCTIONS), load(y, *at), context.number(1)))


def results(function: Function, n: int) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    arrays = [
        random.integers(-3, 4, tuple(evaluate(extent, {"n": n}) for extent in b.shape)).astype(b.dtype.numpy)
        for b in function.buffers
    ]
    interpret(function, arrays, {"n": n})
    return [array.reshape(-1) for array in arrays]


@dataclass(frozen=True)
class Program:
    """A function that shows itself as text when it fails."""

    function: Function

    def __repr__(self) -> str:
        return f"\n{print_function(self.function)}\n"


@pytest.mark.slow
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # the programs are small, and shrinking them takes minutes
)
@given(program=functions().map(Program), n=st.integers(1, 4))
def test_passes_keep_the_meaning(program: Program, n: int) -> None:
    function = program.function
    verify(function)
    expected = results(function, n)
    flat = False
    for item in LOOP_PASSES:
        function = item.apply(function)
        flat = flat or item.name == "unroll"
        verify(function, flat)
        for before, after in zip(expected, results(function, n), strict=True):
            np.testing.assert_array_equal(before, after, err_msg=f"after {item.name}:\n{print_function(function)}")
