"""Operands of which the standard says how many elements they have: one position, one limit, one condition, one rate.

Many exporters give them as vectors, and some with an extent that only the run knows. Whatever becomes of the node, in
the graph or beside it, then reads an element that may not be there; so the run checks the extent, and everything
behind sees a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compiler_service.compiler.frontend.importing.context import Context
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.importing.objects import is_object
from compiler_service.compiler.frontend.importing.scope import Frame, GraphDraft
from compiler_service.compiler.frontend.requirements.defining import Nodes
from compiler_service.compiler.tensor_expr.refusal import mismatch
from shared_ir.expr.dim import Dim, dims_text
from shared_ir.graph.ir import Value


def of_few_elements(node: SourceNode, frame: Frame, draft: GraphDraft, context: Context) -> SourceNode:
    """``node`` with operands whose number of elements is known where the standard says it; the run checks the others.

    Raises:
        IngotError: TYPE_MISMATCH, an operand has another number of elements.
    """
    counts = FEW.get(node.qualified, {})
    inputs = list(node.inputs)
    for index, count in counts.items():
        name = node.input(index)
        found = frame.lookup(name) if name else None
        if not isinstance(found, Value) or is_object(found):
            continue
        shape = _shape(found.shape, count)
        if shape is None:
            raise mismatch(_wrong(node, name), _elements(count), f"[{dims_text(found.shape)}]")
        if shape != found.shape:
            inputs[index] = frame.define(name, Nodes(node, draft, context).of_shape(found, shape))
    return node.with_(inputs=tuple(inputs))


def _shape(shape: tuple[Dim, ...], count: int) -> tuple[int, ...] | None:
    """That of ``count`` elements which ``shape`` may be; None where it is none."""
    wanted = (1,) * len(shape) if count == 1 else (count,)
    fits = len(shape) == len(wanted) and all(
        d == w or not isinstance(d, int) for d, w in zip(shape, wanted, strict=True)
    )
    return wanted if fits else None


def _wrong(node: SourceNode, name: str) -> str:
    return f"the operand {name!r} of {node.op} has the wrong number of elements"


def _elements(count: int) -> str:
    return "1 element" if count == 1 else f"a vector of {count} elements"


def _ones(*operands: int) -> Mapping[int, int]:
    return dict.fromkeys(operands, 1)


FEW: Mapping[str, Mapping[int, int]] = MappingProxyType(
    {
        "BlackmanWindow": _ones(0),
        "Clip": _ones(1, 2),
        "ConvInteger": _ones(2),
        "CumProd": _ones(1),
        "CumSum": _ones(1),
        "DFT": _ones(1, 2),
        "Dropout": _ones(1, 2),
        "HammingWindow": _ones(0),
        "HannWindow": _ones(0),
        "If": _ones(0),
        "Loop": _ones(0, 1),
        "MelWeightMatrix": _ones(0, 1, 2, 3, 4),
        "NonMaxSuppression": _ones(2, 3, 4),
        "OneHot": {1: 1, 2: 2},
        "Pad": _ones(2),
        "QLinearConv": _ones(1, 2, 6, 7),
        "Range": _ones(0, 1, 2),
        "STFT": _ones(1, 3),
        "SequenceAt": _ones(1),
        "SequenceErase": _ones(1),
        "SequenceInsert": _ones(2),
        "TopK": _ones(1),
        "Trilu": _ones(1),
        "ai.onnx.preview.training.Adagrad": _ones(0, 1),
        "ai.onnx.preview.training.Adam": _ones(0, 1),
        "ai.onnx.preview.training.Momentum": _ones(0, 1),
        "com.microsoft.GroupQueryAttention": _ones(6),
    }
)
"""Operator -> operand -> its number of elements.

``tests/compiler_service/compiler/frontend/test_few_elements.py`` compares it with the schemas.
"""
