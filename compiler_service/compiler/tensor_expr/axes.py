"""Axis numbers as ONNX writes them, negative ones counting from the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from compiler_service.compiler.tensor_expr.refusal import mismatch

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
