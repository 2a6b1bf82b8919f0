"""Products with what ONNX Runtime fuses into them: transposes, factors, biases and activations."""

from __future__ import annotations

from compiler_service.compiler.frontend.adapters.chain import Chain
from compiler_service.compiler.frontend.adapters.microsoft.activations import activated
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode

Nodes = tuple[SourceNode, ...]

_OWN = ("activation", "activation_params", "activation_alpha", "activation_beta", "activation_gamma")


def fused_matmul(node: SourceNode, operands: Operands) -> Nodes:
    """``alpha * a' @ b'``; ``transBatch`` moves the first axis behind the batch axes, ``trans`` swaps the last two."""
    chain = Chain(node, operands)
    a, b = (_turned(chain, name, side) for name, side in zip(node.inputs, "AB", strict=True))
    product = chain.add("MatMul", a, b)
    alpha = chain.attribute("alpha")
    if alpha != 1.0:
        product = chain.add("Mul", product, operands.like("alpha", alpha, node.inputs[0]))
    chain.as_output(product)
    return tuple(chain.nodes)


def _turned(chain: Chain, name: str, side: str) -> str:
    rank = chain.operands.rank(name)
    order = list(range(rank))
    if chain.attribute(f"transBatch{side}", 0) and rank > 2:
        order = [*order[1:-1], 0, order[-1]]
    if chain.attribute(f"trans{side}", 0) and rank > 1:
        order = [*order[:-2], order[-1], order[-2]]
    return name if order == list(range(rank)) else chain.add("Transpose", name, perm=tuple(order))


def fused_gemm(node: SourceNode, operands: Operands) -> Nodes:
    chain = Chain(node, operands)
    product = chain.add("Gemm", *node.inputs, **node.without(*_OWN))
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    parameters = [p for p in map(chain.attribute, names) if p is not None]
    chain.as_output(activated(chain, product, node.inputs[0], chain.attribute("activation", ""), parameters))
    return tuple(chain.nodes)


def fused_conv(node: SourceNode, operands: Operands) -> Nodes:
    """``activation(conv(x, w) + b + z)``"""
    chain = Chain(node, operands)
    x, w = node.inputs[:2]
    inputs = (x, w, node.input(2)) if node.input(2) else (x, w)
    found = chain.add("Conv", *inputs, **node.without(*_OWN))
    if node.input(3):
        found = chain.add("Add", found, node.input(3))
    parameters = chain.attribute("activation_params", ())
    chain.as_output(activated(chain, found, x, chain.attribute("activation", ""), parameters))
    return tuple(chain.nodes)


def nhwc_conv(node: SourceNode, operands: Operands) -> Nodes:
    """A convolution of images whose channels are last; weights ``[out, in, height, width]`` as in ONNX."""
    chain = Chain(node, operands)
    x, w = node.inputs[:2]
    rank = operands.rank(x)
    first, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    inputs = (chain.add("Transpose", x, perm=first), w, *((node.input(2),) if node.input(2) else ()))
    found = chain.add("Conv", *inputs, **node.without(*_OWN))
    if node.input(3):
        found = chain.add("Add", found, chain.add("Transpose", node.input(3), perm=first))
    parameters = chain.attribute("activation_params", ())
    found = activated(chain, found, x, chain.attribute("activation", ""), parameters)
    chain.as_output(chain.add("Transpose", found, perm=last))
    return tuple(chain.nodes)
