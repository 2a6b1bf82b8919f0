"""Activations with their bias, and activations that products carry with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_service.compiler.frontend.adapters.chain import Chain
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode

Nodes = tuple[SourceNode, ...]


def gelu(node: SourceNode, operands: Operands) -> Nodes:
    """Gelu and BiasGelu: ``gelu(x + bias)`` with the error function."""
    chain = Chain(node, operands)
    chain.as_output(chain.add("Gelu", biased(chain), approximate="none"))
    return tuple(chain.nodes)


def fast_gelu(node: SourceNode, operands: Operands) -> Nodes:
    """``gelu(x + bias)`` with the hyperbolic tangent."""
    chain = Chain(node, operands)
    chain.as_output(chain.add("Gelu", biased(chain), approximate="tanh"))
    return tuple(chain.nodes)


def biased(chain: Chain) -> str:
    """The first input plus the second, if there is one."""
    x, bias = chain.node.input(0), chain.node.input(1)
    return chain.add("Add", x, bias) if bias else x


def quick_gelu(node: SourceNode, operands: Operands) -> Nodes:
    """``x * sigmoid(alpha * x)``"""
    chain = Chain(node, operands)
    x = node.inputs[0]
    inner = chain.add("Mul", x, operands.like("alpha", chain.attribute("alpha"), x))
    chain.as_output(chain.add("Mul", x, chain.add("Sigmoid", inner)))
    return tuple(chain.nodes)


def bias_split_gelu(node: SourceNode, operands: Operands) -> Nodes:
    """``left * gelu(right)`` of the halves of ``x + bias``"""
    chain = Chain(node, operands)
    left, right = chain.add_many("Split", (biased(chain),), 2, axis=-1, num_outputs=2)
    chain.as_output(chain.add("Mul", left, chain.add("Gelu", right, approximate="none")))
    return tuple(chain.nodes)


def bias_add(node: SourceNode, operands: Operands) -> Nodes:
    """``x + bias + skip``"""
    chain = Chain(node, operands)
    chain.as_output(chain.add("Add", biased(chain), node.inputs[2]))
    return tuple(chain.nodes)


_PARAMETERS = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",)}
_PLAIN = frozenset({"Relu", "Tanh", "Sigmoid", "Softplus", "Softsign", "HardSwish", "Gelu"})


def activated(chain: Chain, x: str, like: str, activation: str, parameters: Sequence[float]) -> str:
    """``x`` through the activation that a fused operator names; ``like``: a value of its element type."""
    if not activation:
        return x
    if activation == "Clip":
        least, most = (chain.operands.like("limit", p, like) for p in parameters)
        return chain.add("Clip", x, least, most)
    if activation in _PARAMETERS:
        named: dict[str, Any] = dict(zip(_PARAMETERS[activation], parameters, strict=False))
        return chain.add(activation, x, **named)
    if activation not in _PLAIN:
        raise chain.operands.unsupported("activation", ", ".join(sorted(_PLAIN | {*_PARAMETERS, "Clip"})), activation)
    return chain.add(activation, x)
