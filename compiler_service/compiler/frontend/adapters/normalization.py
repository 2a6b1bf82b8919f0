"""Softmax over a flattened tail, batch and group normalisation of older opsets."""

from __future__ import annotations

from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode

Nodes = tuple[SourceNode, ...]


def softmax(node: SourceNode, operands: Operands) -> Nodes:
    """Softmax, LogSoftmax, Hardmax before 13: the input is seen as 2-D, ``[prod(dims[:axis]), prod(dims[axis:])]``."""
    x, output = node.inputs[0], node.outputs[0]
    rank = operands.rank(x)
    axis = node.attributes.get("axis", 1)
    if not -rank <= axis <= rank:
        raise operands.unsupported("axis", f"{-rank} to {rank}", str(axis))
    axis = axis + rank if axis < 0 else axis
    if axis == rank - 1:
        return (node.with_(attributes={**node.attributes, "axis": -1}),)
    shape, flat, result = (operands.fresh(n) for n in ("shape", "flat", "result"))
    return (
        node.sibling("Shape", (x,), shape),
        node.sibling("Flatten", (x,), flat, axis=axis),
        node.with_(inputs=(flat,), outputs=(result,), attributes={**node.attributes, "axis": -1}),
        node.sibling("Reshape", (result, shape), output),
    )


def batch_normalization(node: SourceNode, operands: Operands) -> Nodes:
    """BatchNormalization before 14: ``spatial`` and ``is_test`` go; more than one output meant training."""
    if node.attributes.get("spatial", 1) != 1:
        raise operands.unsupported("spatial", "1", "0")
    if any(node.outputs[1:]):
        raise operands.unsupported("outputs", "one output (inference)", "training outputs")
    return (node.with_(outputs=node.outputs[:1], attributes=node.without("spatial", "is_test", "consumed_inputs")),)


def group_normalization(node: SourceNode, operands: Operands) -> Nodes:
    """GroupNormalization before 21: scale and bias hold one element per group; today one per channel."""
    x, *parameters = node.inputs
    channels, groups = operands.shape(x)[1], node.attributes["num_groups"]
    if not isinstance(channels, int) or channels % groups:
        raise operands.unsupported("num_groups", "a divisor of a static number of channels", f"{groups} of {channels}")
    nodes: list[SourceNode] = []
    widened = []
    column = operands.int64s("column", (groups, 1))
    table = operands.int64s("table", (groups, channels // groups))
    flat = operands.int64s("flat", (channels,))
    for label, parameter in zip(("scale", "bias"), parameters, strict=True):
        tall, wide, result = (operands.fresh(f"{label}_{n}") for n in ("tall", "wide", "per_channel"))
        nodes += [
            node.sibling("Reshape", (parameter, column), tall),
            node.sibling("Expand", (tall, table), wide),
            node.sibling("Reshape", (wide, flat), result),
        ]
        widened.append(result)
    return (*nodes, node.with_(inputs=(x, *widened)))
