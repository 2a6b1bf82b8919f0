"""What nodes take for granted about symbolic extents, stated in the graph.

The definition of an operator says what must hold for its operands: that extents are equal or 1, that parts add up. Every such condition
becomes an ``ingot.Check`` beside the node while importing, so that it holds whatever becomes of the node: one whose result is only
asked for its shape, that is the identity for these operands, or that an optimisation replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from compiler_service.compiler.frontend.importing.inference import KnownValues
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.scope import GraphDraft
from compiler_service.compiler.tensor_expr.assumptions import Assumption, requirements
from compiler_service.compiler.tensor_expr.broadcast import common_dim
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.expr import Expr
from shared_ir.expr.dim import Dim, bind, dim_symbols
from shared_ir.graph.ir import CHECK_OP, Attribute, Node, Value


def conditions_of(
    inputs: Sequence[Value | None], outputs: Sequence[Tensor | None], known: KnownValues
) -> tuple[Assumption, ...]:
    """What the definitions of ``outputs`` take for granted; nothing where no operand has a symbol in it."""
    if not any(_is_symbolic(v, known) for v in inputs if v is not None):
        return ()
    return requirements([t for t in outputs if t is not None])


def _is_symbolic(value: Value, known: KnownValues) -> bool:
    if any(isinstance(d, Expr) for d in value.shape):
        return True
    elements = known.get(value)
    return elements is not None and any(isinstance(e, Expr) for e in elements.flat)


def append_checked(
    draft: GraphDraft,
    node: Node,
    conditions: Iterable[Assumption],
    source: SourceNode,
    own: Mapping[str, Dim] = MappingProxyType({}),
) -> None:
    """``node`` after the checks of ``conditions``; those about symbols that it defines itself, called ``own``, stand behind it."""
    behind: list[Node] = []
    for condition in conditions:
        actual, expected = (bind(d, own) for d in (condition.actual, condition.expected))
        stated = Assumption(actual, expected, condition.lower)
        if stated in draft.checked:
            continue
        draft.checked.add(stated)
        check = _check(stated, f"node '{source.title}': {stated}", source)
        later = not dim_symbols((condition.actual, condition.expected)).isdisjoint(own)
        (behind if later else draft.nodes).append(check)
    draft.nodes.extend([node, *behind])


def append_check(draft: GraphDraft, condition: Assumption, message: str, source: SourceNode) -> None:
    """The run ends with ``message`` unless ``condition`` holds."""
    if condition not in draft.checked:
        draft.checked.add(condition)
        draft.nodes.append(_check(condition, message, source))


def check_equal(draft: GraphDraft, dims: Sequence[Dim], message: str, source: SourceNode) -> None:
    """The run ends with ``message`` unless all of ``dims`` are equal.

    Raises:
        IngotError: TYPE_MISMATCH, two numbers that are not.
    """
    common = common_dim(dims)
    for dim in dims:
        if dim != common:
            condition = Assumption(dim, common)
            append_check(draft, condition, f"node '{source.title}': {message}: {condition}", source)


def _check(condition: Assumption, message: str, source: SourceNode) -> Node:
    attributes: dict[str, Attribute] = {
        "actual": condition.actual,
        "expected": condition.expected,
        "lower": int(condition.lower),
        "message": message,
    }
    return Node(CHECK_OP, (), (), attributes, source.title)
