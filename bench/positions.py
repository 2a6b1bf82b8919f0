"""Models that look for elements and put them where data says: the first few of a row, and messages along the edges of a graph.

``python -m bench.positions FOLDER`` writes them; ``python -m bench.peers --models FOLDER`` times them. ``first_1000_of_8400.onnx`` is
what a detector asks of its boxes, ``first_20_of_512.onnx`` what a cloud of points asks for neighbours; ``messages.onnx`` adds up at
each of 500 nodes what 3000 edges bring, three times; ``elements.onnx`` reads as many elements as there are, each at a place of its own.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from bench.chains import Chain
from bench.saving import save_models

ROWS: tuple[tuple[int, int, int], ...] = ((1, 8400, 1000), (1, 8400, 300), (8, 5000, 8), (512, 512, 20), (64, 1000, 5))
"""(rows, elements of a row, wanted of them)."""
NODES, EDGES, FEATURES, LAYERS = 500, 3000, 128, 3
_DOMAINS = (helper.make_opsetid("", 18),)


def first_model(rows: int, size: int, count: int) -> onnx.ModelProto:
    """``[rows, size]`` in float32 to the ``count`` largest elements of each row, and their places."""
    chain = Chain(np.random.default_rng(0))
    node = helper.make_node("TopK", ["x", chain.hold(np.array([count]))], ["values", "places"])
    outputs = [_value("values", rows, count), _value("places", rows, count, dtype=onnx.TensorProto.INT64)]
    graph = helper.make_graph([node], "first", [_value("x", rows, size)], outputs, chain.initializers)
    return helper.make_model(graph, opset_imports=_DOMAINS, ir_version=10)


def message_model(nodes: int = NODES, edges: int = EDGES, features: int = FEATURES) -> onnx.ModelProto:
    """``[nodes, features]`` in float32 to as many, after ``LAYERS`` layers of a graph convolution (Kipf and Welling, ICLR 2017)."""
    chain = Chain(np.random.default_rng(0))
    random = np.random.default_rng(1)
    source, target = (chain.hold(random.integers(0, nodes, edges)) for _ in range(2))
    column = chain.add("Unsqueeze", target, chain.hold(np.array([1])))
    places = chain.add("Expand", column, chain.hold(np.array([edges, features])))
    nothing = chain.hold(np.zeros((nodes, features), np.float32))
    x = "x"
    for _ in range(LAYERS):
        y = chain.add("MatMul", x, chain.hold(chain.numbers(features, features)))
        messages = chain.add("Gather", y, source)
        summed = f"s{len(chain.nodes)}"
        operands = [nothing, places, messages]
        chain.nodes.append(helper.make_node("ScatterElements", operands, [summed], axis=0, reduction="add"))
        x = chain.add("Relu", summed)
    ends = [_value(name, nodes, features) for name in ("x", x)]
    graph = helper.make_graph(chain.nodes, "messages", ends[:1], ends[1:], chain.initializers)
    return helper.make_model(graph, opset_imports=_DOMAINS, ir_version=10)


def elements_model(rows: int = 512, size: int = 1024) -> onnx.ModelProto:
    """``[rows, size]`` in float32 and as many places along the rows, known to the run alone, to the elements there."""
    shape = (rows, size)
    ends = [_value("x", *shape), _value("places", *shape, dtype=onnx.TensorProto.INT64), _value("y", *shape)]
    node = helper.make_node("GatherElements", ["x", "places"], ["y"], axis=1)
    graph = helper.make_graph([node], "elements", ends[:2], ends[2:])
    return helper.make_model(graph, opset_imports=_DOMAINS, ir_version=10)


def _value(name: str, *shape: int, dtype: int = onnx.TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


if __name__ == "__main__":
    first = [(f"first_{count}_of_{size}", first_model(rows, size, count)) for rows, size, count in ROWS]
    save_models([*first, ("messages", message_model()), ("elements", elements_model())], __doc__)
