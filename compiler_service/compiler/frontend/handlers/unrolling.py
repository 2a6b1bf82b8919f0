"""Loops of a few iterations, known in number, whose carried values change their type: the body once for each iteration.

A graph has one type for every value, so a loop that gives its state another element type or number of axes each time is no
node of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.scope import Binding, Special
from compiler_service.compiler.frontend.requirements.defining import Nodes
from shared_ir.graph.ir import Value

MOST_ITERATIONS = 64

Inline: TypeAlias = Callable[[tuple[Binding, ...]], tuple[Binding, ...]]
"""The nodes of a body, given its inputs; what its outputs are bound to."""


def never_runs(inputs: Sequence[Binding], context: Context) -> bool:
    """Whether a loop with these inputs is known to end before its first iteration."""
    limit = context.known.scalar(inputs[0]) if isinstance(inputs[0], Value) else None
    return (isinstance(limit, int) and limit <= 0) or _holds(inputs[1], context) is False


def unrolled(inputs: Sequence[Binding], count: int, inline: Inline, nodes: Nodes) -> tuple[Binding, ...] | None:
    """What the outputs of a loop are bound to; None where only the run knows how often its body runs, or nothing says of what
    type the values are that would be stacked.

    Args:
        inputs: those of the loop: limit, condition, initial state.
        count: number of its outputs.
        inline: puts the body behind the nodes of ``nodes``.
    """
    limit = nodes.context.known.scalar(inputs[0]) if isinstance(inputs[0], Value) else None
    state, goes_on = tuple(inputs[2:]), _holds(inputs[1], nodes.context)
    if not isinstance(limit, int) or limit > MOST_ITERATIONS:
        return None
    stacked: list[list[Value]] = [[] for _ in range(count - len(state))]
    for iteration in range(limit):
        if goes_on is not True:
            break
        outputs = inline((nodes.scalar(iteration), nodes.constant(np.array(True), "condition"), *state))
        goes_on, state = _holds(outputs[0], nodes.context), outputs[1 : 1 + len(state)]
        for row, value in zip(stacked, outputs[1 + len(state) :], strict=False):
            if not isinstance(value, Value):
                return None
            row.append(nodes.node("Unsqueeze", value, nodes.integers(0)))
    if goes_on is None or not all(stacked):
        return None
    return (*state, *(nodes.node("Concat", *row, axis=0) for row in stacked))


def _holds(condition: Binding, context: Context) -> bool | None:
    """What a condition is, where it is known; an absent one holds."""
    if condition is Special.ABSENT:
        return True
    known = context.known.scalar(condition) if isinstance(condition, Value) else None
    return bool(known) if isinstance(known, bool | int) else None
