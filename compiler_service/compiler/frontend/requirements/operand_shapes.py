"""Shapes of operands that must fit each other, of operators that are imported as others.

What those others broadcast, these do not: a bias is as long as the last axis, positions are as many as the rows that are turned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.scope import Frame, NodeBuilder
from compiler_service.compiler.frontend.requirements.conditions import append_check
from compiler_service.compiler.tensor_expr.assumptions import Assumption
from compiler_service.compiler.tensor_expr.broadcast import Pairs, must_equal
from compiler_service.compiler.tensor_expr.extents import fitting
from compiler_service.compiler.tensor_expr.refusal import mismatch
from shared_ir.expr.dim import Dim, dim_text
from shared_ir.graph.ir import Value

Shape = tuple[Dim, ...]
_Shapes = Sequence[Shape | None]
_Rule = Callable[[_Shapes], Pairs]


def check_shapes(node: SourceNode, frame: Frame, builder: NodeBuilder) -> None:
    """State what ``node`` takes for granted about the shapes of its operands.

    Raises:
        IngotError: TYPE_MISMATCH, extents that are numbers and do not fit.
    """
    rule = _RULES.get(node.qualified)
    if rule is None:
        return
    found = [frame.lookup(name) if name else None for name in node.inputs]
    shapes = [value.shape if isinstance(value, Value) else None for value in found]
    for actual, expected in rule([*shapes, *[None] * (_MOST_OPERANDS - len(shapes))]):
        if isinstance(actual, int) and isinstance(expected, int):
            raise mismatch(f"an operand of {node.op} has the wrong extent", dim_text(expected), dim_text(actual))
        condition = Assumption(actual, expected)
        append_check(builder, condition, f"node '{node.title}' ({node.op}): {condition}", node)


_MOST_OPERANDS = 9
"""Operands that a rule looks at."""


def _same(actual: Shape | None, expected: Shape | None) -> Pairs:
    """Aligned at the last axis; a wrong number of axes is found where the shapes are used."""
    return must_equal(*zip(reversed(actual or ()), reversed(expected or ()), strict=False))


def _rows(actual: Shape | None, expected: Shape | None) -> Pairs:
    """As :func:`_same`, where the first of as many axes may be 1: the same for the whole batch."""
    if actual is None or expected is None or len(actual) != len(expected) or not actual:
        return _same(actual, expected)
    first = [] if actual[0] == 1 else must_equal(fitting(actual[0], expected[0]))
    return [*first, *_same(actual[1:], expected[1:])]


def _along_last(*vectors: int) -> _Rule:
    """These operands are as long as the last axis of the first."""
    return lambda shapes: [pair for v in vectors for pair in _same(shapes[v], (shapes[0] or ())[-1:])]


def _bias_and_skip(shapes: _Shapes) -> Pairs:
    return [*_along_last(1)(shapes), *_same(shapes[2], shapes[0])]


def _skipped(*vectors: int) -> _Rule:
    def rule(shapes: _Shapes) -> Pairs:
        x, skip = shapes[:2]
        return [*_rows(skip, x), *_along_last(*vectors)(shapes)]

    return rule


def _embedded(shapes: _Shapes) -> Pairs:
    ids, segments, words, places, kinds, gamma, beta, mask, positions = shapes[:9]
    width = (words or ())[-1:]
    vectors = [pair for s in (places, kinds, gamma, beta) for pair in _same((s or ())[-1:], width)]
    return [*_same(segments, ids), *vectors, *_same(mask, ids), *_rows(positions, ids)]


def _turned(shapes: _Shapes) -> Pairs:
    """Extents that must be equal of ``x`` [b, n, s, h] or [b, s, d] with tables [positions, h / 2] and positions [b, s], or with
    tables [b, s, h / 2]."""
    x, cosines, sines, positions = shapes[:4]
    if x is None or len(x) < 3:
        return []
    rows = (x[0], x[-2])
    placed = _same(positions, rows) if positions is not None else _same((cosines or ())[:-1], rows)
    return [*_same(sines, cosines), *placed]


def _classified(shapes: _Shapes) -> Pairs:
    """Extents that must be equal of scores [n, c, ...] with labels [n, ...] and weights [c]."""
    scores, labels, weights = shapes[:3]
    if scores is None or len(scores) < 2:
        return []
    return [*_same(labels, (scores[0], *scores[2:])), *_same(weights, scores[1:2])]


_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "Attention": lambda shapes: _same(shapes[6], (shapes[0] or ())[:1]),
        "NegativeLogLikelihoodLoss": _classified,
        "RotaryEmbedding": _turned,
        "SoftmaxCrossEntropyLoss": _classified,
        "com.microsoft.BiasAdd": _bias_and_skip,
        "com.microsoft.BiasGelu": _along_last(1),
        "com.microsoft.BiasSplitGelu": _along_last(1),
        "com.microsoft.EmbedLayerNormalization": _embedded,
        "com.microsoft.FastGelu": _along_last(1),
        "com.microsoft.SkipLayerNormalization": _skipped(2, 3, 4),
        "com.microsoft.SkipSimplifiedLayerNormalization": _skipped(2, 3),
    }
)
