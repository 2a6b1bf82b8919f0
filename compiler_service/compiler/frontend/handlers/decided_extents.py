"""Extents that must be numbers, and that the model leaves to the run although the rest of the node decides them.

They are taken to be what they must be, and the run checks that: the kernel of a convolution by ``kernel_shape``, the depth of
positions by the ranks of what they lead to, the length of a vector of bounds by that of the other bounds. A convolution whose
kernel nothing decides is an operator of its own, which passes that count taps leave alone. What a Squeeze without axes leaves out
are the extents of 1: a symbol is taken for another number, in a way of its own for 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from compiler_service.compiler.frontend.handlers.equality import Equality, choose
from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.handler import Handler, Importer
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.scope import Frame, GraphDraft, Special
from compiler_service.compiler.frontend.requirements.defining import Nodes
from compiler_service.compiler.tensor_expr.refusal import unknown_extent
from shared_ir.expr import Const, Expr, equal
from shared_ir.expr.dim import Dim
from shared_ir.expr.simplify import simplify
from shared_ir.graph.ir import Value

Depth: TypeAlias = Callable[[SourceNode, Sequence[Value]], int | None]

_WEIGHTS: Mapping[str, int] = MappingProxyType(
    {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3, "DeformConv": 1}
)
"""By operator, the number of the operand that holds the weights."""
_OPEN: Mapping[str, str] = MappingProxyType({"Conv": "ingot.OpenConv", "ConvTranspose": "ingot.OpenConvTranspose"})


def convolution(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    """The plain operator, unless its weights are of unknown size."""
    name = node.input(_WEIGHTS[node.op])
    weights, sizes = frame.lookup(name), node.attributes.get("kernel_shape")
    if not isinstance(weights, Value) or all(isinstance(d, int) for d in weights.shape[2:]):
        importer.operator(node, frame, draft)
    elif sizes and len(sizes) == weights.type.rank - 2:
        shaped = Nodes(node, draft, importer.context).of_shape(weights, (*weights.shape[:2], *sizes))
        importer.operator(_reading(node, frame, name, shaped), frame, draft)
    else:
        importer.operator(node.with_(op=_OPEN.get(node.op, node.op)), frame, draft)


def _reading(node: SourceNode, frame: Frame, name: str, value: Value) -> SourceNode:
    """``node`` with ``value`` in place of what is called ``name``."""
    own = frame.define(name, value)
    return node.with_(inputs=tuple(own if n == name else n for n in node.inputs))


def squeeze(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    """With the axes named that are left out."""
    x, context = frame.lookup(node.input(0)), importer.context
    if frame.lookup(node.input(1)) is not Special.ABSENT or not isinstance(x, Value):
        importer.operator(node, frame, draft)
        return
    axes = [axis for axis, extent in enumerate(x.shape) if _is_one(extent, node, draft, context)]
    own = frame.define("axes", Nodes(node, draft, context).integers(*axes))
    importer.operator(node.with_(inputs=(node.inputs[0], own)), frame, draft)


def _is_one(extent: Dim, node: SourceNode, draft: GraphDraft, context: Context) -> bool:
    if not isinstance(extent, Expr):
        return extent == 1
    verdict = simplify(equal(extent, 1))
    if isinstance(verdict, Const):
        return bool(verdict.value)
    return choose(Equality(extent, 1, holds=True), node, draft, context, usual=False)


def _gather_depth(node: SourceNode, operands: Sequence[Value]) -> int | None:
    """Positions lead along at least one of the axes that are no batch: all that there are, if there is one. The result has the
    axes of the positions but the last, and those of the data that no position leads along."""
    free = operands[0].type.rank - int(node.attributes.get("batch_dims", 0))
    if free == 1 or node.result_rank is None:
        return free if free == 1 else None
    return operands[1].type.rank - 1 + free - node.result_rank


def _scatter_depth(node: SourceNode, operands: Sequence[Value]) -> int | None:
    """An update has the axes of the positions but the last, and those of the data that no position leads along."""
    data, positions, updates = (v.type.rank for v in operands[:3])
    return positions - 1 + data - updates


_DEPTHS: Mapping[str, Depth] = MappingProxyType({"GatherND": _gather_depth, "ScatterND": _scatter_depth})


def positions(node: SourceNode, frame: Frame, draft: GraphDraft, importer: Importer) -> None:
    """The plain operator over positions of known depth."""
    operands = [b for b in map(frame.lookup, node.inputs) if isinstance(b, Value)]
    if len(operands) == len(node.inputs) > 1 and operands[1].shape and not isinstance(operands[1].shape[-1], int):
        indices, depth = operands[1], _DEPTHS[node.op](node, operands)
        if depth is None or not 1 <= depth <= operands[0].type.rank:
            raise unknown_extent("indices", indices.name, indices.shape, "the last one decides the axes of the result")
        shaped = Nodes(node, draft, importer.context).of_shape(indices, (*indices.shape[:-1], depth))
        node = _reading(node, frame, node.input(1), shaped)
    importer.operator(node, frame, draft)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {**dict.fromkeys(_WEIGHTS, convolution), **dict.fromkeys(_DEPTHS, positions), "Squeeze": squeeze}
)
