"""Operators whose elements depend on each other in order: they have a type here, and a loop function as their meaning.

See :mod:`compiler_service.compiler.loop_ir.algorithms.table`.
"""

from __future__ import annotations

from compiler_service.compiler.tensor_expr.broadcast import must_equal
from compiler_service.compiler.tensor_expr.operator import Operator
from compiler_service.compiler.tensor_expr.refusal import mismatch
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, dims_text
from shared_ir.types import TensorType


def positions(mask: Tensor, *, count: Dim) -> Tensor:
    """int64: where the vector ``mask`` is true, in order. ``count`` is how often."""
    if mask.dtype is not DType.BOOL or mask.rank != 1:
        raise mismatch("Positions takes a vector of bool", "bool[n]", f"{mask.dtype}, {mask.rank} axes")
    return placeholder("positions", (count,), DType.INT64)


def suppressed(
    boxes: Tensor, scores: Tensor, order: Tensor, limit: Tensor, overlap: Tensor, least: Tensor, *, centered: int = 0
) -> Tensor:
    """int64 [batch, classes, boxes]: the boxes that non-maximum suppression keeps, best first, then -1.

    Args:
        boxes: [batch, boxes, 4], two opposite corners, or with ``centered`` the center, width and height.
        scores: [batch, classes, boxes].
        order: [batch, classes, boxes], boxes by falling score.
        limit: most boxes per class (int64); overlap: the largest intersection over union with a better box;
            least: scores must be greater. One element each.
    """
    if boxes.rank != 3 or scores.rank != 3 or order.rank != 3:
        raise mismatch("boxes and scores must have 3 axes", "3 axes", f"{boxes.rank} and {scores.rank}")
    pairs = must_equal((boxes.shape[0], scores.shape[0]), (boxes.shape[1], scores.shape[2]), (boxes.shape[2], 4))
    return placeholder("suppressed", scores.shape, DType.INT64, assumes=pairs)


def sorted_positions(x: Tensor, *, largest: int = 1) -> Tensor:
    """int64 [..., 2, n] for ``x`` [..., n]: first the positions of the elements in sorted order, equal ones as they stand, NaN as
    the largest number; then room to work in."""
    if x.rank == 0:
        raise mismatch("Sorted takes at least one axis", "1 axis", "a scalar")
    return placeholder("sorted", (*x.shape[:-1], 2, x.shape[-1]), DType.INT64)


def best_positions(x: Tensor, *, count: int, largest: int = 1) -> Tensor:
    """int64 [..., count] for ``x`` [..., n]: the positions of the first ``count`` elements in sorted order."""
    if x.rank == 0 or count < 1:
        raise mismatch("Best takes at least one axis and element", "1 axis", f"{x.rank} axes, {count} elements")
    extent = x.shape[-1]
    if isinstance(extent, int) and extent < count:
        raise mismatch("more elements are asked for than there are", f"at most {extent}", str(count))
    return placeholder("best", (*x.shape[:-1], count), DType.INT64)


def cumulative(x: Tensor, *, axis: int, product: int = 0, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """``x`` summed (with ``product``: multiplied) along ``axis`` up to each element; ``exclusive``: without it; ``reverse``: from the
    end."""
    if not 0 <= axis < x.rank:
        raise mismatch("Cumulative runs along an axis", f"0 to {x.rank - 1}", str(axis))
    return placeholder("cumulative", x.shape, x.dtype)


def scattered(data: Tensor, indices: Tensor, updates: Tensor, *, reduction: str, axis: int | None = None) -> Tensor:
    """``data`` with ``updates`` written over it, or combined with it, one after the other: as ScatterElements along ``axis``, as
    ScatterND without one. Positions beyond an end are passed over."""
    if updates.dtype is not data.dtype:
        raise mismatch("data and updates have different element types", data.dtype, updates.dtype)
    return placeholder("scattered", data.shape, data.dtype)


def determinant(x: Tensor) -> Tensor:
    """The determinants of the matrices [..., n, n], n static."""
    if x.rank < 2 or x.shape[-1] != x.shape[-2] or not isinstance(x.shape[-1], int) or not x.dtype.is_float:
        raise mismatch("square matrices of a static size are needed", "[..., n, n]", f"[{dims_text(x.shape)}]")
    return placeholder("determinant", x.shape[:-2], x.dtype)


RECORD = 4
"""Words of a node in the ``records`` of ``ingot.TreeLeaves``."""


def tree_leaves(
    x: Tensor, roots: Tensor, records: Tensor, steps: Tensor, *, trees: int, is_missing_tested: int = 0
) -> Tensor:
    """int32 [n, trees]: the leaf of every tree that each row of ``x`` [n, features] reaches.

    Args:
        roots: int32 [groups * together]: the records that trees begin with; those beyond ``trees`` are walked, and not looked at.
        records: words as wide as elements of ``x``, [nodes * RECORD]. A node's are the column of ``x`` that it tests (with
            ``is_missing_tested`` twice that, plus 1 where NaN passes); the bits of the number that the column must not be above; the
            record that follows where it is above, in words, behind which is the one that follows where it is not; the number of the
            leaf. Leaves, and what leads to one record alone, test for NaN, which nothing passes; leaves follow themselves.
        steps: int32 [groups]: how many lead from any root of the group to any leaf.
    """
    word = DType.INT64 if x.dtype is DType.FLOAT64 else DType.INT32
    if x.rank != 2 or x.dtype not in (DType.FLOAT32, DType.FLOAT64) or records.dtype is not word:
        raise mismatch("TreeLeaves takes rows of floats, and records as wide", f"[n, features], {word}", records.dtype)
    return placeholder("leaves", (x.shape[0], trees), DType.INT32)


LOOPS_OP = "ingot.Loops"
"""A loop function: no operator of a model, since nothing proves where its loops read and write."""


def loops(*xs: Tensor, program: str, type: TensorType) -> Tensor:
    """What the loop function whose text is ``program`` stores for the arguments ``xs``: a tensor of ``type``."""
    return placeholder("loops", type.shape, type.dtype)


EXTERNAL_OP = "ingot.External"
"""A part of the model that another code generator makes, the one that the attribute ``codegen`` names: no operator of a model either.

``program`` is the text of a graph whose inputs are the operands: those of the part, then its constants, as many as ``constants`` says.
"""


def external(*xs: Tensor, codegen: str, version: str, program: str, constants: int, type: TensorType) -> Tensor:
    """What the code generator makes of ``program`` and the operands ``xs``: a tensor of ``type``."""
    return placeholder("external", type.shape, type.dtype)


OPERATORS = (
    Operator(LOOPS_OP, loops),
    Operator(EXTERNAL_OP, external),
    Operator("ingot.Positions", positions),
    Operator("ingot.Suppressed", suppressed),
    Operator("ingot.Cumulative", cumulative),
    Operator("ingot.Scattered", scattered),
    Operator("ingot.TreeLeaves", tree_leaves),
    Operator("ingot.Sorted", sorted_positions),
    Operator("ingot.Best", best_positions),
    Operator("ingot.Determinant", determinant),
)

SEQUENTIAL = frozenset(operator.name for operator in OPERATORS)
