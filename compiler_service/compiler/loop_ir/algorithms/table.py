"""Loop functions of operators that no tensor expression defines, because an element depends on those before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from compiler_service.compiler.loop_ir.algorithms.called import called_loops
from compiler_service.compiler.loop_ir.algorithms.chains import LoopChain, cumulate
from compiler_service.compiler.loop_ir.algorithms.compact import CompactCell, let, load, loop, with_cell
from compiler_service.compiler.loop_ir.algorithms.elimination import determinant
from compiler_service.compiler.loop_ir.algorithms.scattering import scatter_elements, scatter_slices
from compiler_service.compiler.loop_ir.algorithms.selection import best_of_rows
from compiler_service.compiler.loop_ir.algorithms.sorting import sort_rows
from compiler_service.compiler.loop_ir.algorithms.trees import Array, Walks, walk_trees
from compiler_service.compiler.loop_ir.ir import Block, Buffer, Function, If, Statement, Store
from compiler_service.compiler.tensor_expr.operators.sequential import LOOPS_OP
from compiler_service.compiler.tensor_expr.scalar import clamped
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Const, Expr, Var, lift, logical_and, maximum, minimum, select
from shared_ir.expr.dim import Dim, as_dim
from shared_ir.graph.ir import Attribute

Attributes: TypeAlias = Mapping[str, Attribute]


def algorithm_function(
    algorithm: str, name: str, arguments: Sequence[Tensor], output: Tensor, parameters: int, attributes: Attributes
) -> Function:
    """The loop program of ``algorithm`` (before the loop passes), with symbols ``d0, d1, ...``"""
    builder = _ALGORITHMS.get(algorithm)
    if builder is None:
        raise IngotError(ErrorCode.COMPILER_FAULT, f"there is no loop function for {algorithm}")
    inputs = [Buffer(t.name, t.dtype, t.shape) for t in arguments]
    result = Buffer(output.name, output.dtype, output.shape)
    task = Var("task")
    tasks, body = builder(inputs, result, task, attributes)
    symbols = tuple(Var(f"d{i}") for i in range(parameters))
    return Function(name, (*inputs, result), symbols, task, tasks, body)


def is_proven(
    algorithm: str, arguments: Sequence[Buffer], elements: Sequence[Sequence[Array]], attributes: Attributes
) -> bool:
    """Whether all positions of ``algorithm`` lie inside because of what the constants among its arguments are: walks through a table.

    Args:
        elements: for each argument that is constant, what it is in each of the launches; nothing for others.
    """
    if algorithm != "ingot.TreeLeaves" or not elements or not all(elements[1:]):
        return False
    x, roots, records, steps = arguments
    walks = Walks(x, roots, records, steps, records, bool(attributes.get("is_missing_tested", 0)))
    return all(walks.stay_inside(r, w) for r, w in zip(elements[1], elements[2], strict=True))


# -- algorithms


def _positions(inputs: Sequence[Buffer], out: Buffer, task: Var, attributes: Attributes) -> tuple[Dim, Statement]:
    (mask,) = inputs
    (capacity,) = out.shape

    def scan(count: CompactCell) -> Statement:
        def visit(i: Var) -> Statement:
            found = Block((Store(out, (count.value,), i), count.set(count.value + 1)))
            return If(logical_and(load(mask, i), count.value < lift(capacity)), found)

        return loop("i", mask.shape[0], visit)

    return 1, with_cell("count", lift(0, DType.INT64), scan)


def _suppressed(inputs: Sequence[Buffer], out: Buffer, task: Var, attributes: Attributes) -> tuple[Dim, Statement]:
    """One task per batch and class. The kept boxes are the list of those that the next ones are compared with."""
    boxes, scores, order, limit, overlap, least = inputs
    batch, classes, count = out.shape
    number, kind = task // lift(classes), task % lift(classes)
    centered = bool(attributes.get("centered", 0))

    def box(index: Expr) -> tuple[Expr, ...]:
        return _corners([load(boxes, number, index, i) for i in range(4)], centered)

    def nearest(index: Expr) -> Expr:
        return clamped(clamped(index, count), boxes.shape[1])

    def consider_with(kept: CompactCell) -> Callable[[Var], Statement]:
        return lambda candidate: consider(kept, candidate)

    def consider(kept: CompactCell, candidate: Var) -> Statement:
        def compare(alone: CompactCell) -> Statement:
            def against(k: Var) -> Statement:
                other = maximum(load(out, number, kind, k), 0)
                return If(
                    alone.value,
                    If(_overlaps(box(candidate), box(other), load(overlap, *_first(overlap))), alone.set(False)),
                )

            accepted = Block((Store(out, (number, kind, kept.value), candidate), kept.set(kept.value + 1)))
            return Block((loop("k", kept.value, against), If(alone.value, accepted)))

        good = load(scores, number, kind, candidate) > load(least, *_first(least))
        room = kept.value < minimum(load(limit, *_first(limit)), lift(count))
        return If(logical_and(room, good), with_cell("alone", lift(True, DType.BOOL), compare))

    def choose(kept: CompactCell) -> Statement:
        clear = loop("c", count, lambda c: Store(out, (number, kind, c), Const(-1)))
        visit = loop("i", count, lambda i: let("box", nearest(load(order, number, kind, i)), consider_with(kept)))
        return Block((clear, visit))

    return as_dim(lift(batch) * classes), with_cell("kept", lift(0, DType.INT64), choose)


def _first(buffer: Buffer) -> tuple[int, ...]:
    return (0,) * len(buffer.shape)


def _corners(box: Sequence[Expr], centered: bool) -> tuple[Expr, ...]:
    """(low, low, high, high) of a box given by its corners in any order, or by center, width and height."""
    a, b, c, d = box
    if centered:
        half = lift(0.5, a.dtype)
        return a - c * half, b - d * half, a + c * half, b + d * half
    return minimum(a, c), minimum(b, d), maximum(a, c), maximum(b, d)


def _overlaps(one: Sequence[Expr], other: Sequence[Expr], threshold: Expr) -> Expr:
    """Whether the intersection over union is greater than ``threshold``; empty boxes overlap with nothing."""
    zero = lift(0.0, threshold.dtype)
    sides = [minimum(one[i + 2], other[i + 2]) - maximum(one[i], other[i]) for i in range(2)]
    common = maximum(sides[0], zero) * maximum(sides[1], zero)
    area, other_area = ((b[2] - b[0]) * (b[3] - b[1]) for b in (one, other))
    union = area + other_area - common
    return logical_and(common > zero, select(union > zero, common / union, zero) > threshold)


def _cumulative(inputs: Sequence[Buffer], out: Buffer, task: Var, attributes: Attributes) -> tuple[Dim, Statement]:
    """One task per place before the axis."""
    (x,) = inputs
    axis = attributes["axis"]
    assert isinstance(axis, int)
    is_product, reverse, exclusive = (bool(attributes.get(name, 0)) for name in ("product", "reverse", "exclusive"))
    return cumulate(x, out, task, LoopChain(axis, is_product, reverse, exclusive))


def _scattered(inputs: Sequence[Buffer], out: Buffer, task: Var, attributes: Attributes) -> tuple[Dim, Statement]:
    data, indices, updates = inputs
    axis, reduction = attributes.get("axis"), str(attributes["reduction"])
    if isinstance(axis, int):
        return scatter_elements(data, indices, updates, out, task, axis, reduction)
    return scatter_slices(data, indices, updates, out, reduction)


def _leaves(inputs: Sequence[Buffer], out: Buffer, task: Var, attributes: Attributes) -> tuple[Dim, Statement]:
    x, roots, records, steps = inputs
    return walk_trees(Walks(x, roots, records, steps, out, bool(attributes.get("is_missing_tested", 0))), task)


def _sorted(inputs: Sequence[Buffer], out: Buffer, task: Var, attributes: Attributes) -> tuple[Dim, Statement]:
    return sort_rows(inputs[0], out, task, bool(attributes.get("largest", 1)))


def _best(inputs: Sequence[Buffer], out: Buffer, task: Var, attributes: Attributes) -> tuple[Dim, Statement]:
    return best_of_rows(inputs[0], out, task, bool(attributes.get("largest", 1)))


def _determinant(inputs: Sequence[Buffer], out: Buffer, task: Var, attributes: Attributes) -> tuple[Dim, Statement]:
    return determinant(inputs[0], out, task)


_ALGORITHMS: Mapping[str, Callable[[Sequence[Buffer], Buffer, Var, Attributes], tuple[Dim, Statement]]] = (
    MappingProxyType(
        {
            "ingot.Positions": _positions,
            "ingot.Suppressed": _suppressed,
            "ingot.Cumulative": _cumulative,
            "ingot.Scattered": _scattered,
            "ingot.TreeLeaves": _leaves,
            "ingot.Sorted": _sorted,
            "ingot.Best": _best,
            "ingot.Determinant": _determinant,
            LOOPS_OP: called_loops,
        }
    )
)
