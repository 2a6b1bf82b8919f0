"""Attributes and operators that were renamed, retyped or dropped."""

from __future__ import annotations

from compiler_service.frontend.node import SourceNode
from compiler_service.frontend.operands import Operands
from shared_ir.dtype import DType

Nodes = tuple[SourceNode, ...]


_CAST_NAMES = {"FLOAT": DType.FLOAT32, "DOUBLE": DType.FLOAT64}


def cast_1(node: SourceNode, operands: Operands) -> Nodes:
    """Cast before 6 names its element type as a string."""
    name = str(node.attributes["to"]).upper()
    dtype = _CAST_NAMES.get(name)
    if dtype is None:
        try:
            dtype = DType(name.lower())
        except ValueError as error:
            raise operands.unsupported("to", "an element type", name) from error
    return (node.with_(attributes={"to": dtype}),)


def scatter(node: SourceNode, operands: Operands) -> Nodes:
    """Scatter was renamed in 11."""
    return (node.with_(op="ScatterElements"),)


def concat(node: SourceNode, operands: Operands) -> Nodes:
    """Concat before 4 has the axis 1 where none is given."""
    return (node.with_(attributes={"axis": 1, **node.attributes}),)


def grid_sample(node: SourceNode, operands: Operands) -> Nodes:
    """GridSample before 20 called its modes bilinear and bicubic."""
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = node.attributes.get("mode", "bilinear")
    return (node.with_(attributes={**node.attributes, "mode": names.get(mode, mode)}),)


def roi_align(node: SourceNode, operands: Operands) -> Nodes:
    """RoiAlign before 16 had no half-pixel shift."""
    return (node.with_(attributes={**node.attributes, "coordinate_transformation_mode": "output_half_pixel"}),)


def recurrent(node: SourceNode, operands: Operands) -> Nodes:
    """RNN, GRU, LSTM before 7: ``output_sequence`` told what an absent output tells today."""
    return (node.with_(attributes=node.without("output_sequence")),)


def norm_order(node: SourceNode, operands: Operands) -> Nodes:
    """LpPool and GlobalLpPool of opset 1 give ``p`` as a float."""
    p = float(node.attributes.get("p", 2.0))
    if not p.is_integer():
        raise operands.unsupported("p", "an integer", str(p))
    return (node.with_(attributes={**node.attributes, "p": int(p)}),)
