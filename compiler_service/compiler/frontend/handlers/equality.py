"""Conditions that are equalities of dims, and what is chosen for them."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_service.compiler.frontend.importing.choices import chosen
from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.scope import Binding, GraphDraft
from compiler_service.compiler.frontend.requirements.conditions import append_check
from compiler_service.compiler.tensor_expr.assumptions import Assumption
from shared_ir.dtype import DType
from shared_ir.expr import Expr
from shared_ir.expr.dim import Dim, dim_text
from shared_ir.graph.ir import Value


@dataclass(frozen=True)
class Equality:
    """``actual == expected``; the condition has the value ``holds`` where that is so."""

    actual: Dim
    expected: Dim
    holds: bool


def equality_of(condition: Binding, draft: GraphDraft, context: Context) -> Equality | None:
    """The equality of two dims that ``condition`` is, possibly through Not, Cast and Identity; ``None`` if it is none."""
    producers = {v: n for n in draft.nodes for v in n.results}
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


def choose(equality: Equality, node: SourceNode, draft: GraphDraft, context: Context, *, usual: bool = True) -> bool:
    """The value of the condition that is chosen; the run checks it.

    In a nested graph the dims are taken to be equal (or not, as is ``usual``), and the check is that of the graph: which branch of an
    If around it runs is not known before, and a way for each answer to what only one of them asks would be one too many.
    """
    pair = equality.actual, equality.expected
    equals = context.choices.equals(pair, usual) if draft is context.main else usual
    condition = Assumption(*pair) if equals else Assumption(chosen(pair, False), 1)
    negation = "" if equals else "not "
    message = f"node '{node.title}': {dim_text(pair[0])} must {negation}be {dim_text(pair[1])}"
    append_check(draft, condition, message, node)
    return equals == equality.holds
