"""Small computations with what numpy makes of them, and schedules of them drawn at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compiler_service.compiler.loop_ir import passes
from ingot import ir, te
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import evaluate

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Computation:
    """What is computed from ``arguments``, and the same by numpy."""

    arguments: tuple[te.Tensor, ...]
    output: te.Tensor
    expected: Callable[..., Array]


def drawn_computation(draw: random.Random) -> Computation:
    """One of several kinds; extents are symbols or small numbers."""
    m, n, k = (te.var(x) if draw.random() < 0.6 else draw.choice([1, 3, 8, 17, 33]) for x in "mnk")
    kind = draw.choice([product, softmax, stencil, chain, total, bytes_of])
    return kind(m, n, k)


def product(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    x, w = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="W")
    y = te.sum((m, n), k, lambda i, j, q: x[i, q] * w[q, j], name="Y")
    z = te.compute((m, n), lambda i, j: te.maximum(y[i, j], 0.0), name="Z")
    return Computation((x, w), z, lambda a, b: np.maximum(a @ b, 0))


def softmax(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    a = te.placeholder((m, n), name="A")
    largest = te.max((m,), n, lambda i, q: a[i, q], name="mx")
    e = te.compute((m, n), lambda i, j: te.exp(a[i, j] - largest[i]), name="e")
    total = te.sum((m,), n, lambda i, q: e[i, q], name="sm")
    out = te.compute((m, n), lambda i, j: e[i, j] / total[i], name="o")

    def expected(x: Array) -> Array:
        powers = np.exp(x - x.max(1, keepdims=True))
        found: Array = powers / powers.sum(1, keepdims=True)
        return found

    return Computation((a,), out, expected)


def stencil(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    a = te.placeholder((m + 2, n + 2), name="A")
    down = te.compute((m, n + 2), lambda i, j: a[i, j] + a[i + 1, j] + a[i + 2, j], name="down")
    across = te.compute((m, n), lambda i, j: down[i, j] + down[i, j + 1] + down[i, j + 2], name="across")

    def expected(x: Array) -> Array:
        rows = x[:-2] + x[1:-1] + x[2:]
        found: Array = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
        return found

    return Computation((a,), across, expected)


def chain(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    a = te.placeholder((m, n), name="A")
    b = te.compute((m, n), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[j, i] + 1.0, name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] * c[i, j], name="D")
    return Computation((a,), d, lambda x: (x.T * 2 + 1) ** 2)


def bytes_of(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    """A sum of products of bytes, of as many terms as fill no whole number of words, and of as many as do."""
    terms = k if isinstance(k, int) else 10
    a, w = te.placeholder((m, terms), "uint8", name="A"), te.placeholder((terms, n), "int8", name="W")
    y = te.sum((m, n), terms, lambda i, j, q: te.cast(a[i, q], "int32") * te.cast(w[q, j], "int32"), name="Y")
    z = te.compute((m, n), lambda i, j: te.maximum(y[i, j], 0), name="Z")
    return Computation((a, w), z, lambda x, v: np.maximum(x.astype(np.int32) @ v.astype(np.int32), 0))


def total(m: te.Dim, n: te.Dim, k: te.Dim) -> Computation:
    a = te.placeholder((m, n, k), name="A")
    r = te.sum((n,), (m, k), lambda j, i, q: a[i, j, q], name="R")
    s = te.compute((n,), lambda j: r[j] * 0.5, name="S")
    return Computation((a,), s, lambda x: x.sum((0, 2)) * 0.5)


def drawn_array(numbers: np.random.Generator, tensor: te.Tensor, extents: Mapping[str, int]) -> Array:
    """Elements for an argument: floats between 0 and 1, or bytes of any value."""
    shape = [evaluate(d, extents) for d in tensor.shape]
    if tensor.dtype.is_float:
        return numbers.random(shape, dtype=np.float32)
    return numbers.integers(0, 256, shape, np.uint8).view(tensor.dtype.numpy)


def draw_primitive(draw: random.Random, schedule: te.Schedule) -> None:
    """One primitive with arguments that may fit or not."""
    stage = draw.choice(schedule.stages)
    loops = list(stage.loops)
    loop: te.Loop | str = draw.choice(loops) if loops else "i"
    names = [s.name for s in schedule.stages] + ["A"]
    other = draw.choice(schedule.stages)
    some = draw.sample(loops, draw.randint(min(1, len(loops)), len(loops)))
    first = draw.randrange(max(1, len(loops) - 1))
    primitives: list[Callable[[], object]] = [
        lambda: stage.split(loop, draw.choice([2, 3, 4, 8, 16])),
        lambda: stage.split(loop, nparts=draw.choice([1, 2, 3])),
        lambda: stage.tile(loop, draw.choice(loops), draw.choice([2, 4]), draw.choice([4, 8])),
        lambda: stage.fuse(*(loops[first : first + 2] if len(loops) > 1 else (loop, loop))),
        lambda: stage.reorder(*some),
        lambda: stage.vectorize(loop),
        lambda: stage.vectorize(loop, draw.choice([4, 8, 16])),
        lambda: stage.unroll(loop),
        lambda: stage.parallel(*loops[: draw.randint(1, 2)]),
        lambda: stage.compute_at(other, draw.choice(other.loops) if other.loops else "i"),
        lambda: stage.compute_at(other, draw.choice(other.loops) if other.loops else "i"),
        lambda: stage.compute_inline(),
        lambda: stage.compute_root(),
        lambda: schedule.cache_write(stage),
        lambda: schedule.cache_read(draw.choice(names), other, draw.choice([None, (0, 1), (1, 0), (2, 0, 1), (0,)])),
        lambda: schedule.pack(draw.choice(names), other, draw.randrange(3), draw.choice([1, 2, 4, 8])),
        lambda: stage.prefetch(draw.choice(names), loop, draw.choice([0, 1, 3])),
        lambda: stage.storage_align(draw.choice([4, 16]), draw.choice([0, 1, 5])),
        lambda: schedule.tensorize(stage, str(loop), "vpdpbusd"),
        lambda: schedule.rfactor(stage, str(loop).split(".")[0], draw.choice([2, 4, 5]), outer=draw.random() < 0.5),
    ]
    draw.choice(primitives)()


def drawn_schedule(draw: random.Random, output: te.Tensor) -> te.Schedule:
    """Up to nine primitives, at times after the rules' choice; those that do not fit must say so, and leave everything as it was."""
    schedule = te.schedule(output) if draw.random() < 0.75 else te.default_schedule(output)
    for _ in range(draw.randint(1, 9)):
        before = str(schedule)
        said = refused(draw, schedule)
        assert said is None or (said.code, str(schedule)) == (ErrorCode.INVALID_ARGUMENT, before)
    return schedule


def refused(draw: random.Random, schedule: te.Schedule) -> IngotError | None:
    """What a drawn primitive says, where it does not fit."""
    try:
        draw_primitive(draw, schedule)
    except IngotError as error:
        return error
    return None


def interpreted(schedule: te.Schedule, arrays: Mapping[te.Tensor, Array], extents: Mapping[str, int]) -> Array:
    """What the loops of ``schedule`` compute; every access is checked, and memory begins as NaN."""
    program = te.lower(schedule, tuple(arrays))
    again = ir.LoopProgram.parse(str(program))
    assert str(again) == str(program)
    flat = {n: ir.LoopFunction(passes.run(f.function, verifies=True)) for n, f in program.functions.items()}
    found = replace(program, functions=flat).interpret(*arrays.values(), symbols=extents)[0]
    return found.reshape([evaluate(d, extents) for d in schedule.outputs[0].shape])
