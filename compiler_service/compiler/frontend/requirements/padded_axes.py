"""What padding repeats must be there: negative widths cut off elements first, and what they leave is mirrored once at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler_service.compiler.frontend.importing.index_ranges import is_at_least
from compiler_service.compiler.frontend.requirements.defining import Nodes
from compiler_service.compiler.tensor_expr.assumptions import Assumption
from compiler_service.compiler.tensor_expr.operators.movement import kept
from shared_ir.expr import lift, logical_and, logical_or, maximum, select
from shared_ir.expr.dim import Dim, as_dim, static
from shared_ir.graph.ir import Attribute, Value


def padded(nodes: Nodes, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]) -> None:
    """Of a Pad with known widths."""
    x, pads, _, axes = (*inputs, None, None)[:4]
    widths = nodes.elements(pads)
    chosen = None if axes is None else nodes.elements(axes)
    if x is None or widths is None or (axes is not None and not _are_numbers(chosen)):
        return
    numbers = range(x.type.rank) if chosen is None else [static(a) % x.type.rank for a in chosen if a is not None]
    half = len(numbers)
    lows: list[Dim] = [0] * x.type.rank
    highs: list[Dim] = [0] * x.type.rank
    for place, axis in enumerate(numbers):
        lows[axis], highs[axis] = (0 if w is None else w for w in (widths[place], widths[place + half]))
    check_cut_axes(nodes, x, lows, highs, attributes.get("mode", "constant"))


def _are_numbers(elements: Sequence[Dim | None] | None) -> bool:
    return elements is not None and all(isinstance(e, int) for e in elements)


def check_cut_axes(nodes: Nodes, x: Value, lows: Sequence[Dim], highs: Sequence[Dim], mode: Attribute) -> None:
    """Checks of axes that are, or may be, cut off at one end before they are padded by their own elements."""
    if mode == "constant":
        return
    for extent, low, high in zip(x.shape, lows, highs, strict=True):
        if is_at_least(low, 0) and is_at_least(high, 0):
            continue
        _, left = kept(extent, low, high)
        wanted = maximum(maximum(low, lift(high)), 0) + 1 if mode == "reflect" else lift(1)
        is_cut = logical_and(logical_or(lift(low) < 0, lift(high) < 0), lift(extent) > 0)
        spare = as_dim(select(is_cut, left - wanted, 0))
        if not is_at_least(spare, 0):
            message = f"{mode} needs more elements of an axis of '{x.name}' than negative widths leave"
            nodes.state(Assumption(spare, 0, lower=True), message)
