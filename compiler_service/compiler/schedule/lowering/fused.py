"""One loop in the place of several: where each of them stands follows from its number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compiler_service.compiler.loop_ir.ir import For, ForKind, Let, Statement
from compiler_service.compiler.schedule.language.state import LoopKind, StageLoop
from compiler_service.compiler.schedule.lowering.faults import fault
from compiler_service.compiler.schedule.lowering.pieces import Piece
from compiler_service.compiler.schedule.lowering.ranges import Ranges
from compiler_service.compiler.schedule.lowering.statements import guard
from shared_ir.expr import Expr, Var, lift
from shared_ir.expr.dim import Dim, product
from shared_ir.expr.simplify import Simplifier

Fresh = Callable[[str, Dim], Var]
"""A new variable, called after an axis, that runs over so many values."""


def fused_loop(
    loop: StageLoop,
    covers: Sequence[Sequence[Piece]],
    fresh: Fresh,
    body: Callable[[Mapping[str, tuple[Piece, Expr]]], Statement],
    number: Expr | None,
) -> Statement:
    """``for f in n * m: i = f // m; j = f % m; body``, or ``body`` in turn ``number`` of it.

    Args:
        covers: the pieces that cover the axis of each part of ``loop``.
        body: given, for each axis, its piece and the number of the tile in it.

    Raises:
        IngotError: COMPILER_FAULT, a part leaves a rest.
    """
    if any(len(cover) != 1 for cover in covers):
        raise fault(f"the loop {loop.name} is fused of tiles that leave a rest")
    pieces = [cover[0] for cover in covers]
    counts = [piece.count for piece in pieces]
    all_of = product(counts)
    turn = fresh("fused", all_of) if number is None else number
    places: dict[str, tuple[Piece, Expr]] = {}
    lets: list[tuple[Var, Expr]] = []
    for at, (part, piece) in enumerate(zip(loop.parts, pieces, strict=True)):
        own, turns = fresh(part.axis, counts[at]), turn // lift(product(counts[at + 1 :]))
        lets.append((own, turns % lift(counts[at]) if at else turns))
        places[part.axis] = piece, own
    found = body(places)
    for var, value in reversed(lets):
        found = Let(var, value, found)
    if number is not None:
        return found
    assert isinstance(turn, Var)
    is_repeated = loop.kind is LoopKind.UNROLLED and isinstance(all_of, int)
    return For(turn, lift(all_of), ForKind.UNROLLED if is_repeated else ForKind.SERIAL, found)


def within_limits(loop: StageLoop, ranges: Ranges, simplify: Simplifier, body: Statement) -> Statement:
    """``body`` of a turn of the fused ``loop``, which is at ``ranges``, where it is inside of masked tiles, walked element by element."""
    for part in loop.parts:
        left = ranges[part.axis].limit
        if part.step == 1 and left is not None:
            body = guard(simplify(lift(0) < left), body)
    return body
