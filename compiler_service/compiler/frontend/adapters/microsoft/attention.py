"""Attention with its projections and with separate operands, and rotary embedding."""

from __future__ import annotations

import math

import numpy as np

from compiler_service.compiler.frontend.adapters.chain import Chain
from compiler_service.compiler.frontend.adapters.microsoft.heads import Heads
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode
from shared_ir.dtype import DType

Nodes = tuple[SourceNode, ...]

_OUTPUT_OF_PRODUCTS = 3
"""The output of MultiHeadAttention that holds the products before the softmax."""


def static(operands: Operands, name: str, axis: int) -> int:
    """An extent that must be a number.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE.
    """
    found = operands.shape(name)[axis]
    if not isinstance(found, int):
        raise operands.unsupported("width", "a static number of features", str(found))
    return found


def attention(node: SourceNode, operands: Operands) -> Nodes:
    """Inputs: input [b, s, d], weights [d, 3h], bias [3h], mask, past [2, b, n, p, h / n], attention_bias."""
    chain = Chain(node, operands)
    _refuse_inputs(chain, 6)
    x, weights, bias = node.inputs[0], node.inputs[1], node.input(2)
    projected = chain.add("MatMul", x, weights)
    projected = chain.add("Add", projected, bias) if bias else projected
    self_attention(chain, projected, static(operands, weights, 1), x, (node.input(3), node.input(4), node.input(5)))
    return tuple(chain.nodes)


def self_attention(chain: Chain, projected: str, width: int, like: str, rest: tuple[str, str, str]) -> None:
    """From the projections ``[b, s, width]`` side by side to the outputs; ``rest``: mask, past, attention bias."""
    operands, (mask, past, added) = chain.operands, rest
    heads = chain.attribute("num_heads")
    sizes = chain.attribute("qkv_hidden_sizes") or (width // 3,) * 3
    parts = chain.add_many("Split", (projected, operands.int64s("sizes", sizes)), 3, axis=-1)
    core = core_of(chain, like, sizes[0] // heads)
    query, key, value = (core.split(p, heads) for p in parts)
    if past:
        halves = chain.add_many("Split", (past,), 2, axis=0, num_outputs=2)
        before = [chain.add("Squeeze", h, operands.int64s("pair", (0,))) for h in halves]
        key, value = (chain.add("Concat", b, new, axis=2) for b, new in zip(before, (key, value), strict=True))
    if chain.node.outputs[1:2] and chain.node.outputs[1]:
        pair = [chain.add("Unsqueeze", v, operands.int64s("pair", (0,))) for v in (key, value)]
        chain.as_output(chain.add("Concat", *pair, axis=0), 1)
    if mask:
        core.mask_padding(mask, key, operands.shape(chain.node.inputs[0])[0])
    _finish(core, added, query, key, value)


def _refuse_inputs(chain: Chain, *indices: int) -> None:
    """Lengths of buffers that past and present share, and the beams of their rows."""
    for name in filter(None, map(chain.node.input, indices)):
        raise chain.operands.unsupported("inputs", "past key and value that the output extends", name)


def core_of(chain: Chain, like: str, width: int) -> Heads:
    scale = chain.attribute("scale", 0.0) or 1 / math.sqrt(width)
    lowest = -65504.0 if chain.operands.dtype(like) is DType.FLOAT16 else float(np.finfo(np.float32).min)
    return Heads(chain, like, scale, chain.attribute("mask_filter_value", -10000.0), lowest)


def _finish(core: Heads, added: str, query: str, key: str, value: str) -> None:
    if core.chain.attribute("unidirectional"):
        core.mask_future(query, key)
    if added:
        core.biases.append(added)
    products = core.biased(core.products(query, key))
    core.chain.as_output(products, _OUTPUT_OF_PRODUCTS)
    core.chain.as_output(core.weighted(core.weights(products), value))


def multi_head_attention(node: SourceNode, operands: Operands) -> Nodes:
    """Inputs: query, key, value, bias, key padding mask, attention bias, past key, past value.

    Query ``[b, s, d]`` with key and value ``[b, t, d]`` or ``[b, n, t, h]``, or packed ``[b, s, n, 3, h]``, or a packed key
    ``[b, t, n, 2, h]``.
    """
    chain = Chain(node, operands)
    heads, query = chain.attribute("num_heads"), node.inputs[0]
    _refuse_inputs(chain, 8, 9)
    packed = operands.rank(query) == 5
    width = static(operands, query, 4) if packed else static(operands, query, 2) // heads
    core = core_of(chain, query, width)
    parts = _operands_of(core, heads, width)
    presents = []
    for index, (own, past) in enumerate(zip(parts[1:], (node.input(6), node.input(7)), strict=True), 1):
        presents.append(chain.add("Concat", past, own, axis=2) if past else own)
        chain.as_output(presents[-1], index)
    key, value = presents
    if node.input(4):
        core.mask_padding(node.input(4), key, operands.shape(query)[0])
    _finish(core, node.input(5), parts[0], key, value)
    return tuple(chain.nodes)


def _operands_of(core: Heads, heads: int, width: int) -> list[str]:
    """Query, key, value as ``[b, n, s, h]``, with their biases."""
    chain, operands = core.chain, core.chain.operands
    query, key, value = chain.node.inputs[0], chain.node.input(1), chain.node.input(2)
    if not key:
        return [_picked(chain, query, number) for number in range(3)]
    names = [query, key, value]
    if chain.node.input(3):
        total = static(operands, chain.node.input(3), 0)
        sizes = operands.int64s("sizes", (heads * width, heads * width, total - 2 * heads * width))
        biases = chain.add_many("Split", (chain.node.input(3), sizes), 3, axis=0)
    else:
        biases = ()
    found = []
    for index, name in enumerate(names):
        if index and operands.rank(key) == 5:
            found.append(_picked(chain, key, index - 1))
        elif operands.rank(name) == 4:
            found.append(name)
        else:
            found.append(core.split(chain.add("Add", name, biases[index]) if biases else name, heads))
    return found


def _picked(chain: Chain, packed: str, number: int) -> str:
    """Tensor ``number`` of ``[b, s, n, tensors, h]`` as ``[b, n, s, h]``."""
    index = chain.operands.constant("number", np.array(number, np.int64))
    return chain.add("Transpose", chain.add("Gather", packed, index, axis=3), perm=(0, 2, 1, 3))


def rotary_embedding(node: SourceNode, operands: Operands) -> Nodes:
    """Inputs: x, positions ``[b, s]`` or one offset ``[1]``, tables of cosines and sines ``[positions, h / 2]``."""
    chain = Chain(node, operands)
    x, positions, cosines, sines = node.inputs
    if operands.rank(positions) == 1:
        core = Heads(chain, x, 1.0)
        rows = chain.add("Shape", x, start=operands.rank(x) - 2, end=operands.rank(x) - 1)
        steps = core.count(rows)
        shape = chain.add("Concat", chain.add("Shape", x, start=0, end=1), rows, axis=0)
        positions = chain.add("Expand", chain.add("Add", steps, positions), shape)
    chain.as_output(rotated(chain, x, (positions, cosines, sines), chain.attribute("num_heads", 0)))
    return tuple(chain.nodes)


def rotated(chain: Chain, x: str, tables: tuple[str, str, str], heads: int, interleaved: str = "interleaved") -> str:
    """The standard operator; ``tables``: positions, cosines, sines."""
    operands, (positions, cosines, sines) = chain.operands, tables
    turned = chain.attribute("rotary_embedding_dim", 0)
    if not heads and x in chain.node.inputs and operands.rank(x) == 3:
        heads = static(operands, x, 2) // (2 * static(operands, cosines, 1))
    attributes = {"interleaved": chain.attribute(interleaved, 0), "num_heads": heads, "rotary_embedding_dim": turned}
    return chain.add("RotaryEmbedding", x, cosines, sines, positions, **attributes)
