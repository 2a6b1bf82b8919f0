"""Models that grow along one direction each: nodes in a row, operands, consumers, branches, depth, weights, inputs.

A compiler whose time grows with the square of one of them, or that recurses along it, shows it here long before a model of
somebody's does. Sizes of tensors are symbolic wherever that costs more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET = 17
_WIDTH = 4


@dataclass
class Builder:
    """Nodes and initializers of a graph under construction; names begin with ``prefix``."""

    prefix: str = ""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        result = f"{self.prefix}v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [result], name=result, **attributes))
        return result

    def hold(self, array: np.ndarray) -> str:
        name = f"{self.prefix}w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def model(self, inputs: Mapping[str, Sequence[int | str]], outputs: Sequence[str]) -> onnx.ModelProto:
        given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()]
        made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
        graph = helper.make_graph(self.nodes, "family", given, made, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)


def elementwise(count: int) -> onnx.ModelProto:
    """Operations on single elements one after the other."""
    build, x = Builder(), "x"
    half = build.hold(np.array(0.5, np.float32))
    for i in range(count):
        x = build.add("Mul", x, half) if i % 2 else build.add("Tanh", x)
    return build.model({"x": ["n", _WIDTH]}, [x])


def cheap(count: int) -> onnx.ModelProto:
    """The cheapest operations one after the other: time is what the compiler takes for each, and little of it LLVM's."""
    build, x = Builder(), "x"
    for i in range(count):
        x = build.add("Relu" if i % 2 else "Neg", x)
    return build.model({"x": ["n", _WIDTH]}, [x])


def softmax(count: int) -> onnx.ModelProto:
    """Kernels one after the other whose results are of symbolic size."""
    build, x = Builder(), "x"
    for _ in range(count):
        x = build.add("Softmax", x)
    return build.model({"x": ["n", _WIDTH]}, [x])


def concat_chain(count: int) -> onnx.ModelProto:
    """Concatenations one after the other along a symbolic axis."""
    build, x = Builder(), "x"
    one = build.hold(np.ones(1, np.float32))
    for _ in range(count):
        x = build.add("Concat", x, one, axis=0)
    return build.model({"x": ["n"]}, [x])


def concat_operands(count: int) -> onnx.ModelProto:
    """One concatenation of many operands of symbolic size."""
    build = Builder()
    parts = [build.add("Mul", "x", build.hold(np.full(_WIDTH, i, np.float32))) for i in range(count - 1)]
    return build.model({"x": ["n", _WIDTH]}, [build.add("Concat", *parts, axis=0)])


def numbers(count: int) -> onnx.ModelProto:
    """Equal operations that differ in the number which each takes, all of whose results are joined."""
    build = Builder()
    parts = [build.add("Add", "x", build.hold(np.full(1, i, np.float32))) for i in range(count - 1)]
    return build.model({"x": ["n"]}, [build.add("Concat", *parts, axis=0)])


def sum_operands(count: int) -> onnx.ModelProto:
    """One sum of many operands."""
    build = Builder()
    parts = [build.add("Mul", "x", build.hold(np.full(_WIDTH, i, np.float32))) for i in range(count - 1)]
    return build.model({"x": ["n", _WIDTH]}, [build.add("Sum", *parts)])


def consumers(count: int) -> onnx.ModelProto:
    """One value that many nodes read, each with a weight of its own."""
    build = Builder()
    value = build.add("Softmax", "x")
    read = [build.add("MatMul", value, build.hold(np.full((_WIDTH, 1), i, np.float32))) for i in range(count - 2)]
    return build.model({"x": ["n", _WIDTH]}, [build.add("Concat", *read, axis=1)])


def branches(count: int) -> onnx.ModelProto:
    """Branches side by side that are added up in pairs."""
    build = Builder()
    scales = [build.hold(np.full(_WIDTH, i, np.float32)) for i in range(count // 3)]
    level = [build.add("Softmax", build.add("Mul", "x", scale)) for scale in scales]
    while len(level) > 1:
        pairs = [build.add("Add", a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(level) & ~1 :]
    return build.model({"x": ["n", _WIDTH]}, level)


def residuals(count: int) -> onnx.ModelProto:
    """Sums of all that was computed before: values that live to the end."""
    build, x = Builder(), "x"
    kept = []
    for _ in range(count // 2):
        x = build.add("Softmax", x)
        kept.append(x)
    total = kept[0]
    for value in reversed(kept[1:]):
        total = build.add("Add", total, value)
    return build.model({"x": ["n", _WIDTH]}, [total])


def attention(count: int) -> onnx.ModelProto:
    """Blocks of attention, eight nodes each, with symbolic batch and length."""
    build, x = Builder(), "x"
    weight, scale = build.hold(np.eye(8, dtype=np.float32)), build.hold(np.ones(8, np.float32))
    for _ in range(count // 8):
        row = build.add("MatMul", build.add("LayerNormalization", x, scale, scale), weight)
        scores = build.add("Softmax", build.add("MatMul", row, build.add("Transpose", row, perm=[0, 2, 1])))
        x = build.add("Add", x, build.add("MatMul", build.add("MatMul", scores, row), weight))
    return build.model({"x": ["b", "t", 8]}, [x])


def shapes(count: int) -> onnx.ModelProto:
    """Arithmetic on a size, one operation after the other, and a tensor of the size that results."""
    build = Builder()
    size = build.add("Shape", "x")
    two, one = build.hold(np.array([2], np.int64)), build.hold(np.array([1], np.int64))
    three, steps = build.hold(np.array([3], np.int64)), ("Mul", "Add", "Div")
    for i in range(count - 2):  # the size stays about the same, but no two of its forms are equal
        size = build.add(steps[i % 3], size, (three, one, two)[i % 3] if i % 6 < 3 else (two, one, three)[i % 3])
    return build.model({"x": ["n"]}, [build.add("ConstantOfShape", size)])


def reshapes(count: int) -> onnx.ModelProto:
    """Every layer asks for the size of its own data, as exporters write it."""
    build, x = Builder(), "x"
    zero, width = build.hold(np.array(0, np.int64)), build.hold(np.array([-1], np.int64))
    axes = build.hold(np.array([0], np.int64))
    for _ in range(count // 6):
        rows = build.add("Unsqueeze", build.add("Gather", build.add("Shape", x), zero), axes)
        x = build.add("Softmax", build.add("Reshape", x, build.add("Concat", rows, width, axis=0)))
    return build.model({"x": ["n", _WIDTH]}, [x])


def positions(count: int) -> onnx.ModelProto:
    """Elements picked out of what was picked out before, at positions from data."""
    build, x = Builder(), "x"
    at = build.add("Cast", "x", to=TensorProto.INT64)
    for i in range(count - 1):
        x = build.add("GatherElements" if i % 2 else "Gather", x, at)
    return build.model({"x": ["n"]}, [x])


def weights(count: int) -> onnx.ModelProto:
    """A weight for every node."""
    build, x = Builder(), "x"
    for i in range(count):
        x = build.add("MatMul", x, build.hold(np.full((_WIDTH, _WIDTH), i % 7, np.float32)))
    return build.model({"x": ["n", _WIDTH]}, [x])


def signature(count: int) -> onnx.ModelProto:
    """As many inputs and outputs as nodes, each of a symbolic size of its own."""
    build = Builder()
    inputs: dict[str, list[int | str]] = {f"x{i}": [f"n{i}", _WIDTH] for i in range(count)}
    return build.model(inputs, [build.add("Softmax", name) for name in inputs])


def conditions(count: int) -> onnx.ModelProto:
    """Branches of control flow one after the other."""
    build, x = Builder(), "x"
    for i in range(count // 3):
        arms = []
        for op in ("Softmax", "Tanh"):
            arm = Builder(f"{op}{i}_")
            result = helper.make_tensor_value_info(arm.add(op, x), TensorProto.FLOAT, None)
            arms.append(helper.make_graph(arm.nodes, op, [], [result]))
        x = build.add("If", "flag", then_branch=arms[0], else_branch=arms[1])
    model = build.model({"x": ["n", _WIDTH]}, [x])
    model.graph.input.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
    return model


def nested(depth: int) -> onnx.ModelProto:
    """A branch in a branch in a branch."""
    body, name = Builder("inner"), "x"
    result = body.add("Tanh", name)
    nodes: list[onnx.NodeProto] = body.nodes
    for level in range(depth):
        other = Builder(f"other{level}_")
        made = other.add("Softmax", "x")
        arms = [
            helper.make_graph(inside, "arm", [], [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)])
            for inside, out in ((nodes, result), (other.nodes, made))
        ]
        result = f"if{level}"
        nodes = [helper.make_node("If", ["flag"], [result], then_branch=arms[0], else_branch=arms[1])]
    model = Builder(nodes=nodes).model({"x": ["n", _WIDTH]}, [result])
    model.graph.input.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
    return model


Family = Callable[[int], onnx.ModelProto]

FAMILIES: Mapping[str, Family] = {
    family.__name__: family
    for family in (
        elementwise,
        cheap,
        softmax,
        concat_chain,
        concat_operands,
        numbers,
        sum_operands,
        consumers,
        branches,
        residuals,
        attention,
        shapes,
        reshapes,
        positions,
        weights,
        signature,
        conditions,
    )
}
"""By name: a model of about so many nodes."""
