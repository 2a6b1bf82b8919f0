"""Shapes of operands that must fit each other, where no definition of the operator itself says so.

What is imported as other operators broadcasts like these: a bias that is as long as the last axis, a gradient that has the shape of the
weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.scope import Frame, GraphDraft
from compiler_service.compiler.frontend.requirements.attention_shapes import (
    Rule,
    Shape,
    Shapes,
    across,
    attention,
    equal_dims,
    grouped,
    linear_attention,
    multi_head,
    same,
    self_attending,
    turned,
)
from compiler_service.compiler.frontend.requirements.conditions import append_check
from compiler_service.compiler.tensor_expr.assumptions import Assumption
from compiler_service.compiler.tensor_expr.extents import fitting
from compiler_service.compiler.tensor_expr.refusal import mismatch
from shared_ir.expr.dim import dim_text, dims_text
from shared_ir.graph.ir import Value


def check_shapes(node: SourceNode, frame: Frame, draft: GraphDraft) -> None:
    """State what ``node`` takes for granted about the shapes of its operands.

    Raises:
        IngotError: TYPE_MISMATCH, extents that are numbers and do not fit.
    """
    rule = _RULES.get(node.qualified)
    if rule is None:
        return
    found = [frame.lookup(name) if name else None for name in node.inputs]
    shapes = [value.shape if isinstance(value, Value) else None for value in found]
    shapes += [None] * (_MOST_OPERANDS - len(shapes))
    state_shape(node, draft, rule(node, shapes))


def state_shape(node: SourceNode, draft: GraphDraft, conditions: Iterable[Assumption]) -> None:
    """Have the run check ``conditions`` of the operands of ``node``.

    Raises:
        IngotError: TYPE_MISMATCH, one about numbers that does not hold.
    """
    for condition in conditions:
        actual, expected = condition.actual, condition.expected
        if not isinstance(actual, int) or not isinstance(expected, int):
            append_check(draft, condition, f"node '{node.title}' ({node.op}): {condition}", node)
        elif actual < expected or (actual > expected and not condition.lower):
            least = "at least " if condition.lower else ""
            raise mismatch(f"an operand of {node.op} has the wrong extent", f"{least}{expected}", dim_text(actual))


_MOST_OPERANDS = 9
"""Operands that a rule looks at."""


def _rows(actual: Shape | None, expected: Shape | None) -> list[Assumption]:
    """As :func:`same`, where the first of as many axes may be 1: the same for the whole batch."""
    if actual is None or expected is None or len(actual) != len(expected) or not actual:
        return same(actual, expected)
    first = [] if actual[0] == 1 else equal_dims(fitting(actual[0], expected[0]))
    return [*first, *same(actual[1:], expected[1:])]


def _along_last(*vectors: int) -> Rule:
    """These operands are as long as the last axis of the first."""
    return lambda node, shapes: [c for v in vectors for c in same(shapes[v], (shapes[0] or ())[-1:])]


def _bias_and_skip(node: SourceNode, shapes: Shapes) -> list[Assumption]:
    return [*_along_last(1)(node, shapes), *same(shapes[2], shapes[0])]


def _skipped(*vectors: int) -> Rule:
    def rule(node: SourceNode, shapes: Shapes) -> list[Assumption]:
        x, skip = shapes[:2]
        return [*_rows(skip, x), *_along_last(*vectors)(node, shapes)]

    return rule


def _embedded(node: SourceNode, shapes: Shapes) -> list[Assumption]:
    ids, segments, words, places, kinds, gamma, beta, mask, positions = shapes[:9]
    width = (words or ())[-1:]
    vectors = [c for s in (places, kinds, gamma, beta) for c in same((s or ())[-1:], width)]
    return [*same(segments, ids), *vectors, *same(mask, ids), *_rows(positions, ids)]


def _classified(node: SourceNode, shapes: Shapes) -> list[Assumption]:
    """Extents that must be equal of scores [n, c, ...] with labels [n, ...] and weights [c]."""
    scores, labels, weights = shapes[:3]
    if scores is None or len(scores) < 2:
        return []
    return [*same(labels, (scores[0], *scores[2:])), *same(weights, scores[1:2])]


def _alike(one: Shape | None, other: Shape | None) -> list[Assumption]:
    """
    Raises:
        IngotError: TYPE_MISMATCH, another number of axes.
    """
    if one is None or other is None:
        return []
    if len(one) != len(other):
        raise mismatch("operands have different numbers of axes", f"[{dims_text(other)}]", f"[{dims_text(one)}]")
    return same(one, other)


def _gated(node: SourceNode, shapes: Shapes) -> list[Assumption]:
    return _alike(shapes[1], shapes[0])


def _trained(states: int) -> Rule:
    """After rate and count all weights, their gradients and so many states of each, which have the shape of the weights."""

    def rule(node: SourceNode, shapes: Shapes) -> list[Assumption]:
        tensors = shapes[2 : len(node.inputs)]
        count = len(tensors) // (states + 2)
        return [c for i in range(count) for other in tensors[i::count] for c in _alike(other, tensors[i])]

    return rule


def _tested(node: SourceNode, shapes: Shapes) -> list[Assumption]:
    """Rows whose columns only the run knows have those that trees ask for; others are looked at with the trees."""
    columns = [width for width in (shapes[0] or ())[1:2] if not isinstance(width, int)]
    features = node.attributes.get("nodes_featureids") or ()
    modes = node.attributes.get("nodes_modes")
    asked = zip(features, modes if isinstance(modes, Sequence) else ["" for _ in features], strict=False)
    needed = max((feature for feature, mode in asked if mode != "LEAF"), default=-1) + 1
    return [Assumption(width, needed, lower=True) for width in columns if needed > 0]


def _filtered(node: SourceNode, shapes: Shapes) -> list[Assumption]:
    """The second operand, a filter, has elements along each axis that it is moved along."""
    kernel = [extent for extent in (shapes[1] or ())[2:] if not isinstance(extent, int) or extent < 1]
    return [Assumption(extent, 1, lower=True) for extent in kernel]


def _found(node: SourceNode, shapes: Shapes) -> list[Assumption]:
    """There is a place to find along the axis."""
    x, axis = shapes[0], node.attributes.get("axis", 0)
    if x is None or not isinstance(axis, int) or not -len(x) <= axis < len(x) or x[axis] == 1:
        return []
    return [Assumption(x[axis], 1, lower=True)]


def _bounded(columns: int) -> Rule:
    """The second operand holds regions, of so many numbers each; the third, if there is one, an image for each."""

    def rule(node: SourceNode, shapes: Shapes) -> list[Assumption]:
        regions, images = shapes[1:3]
        return [] if not regions else [*equal_dims((regions[-1], columns)), *same(images, regions[:1])]

    return rule


def _transformed(node: SourceNode, shapes: Shapes) -> list[Assumption]:
    """What becomes real numbers again are complex ones."""
    x = shapes[0]
    is_real = node.attributes.get("inverse") and node.attributes.get("onesided")
    return equal_dims((x[-1], 2)) if x and is_real else []


def _per_feature(*names: str) -> Rule:
    """Attributes that hold a number for each column, or one for all."""

    def rule(node: SourceNode, shapes: Shapes) -> list[Assumption]:
        lengths = {len(node.attributes.get(name) or ()) for name in names} - {0, 1}
        columns = (shapes[0] or ())[:2][-1:]
        return [c for length in sorted(lengths) for c in same(columns, (length,))]

    return rule


_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "ArgMax": _found,
        "ArgMin": _found,
        "Attention": attention,
        "Conv": _filtered,
        "ConvInteger": _filtered,
        "ConvTranspose": _filtered,
        "DFT": _transformed,
        "DeformConv": _filtered,
        "LinearAttention": linear_attention,
        "MaxRoiPool": _bounded(5),
        "NegativeLogLikelihoodLoss": _classified,
        "RoiAlign": _bounded(4),
        "RotaryEmbedding": turned,
        "SoftmaxCrossEntropyLoss": _classified,
        "SwiGLU": _gated,
        "ai.onnx.ml.Imputer": _per_feature("imputed_value_floats", "imputed_value_int64s"),
        "ai.onnx.ml.Scaler": _per_feature("offset", "scale"),
        "ai.onnx.ml.TreeEnsemble": _tested,
        "ai.onnx.ml.TreeEnsembleClassifier": _tested,
        "ai.onnx.ml.TreeEnsembleRegressor": _tested,
        "ai.onnx.preview.FlexAttention": attention,
        "ai.onnx.preview.training.Adagrad": _trained(1),
        "ai.onnx.preview.training.Adam": _trained(2),
        "ai.onnx.preview.training.Momentum": _trained(1),
        "com.microsoft.Attention": self_attending(3, 4, 5),
        "com.microsoft.BiasAdd": _bias_and_skip,
        "com.microsoft.BiasGelu": _along_last(1),
        "com.microsoft.BiasSplitGelu": _along_last(1),
        "com.microsoft.DynamicQuantizeMatMul": across(4, 1),
        "com.microsoft.EmbedLayerNormalization": _embedded,
        "com.microsoft.FastGelu": _along_last(1),
        "com.microsoft.GroupQueryAttention": grouped,
        "com.microsoft.MatMulIntegerToFloat": across(6, 1),
        "com.microsoft.MultiHeadAttention": multi_head,
        "com.microsoft.QAttention": self_attending(5, 8),
        "com.microsoft.SkipLayerNormalization": _skipped(2, 3, 4),
        "com.microsoft.SkipSimplifiedLayerNormalization": _skipped(2, 3),
    }
)
