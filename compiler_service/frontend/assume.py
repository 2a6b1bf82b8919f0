"""Conditions that are equalities of dims: what the compiler may assume, and the run then checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler_service.frontend.context import Context
from compiler_service.frontend.node import SourceNode
from compiler_service.frontend.scope import Binding, Builder
from shared_ir.dim import Dim
from shared_ir.dtype import DType
from shared_ir.expr import Expr
from shared_ir.graph import Node, Value

ASSUME_OP = "ingot.Assume"


@dataclass(frozen=True)
class Equality:
    """``actual == expected``; the condition has the value ``holds`` where that is so."""

    actual: Dim
    expected: Dim
    holds: bool


def equality_of(condition: Binding, builder: Builder, context: Context) -> Equality | None:
    """The equality of two dims that ``condition`` is, possibly through Not, Cast and Identity; ``None`` if it is none."""
    producers = {v: n for n in builder.nodes for v in n.results}
    holds = True
    while isinstance(condition, Value) and (node := producers.get(condition)) is not None:
        match node.op:
            case "Not":
                holds = not holds
            case "Equal":
                sides = [context.known.scalar(v) for v in node.operands]
                if any(isinstance(s, float | bool) or s is None for s in sides):
                    return None
                actual, expected = sorted(
                    (s for s in sides if isinstance(s, int | Expr)), key=lambda s: isinstance(s, int)
                )
                return Equality(actual, expected, holds)
            case "Cast" | "Identity" | "Squeeze" | "Reshape" if node.operands[0].dtype is DType.BOOL:
                pass
            case _:
                return None
        condition = node.operands[0]
    return None


def assume(
    equality: Equality, results: Sequence[Binding], node: SourceNode, builder: Builder, context: Context
) -> tuple[Binding, ...]:
    """``results``, each behind a node that states the equality."""
    found: list[Binding] = []
    for result in results:
        if isinstance(result, Value):
            value = context.value(result.name, result.type)
            attributes = {"actual": equality.actual, "expected": equality.expected}
            builder.nodes.append(Node(ASSUME_OP, (result,), (value,), attributes, node.title))
            context.known.add(value, context.known.get(result))
            result = value
        found.append(result)
    return tuple(found)
