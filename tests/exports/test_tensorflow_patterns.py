"""What tf2onnx writes, by hand: TensorFlow itself is too large to be a dependency of tests.

Shapes are packed from extents one by one (Shape, Cast, StridedSlice as Slice and Squeeze, Concat of Unsqueezed), pictures
are turned from NHWC around every convolution, dense layers of rank 3 are reshaped around a product, and batches are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.exports.beside import Array, check

Dims = Sequence[int | str | None]


class Graph:
    """Nodes as they come; every call names its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, dims: Dims, dtype: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def held(self, array: object, dtype: type = np.int64) -> str:
        name = f"const_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def weights(self, *shape: int) -> str:
        numbers = np.random.default_rng(len(self.initializers)).normal(size=shape) / 2
        return self.held(numbers, np.float32)

    def __call__(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op}__{len(self.nodes)}:0"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def extent(self, x: str, axis: int) -> str:
        """One extent of x as tf.shape(x)[axis] becomes it."""
        shape = self("Cast", self("Shape", x), to=TensorProto.INT32)
        one = self("Slice", self("Cast", shape, to=TensorProto.INT64), *(self.held([v]) for v in (axis, axis + 1, 0)))
        return self("Squeeze", one, self.held([0]))

    def packed(self, *extents: str | int) -> str:
        parts = [self("Unsqueeze", e, self.held([0])) if isinstance(e, str) else self.held([e]) for e in extents]
        return self("Concat", *parts, axis=0)

    def model(self, *outputs: str) -> onnx.ModelProto:
        infos = [onnx.ValueInfoProto(name=o) for o in outputs]
        graph = helper.make_graph(self.nodes, "tf2onnx", self.inputs, infos, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def _random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


Pattern = Callable[[Graph], tuple[str, list[dict[str, Array]]]]


def dense_of_rank_3(g: Graph) -> tuple[str, list[dict[str, Array]]]:
    x = g.input("x", ["unk__1", "unk__2", 6])
    flat = g("MatMul", g("Reshape", x, g.held([-1, 6])), g.weights(6, 4))
    shape = g.packed(g.extent(x, 0), g.extent(x, 1), 4)
    y = g("Relu", g("Add", g("Reshape", flat, shape), g.weights(4)))
    return y, [{"x": _random(2, 3, 6)}, {"x": _random(1, 5, 6)}]


def picture(g: Graph) -> tuple[str, list[dict[str, Array]]]:
    x = g.input("x", ["unk__1", None, None, 3])
    turned = g("Transpose", x, perm=[0, 3, 1, 2])
    conv = g("Conv", turned, g.weights(4, 3, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[3, 3])
    pooled = g("MaxPool", g("Relu", conv), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER")
    back = g("Transpose", pooled, perm=[0, 2, 3, 1])
    mean = g("Squeeze", g("ReduceMean", back, axes=[1, 2], keepdims=1), g.held([1, 2]))
    return g("Softmax", mean, axis=1), [{"x": _random(2, 9, 8, 3)}, {"x": _random(1, 13, 16, 3)}]


def resize_to_other(g: Graph) -> tuple[str, list[dict[str, Array]]]:
    x, like = g.input("x", ["n", None, None, 2]), g.input("like", ["n", None, None, 2])
    sizes = g("Slice", g("Shape", like), *(g.held([v]) for v in (1, 3, 0)))
    turned = g("Transpose", x, perm=[0, 3, 1, 2])
    whole = g("Concat", g("Slice", g("Shape", turned), *(g.held([v]) for v in (0, 2, 0))), sizes, axis=0)
    y = g(
        "Resize",
        turned,
        "",
        "",
        whole,
        mode="linear",
        coordinate_transformation_mode="half_pixel",
        nearest_mode="floor",
    )
    out = g("Add", g("Transpose", y, perm=[0, 2, 3, 1]), like)
    return out, [
        {"x": _random(1, 4, 5, 2), "like": _random(1, 8, 9, 2)},
        {"x": _random(2, 6, 3, 2), "like": _random(2, 5, 7, 2)},
    ]


def backward_recurrent(g: Graph) -> tuple[str, list[dict[str, Array]]]:
    """A layer that reads its sequence backwards, as Bidirectional makes one of two."""
    x = g.input("x", ["batch", "steps", 4])
    time_first = g("Transpose", x, perm=[1, 0, 2])
    steps, batch = g.extent(time_first, 0), g.extent(time_first, 1)
    lengths = g("Expand", g("Unsqueeze", steps, g.held([0])), g.packed(batch))
    turned = g("ReverseSequence", time_first, lengths, time_axis=0, batch_axis=1)
    first = g("Expand", g.held(0, np.float32), g.packed(1, batch, 3))
    y = g("GRU", turned, g.weights(1, 9, 4), g.weights(1, 9, 3), g.weights(1, 18), "", first, hidden_size=3)
    rows = g("Squeeze", y, g.held([1]))
    back = g("ReverseSequence", rows, lengths, time_axis=0, batch_axis=1)
    return g("Transpose", back, perm=[1, 0, 2]), [{"x": _random(2, 3, 4)}, {"x": _random(1, 6, 4)}]


def attention_mask(g: Graph) -> tuple[str, list[dict[str, Array]]]:
    """Scores with a mask of ints, (1 - mask) * -10000, as BERT's of TensorFlow has it."""
    x, mask = g.input("x", ["unk__1", "unk__2", 8]), g.input("mask", ["unk__3", "unk__4"], TensorProto.INT32)
    heads = g("Transpose", g("Reshape", x, g.packed(g.extent(x, 0), g.extent(x, 1), 2, 4)), perm=[0, 2, 1, 3])
    scores = g("Mul", g("MatMul", heads, g("Transpose", heads, perm=[0, 1, 3, 2])), g.held(0.5, np.float32))
    shape = g.packed(g.extent(mask, 0), 1, 1, g.extent(mask, 1))
    wide = g("Cast", g("Reshape", mask, shape), to=TensorProto.FLOAT)
    hidden = g("Mul", g("Sub", g.held(1, np.float32), wide), g.held(-10000, np.float32))
    context = g("MatMul", g("Softmax", g("Add", scores, hidden), axis=-1), heads)
    turned = g("Transpose", context, perm=[0, 2, 1, 3])
    y = g("Reshape", turned, g.packed(g.extent(x, 0), g.extent(x, 1), 8))
    ones = np.ones((1, 5), np.int32)
    return y, [
        {"x": _random(2, 3, 8), "mask": np.array([[1, 1, 0], [1, 0, 0]], np.int32)},
        {"x": _random(2, 5, 8), "mask": ones},
    ]


def batch_normalised(g: Graph) -> tuple[str, list[dict[str, Array]]]:
    """A normalisation that was not folded: rsqrt(variance + epsilon) * gamma, in NHWC."""
    x = g.input("x", [None, None, None, 4])
    scale = g(
        "Mul", g("Reciprocal", g("Sqrt", g("Add", g("Abs", g.weights(4)), g.held(1e-3, np.float32)))), g.weights(4)
    )
    y = g("Add", g("Mul", x, scale), g("Sub", g.weights(4), g("Mul", g.weights(4), scale)))
    return g("Min", g("Max", y, g.held(0, np.float32)), g.held(6, np.float32)), [
        {"x": _random(2, 3, 3, 4)},
        {"x": _random(1, 5, 2, 4)},
    ]


def embedding(g: Graph) -> tuple[str, list[dict[str, Array]]]:
    """Rows of a table with a position each, summed with a one-hot product of types."""
    ids = g.input("ids", ["unk__1", "unk__2"], TensorProto.INT32)
    rows = g("Gather", g.weights(11, 6), ids)
    steps = g.extent(ids, 1)
    where = g("Slice", g.weights(9, 6), g.held([0]), g("Unsqueeze", steps, g.held([0])), g.held([0]))
    y = g("Add", rows, g("Unsqueeze", where, g.held([0])))
    wide = g("Expand", g("ReduceMean", y, axes=[2], keepdims=1), g("Shape", y))
    return g("Sub", y, wide), [
        {"ids": np.array([[1, 2, 10]], np.int32)},
        {"ids": np.arange(8, dtype=np.int32).reshape(2, 4)},
    ]


_PATTERNS: tuple[Pattern, ...] = (
    dense_of_rank_3, picture, resize_to_other, backward_recurrent, attention_mask, batch_normalised, embedding,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("pattern", _PATTERNS, ids=lambda p: p.__name__)
def test_agrees_with_onnx_runtime(pattern: Pattern) -> None:
    graph = Graph()
    output, runs = pattern(graph)
    model = graph.model(output)
    for node in model.graph.node:
        node.name = node.output[0].split(":")[0]
    check(model, runs)
