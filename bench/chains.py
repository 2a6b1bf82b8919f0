"""Models of products of few rows, whose weights are stored in every width: what a language model waits for, and nothing else.

``python -m bench.chains FOLDER`` writes them; ``python -m bench.peers --models FOLDER`` times them. ``float16_1.onnx`` multiplies one
row by weights that are halves, ``blocks_n.onnx`` rows that only the run knows by codes of 4 bits with a scale for 32 of a column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from bench.saving import save_models

DEPTH, WIDTH, LAYERS, BLOCK = 1024, 4096, 4, 32
ROWS: tuple[int | str, ...] = (1, 64, "n")
_DOMAINS = (helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1))


@dataclass
class Chain:
    """The nodes and initializers of a model under construction."""

    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)

    def add(self, op: str, *inputs: str, domain: str = "", **attributes: int | list[int]) -> str:
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [result], domain=domain, **attributes))
        return result

    def hold(self, array: np.ndarray) -> str:
        name = f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def numbers(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))

    def scales(self, *shape: int) -> np.ndarray:
        return self.random.random(shape, np.float32) * np.float32(1e-3) + np.float32(1e-4)


def _float32(chain: Chain, x: str, depth: int, width: int) -> str:
    return chain.add("MatMul", x, chain.hold(chain.numbers(depth, width)))


def _halves(dtype: type) -> Callable[[Chain, str, int, int], str]:
    """float32 weights of which every element is a half."""

    def product(chain: Chain, x: str, depth: int, width: int) -> str:
        return chain.add("MatMul", x, chain.hold(chain.numbers(depth, width).astype(dtype).astype(np.float32)))

    return product


def _int8(chain: Chain, x: str, depth: int, width: int) -> str:
    codes = chain.random.integers(-128, 128, (depth, width)).astype(np.int8)
    weight = chain.add("DequantizeLinear", chain.hold(codes), chain.hold(chain.scales(width)), axis=1)
    return chain.add("MatMul", x, weight)


def _blocks(chain: Chain, x: str, depth: int, width: int) -> str:
    codes = chain.random.integers(0, 256, (width, depth // BLOCK, BLOCK // 2)).astype(np.uint8)
    operands = (chain.hold(codes), chain.hold(chain.scales(width * depth // BLOCK)))
    sizes = {"K": depth, "N": width, "bits": 4, "block_size": BLOCK}
    return chain.add("MatMulNBits", x, *operands, domain="com.microsoft", **sizes)


KINDS: Mapping[str, Callable[[Chain, str, int, int], str]] = {
    "float32": _float32,
    "float16": _halves(np.float16),
    "bfloat16": _halves(ml_dtypes.bfloat16),
    "int8": _int8,
    "blocks": _blocks,
}


def chain_model(kind: str, rows: int | str, depth: int = DEPTH, width: int = WIDTH) -> onnx.ModelProto:
    """``LAYERS`` times ``[rows, depth] -> [rows, width] -> Relu -> [rows, depth]`` in float32."""
    chain, x = Chain(np.random.default_rng(0)), "x"
    for _ in range(LAYERS):
        x = KINDS[kind](chain, chain.add("Relu", KINDS[kind](chain, x, depth, width)), width, depth)
    first, last = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [rows, depth]) for n in ("x", x))
    graph = helper.make_graph(chain.nodes, f"{kind}_{rows}", [first], [last], chain.initializers)
    return helper.make_model(graph, opset_imports=_DOMAINS, ir_version=10)


if __name__ == "__main__":
    save_models(((f"{kind}_{rows}", chain_model(kind, rows)) for kind in KINDS for rows in ROWS), __doc__)
