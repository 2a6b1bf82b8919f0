"""Loop programs as lowering would make them, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler_service.compiler.loop_ir.ir import (
    Allocate,
    Block,
    Buffer,
    BufferLoad,
    BufferScope,
    For,
    ForKind,
    Function,
    If,
    Let,
    Statement,
    Store,
)
from shared_ir.dtype import DType
from shared_ir.expr import Const, Expr, Var, lift, logical_and, maximum, select

FLOAT = DType.FLOAT32
SERIAL, UNROLLED, VECTORIZED = ForKind.SERIAL, ForKind.UNROLLED, ForKind.VECTORIZED
ZERO = Const(0.0, FLOAT)


def load(buffer: Buffer, *indices: Expr | int) -> BufferLoad:
    return BufferLoad(buffer, tuple(lift(i) for i in indices))


def store(buffer: Buffer, indices: Sequence[Expr | int], value: Expr) -> Store:
    return Store(buffer, tuple(lift(i) for i in indices), value)


def loops(body: Statement, *axes: tuple[Var, Expr | int, ForKind]) -> Statement:
    """``body`` inside loops, the first axis outermost."""
    for var, extent, kind in reversed(axes):
        body = For(var, lift(extent), kind, body)
    return body


def guarded_scale(lanes: int = 16) -> Function:
    """``y[i] = x[i] * 2`` in vectors with a guarded tail."""
    n, t, v = Var("n"), Var("t"), Var("v")
    x, y = Buffer("x", FLOAT, (n,)), Buffer("y", FLOAT, (n,))
    i = t * lanes + v
    body = If(i < n, store(y, [i], load(x, i) * 2.0))
    return Function("scale", (x, y), (n,), t, (n + (lanes - 1)) // lanes, loops(body, (v, lanes, VECTORIZED)))


def register_tiled_matmul(rows: int = 3, vectors: int = 2, lanes: int = 4, unrolled_k: int = 2) -> Function:
    """``C[m, n] = A[m, k] @ packed B[n / nr, k, nr]`` with relu; m and k symbolic, k a multiple of ``unrolled_k``."""
    m, k = Var("m"), Var("k")
    nr = vectors * lanes
    blocks = 2
    a, b = Buffer("A", FLOAT, (m * rows, k * unrolled_k)), Buffer("B", FLOAT, (blocks, k * unrolled_k, nr))
    c = Buffer("C", FLOAT, (m * rows, blocks * nr))
    acc = Buffer("acc", FLOAT, (rows, nr), BufferScope.STACK)
    task, mb, nb = Var("task"), Var("mb"), Var("nb")

    def tile(name: str, body: Statement) -> tuple[Var, Var, Statement]:
        i, j, v = Var(f"{name}_i"), Var(f"{name}_j"), Var(f"{name}_v")
        column = j * lanes + v
        rewritten: dict[str, Callable[[], Statement]] = {
            "init": lambda: store(acc, [i, column], ZERO),
            "update": lambda: update(i, column),
        }
        leaf = rewritten.get(name, lambda: finish(i, column))()
        return i, j, loops(leaf, (i, rows, UNROLLED), (j, vectors, UNROLLED), (v, lanes, VECTORIZED))

    ko, ki = Var("ko"), Var("ki")
    kk = ko * unrolled_k + ki

    def update(i: Var, column: Expr) -> Statement:
        product = load(a, mb * rows + i, kk) * load(b, nb, kk, column)
        return store(acc, [i, column], load(acc, i, column) + product)

    def finish(i: Var, column: Expr) -> Statement:
        return store(c, [mb * rows + i, nb * nr + column], maximum(load(acc, i, column), ZERO))

    body = Block(
        (
            tile("init", Block(()))[2],
            loops(tile("update", Block(()))[2], (ko, k, SERIAL), (ki, unrolled_k, UNROLLED)),
            tile("finish", Block(()))[2],
        )
    )
    decoded = Let(mb, task // blocks, Let(nb, task % blocks, Allocate(acc, body)))
    return Function("matmul", (a, b, c), (m, k), task, m * blocks, decoded)


def convolution(
    rows: int = 14, nr: int = 32, lanes: int = 16, height: int = 28, channels: int = 64, unrolled: int = 1
) -> Function:
    """3x3 stride-1 convolution over a pre-padded NHWC input, weights ``[N / nr][3][3][C][nr]``, bias and relu."""
    n = Var("n")
    blocks, strips = 2, height // rows
    x = Buffer("x", FLOAT, (n, height + 2, height + 2, channels))
    w = Buffer("w", FLOAT, (blocks, 3, 3, channels, nr))
    bias = Buffer("bias", FLOAT, (blocks * nr,))
    y = Buffer("y", FLOAT, (n, height, height, blocks * nr))
    acc = Buffer("acc", FLOAT, (rows, nr), BufferScope.STACK)
    task, image, row, strip, nb = (Var(name) for name in ("task", "image", "row", "strip", "nb"))
    kh, kw, c, cu = Var("kh"), Var("kw"), Var("c"), Var("cu")
    channel = c * unrolled + cu

    def nest(name: str, leaf: Statement, i: Var, j: Var, v: Var) -> Statement:
        return loops(leaf, (i, rows, UNROLLED), (j, nr // lanes, UNROLLED), (v, lanes, VECTORIZED))

    def variables(name: str) -> tuple[Var, Var, Var, Expr]:
        i, j, v = Var(f"{name}_i"), Var(f"{name}_j"), Var(f"{name}_v")
        return i, j, v, j * lanes + v

    i, j, v, column = variables("init")
    initial = nest("init", store(acc, [i, column], load(bias, nb * nr + column)), i, j, v)
    i, j, v, column = variables("update")
    product = load(x, image, row + kh, strip * rows + i + kw, channel) * load(w, nb, kh, kw, channel, column)
    update = nest("update", store(acc, [i, column], load(acc, i, column) + product), i, j, v)
    update = loops(
        update, (kh, 3, SERIAL), (kw, 3, SERIAL), (c, channels // unrolled, SERIAL), (cu, unrolled, UNROLLED)
    )
    i, j, v, column = variables("finish")
    relu = maximum(load(acc, i, column), ZERO)
    final = nest("finish", store(y, [image, row, strip * rows + i, nb * nr + column], relu), i, j, v)
    body: Statement = Allocate(acc, Block((initial, update, final)))
    rest = task // blocks
    for var, value in (
        (image, rest // strips // height),
        (row, rest // strips % height),
        (strip, rest % strips),
        (nb, task % blocks),
    ):
        body = Let(var, value, body)
    return Function("conv", (x, w, bias, y), (n,), task, n * height * strips * blocks, body)


def padded_copy(lanes: int = 8) -> Function:
    """``y[h, w] = x[h - 1, w - 1]`` inside, 0 around it; vectors along w."""
    h, t, wo, v = Var("h"), Var("t"), Var("wo"), Var("v")
    width = 2 * lanes
    x, y = Buffer("x", FLOAT, (h, width - 2)), Buffer("y", FLOAT, (h + 2, width))
    w = wo * lanes + v
    inside = logical_and(logical_and(lift(1) <= t, t < h + 1), logical_and(lift(1) <= w, w < width - 1))
    value = select(inside, load(x, t - 1, w - 1), ZERO)
    body = loops(store(y, [t, w], value), (wo, 2, SERIAL), (v, lanes, VECTORIZED))
    return Function("pad", (x, y), (h,), t, h + 2, body)


def slice_copy(lanes: int = 4) -> Function:
    """``y[t, c] = x[t, c]`` where ``y`` is a slice of rows of ``w`` elements."""
    n, w, t, c, v = Var("n"), Var("w"), Var("t"), Var("c"), Var("v")
    x, y = Buffer("x", FLOAT, (n, 2 * lanes)), Buffer("y", FLOAT, (n, 2 * lanes), strides=(w, 1))
    channel = c * lanes + v
    body = loops(store(y, [t, channel], load(x, t, channel)), (c, 2, UNROLLED), (v, lanes, VECTORIZED))
    return Function("slice_copy", (x, y), (n, w), t, n, body)


def row_sums(lanes: int = 4) -> Function:
    """``y[i] = sum(x[i, :])`` by horizontal sums of vectors, with a guarded tail."""
    n, t, o, v = Var("n"), Var("t"), Var("o"), Var("v")
    x, y = Buffer("x", FLOAT, (7, n)), Buffer("y", FLOAT, (7,))
    k = o * lanes + v
    add = If(k < n, store(y, [t], load(y, t) + load(x, t, k)))
    body = Block((store(y, [t], ZERO), loops(add, (o, (n + (lanes - 1)) // lanes, SERIAL), (v, lanes, VECTORIZED))))
    return Function("row_sums", (x, y), (n,), t, lift(7), body)
