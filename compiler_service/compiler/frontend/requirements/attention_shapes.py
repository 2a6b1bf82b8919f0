"""Extents that attention and rotary tables take for granted of their operands: what the nodes that stand for them broadcast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compiler_service.compiler.frontend.importing.node import AttributeValue, SourceNode
from compiler_service.compiler.tensor_expr.assumptions import Assumption
from compiler_service.compiler.tensor_expr.extents import fitting
from shared_ir.expr import lift
from shared_ir.expr.dim import Dim, as_dim

Shape = tuple[Dim, ...]
Shapes = Sequence[Shape | None]
Rule = Callable[[SourceNode, Shapes], list[Assumption]]

_PADDED_MASKS = 24
"""The version of Attention from which on a mask may have fewer columns than there are keys."""


def equal_dims(*pairs: tuple[Dim, Dim]) -> list[Assumption]:
    """That the dims of each pair are equal, where they do not look it."""
    return [Assumption(actual, expected) for actual, expected in pairs if actual != expected]


def same(actual: Shape | None, expected: Shape | None) -> list[Assumption]:
    """Aligned at the last axis; a wrong number of axes is found where the shapes are used."""
    return equal_dims(*zip(reversed(actual or ()), reversed(expected or ()), strict=False))


def attention(node: SourceNode, shapes: Shapes) -> list[Assumption]:
    """Q, K, V, mask, past K and past V of Attention; FlexAttention has the first three."""
    q, k, v, mask, past_k, past_v, lengths = shapes[:7]
    heads = _heads(q, node.attributes, "q_num_heads")
    keys, values = (_heads(x, node.attributes, "kv_num_heads") for x in (k, v))
    if heads is None or keys is None or values is None:
        return []
    found = equal_dims(
        (keys[0], heads[0]), (values[0], heads[0]), (values[1], keys[1]), (values[2], keys[2]), (keys[3], heads[3])
    )
    total = keys[2]
    for past, new in ((past_k, keys), (past_v, values)):
        if past is not None and len(past) == 4:
            found += equal_dims((past[0], heads[0]), (past[1], keys[1]), (past[3], new[3]))
    if past_k is not None and past_v is not None and len(past_k) == len(past_v) == 4:
        found += equal_dims((past_v[2], past_k[2]))
        total = as_dim(lift(keys[2]) + past_k[2])
    if lengths is not None:
        found += same(lengths, (heads[0],))
    return [*found, *_masked(mask, (*heads[:3], total), exactly=node.opset < _PADDED_MASKS)]


def _masked(mask: Shape | None, scores: Shape, *, exactly: bool) -> list[Assumption]:
    """A mask broadcasts to the scores but for its columns."""
    if not mask or len(mask) > len(scores):
        return []
    rows = zip(mask[:-1], scores[len(scores) - len(mask) : -1], strict=True)
    found = equal_dims(*(fitting(own, full) for own, full in rows if own not in (1, full)))
    if exactly:
        return [*found, *equal_dims((mask[-1], scores[-1]))]
    return found if mask[-1] == scores[-1] else [*found, Assumption(scores[-1], mask[-1], lower=True)]


def _heads(x: Shape | None, attributes: Mapping[str, AttributeValue], name: str) -> Shape | None:
    """[batch, heads, length, size] of an operand, which may have the heads side by side in its last axis."""
    if x is None or len(x) == 4:
        return x
    count = attributes.get(name)
    if len(x) != 3 or not isinstance(count, int) or count < 1:
        return None
    return (x[0], count, x[1], as_dim(lift(x[2]) // count))


def linear_attention(node: SourceNode, shapes: Shapes) -> list[Assumption]:
    """Queries, keys, values and state of LinearAttention."""
    q, k, v, state = shapes[:4]
    heads = _heads(q, node.attributes, "q_num_heads")
    keys, values = (_heads(x, node.attributes, "kv_num_heads") for x in (k, v))
    if heads is None or keys is None or values is None:
        return []
    found = equal_dims((keys[0], heads[0]), (values[0], heads[0]), (keys[2], heads[2]), (values[2], heads[2]))
    found += equal_dims((keys[3], heads[3]))
    for gate in shapes[4:6]:
        found += [] if gate is None else equal_dims(*zip(gate[:2], (heads[0], heads[2]), strict=True))
    return [*found, *(same(state, (heads[0], keys[1], keys[3], values[3])) if state is not None else ())]


def turned(node: SourceNode, shapes: Shapes) -> list[Assumption]:
    """``x`` [b, n, s, h] or [b, s, d] with tables [positions, r / 2] and positions [b, s], or with tables [b, s, r / 2], where ``r``
    of the ``h`` elements of a head are turned."""
    x, cosines, sines, positions = shapes[:4]
    if x is None or len(x) < 3:
        return []
    rows = (x[0], x[-2])
    placed = same(positions, rows) if positions is not None else same((cosines or ())[:-1], rows)
    heads = _heads(x, node.attributes, "num_heads")
    part = node.attributes.get("rotary_embedding_dim") or (heads[3] if heads is not None else None)
    if cosines and isinstance(part, Dim):
        placed += equal_dims((cosines[-1], as_dim(lift(part) // 2)))
    return [*same(sines, cosines), *placed]


# -- com.microsoft


def multi_head(node: SourceNode, shapes: Shapes) -> list[Assumption]:
    """Query [b, s, d] (or packed), key and value [b, t, d], [b, n, t, h] or a packed key, bias, mask, attention bias and past."""
    q, k, v, _, mask, bias, past_k, past_v = shapes[:8]
    if q is None or len(q) < 3:
        return []
    batch, own = q[:2]
    keys, values = (_rows_of(x) for x in (k, v))
    found = [c for rows in (keys, values) if rows is not None for c in equal_dims((rows[0], batch))]
    if keys is not None and values is not None:
        found += equal_dims((values[1], keys[1]))
    total = keys[1] if keys is not None else own
    for past in (past_k, past_v):
        found += equal_dims((past[0], batch)) if past else []
    if past_k is not None and past_v is not None and len(past_k) == len(past_v) == 4:
        found += equal_dims((past_v[2], past_k[2]))
        total = as_dim(lift(total) + past_k[2])
    return [*found, *_restricted((batch, own, total), mask, bias)]


def _rows_of(x: Shape | None) -> Shape | None:
    """Batch and length of [b, t, d], [b, n, t, h] or [b, t, n, 2, h]."""
    if x is None or len(x) < 3:
        return None
    return (x[0], x[2] if len(x) == 4 else x[1])


def _restricted(scores: Shape, mask: Shape | None, bias: Shape | None) -> list[Assumption]:
    """Masks [b, t] or [b, s, t] and a bias [b or 1, n or 1, s, t] of scores ``(b, s, t)``."""
    batch, own, total = scores
    found = []
    if mask is not None and len(mask) in (2, 3):
        found += equal_dims((mask[0], batch), (mask[-1], total), *[(d, own) for d in mask[1:-1]])
    if bias is not None and len(bias) == 4:
        found += equal_dims((bias[2], own), (bias[3], total))
        found += [] if bias[0] in (1, batch) else equal_dims(fitting(bias[0], batch))
    return found


def self_attending(mask: int, past: int, bias: int | None = None) -> Rule:
    """Rows [b, s, d], weights and their bias; where the mask, the past [2, b, n, p, h] and the attention bias stand."""

    def rule(node: SourceNode, shapes: Shapes) -> list[Assumption]:
        x, before = shapes[0], shapes[past]
        if x is None or len(x) != 3:
            return []
        found, total = across(2, 1)(node, shapes), x[1]
        if before is not None and len(before) == 5:
            found += equal_dims((before[1], x[0]))
            total = as_dim(lift(total) + before[3])
        return [*found, *_restricted((x[0], x[1], total), shapes[mask], None if bias is None else shapes[bias])]

    return rule


def grouped(node: SourceNode, shapes: Shapes) -> list[Assumption]:
    """Query, key, value [b, s, d], past key and value [b, n, p, h], and the number of tokens of each row."""
    q, k, v, past_k, past_v, lengths = shapes[:6]
    if q is None or len(q) != 3:
        return []
    found = [c for x in (k, v) for c in same((x or ())[:2], q[:2])]
    found += [c for x in (past_k, past_v) for c in same((x or ())[:1], q[:1])]
    if past_k is not None and past_v is not None and len(past_k) == len(past_v) == 4:
        found += equal_dims((past_v[2], past_k[2]))
    return [*found, *same((lengths or ())[:1], q[:1])]


def across(vector: int, matrix: int) -> Rule:
    """A bias is as long as a matrix is wide."""
    return lambda node, shapes: same((shapes[vector] or ())[-1:], (shapes[matrix] or ())[-1:])
