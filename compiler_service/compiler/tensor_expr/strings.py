"""Which operators take strings: those that move elements or compare them for equality, and never look into them.

Strings are numbers where they are computed with, so nothing later would notice a string in the place of an index.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compiler_service.compiler.tensor_expr.operator import Inputs
from compiler_service.compiler.tensor_expr.refusal import mismatch, unsupported_attribute, unsupported_dtype
from shared_ir.dtype import DType
from shared_ir.graph.ir import Attribute

_ALL = -1
_FIRST = (
    *(
        "Identity",
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Transpose",
        "Split",
        "Slice",
        "Expand",
        "Tile",
        "Gather",
    ),
    *("GatherElements", "GatherND", "Shape", "Size", "ReverseSequence", "Trilu", "SpaceToDepth", "DepthToSpace"),
    "ingot.SliceAt",
)

MOVERS: Mapping[str, tuple[tuple[int, ...], ...]] = MappingProxyType(
    {
        **dict.fromkeys(_FIRST, ((0,),)),
        **dict.fromkeys(("Pad", "ScatterElements", "ScatterND"), ((0, 2),)),
        "ingot.PadAt": ((0, 3),),
        "Concat": ((_ALL,),),
        "Equal": ((0, 1),),
        "OneHot": ((2,),),
        "Where": ((1, 2),),
        "ingot.Lookup": ((0, 1), (2,)),
        "ingot.NgramCounts": ((0, 1),),
        "ingot.LastNgrams": ((0, 1),),
    }
)
"""Operator -> groups of operands that may hold strings: all of a group, or none."""


def check_strings(op: str, inputs: Inputs, attributes: Mapping[str, Attribute]) -> None:
    """Refuse strings where ``op`` takes none.

    Raises:
        IngotError: UNSUPPORTED_DTYPE, TYPE_MISMATCH (strings and others in one group), UNSUPPORTED_ATTRIBUTE (arithmetic).
    """
    strings = {i for i, x in enumerate(inputs) if x is not None and x.dtype is DType.STRING}
    if not strings:
        return
    groups = [set(range(len(inputs))) if _ALL in g else set(g) for g in MOVERS.get(op, ())]
    for place in strings:
        if not any(place in group for group in groups):
            raise unsupported_dtype(op, DType.STRING, "numbers or bool")
    present = {i for i, x in enumerate(inputs) if x is not None}
    for group in groups:
        if strings & group and not group & present <= strings:
            received = ", ".join("nothing" if x is None else str(x.dtype) for x in inputs)
            raise mismatch(f"{op} takes strings together with others", "one element type", received)
    reduction = attributes.get("reduction", "none")
    if reduction != "none":
        raise unsupported_attribute("reduction", "none, of strings", str(reduction))
