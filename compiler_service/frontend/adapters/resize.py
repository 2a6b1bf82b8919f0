"""Upsample and the first Resize."""

from __future__ import annotations

import numpy as np

from compiler_service.frontend.node import SourceNode
from compiler_service.frontend.operands import Operands

Nodes = tuple[SourceNode, ...]

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}


def upsample(node: SourceNode, operands: Operands) -> Nodes:
    """Upsample (scales as attributes in 1 and 7, as an input in 9) is Resize with asymmetric coordinates."""
    x = node.inputs[0]
    if "scales" in node.attributes:
        scales = _scales(node.attributes["scales"], operands)
    elif "height_scale" in node.attributes:
        scales = _scales((1.0, 1.0, node.attributes["height_scale"], node.attributes["width_scale"]), operands)
    else:
        scales = node.input(1)
    return (_resize(node, x, scales, operands),)


def resize_10(node: SourceNode, operands: Operands) -> Nodes:
    """Resize of opset 10 had no coordinate modes: asymmetric, and nearest by rounding down."""
    return (_resize(node, node.inputs[0], node.input(1), operands),)


def _scales(values: tuple[float, ...], operands: Operands) -> str:
    return operands.constant("scales", np.array(values, dtype=np.float32))


def _resize(node: SourceNode, x: str, scales: str, operands: Operands) -> SourceNode:
    mode = node.attributes.get("mode", "nearest")
    if mode not in _MODES:
        raise operands.unsupported("mode", ", ".join(_MODES), str(mode))
    attributes = {"mode": _MODES[mode], "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return node.with_(op="Resize", inputs=(x, "", scales), attributes=attributes)
