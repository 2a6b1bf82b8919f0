"""Layer normalisation with the residual, the bias and the embeddings before it."""

from __future__ import annotations

import numpy as np

from compiler_service.compiler.frontend.adapters.chain import Chain
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode
from shared_ir.dtype import DType

Nodes = tuple[SourceNode, ...]

_OUTPUT_OF_SUM = 3
"""The output of the skip forms that holds what is normalised."""


def skip_layer_normalization(node: SourceNode, operands: Operands) -> Nodes:
    """``layer_norm(input + skip + bias)``; inputs input, skip, gamma, beta, bias."""
    chain = Chain(node, operands)
    total = _skipped(chain, node.input(4))
    scale = node.inputs[2]
    inputs = (total, scale, node.input(3)) if node.input(3) else (total, scale)
    asked = max((i + 1 for i, o in enumerate(node.outputs[:_OUTPUT_OF_SUM]) if o), default=1)
    results = chain.add_many(
        "LayerNormalization",
        inputs,
        asked,
        axis=-1,
        epsilon=chain.attribute("epsilon"),
        stash_type=DType.FLOAT32,
    )
    for index, result in enumerate(results):
        chain.as_output(result, index)
    return tuple(chain.nodes)


def skip_simplified_layer_normalization(node: SourceNode, operands: Operands) -> Nodes:
    """``rms_norm(input + skip + bias)``; inputs input, skip, gamma, bias."""
    chain = Chain(node, operands)
    if node.outputs[1:2] and node.outputs[1]:
        raise operands.unsupported("outputs", "no mean, which this normalisation does without", node.outputs[1])
    total = _skipped(chain, node.input(3))
    _root_mean_square(chain, total, node.inputs[2], -1, 2)
    return tuple(chain.nodes)


def simplified_layer_normalization(node: SourceNode, operands: Operands) -> Nodes:
    """``rms_norm(x)``: an operator that ONNX Runtime writes into the standard domain."""
    chain = Chain(node, operands)
    _root_mean_square(chain, node.inputs[0], node.inputs[1], chain.attribute("axis"), 1)
    return tuple(chain.nodes)


def _root_mean_square(chain: Chain, x: str, scale: str, axis: int, deviation: int) -> None:
    """The normalised tensor, and the reciprocal of what it was divided by as output ``deviation``, if that is asked for."""
    epsilon, outputs = chain.attribute("epsilon"), chain.node.outputs
    normal = chain.add("RMSNormalization", x, scale, axis=axis, epsilon=epsilon, stash_type=DType.FLOAT32)
    chain.as_output(normal)
    if outputs[deviation : deviation + 1] and outputs[deviation]:
        rank = chain.operands.rank(chain.node.inputs[0])
        axes = chain.operands.int64s("axes", tuple(range(axis % rank, rank)))
        wide = chain.add("Cast", x, to=DType.FLOAT32)
        mean = chain.add("ReduceMean", chain.add("Mul", wide, wide), axes, keepdims=1)
        root = chain.add("Sqrt", chain.add("Add", mean, chain.constant("epsilon", epsilon)))
        chain.as_output(chain.add("Reciprocal", root), deviation)


def _skipped(chain: Chain, bias: str) -> str:
    """``input + skip + bias``, also as the output for it."""
    total = chain.add("Add", *chain.node.inputs[:2])
    total = chain.add("Add", total, bias) if bias else total
    chain.as_output(total, _OUTPUT_OF_SUM)
    return total


def embed_layer_normalization(node: SourceNode, operands: Operands) -> Nodes:
    """Sum of the embeddings of words, positions and segments, normalised; how many tokens of each row the mask keeps.

    Inputs: input_ids [b, s], segment_ids, word, position and segment tables, gamma, beta, mask, position_ids.
    """
    chain = Chain(node, operands)
    ids, segments, words, places, kinds, gamma, beta, mask, positions = (node.input(i) for i in range(9))
    length = chain.add("Shape", ids, start=1, end=2)
    if positions:
        placed = chain.add("Gather", places, positions, axis=0)
    else:
        placed = chain.add("Slice", places, operands.int64s("first", (0,)), length, operands.int64s("rows", (0,)))
    total = chain.add("Add", chain.add("Gather", words, ids, axis=0), placed)
    if segments:
        total = chain.add("Add", total, chain.add("Gather", kinds, segments, axis=0))
    epsilon = chain.attribute("epsilon")
    chain.as_output(
        chain.add("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon, stash_type=DType.FLOAT32)
    )
    if node.outputs[1:2] and node.outputs[1]:
        if mask:
            rows = operands.int64s("columns", (1,))
            kept = chain.add("ReduceSum", chain.add("Cast", mask, to=DType.INT32), rows, keepdims=0)
        else:
            zero = operands.constant("zero", np.array(0, np.int32))
            kept = chain.add("Expand", zero, chain.add("Shape", ids, start=0, end=1))
        chain.as_output(kept, 1)
    chain.as_output(total, 2)
    return tuple(chain.nodes)
