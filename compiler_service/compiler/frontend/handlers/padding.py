"""Padding by widths that only the run knows, some of which may cut off: extents of the result are symbols of their own.

As sums of extents and widths they would be polynomials of as many terms as there are combinations, and a width may be
negative, which a symbol is not: the first of an axis counts from a bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from compiler_service.compiler.frontend.handlers.data_dependent import expanded
from compiler_service.compiler.frontend.importing.handler import Handler, Importer
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.scope import Frame, GraphDraft
from compiler_service.compiler.frontend.requirements.decided_lengths import decided_length
from compiler_service.compiler.frontend.requirements.defining import SYMBOL_BIAS, Definer, Nodes
from compiler_service.compiler.frontend.requirements.normalising import Elements
from compiler_service.compiler.frontend.requirements.padded_axes import check_cut_axes
from compiler_service.compiler.tensor_expr.refusal import unknown_extent
from shared_ir.dtype import DType
from shared_ir.expr import lift
from shared_ir.expr.dim import Dim, as_dim, static
from shared_ir.graph.ir import Value


def pad(nodes: Nodes, operands: Sequence[Value | None]) -> Sequence[Value | None]:
    x, fill = _required(operands[0]), operands[2]
    pads, axes = _required(_of_length(nodes, operands, 1)), _of_length(nodes, operands, 3)
    rank, chosen = x.type.rank, None if axes is None else nodes.elements(axes)
    if axes is not None and chosen is None:
        widths = _spread(nodes, rank, nodes.vector(pads), nodes.vector(axes))
        known: Elements = (None,) * (2 * rank)
    else:
        own = range(rank) if chosen is None else [static(a) % rank for a in chosen if a is not None]
        widths, known = _ordered(nodes, rank, pads, own)
    return [_padded(nodes, x, widths, known, fill)]


def _required(value: Value | None) -> Value:
    assert value is not None  # the handler asks for data and widths
    return value


def _of_length(nodes: Nodes, operands: Sequence[Value | None], index: int) -> Value | None:
    """Operand ``index`` with a known number of elements."""
    operand = operands[index]
    if operand is None or operand.type.is_static:
        return operand
    length = decided_length(nodes.source, operands, index)
    if length is None:
        name = {1: "pads", 3: "axes"}[index]
        raise unknown_extent(name, operand.name, operand.shape, "nothing says how many axes are padded")
    return nodes.of_shape(operand, (length,))


def _ordered(nodes: Nodes, rank: int, pads: Value, own: Sequence[int]) -> tuple[Value, Elements]:
    """The widths before all axes, then those behind them, of which ``pads`` has those of ``own``; and what is known of them."""
    known, half = Definer(nodes).known_elements(pads), len(own)
    place = {axis: i for i, axis in enumerate(own)}
    first = [place.get(axis) for axis in range(rank)]
    order = [*first, *(None if i is None else i + half for i in first)]
    vector = nodes.node("Concat", nodes.vector(pads), nodes.integers(0), axis=0)
    vector = nodes.node("Gather", vector, nodes.integers(*(2 * half if i is None else i for i in order)))
    return vector, tuple(0 if i is None else known[i] for i in order)


def _spread(nodes: Nodes, rank: int, pads: Value, axes: Value) -> Value:
    """The same where only the run knows ``axes``."""
    zero, one, half = nodes.integers(0), nodes.integers(1), static(axes.shape[0])
    counted = nodes.node("Add", axes, nodes.integers(rank))
    axes = nodes.node("Where", nodes.node("Less", axes, zero), counted, axes)
    column = nodes.node("Unsqueeze", nodes.integers(*range(rank)), one)
    chosen = nodes.node("Cast", nodes.node("Equal", column, axes), to=DType.INT64)
    parts = [nodes.node("Slice", pads, nodes.integers(start), nodes.integers(start + half)) for start in (0, half)]
    sums = [nodes.node("ReduceSum", nodes.node("Mul", chosen, p), one, keepdims=0) for p in parts]
    return nodes.node("Concat", *sums, axis=0)


def _padded(nodes: Nodes, x: Value, widths: Value, known: Elements, fill: Value | None) -> Value:
    """``x`` with ``widths`` before and behind every axis, of which ``known`` are known."""
    rank, name = x.type.rank, nodes.source.outputs[0]
    before, behind = known[:rank], known[rank:]
    lows = _lows(nodes, widths, before, f"{name}_before")
    sizes = [
        None if low is None or high is None else as_dim(lift(low) + extent + high)
        for low, high, extent in zip(before, behind, x.shape, strict=True)
    ]
    left = [axis for axis, size in enumerate(sizes) if size is None]
    if left:
        parts = [nodes.node("Gather", widths, nodes.integers(*(a + i * rank for a in left))) for i in (0, 1)]
        total = nodes.node("Add", nodes.node("Add", *parts), nodes.dims([x.shape[a] for a in left]))
        defined = dict(zip(left, nodes.define(total, f"{name}_extent"), strict=True))
    whole = [defined[axis] if size is None else size for axis, size in enumerate(sizes)]
    mode = nodes.source.attributes.get("mode", "constant")
    highs = [as_dim(lift(size) - low - d) for size, low, d in zip(whole, lows, x.shape, strict=True)]
    check_cut_axes(nodes, x, lows, highs, mode)
    return nodes.node("ingot.PadAt", x, nodes.dims(lows), nodes.dims(whole), fill, output=name, mode=mode)


def _lows(nodes: Nodes, widths: Value, known: Elements, label: str) -> list[Dim]:
    """The widths before all axes, of any sign."""
    left = [axis for axis, width in enumerate(known) if width is None]
    if not left:
        return [0 if width is None else width for width in known]
    raised = nodes.node("Add", nodes.node("Gather", widths, nodes.integers(*left)), nodes.integers(SYMBOL_BIAS))
    defined = dict(zip(left, nodes.define(raised, label), strict=True))
    return [as_dim(defined[axis] - SYMBOL_BIAS) if width is None else width for axis, width in enumerate(known)]


_pad = expanded(pad)


def _handler(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    """The plain operator where its widths are known."""
    known = importer.context.known
    x, pads = (frame.lookup(node.input(i)) for i in (0, 1))
    if isinstance(x, Value) and isinstance(pads, Value) and x.shape and known.get(pads) is None:
        _pad(node, frame, draft, importer)
    else:
        importer.operator(node, frame, draft)


HANDLERS: Mapping[str, Handler] = MappingProxyType({"Pad": _handler})
