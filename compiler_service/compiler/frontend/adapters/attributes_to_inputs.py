"""Attributes that later opsets made inputs: axes, splits, pads, limits, counts."""

from __future__ import annotations

import numpy as np

from compiler_service.compiler.frontend.adapters import decomposition
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode

Nodes = tuple[SourceNode, ...]


def axes(node: SourceNode, operands: Operands) -> Nodes:
    """Squeeze, Unsqueeze (before 13), Reduce* (before 18, ReduceSum before 13): ``axes`` becomes input 1."""
    given = node.attributes.get("axes")
    data = node.inputs[:1]
    inputs = data if given is None else (*data, operands.int64s("axes", given))
    return (node.with_(inputs=inputs, attributes=node.without("axes")),)


def split(node: SourceNode, operands: Operands) -> Nodes:
    """Split of 1 (lengths in the type of the data), before 13 (attribute ``split``) and 13 (parts told by outputs alone)."""
    attributes = node.without("split")
    given = node.attributes.get("split")
    if given:
        return (node.with_(inputs=(node.inputs[0], operands.int64s("split", given)), attributes=attributes),)
    if node.input(1) and node.opset == 1:
        lengths = operands.whole_numbers(node.inputs[1])
        if lengths is None:
            raise operands.unsupported("split", "constant whole numbers", "other values, or of the run")
        return (node.with_(inputs=(node.inputs[0], operands.int64s("split", lengths)), attributes=attributes),)
    if node.input(1):
        return (node.with_(attributes=attributes),)
    return (node.with_(inputs=node.inputs[:1], attributes={**attributes, "num_outputs": len(node.outputs)}),)


def slice_(node: SourceNode, operands: Operands) -> Nodes:
    """Slice before 10: ``starts``, ``ends``, ``axes`` become inputs. Axes or steps of the run: its bounds come first."""
    if node.opset >= 10:
        return _slice_of_the_run(node, operands)
    starts, ends = node.attributes["starts"], node.attributes["ends"]
    which = node.attributes.get("axes", tuple(range(len(starts))))
    names = [operands.int64s(k, v) for k, v in (("starts", starts), ("ends", ends), ("axes", which))]
    return (node.with_(inputs=(node.inputs[0], *names), attributes={}),)


def _slice_of_the_run(node: SourceNode, operands: Operands) -> Nodes:
    """Bounds alone may be the run's where axes are known and steps go forward: they are made known one by one."""
    forward = all(step > 0 for step in operands.integers(node.input(4)) or ()) if node.input(4) else True
    if all(map(operands.is_known, node.inputs[3:5])) and (forward or all(map(operands.is_known, node.inputs[1:3]))):
        return (node,)
    bounds = operands.fresh("bounds")
    return (
        decomposition.internal(node, "SliceBounds", node.inputs, bounds),
        decomposition.internal(node, "SliceAt", (node.inputs[0], bounds), node.outputs[0]),
    )


def pad(node: SourceNode, operands: Operands) -> Nodes:
    """Pad before 11: ``pads`` (``paddings`` in 1) and ``value`` become inputs."""
    pads = node.attributes.get("pads", node.attributes.get("paddings"))
    if pads is None:
        raise operands.unsupported("pads", "a value for pads", "none")
    data = node.inputs[0]
    value = operands.like("constant_value", node.attributes.get("value", 0.0), data)
    inputs = (data, operands.int64s("pads", pads), value)
    return (node.with_(inputs=inputs, attributes=node.without("pads", "paddings", "value")),)


def clip(node: SourceNode, operands: Operands) -> Nodes:
    """Clip before 11: ``min`` and ``max`` become inputs; their defaults are the limits of float32."""
    data = node.inputs[0]
    bounds = []
    for key, unbounded in (("min", np.finfo(np.float32).min), ("max", np.finfo(np.float32).max)):
        value = node.attributes.get(key)
        bounds.append("" if value is None or np.float32(value) == unbounded else operands.like(key, value, data))
    return (node.with_(inputs=(data, *bounds), attributes=node.without("min", "max")),)


def dropout(node: SourceNode, operands: Operands) -> Nodes:
    """Dropout before 12: ``ratio`` becomes an input; without ``training_mode`` nothing is dropped. Before 10 the mask has the type of
    what it masks."""
    ratio = operands.constant("ratio", np.array(node.attributes.get("ratio", 0.5), dtype=np.float32))
    newest = node.with_(inputs=(node.inputs[0], ratio), attributes=node.without("ratio", "is_test"))
    kept, *masks = node.outputs
    if node.opset >= 10 or not any(masks):
        return (newest,)
    mask = operands.fresh("mask")
    cast = node.sibling("Cast", (mask,), masks[0], to=operands.dtype(node.inputs[0]))
    return (newest.with_(outputs=(kept, mask)), cast)


def top_k(node: SourceNode, operands: Operands) -> Nodes:
    """TopK before 10 has ``k`` as an attribute, before 11 neither ``largest`` nor ``sorted``."""
    if "k" in node.attributes:
        node = node.with_(inputs=(node.inputs[0], operands.int64s("k", (node.attributes["k"],))))
    return decomposition.top_k(node.with_(attributes={"axis": -1, "largest": 1, **node.attributes}), operands)


def reshape(node: SourceNode, operands: Operands) -> Nodes:
    """Reshape before 5: ``shape`` becomes an input."""
    shape = operands.int64s("shape", node.attributes.get("shape", ()))
    return (node.with_(inputs=(node.inputs[0], shape), attributes={}),)


def tile(node: SourceNode, operands: Operands) -> Nodes:
    """Tile before 6: the repeats of one axis become one per axis."""
    tiles, axis = (operands.whole_numbers(n) for n in node.inputs[1:3])
    if tiles is None or axis is None or len(tiles) != 1 or len(axis) != 1:
        raise operands.unsupported(
            "axis", "constant tiles and axis, one whole number each", "other values, or of the run"
        )
    repeats = [1] * operands.rank(node.inputs[0])
    if not -len(repeats) <= axis[0] < len(repeats):
        raise operands.unsupported("axis", f"one of {len(repeats)} axes", str(axis[0]))
    repeats[axis[0]] = tiles[0]
    return (node.with_(inputs=(node.inputs[0], operands.int64s("repeats", repeats))),)


def dft(node: SourceNode, operands: Operands) -> Nodes:
    """DFT before 20: ``axis`` becomes an input."""
    if node.opset < 20:
        axis = operands.constant("axis", np.array(node.attributes.get("axis", 1), dtype=np.int64))
        node = node.with_(inputs=(node.inputs[0], node.input(1), axis))
    return decomposition.dft(node, operands)
