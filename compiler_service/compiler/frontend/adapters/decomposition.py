"""Operators that are made of several: internal ones of the domain ``ingot`` and standard ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import INTERNAL_DOMAIN, AttributeValue, SourceNode
from compiler_service.compiler.tensor_expr.axes import normal_axis
from compiler_service.compiler.tensor_expr.refusal import too_large
from shared_ir.arrays import storage_dtype

Nodes = tuple[SourceNode, ...]


def internal(node: SourceNode, op: str, inputs: Sequence[str], output: str, **attributes: AttributeValue) -> SourceNode:
    """A node of an operator that only this compiler has."""
    return SourceNode(op, tuple(inputs), (output,), attributes, INTERNAL_DOMAIN, node.name, node.opset)


MOST_OPERANDS = 32
"""Largest number of operands of one elementwise operator: the expression of an element, and the code for it, grow with them."""


def variadic(node: SourceNode, operands: Operands) -> Nodes:
    """Several of at most ``MOST_OPERANDS``, each of which goes on from the one before: in the same order, so to the same bits."""
    if len(node.inputs) <= MOST_OPERANDS:
        return (node,)
    op = "Sum" if node.op == "Mean" else node.op
    found: list[SourceNode] = []
    total, rest = node.inputs[0], node.inputs[1:]
    while rest:
        own, rest = rest[: MOST_OPERANDS - 1], rest[MOST_OPERANDS - 1 :]
        result = operands.fresh("part") if rest or node.op == "Mean" else node.outputs[0]
        found.append(node.sibling(op, (total, *own), result))
        total = result
    if node.op == "Mean":
        share = np.array(1 / len(node.inputs), storage_dtype(operands.dtype(node.inputs[0])))
        found.append(node.sibling("Mul", (total, operands.constant("share", share)), node.outputs[0]))
    return tuple(found)


MOST_RANKED = 128
"""Along longer axes sorting is quicker than counting, for every element, those before it."""

MOST_KEPT = 1024
"""So many elements are kept in order by inserting each; more are found by sorting all."""


def top_k(node: SourceNode, operands: Operands) -> Nodes:
    """The positions of the first k elements in sorted order, and the elements there.

    Along a short axis the positions are those of the first k ranks, which every element finds by itself.
    """
    x, k = node.inputs
    values, indices = (*node.outputs, "")[:2]
    axis, along = node.attributes["axis"], normal_axis(node.attributes["axis"], operands.rank(x))
    largest, extent = node.attributes["largest"], operands.shape(x)[along]
    indices = indices or operands.fresh("indices")
    if isinstance(extent, int) and extent <= MOST_RANKED:
        ranks = operands.fresh("ranks")
        found = [
            internal(node, "Ranks", (x,), ranks, axis=axis, largest=largest),
            internal(node, "RankedPositions", (ranks, k), indices, axis=axis),
        ]
    else:
        found = _sorted(node, operands, along, indices)
    if values:
        found.append(node.sibling("GatherElements", (x, indices), values, axis=axis))
    return tuple(found)


def _sorted(node: SourceNode, operands: Operands, axis: int, indices: str) -> list[SourceNode]:
    """Sort along the last axis and keep the first k positions; few are kept while the others are looked at."""
    x, k = node.inputs
    rank, known = operands.rank(x), operands.integers(k)
    turned = [i for i in range(rank) if i != axis] + [axis]
    back = [*range(axis), rank - 1, *range(axis, rank - 1)]
    last, positions, all_of, first = (operands.fresh(n) for n in ("last", "sorted", "order", "first"))
    largest = node.attributes["largest"]
    found = [node.sibling("Transpose", (x,), last, perm=tuple(turned))]
    if known is not None and 1 <= known[0] <= MOST_KEPT:
        found.append(internal(node, "Best", (last,), first, count=known[0], largest=largest))
    else:
        half, start = operands.constant("half", np.array(0, np.int64)), operands.int64s("start", (0,))
        found += [
            internal(node, "Sorted", (last,), positions, largest=largest),
            node.sibling("Gather", (positions, half), all_of, axis=rank - 1),
            node.sibling("Slice", (all_of, start, k, operands.int64s("axis", (rank - 1,))), first),
        ]
    return [*found, node.sibling("Transpose", (first,), indices, perm=tuple(back))]


MOST_ELIMINATED = 256
"""Rows of a matrix whose determinant is taken: it is brought to memory of the thread that takes it."""

_FEW_ROWS = 6
"""So many are eliminated by kernels of their own, which vectors of matrices go through; more by a loop function."""


def determinant(node: SourceNode, operands: Operands) -> Nodes:
    """Gaussian elimination with partial pivoting: the product of the pivots, negated for every exchange of rows.

    Raises:
        IngotError: LIMIT_EXCEEDED, more than :data:`MOST_ELIMINATED` rows.
    """
    matrix, output = node.inputs[0], node.outputs[0]
    size = operands.shape(matrix)[-1]
    if not isinstance(size, int) or size < 1:
        raise operands.unsupported("size", "matrices of a static size", str(size))
    if size > MOST_ELIMINATED:
        raise too_large("a determinant has too many steps", f"at most {MOST_ELIMINATED} rows", str(size))
    if size > _FEW_ROWS:
        return (internal(node, "Determinant", (matrix,), output),)
    found: list[SourceNode] = []
    product = ""
    for step in range(size):
        pivot, rest = operands.fresh(f"pivot_{step}"), operands.fresh(f"rest_{step}")
        found.append(internal(node, "Pivot", (matrix,), pivot))
        if step < size - 1:
            found.append(internal(node, "Eliminated", (matrix,), rest))
            matrix = rest
        if product:
            total = output if step == size - 1 else operands.fresh(f"product_{step}")
            found.append(node.sibling("Mul", (product, pivot), total))
            pivot = total
        product = pivot
    if size == 1:
        found.append(node.sibling("Identity", (product,), output))
    return tuple(found)


def dft(node: SourceNode, operands: Operands) -> Nodes:
    """A product with the matrix of roots of unity, which is a constant where the length is."""
    x, length = node.input(0), node.input(1)
    axis = node.input(2) or operands.int64s("axis", (-2,))
    inverse, onesided = node.attributes["inverse"], node.attributes["onesided"]
    roots = operands.fresh("roots")
    inputs = (x, axis, length) if length else (x, axis)
    return (
        internal(node, "FourierMatrix", inputs, roots, inverse=inverse, onesided=onesided),
        internal(node, "Fourier", (x, roots, axis), node.outputs[0]),
    )


def stft(node: SourceNode, operands: Operands) -> Nodes:
    """Frames of the signal, weighted by the window, times the matrix of roots of unity."""
    signal, step, window, length = (node.input(i) for i in range(4))
    frames, roots = operands.fresh("frames"), operands.fresh("roots")
    onesided, axis = node.attributes["onesided"], operands.int64s("axis", (2,))
    return (
        internal(node, "Frames", (signal, step, window, length), frames),
        internal(node, "FourierMatrix", (frames, axis), roots, inverse=0, onesided=onesided),
        internal(node, "Fourier", (frames, roots, axis), node.outputs[0]),
    )


MOST_UNROLLED = 64
"""Batches of Scan of opset 8 are scanned one by one."""


def scan_8(node: SourceNode, operands: Operands) -> Nodes:
    """Scan of opset 8 scans the second axis of every row of a batch."""
    if node.input(0):
        raise operands.unsupported("sequence_lens", "sequences of one length", "lengths of their own")
    given, count = node.inputs[1:], node.attributes["num_scan_inputs"]
    batch = operands.shape(given[-1])[0]
    if not isinstance(batch, int):
        return (_scan_of_rows(node),)
    if not 1 <= batch <= MOST_UNROLLED:
        raise operands.unsupported("batch", f"1 to {MOST_UNROLLED}, or one that the run knows", str(batch))
    own = {"body": node.attributes["body"], "num_scan_inputs": count}
    if node.attributes.get("directions"):
        own["scan_input_directions"] = node.attributes["directions"]
    found: list[SourceNode] = []
    axis, results = operands.int64s("batch", (0,)), []
    for number in range(batch):
        at = operands.constant(f"row_{number}", np.array(number))
        rows = tuple(f"{operands.fresh(f'row_{number}')}_{i}" for i in range(len(given)))
        found += [node.sibling("Gather", (x, at), row, axis=0) for x, row in zip(given, rows, strict=True)]
        ends = tuple(o and f"{operands.fresh(f'end_{number}')}_{i}" for i, o in enumerate(node.outputs))
        found.append(node.with_(inputs=rows, outputs=ends, attributes=own))
        wide = tuple(e and f"{e}_wide" for e in ends)
        found += [node.sibling("Unsqueeze", (e, axis), w) for e, w in zip(ends, wide, strict=True) if e]
        results.append(wide)
    columns = zip(*results, strict=True)
    found += [node.sibling("Concat", parts, o, axis=0) for parts, o in zip(columns, node.outputs, strict=True) if o]
    return tuple(found)


def _scan_of_rows(node: SourceNode) -> SourceNode:
    """The newest form over the rows of the batch, whose body scans one row, as a batch of 1, by the form of opset 8."""
    given, wanted = node.inputs[1:], [number for number, name in enumerate(node.outputs) if name]
    rows, ends = [f"row_{i}" for i in range(len(given))], [f"end_{i}" for i in wanted]
    nodes = [helper.make_node("Unsqueeze", [row], [f"{row}_wide"], axes=[0]) for row in rows]
    scan = helper.make_node(
        "Scan",
        ["", *(f"{row}_wide" for row in rows)],
        [f"end_{i}_wide" if name else "" for i, name in enumerate(node.outputs)],
        body=node.attributes["body"],
        num_scan_inputs=node.attributes["num_scan_inputs"],
        **({"directions": node.attributes["directions"]} if node.attributes.get("directions") else {}),
    )
    nodes += [scan, *(helper.make_node("Squeeze", [f"{end}_wide"], [end], axes=[0]) for end in ends)]
    infos = [[onnx.ValueInfoProto(name=n) for n in names] for names in (rows, ends)]
    body = helper.make_graph(nodes, "rows", *infos)
    outputs = tuple(node.outputs[i] for i in wanted)
    return node.with_(inputs=given, outputs=outputs, attributes={"body": body, "num_scan_inputs": len(given)})
