"""Values that repeat along an axis: what is calculated of them is calculated once and repeated afterwards.

The masks of transformers are exported as matrices whose rows are all the same; what reads them broadcasts their one row.
"""

from __future__ import annotations

import itertools

from compiler_service.compiler.graph_passes.rewriting.rewrite import Replacement, RewriteRule, Site, rule
from compiler_service.compiler.tensor_expr.extents import is_stretched
from shared_ir.graph.ir import Node, Value


def expanded(x: Value, like: Value, site: Site) -> Value:
    """``x`` broadcast to the shape of ``like``: ``x`` itself where it has that shape."""
    return x if x.shape == like.shape else site.node("Expand", x, site.dims(like.shape))


def stretches(node: Node, last: int | None = None) -> bool:
    """Whether an ``Expand`` repeats axes, or one of the ``last`` ones, or not as the run finds them (see
    :mod:`compiler_service.compiler.tensor_expr.extents`)."""
    if node.op != "Expand":
        return False
    pairs = zip(reversed(node.operands[0].shape), reversed(node.results[0].shape), strict=False)
    return any(is_stretched(own, full) for own, full in itertools.islice(pairs, last))


def _calculated_once(node: Node, site: Site) -> Replacement:
    repeated = [site.producer(v, "Expand") for v in node.operands]
    if not any(repeated) or any(e is not None and stretches(e) for e in repeated):
        return None
    sources = [v if e is None else e.operands[0] for v, e in zip(node.operands, repeated, strict=True)]
    narrow = site.write(node.op, sources, node.attributes, title=node.name)
    return expanded(narrow, node.results[0], site)


def _chosen(node: Node, site: Site) -> Replacement:
    condition, *branches = node.operands
    number = site.scalar(condition)
    return None if number is None else expanded(branches[0 if number else 1], node.results[0], site)


BROADCAST_RULES: tuple[RewriteRule, ...] = (
    rule("Where", _chosen),  # Where(true, a, b) -> Expand(a), Where(false, a, b) -> Expand(b)
    rule(
        "Add Sub Mul Div Min Max And Or Xor Not Equal Less LessOrEqual Greater GreaterOrEqual Where Cast Neg",
        _calculated_once,
    ),  # f(Expand(x), y) -> Expand(f(x, y))
)
