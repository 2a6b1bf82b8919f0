"""Attributes and operators that were renamed, retyped or dropped."""

from __future__ import annotations

from compiler_service.compiler.frontend.adapters import decomposition
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode
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
    """RoiAlign before 16 had no half-pixel shift. Where regions say how many samples are taken, their bins come first."""
    if node.opset < 16:
        node = node.with_(attributes={**node.attributes, "coordinate_transformation_mode": "output_half_pixel"})
    if node.attributes.get("sampling_ratio", 0):
        return (node,)
    own = {k: v for k, v in node.attributes.items() if k not in ("mode", "sampling_ratio")}
    bins, looked_at = [operands.fresh(name) for name in ("rows", "columns")], operands.fresh("samples")
    return (
        *(decomposition.internal(node, "RoiBins", node.inputs[:2], made, axis=a, **own) for a, made in enumerate(bins)),
        decomposition.internal(node, "RoiSamples", bins, looked_at),
        node.with_(inputs=(*node.inputs, *bins, looked_at)),
    )


_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_PEEPHOLES = 3


def recurrent(node: SourceNode, operands: Operands) -> Nodes:
    """RNN, GRU, LSTM: extents of weights and states that ``hidden_size`` and the direction fix are those, whatever the inputs call
    them. Before 7 ``output_sequence`` told what an absent output tells today."""
    if node.opset < 7:
        node = node.with_(attributes=node.without("output_sequence"))
    hidden = node.attributes.get("hidden_size")
    if not isinstance(hidden, int):
        return (node,)
    directions = 2 if node.attributes.get("direction") == "bidirectional" else 1
    rows = _GATES[node.op] * hidden
    state = (None, directions, hidden) if node.attributes.get("layout") else (directions, None, hidden)
    fixed: dict[int, tuple[int | None, ...]] = {1: (directions, rows, None), 2: (directions, rows, hidden)}
    fixed |= {3: (directions, 2 * rows), 5: state, 6: state, 7: (directions, _PEEPHOLES * hidden)}
    found, inputs = [], list(node.inputs)
    for index, extents in fixed.items():
        name = node.input(index)
        shape = operands.shape(name) if name else ()
        if len(shape) == len(extents) and any(
            not isinstance(d, int) and e is not None for d, e in zip(shape, extents, strict=True)
        ):
            inputs[index] = operands.fresh(f"{name}_fixed")
            wanted = tuple(-1 if e is None else e for e in extents)
            found.append(
                SourceNode("Fixed", (name,), (inputs[index],), {"extents": wanted}, "ingot", node.name, node.opset)
            )
    return (*found, node.with_(inputs=tuple(inputs)))


def norm_order(node: SourceNode, operands: Operands) -> Nodes:
    """LpPool and GlobalLpPool of opset 1 give ``p`` as a float."""
    p = float(node.attributes.get("p", 2.0))
    if not p.is_integer():
        raise operands.unsupported("p", "an integer", str(p))
    return (node.with_(attributes={**node.attributes, "p": int(p)}),)
