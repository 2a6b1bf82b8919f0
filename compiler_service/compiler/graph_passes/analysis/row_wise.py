"""Which operands of a fused group each row of its results reads at its own row, and nowhere else.

What the group computes for one sample of a batch is then independent of the other samples. That is read off its definition, not off
the names of its operators: the first index of a result is the first index of every load of such an operand, and stands nowhere
else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from compiler_service.compiler.tensor_expr.tensor import Compute, Load, Tensor, topological
from shared_ir.expr import Expr, Var
from shared_ir.expr.simplify import simplify


def rows_read(results: Sequence[Tensor], arguments: frozenset[Tensor]) -> frozenset[Tensor] | None:
    """Of ``arguments``, those that row ``i`` of every result reads at row ``i``; the others are read as a whole, or not at all.

    None where a result depends on the number of its row, or on an argument in both ways.
    """
    reading = _Reading(arguments)
    for tensor in dict.fromkeys(t for result in results for t in topological(result)):
        if isinstance(tensor.op, Compute) and not reading.add(tensor, tensor.op):
            return None
    follow = reading.cut.issuperset(results)
    return frozenset(reading.cut & arguments) if follow and reading.cut.isdisjoint(reading.whole) else None


@dataclass
class _Reading:
    """``cut`` are stages whose rows may be cut as those of the results, and arguments that were read so; ``whole`` are arguments
    that were read otherwise."""

    arguments: frozenset[Tensor]
    cut: set[Tensor] = field(default_factory=set)
    whole: set[Tensor] = field(default_factory=set)

    def add(self, stage: Tensor, op: Compute) -> bool:
        """Takes in ``stage``, whose producers are in; false where it mixes rows."""
        row = op.axes[0].var if op.axes else None
        at_row: set[Tensor] = set()
        elsewhere: set[Tensor] = set()
        mentions = False
        for tensor, where in _loads(op.body, row, self.cut | self.arguments):
            if tensor is None:
                mentions = True
            else:
                (at_row if where else elsewhere).add(tensor)
        self.whole |= elsewhere & self.arguments
        if mentions or not at_row:
            self.whole |= at_row & self.arguments
            return not (at_row | elsewhere) & (self.cut - self.arguments) and not (mentions and at_row)
        self.cut.add(stage)
        self.cut |= at_row
        return not elsewhere & (self.cut - self.arguments)


def _loads(body: Expr, row: Var | None, rows: Set[Tensor]) -> Iterator[tuple[Tensor | None, bool]]:
    """What ``body`` loads from ``rows``, and whether at ``row``; no tensor for a mention of ``row`` anywhere else."""
    stack, seen = [body], set[Expr]()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node == row:
            yield None, False
        kids = node.children()
        if isinstance(node, Load) and node.tensor in rows:
            at_row = row is not None and bool(kids) and simplify(kids[0]) == row
            yield node.tensor, at_row
            kids = kids[1:] if at_row else kids
        stack.extend(kids)
