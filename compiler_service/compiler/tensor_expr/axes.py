"""Axis numbers as ONNX writes them, negative ones counting from the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from compiler_service.compiler.tensor_expr.refusal import mismatch, too_large
from shared_ir.plan.validate import MAX_RANK

T = TypeVar("T")


def normal_axis(axis: int, rank: int) -> int:
    """``axis`` in ``[0, rank)``.

    Raises:
        IngotError: TYPE_MISMATCH.
    """
    if not -rank <= axis < rank:
        raise mismatch("an axis is out of range", f"-{rank} to {rank - 1}", str(axis))
    return axis % rank


def normal_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Each axis in ``[0, rank)``, in the given order, without repetition.

    Raises:
        IngotError: TYPE_MISMATCH.
    """
    found = tuple(normal_axis(a, rank) for a in axes)
    if len(set(found)) != len(found):
        raise mismatch("an axis is given twice", "different axes", str(found))
    return found


def replaced(items: Sequence[T], axis: int, *values: T) -> tuple[T, ...]:
    """``items`` with ``values`` in place of the one at ``axis``."""
    return (*items[:axis], *values, *items[axis + 1 :])


def require_few_axes(count: int) -> None:
    """What a node says of so many axes is worth looking at: it grows with their square.

    Raises:
        IngotError: LIMIT_EXCEEDED, no tensor has so many.
    """
    if count > MAX_RANK:
        raise too_large("a node names too many axes", f"at most {MAX_RANK}", f"{count}")
