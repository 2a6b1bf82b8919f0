"""Upsample and the first Resize."""

from __future__ import annotations

import numpy as np

from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode

Nodes = tuple[SourceNode, ...]

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}


def upsample(node: SourceNode, operands: Operands) -> Nodes:
    """Upsample (scales as attributes in 1 and 7, as an input in 9) is Resize with asymmetric coordinates."""
    if "scales" in node.attributes:
        scales = _scales(node.attributes["scales"], operands)
    elif "height_scale" in node.attributes:
        scales = _scales((1.0, 1.0, node.attributes["height_scale"], node.attributes["width_scale"]), operands)
    else:
        scales = node.input(1)
    return (_resize(node, scales, "floor", operands),)


def resize_10(node: SourceNode, operands: Operands) -> Nodes:
    """Resize of opset 10 had no coordinate modes: asymmetric, and ``nearest`` rounds up along axes that shrink, down
    along axes that grow (onnx's own test of it: 4 elements by 0.6 are elements 0 and 2)."""
    given = node.input(1)
    if node.attributes.get("mode", "nearest") != "nearest":
        return (_resize(node, given, "floor", operands),)
    scales = operands.numbers(given)
    if scales is None:
        return _resize_by_run(node, given, operands)
    shrinking, growing = tuple(min(s, 1.0) for s in scales), tuple(max(s, 1.0) for s in scales)
    if scales == growing:
        return (_resize(node, given, "floor", operands),)
    if scales == shrinking:
        return (_resize(node, given, "ceil", operands),)
    smaller = operands.fresh("smaller")
    first = _resize(node.with_(outputs=(smaller,)), _scales(shrinking, operands), "ceil", operands)
    second = _resize(node, _scales(growing, operands), "floor", operands)
    return first, second.with_(inputs=(smaller, *second.inputs[1:]))


def _resize_by_run(node: SourceNode, given: str, operands: Operands) -> Nodes:
    """As :func:`resize_10` by scales that only the run knows: down along the axes that shrink, then up along the others."""
    one = operands.constant("one", np.ones(1, np.float32))
    parts = []
    for op, label in (("Min", "shrinking"), ("Max", "growing")):
        parts.append(node.sibling(op, (given, one), operands.fresh(label)))
    smaller = operands.fresh("smaller")
    first = _resize(node.with_(outputs=(smaller,)), parts[0].outputs[0], "ceil", operands)
    second = _resize(node, parts[1].outputs[0], "floor", operands)
    return (*parts, first, second.with_(inputs=(smaller, *second.inputs[1:])))


def _scales(values: tuple[float, ...], operands: Operands) -> str:
    return operands.constant("scales", np.array(values, dtype=np.float32))


def _resize(node: SourceNode, scales: str, nearest: str, operands: Operands) -> SourceNode:
    mode = node.attributes.get("mode", "nearest")
    if mode not in _MODES:
        raise operands.unsupported("mode", ", ".join(_MODES), str(mode))
    attributes = {"mode": _MODES[mode], "coordinate_transformation_mode": "asymmetric", "nearest_mode": nearest}
    return node.with_(op="Resize", inputs=(node.inputs[0], "", scales), attributes=attributes)
