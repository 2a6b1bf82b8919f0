"""How operators are computed in a permuted layout. A handler emits the node and answers True, or declines."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType

from compiler_service.compiler.graph_passes.analysis.values import dims_of, integers
from compiler_service.compiler.graph_passes.layout.reshape import reshape
from compiler_service.compiler.graph_passes.layout.state import LayoutState, Perm, channels_last, identity, inverse
from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute
from compiler_service.compiler.graph_passes.rewriting.operands import permutation
from compiler_service.compiler.tensor_expr.registry import OPERATORS
from shared_ir.expr.dim import Dim, static
from shared_ir.graph.ir import Node, Value

Handler = Callable[[Node, LayoutState], bool]

CHANNELS_FIRST, CHANNELS_LAST = "NCHW", "NHWC"
"""Values of the attribute ``layout``, whatever the number of spatial axes."""
_FEW_CHANNELS = 4
_FIRST_CONVOLUTIONS = ("Conv", "ConvInteger", "ingot.ExactConv")

RANKS = (3, 4, 5)


def knows_layouts(op: str) -> bool:
    """Whether the definition of an operator takes the attribute ``layout``."""
    operator = OPERATORS.get(op)
    return operator is not None and "layout" in inspect.signature(operator.definition).parameters


def anchor(node: Node, state: LayoutState) -> bool:
    """Convolutions and pools: always computed channels last.

    A convolution of a few channels that come first (an image's colours) reads them as they are: vectors of pixels are padded
    faster than single pixels, and nothing is transposed.
    """
    x = node.operands[0]
    if x.type.rank not in RANKS or not _gives_first_alone(node) or not knows_layouts(node.op):
        return False
    perm = channels_last(x.type.rank)
    if node.op in _FIRST_CONVOLUTIONS and _has_few_channels(node) and perm not in state.layouts(x):
        rest = [None if v is None else state.plain(v) for v in node.inputs]
        attributes = {**node.attributes, "layout": CHANNELS_LAST, "data_layout": CHANNELS_FIRST}
        state.define(node, _only_first(node, perm), rest, attributes)
        return True
    rest = [None if v is None else state.plain(v) for v in node.inputs[1:]]
    attributes = {**node.attributes, "layout": CHANNELS_LAST}
    state.define(node, _only_first(node, perm), [state.get(x, perm), *rest], attributes)
    return True


def _has_few_channels(node: Node) -> bool:
    channels = node.operands[0].shape[1]
    return isinstance(channels, int) and channels <= _FEW_CHANNELS and int_attribute(node, "group", 1) == 1


def follower(node: Node, state: LayoutState) -> bool:
    """Operators that know both layouts: computed in the one that the operand comes in."""
    x = node.operands[0]
    if x.type.rank not in RANKS or channels_last(x.type.rank) not in state.layouts(x):
        return False
    return anchor(node, state)


def elementwise(node: Node, state: LayoutState) -> bool:
    """All operands in the layout that costs least; operands with fewer axes are filled up first."""
    result = node.results[0]
    rank = result.type.rank
    full = [v for v in node.operands if v.type.rank == rank and not state.is_constant(v)]
    if not full:
        return False
    perm = state.cheapest(full)
    inputs = [None if v is None else _aligned(v, rank, perm, state) for v in node.inputs]
    state.define(node, _only_first(node, perm), inputs, node.attributes)
    return True


def _aligned(value: Value, rank: int, perm: Perm, state: LayoutState) -> Value:
    """``value`` as an operand that broadcasts against tensors of ``rank`` axes in layout ``perm``."""
    if value.type.rank == rank:
        return state.get(value, perm)
    if perm == identity(rank) or all(d == 1 for d in value.shape):
        return state.plain(value)
    shape = (*(1,) * (rank - value.type.rank), *value.shape)
    builder = state.builder
    array = builder.constants.get(value)
    if array is not None:
        moved = array.reshape([static(d) for d in shape]).transpose(perm)
        while moved.ndim > 1 and moved.shape[0] == 1:
            moved = moved[0]
        return builder.constant(moved, value.name)
    filled = builder.reshape(state.plain(value), shape)
    state.versions[filled] = {identity(rank): filled}
    return state.get(filled, perm)


def along_axis(node: Node, state: LayoutState) -> bool:
    """``Concat``, ``Split``, ``Softmax``, ``ingot.SumBytes``: one axis attribute."""
    wide = [v for v in node.operands if v.type.rank == node.operands[0].type.rank]
    rank = wide[0].type.rank
    if node.op == "Split":
        wide = wide[:1]
    perm = state.cheapest(wide)
    axis = int_attribute(node, "axis", _DEFAULT_AXIS.get(node.op, 0))
    moved = [state.get(v, perm) for v in wide]
    rest = [None if v is None else state.plain(v) for v in node.inputs[len(wide) :]]
    attributes = {**node.attributes, "axis": perm.index(axis % rank)}
    state.define(node, [None if v is None else perm for v in node.outputs], [*moved, *rest], attributes)
    return True


_DEFAULT_AXIS = {"Softmax": -1, "ingot.SafeSoftmax": -1, "LogSoftmax": -1, "Hardmax": -1}


def reduction(node: Node, state: LayoutState) -> bool:
    """``Reduce*`` over axes that are known, or over all of them."""
    x = node.operands[0]
    rank, perm = x.type.rank, state.native(x)
    given = node.inputs[1] if len(node.inputs) > 1 else None
    axes = tuple(range(rank)) if given is None else integers(state.known.get(given))
    if not axes or (given is None and int_attribute(node, "noop_with_empty_axes")):
        return False
    reduced = {a % rank for a in axes}
    if node.attributes.get("keepdims", 1):
        result = perm
    else:
        kept = [a for a in range(rank) if a not in reduced]
        result = tuple(kept.index(a) for a in perm if a not in reduced)
    moved = state.builder.integers(*sorted(perm.index(a) for a in reduced), name="axes")
    state.define(node, [result], [state.get(x, perm), moved], node.attributes)
    return True


def arg_reduction(node: Node, state: LayoutState) -> bool:
    """``ArgMax``, ``ArgMin`` that keep the axis."""
    x = node.operands[0]
    axis = int_attribute(node, "axis")
    if not node.attributes.get("keepdims", 1):
        return False
    perm = state.native(x)
    state.define(node, [perm], [state.get(x, perm)], {**node.attributes, "axis": perm.index(axis % x.type.rank)})
    return True


def transpose(node: Node, state: LayoutState) -> bool:
    """Nothing is computed: the result is the operand in another layout."""
    x, result = node.operands[0], node.results[0]
    back = inverse(permutation(node))
    versions = {tuple(back[axis] for axis in perm): value for perm, value in state.layouts(x).items()}
    if state.is_constant(x):
        return False
    state.versions[result] = versions
    return True


def slices(node: Node, state: LayoutState) -> bool:
    """``Slice``: its axes are renamed."""
    x, starts = node.operands[0], node.operands[1]
    given = node.inputs[3] if len(node.inputs) > 3 else None
    count = starts.shape[0]
    axes = (
        integers(state.known.get(given))
        if given is not None
        else tuple(range(count))
        if isinstance(count, int)
        else None
    )
    if axes is None:
        return False
    perm = state.native(x)
    moved = state.builder.integers(*[perm.index(a % x.type.rank) for a in axes], name="axes")
    bounds = [state.plain(v) for v in node.operands[1:3]]
    steps = [state.plain(v) for v in node.inputs[4:] if v is not None]
    state.define(node, [perm], [state.get(x, perm), *bounds, moved, *steps], node.attributes)
    return True


def pad(node: Node, state: LayoutState) -> bool:
    """``Pad`` of all axes: the amounts are permuted."""
    x = node.operands[0]
    amounts = _known_dims(node.inputs[1], state)
    rank = x.type.rank
    if amounts is None or len(amounts) != 2 * rank or any(v is not None for v in node.inputs[3:]):
        return False
    perm = state.native(x)
    moved = [amounts[p] for p in perm] + [amounts[rank + p] for p in perm]
    fill = [None if v is None else state.plain(v) for v in node.inputs[2:3]]
    state.define(node, [perm], [state.get(x, perm), state.builder.dims(moved, "pads"), *fill], node.attributes)
    return True


def per_axis(node: Node, state: LayoutState) -> bool:
    """``Expand``, ``Tile``: one number per axis of the result."""
    x = node.operands[0]
    numbers = _known_dims(node.inputs[1], state)
    if numbers is None or len(numbers) != x.type.rank or node.results[0].type.rank != x.type.rank:
        return False
    perm = state.native(x)
    moved = state.builder.dims([numbers[p] for p in perm])
    state.define(node, [perm], [state.get(x, perm), moved], node.attributes)
    return True


def last_axis_normalization(node: Node, state: LayoutState) -> bool:
    """``LayerNormalization`` or ``RMSNormalization`` over the last axis alone, where the layout keeps that axis last."""
    x = node.operands[0]
    rank, perm, axis = x.type.rank, state.native(x), node.attributes.get("axis", -1)
    if axis not in (-1, rank - 1) or perm[-1] != rank - 1 or not _gives_first_alone(node):
        return False
    rest = [None if v is None else state.plain(v) for v in node.inputs[1:]]
    state.define(node, _only_first(node, perm), [state.get(x, perm), *rest], node.attributes)
    return True


def plain(node: Node, state: LayoutState) -> bool:
    """Everything else: as it was."""
    inputs = [None if v is None else state.plain(v) for v in node.inputs]
    perms = [None if v is None else identity(v.type.rank) for v in node.outputs]
    state.define(node, perms, inputs, node.attributes)
    return True


def _gives_first_alone(node: Node) -> bool:
    """Not so where the ``Indices`` of a pool are asked for, with its maxima or without."""
    return node.results == node.outputs[:1]


def _only_first(node: Node, perm: Perm) -> list[Perm | None]:
    return [perm, *(None for _ in node.outputs[1:])]


def _known_dims(value: Value | None, state: LayoutState) -> tuple[Dim, ...] | None:
    known = None if value is None else state.known.get(value)
    return None if known is None else dims_of(known)


ANCHORS: frozenset[str] = frozenset({*_FIRST_CONVOLUTIONS, "ConvTranspose", "MaxPool", "AveragePool"})

HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(ANCHORS, anchor),
        **dict.fromkeys(
            (
                "GlobalAveragePool",
                "GlobalMaxPool",
                "BatchNormalization",
                "InstanceNormalization",
                "DepthToSpace",
                "SpaceToDepth",
                "LRN",
                "Resize",
                "GridSample",
                "RoiAlign",
            ),
            follower,
        ),
        **dict.fromkeys(("Concat", "Split", "ingot.SumBytes", *_DEFAULT_AXIS), along_axis),
        **dict.fromkeys(
            (
                "ReduceSum",
                "ReduceMean",
                "ReduceMax",
                "ReduceMin",
                "ReduceProd",
                "ReduceL1",
                "ReduceL2",
                "ReduceLogSum",
                "ReduceLogSumExp",
                "ReduceSumSquare",
            ),
            reduction,
        ),
        "ArgMax": arg_reduction,
        "ArgMin": arg_reduction,
        "Transpose": transpose,
        "Reshape": reshape,
        "Slice": slices,
        "Pad": pad,
        "Expand": per_axis,
        "Tile": per_axis,
        "LayerNormalization": last_axis_normalization,
        "RMSNormalization": last_axis_normalization,
    }
)
