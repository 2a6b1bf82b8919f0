"""Binary operators before opset 7: no broadcasting unless asked for, and then from a given axis on."""

from __future__ import annotations

from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode

Nodes = tuple[SourceNode, ...]


def from_axis(node: SourceNode, operands: Operands) -> Nodes:
    """``broadcast=1, axis=k``: the axes of B line up with those of A from ``k`` on; today they line up at the end."""
    attributes = node.without("broadcast", "axis")
    axis = node.attributes.get("axis")
    plain = node.with_(attributes=attributes)
    if not node.attributes.get("broadcast", 0) or axis is None:
        return (plain,)
    a, b = node.inputs
    rank, given = operands.rank(a), operands.rank(b)
    trailing = rank - axis % rank - given
    if trailing < 0:
        raise operands.unsupported("axis", f"at most {rank - given}", str(axis))
    if trailing == 0:
        return (plain,)
    return _unsqueezed(plain, b, tuple(range(given, given + trailing)), operands)


def _unsqueezed(node: SourceNode, b: str, axes: tuple[int, ...], operands: Operands) -> Nodes:
    """``node`` reading ``b`` with axes of extent 1 put in."""
    wide = operands.fresh("unsqueezed")
    unsqueeze = node.sibling("Unsqueeze", (b, operands.int64s("axes", axes)), wide)
    return unsqueeze, node.with_(inputs=(node.inputs[0], wide))


def prelu(node: SourceNode, operands: Operands) -> Nodes:
    """PRelu before 7: a slope with one element per channel lines up with axis 1."""
    x, slope = node.inputs
    shape = operands.shape(slope)
    rank = operands.rank(x)
    if len(shape) != 1 or shape == (1,) or rank <= 2:
        return (node,)
    return _unsqueezed(node, slope, tuple(range(1, rank - 1)), operands)


def gemm(node: SourceNode, operands: Operands) -> Nodes:
    """Gemm before 7: C broadcasts only with ``broadcast=1``; today always."""
    return (node.with_(attributes=node.without("broadcast")),)
