"""The two products of attention, on the register tile of every contraction: columns are vectors, elements of rows are broadcast.

Rows of a last tile that do not exist repeat the last one and are not stored.
"""

from __future__ import annotations

from compiler_service.compiler.loop_ir.ir import Block, BufferLoad, ForKind, Statement, Store
from compiler_service.compiler.schedule.algorithms.attention.context import F32, BlockContext, KeyBlock, Rows
from compiler_service.compiler.schedule.lowering.statements import block
from shared_ir.expr import Expr, ceil_div, lift
from shared_ir.expr.dim import as_dim


def arrange_keys(context: BlockContext, here: Rows, keys: KeyBlock) -> Statement:
    """``keys[tile][k][j]``, in squares that the loop passes transpose."""
    loops, depth, vectors, buffer = context.loops, context.depth, context.step.scores[1], context.memory.keys
    width, attention = loops.width, context.attention

    def element(tile: Expr, at: Expr, key: Expr, k: Expr) -> Statement:
        places = {**here.heads, attention.keys.var: keys.first + key, attention.depth.var: k}
        return Store(buffer, (tile, k, at), context.read(attention.key, places))

    def square(s: Expr) -> Statement:
        tile, at = loops.simplify(s // vectors), loops.simplify(s % vectors * width)

        def line(k: Expr) -> Statement:
            return loops.vector(lambda lane: element(tile, at + lane, s * width + lane, k))

        def lines(d: Expr) -> Statement:
            return loops.each("depth", width, lambda k: line(d * width + k), ForKind.UNROLLED)

        rest = loops.each("depth", depth % width, lambda k: line(depth - depth % width + k))
        return block(loops.each("depth", depth // width, lines), rest)

    def single(i: Expr) -> Statement:
        key, size = loops.simplify(lift(keys.count) // width * width + i), vectors * width
        return loops.each("depth", depth, lambda k: element(key // size, key % size, key, k))

    squares = loops.each("square", as_dim(lift(keys.count) // width), square)
    return block(squares, loops.each("key", as_dim(lift(keys.count) % width), single))


def multiply_keys(context: BlockContext, here: Rows, keys: KeyBlock) -> Statement:
    """``scores[m][j] = sum over k of query[m][k] * keys[k][j]``"""
    loops, memory, attention = context.loops, context.memory, context.attention
    height, vectors = context.step.scores
    width, size = loops.width, vectors * loops.width

    def tile(n: Expr, t: Expr, count: int) -> Statement:
        def term(k: Expr, r: Expr, at: Expr) -> Expr:
            places = {**here.heads, **context.row(here, t * height + r), attention.depth.var: k}
            return context.read(attention.query, places) * BufferLoad(memory.keys, (n, k, at))

        def after(r: Expr, at: Expr, total: Expr) -> Statement:
            return Store(memory.scores, (t * height + r, n * size + at), total)

        return loops.accumulated(height, count, lambda r, at: lift(0.0, F32), ("depth", context.depth), term, after)

    def column(n: Expr, count: int) -> Statement:
        return loops.each("tile", as_dim(ceil_div(here.count, height)), lambda t: tile(n, t, count))

    if not isinstance(keys.count, int):
        return loops.each("columns", as_dim(ceil_div(keys.count, size)), lambda n: column(n, vectors))
    rest = -(-(keys.count % size) // width)
    last = column(lift(keys.count // size), rest) if rest else Block(())
    return block(loops.each("columns", keys.count // size, lambda n: column(n, vectors)), last)


def mix_values(context: BlockContext, here: Rows, keys: KeyBlock) -> Statement:
    """``sums[m][n] = sums[m][n] * factor[m] + sum over j of scores[m][j] * value[j][n]``"""
    vectors = context.step.values[1]
    total = -(-context.columns // context.column_width)
    tiles = [(first, min(vectors, total - first)) for first in range(0, total, vectors)]
    return block(*(_mix_tile(context, here, keys, first, count) for first, count in tiles))


def _mix_tile(context: BlockContext, here: Rows, keys: KeyBlock, first: int, count: int) -> Statement:
    """:func:`mix_values` for ``count`` vectors of columns, ``first`` the number of the first one."""
    loops, memory, attention, width = context.loops, context.memory, context.attention, context.column_width
    height, start = context.step.values[0], first * width
    is_last = start + count * width > context.columns

    def tile(t: Expr) -> Statement:
        def before(r: Expr, at: Expr) -> Expr:
            row = t * height + r
            old = BufferLoad(memory.sums, (row, at + start)) * BufferLoad(memory.factor, (row,))
            return lift(0.0, F32) if context.single else old

        def term(j: Expr, r: Expr, at: Expr) -> Expr:
            column = at + start
            wanted = column < context.columns if is_last else None
            places = {**here.heads, attention.keys.var: keys.first + j, attention.columns.var: column}
            value = context.read(attention.value, places, wanted)
            return BufferLoad(memory.scores, (t * height + r, j)) * value

        def after(r: Expr, at: Expr, total: Expr) -> Statement:
            return Store(memory.sums, (t * height + r, at + start), total)

        return loops.accumulated(height, count, before, ("key", keys.count), term, after, width)

    return loops.each("tile", as_dim(ceil_div(here.count, height)), tile)
