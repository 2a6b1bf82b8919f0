"""An operator of one's own in an ONNX model: defined in three lines, and fused and compiled like any other.

A model may have nodes of a domain of its own, which no standard describes. What such a node means is said here as a tensor expression.
Nothing else has to be written: its types, its place in fused kernels and its code for any machine follow from that.

    python examples/own_operator.py
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot import ir, te


def network() -> onnx.ModelProto:
    """A product, an activation that nobody else has, and a sum."""
    matrix = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32) / 4
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("ScaledTanh", ["p", "scale"], ["t"], domain="com.example", slope=0.5),
        helper.make_node("Add", ["t", "t"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(matrix, "w"), numpy_helper.from_array(np.arange(8, dtype=np.float32), "scale")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def refusal(model: onnx.ModelProto) -> str:
    """What is said of an operator that nobody has defined."""
    try:
        ingot.compile(model)
    except ingot.IngotError as error:
        return str(error)
    raise AssertionError("nobody has defined it yet")


def define() -> None:
    @te.register_operator("com.example", "ScaledTanh", version="1")
    def scaled_tanh(x: te.Tensor, scale: te.Tensor, *, slope: float = 1.0) -> te.Tensor:
        """tanh(slope * x) * scale, a scale for each column."""
        return te.compute(x.shape, lambda *i: te.tanh(x[i] * slope) * scale[i[-1]], name="scaled_tanh")


def main() -> None:
    model = network()
    print(f"before: {refusal(model)}\n")
    define()
    print(ir.from_onnx(model))

    artifact = ingot.compile(model)
    print("kernels:", ", ".join(kernel.name for kernel in artifact.plan.kernels))
    x = np.random.default_rng(1).standard_normal((5, 16)).astype(np.float32)
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    expected = 2 * np.tanh(0.5 * (x @ weights["w"])) * weights["scale"]
    with ingot.load(artifact) as compiled:
        difference = np.abs(compiled.run({"x": x})["y"] - expected).max()
    print(f"largest difference to numpy: {difference:.1e}")
    assert difference < 1e-5


if __name__ == "__main__":
    main()
