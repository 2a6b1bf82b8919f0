"""Modules of several functions, small enough to compile in a moment."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot import ir

Array = np.ndarray[Any, Any]
N = ir.symbol("n")

INCREMENT = ir.LoopFunction.parse("""
function increment(x: float32[n], out y: float32[n]; n: int64)
for task t in 0..(n + 63) // 64:
    for d0 in 0..min(n - t * 64, 64):
        y[t * 64 + d0] = x[t * 64 + d0] + 1.0
""")
"""Adds 1, in tasks of 64 elements. Its loop has the name that the compiler gives to extents."""


def double() -> ir.GraphFunction:
    b = ir.GraphBuilder("double")
    return b.function(b.mul(b.input("x", (N,)), 2.0))


def doubled_and_increased() -> ir.Module:
    """``x`` float32[n, 4] -> ``y`` float32[n * 4]: relu(4 * x + 1); ``unused`` is called by nobody."""
    twice = double()
    b = ir.GraphBuilder("main")
    x = b.input("x", (N, 4))
    flat = b.reshape(x, (-1,))
    y = b.relu(b.call(INCREMENT, b.call(twice, b.call(twice, flat))), name="y")
    unused = ir.GraphFunction.parse("graph unused(%x: float32[n]) -> (%y) { %y: float32[n] = Neg(%x) }")
    return ir.Module((b.function(y), twice, unused, INCREMENT))


def expected(x: Array) -> Array:
    """What :func:`doubled_and_increased` gives."""
    return np.asarray(np.maximum(4 * x.reshape(-1) + 1, 0))


@dataclass(frozen=True)
class Drawn:
    """A module of functions that call those before them, and what its ``main`` gives."""

    module: ir.Module
    expected: Callable[[Array], Array]


_STEPS: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("relu", lambda x: np.maximum(x, 0)),
    ("neg", np.negative),
    ("abs", np.abs),
)


def drawn(draw: random.Random) -> Drawn:
    """Of up to six functions, each a chain of operators and calls, some in a branch."""
    functions: list[ir.Function] = [INCREMENT]
    meanings: list[Callable[[Array], Array]] = [lambda x: x + np.float32(1)]
    for number in range(draw.randint(1, 5)):
        function, meaning = _function(draw, f"f{number}", functions, meanings)
        functions.append(function)
        meanings.append(meaning)
    main, meaning = _function(draw, "main", functions, meanings)
    return Drawn(ir.Module((main, *functions)), meaning)


def _function(
    draw: random.Random, name: str, functions: list[ir.Function], meanings: list[Callable[[Array], Array]]
) -> tuple[ir.GraphFunction, Callable[[Array], Array]]:
    b = ir.GraphBuilder(name)
    value, applied = b.input("x", (N,)), list[Callable[[Array], Array]]()
    for _ in range(draw.randint(1, 3)):
        if draw.random() < 0.5:
            callee = draw.randrange(len(functions))
            value, meaning = b.call(functions[callee], value), meanings[callee]
        elif draw.random() < 0.3:
            callee, before = draw.randrange(len(functions)), value
            flag = b.greater(b.reduce_max(value, keepdims=0), 0.0)
            value = _branch(b, flag, functions[callee], before)
            meaning = _either(meanings[callee])
        else:
            op, meaning = draw.choice(_STEPS)
            value = getattr(b, op)(value)
        applied.append(meaning)
    return b.function(value), _in_turn(applied)


def _branch(b: ir.GraphBuilder, flag: ir.Value, function: ir.Function, x: ir.Value) -> ir.Value:
    return b.branch(flag, lambda: b.call(function, x), lambda: b.neg(x))


def _either(then: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: then(x) if x.max() > 0 else -x


def _in_turn(steps: list[Callable[[Array], Array]]) -> Callable[[Array], Array]:
    def apply(x: Array) -> Array:
        for step in steps:
            x = step(x)
        return x

    return apply
