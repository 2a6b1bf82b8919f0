"""Models with a batch: those whose rows are apart, as networks of every kind have them, and those that look at each other's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

Array = np.ndarray
Shape = Sequence[str | int]
node = helper.make_node
RANDOM = np.random.default_rng(0)
END = np.iinfo(np.int64).max


def weights(*shape: int) -> Array:
    return (RANDOM.standard_normal(shape) / 4).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def of(
    nodes: Sequence[Any],
    constants: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    **inputs: Shape,
) -> ModelProto:
    """Inputs whose name begins with ``i`` are int64, all others float32; the outputs are what they are."""
    given = [
        helper.make_tensor_value_info(n, TensorProto.INT64 if n[0] == "i" else TensorProto.FLOAT, s)
        for n, s in inputs.items()
    ]
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "batch", given, [some(n) for n in outputs], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def some(name: str) -> Any:
    return helper.make_empty_tensor_value_info(name)


def chain(*steps: tuple[str, Sequence[str], Mapping[str, Any]]) -> list[Any]:
    """Each step takes what the one before made as its first operand, the first one ``x``; the last one makes ``y``."""
    names = ["x", *(f"h{i}" for i in range(1, len(steps))), "y"]
    return [
        node(op, [a, *more], [b], **attributes)
        for (op, more, attributes), a, b in zip(steps, names, names[1:], strict=False)
    ]


def extents(source: str, *axes: int) -> tuple[list[Any], dict[str, Any]]:
    """Nodes that make ``n0``, ``n1``... of extents of ``source``, vectors of one element, and their constants."""
    nodes = [node("Shape", [source], ["shape"])]
    nodes += [node("Gather", ["shape", f"axis{a}"], [f"n{a}"]) for a in axes]
    return nodes, {f"axis{a}": ints(a) for a in axes}


def attention(masked: bool) -> ModelProto:
    """Two heads of self-attention as exporters write it, each text with a mask of its own."""
    nodes, constants = extents("x", 0, 1)
    for p in "qkv":
        nodes += [node("MatMul", ["x", f"w{p}"], [f"{p}0"]), node("Add", [f"{p}0", "b"], [f"{p}1"])]
        nodes += [node("Concat", ["n0", "n1", "heads", "width"], [f"{p}s"], axis=0)]
        nodes += [node("Reshape", [f"{p}1", f"{p}s"], [f"{p}2"])]
        nodes += [node("Transpose", [f"{p}2"], [f"{p}3"], perm=[0, 2, 3, 1] if p == "k" else [0, 2, 1, 3])]
    nodes += [node("MatMul", ["q3", "k3"], ["a0"])]
    if masked:
        nodes += [node("Unsqueeze", ["imask", "axes"], ["m0"]), node("Cast", ["m0"], ["m1"], to=TensorProto.FLOAT)]
        nodes += [node("Sub", ["one", "m1"], ["m2"]), node("Mul", ["m2", "least"], ["m3"])]
    nodes += [node("Add", ["a0", "m3" if masked else "one"], ["a1"]), node("Softmax", ["a1"], ["a2"], axis=-1)]
    nodes += [node("MatMul", ["a2", "v3"], ["c0"]), node("Transpose", ["c0"], ["c1"], perm=[0, 2, 1, 3])]
    nodes += [node("Concat", ["n0", "n1", "whole"], ["cs"], axis=0), node("Reshape", ["c1", "cs"], ["c2"])]
    nodes += [node("Add", ["c2", "x"], ["r"]), node("LayerNormalization", ["r", "b", "b"], ["y"])]
    constants |= {"heads": ints(2), "width": ints(4), "whole": ints(8), "axes": ints(1, 2), "b": weights(8)}
    constants |= {"one": np.float32(1), "least": np.float32(-1e4), **{f"w{p}": weights(8, 8) for p in "qkv"}}
    inputs: dict[str, Any] = {"x": ("batch", "seq", 8)} | ({"imask": ("batch", "seq")} if masked else {})
    return of(nodes, constants, **inputs)


def network() -> ModelProto:
    """A convolutional network."""
    steps = chain(
        ("Conv", ["w"], {"pads": [1, 1, 1, 1]}),
        ("BatchNormalization", ["s", "s", "s", "v"], {}),
        ("Relu", [], {}),
        ("MaxPool", [], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("GlobalAveragePool", [], {}),
        ("Flatten", [], {}),
        ("Gemm", ["f"], {"transB": 1}),
        ("Softmax", [], {"axis": 1}),
    )
    held = {"w": weights(8, 3, 3, 3), "s": weights(8), "v": abs(weights(8)), "f": weights(10, 8)}
    return of(steps, held, x=("batch", 3, "h", "w"))


def lstm(started: bool) -> ModelProto:
    """Along the second axis of what it takes, as frameworks export it; ``started`` from zeros of the size of the batch."""
    nodes, constants = extents("x", 0)
    nodes += [node("Transpose", ["x"], ["t"], perm=[1, 0, 2])]
    nodes += [node("Concat", ["one", "n0", "five"], ["ss"], axis=0), node("ConstantOfShape", ["ss"], ["start"])]
    states = ["", "", "start", "start"] if started else []
    nodes += [node("LSTM", ["t", "w", "r", *states], ["o", "last"], hidden_size=5)]
    nodes += [node("Squeeze", ["o", "one"], ["o2"]), node("Transpose", ["o2"], ["y"], perm=[1, 0, 2])]
    constants |= {"w": weights(1, 20, 3), "r": weights(1, 20, 5), "one": ints(1), "five": ints(5)}
    return of(nodes, constants, x=("batch", "s", 3))


def windows() -> ModelProto:
    """Pictures cut into windows, which go along the batch, and put together again."""
    steps = chain(
        ("Reshape", ["cut"], {}),
        ("Transpose", [], {"perm": [0, 1, 3, 2, 4, 5]}),
        ("Reshape", ["flat"], {}),
        ("MatMul", ["w"], {}),
        ("Reshape", ["apart"], {}),
        ("Transpose", [], {"perm": [0, 1, 3, 2, 4, 5]}),
        ("Reshape", ["whole"], {}),
    )
    shapes = {"cut": (-1, 2, 7, 2, 7, 8), "flat": (-1, 49, 8), "apart": (-1, 2, 2, 7, 7, 8), "whole": (-1, 14, 14, 8)}
    return of(steps, {"w": weights(8, 8), **{n: ints(*s) for n, s in shapes.items()}}, x=("batch", 14, 14, 8))


def one(
    op: str, *more: Any, inputs: Mapping[str, Shape] | None = None, outputs: int = 1, **attributes: Any
) -> ModelProto:
    """``op`` on ``x`` [batch, 4, 6] or ``inputs``, and constants."""
    given: Mapping[str, Any] = inputs or {"x": ("batch", 4, 6)}
    held = {f"c{i}": a for i, a in enumerate(more)}
    names = ["y", *(f"y{i}" for i in range(1, outputs))]
    return of([node(op, [*given, *held], names, **attributes)], held, names, **given)


def embedding() -> ModelProto:
    """Of tokens and their positions."""
    nodes, constants = extents("ix", 1)
    nodes += [node("Squeeze", ["n1"], ["s"]), node("Range", ["zero", "s", "one"], ["p"])]
    nodes += [node("Gather", ["places", "p"], ["e0"]), node("Gather", ["words", "ix"], ["e1"])]
    nodes += [node("Add", ["e1", "e0"], ["y"])]
    constants |= {"zero": np.int64(0), "one": np.int64(1), "places": weights(50, 6), "words": weights(20, 6)}
    return of(nodes, constants, ix=("batch", "s"))


def class_token() -> ModelProto:
    nodes, constants = extents("x", 0)
    nodes += [node("Concat", ["n0", "rest"], ["s"], axis=0), node("Expand", ["token", "s"], ["t"])]
    nodes += [node("Concat", ["t", "x"], ["y"], axis=1)]
    return of(nodes, constants | {"rest": ints(1, 8), "token": weights(1, 1, 8)}, x=("batch", 7, 8))


PAIR: Mapping[str, Any] = {"x": ("batch", 5), "ix": ("batch", 2)}
PICTURE: Mapping[str, Any] = {"x": ("batch", 4, 6, 6)}
APART: Mapping[str, ModelProto] = {
    "network": network(),
    "attention": attention(False),
    "masked attention": attention(True),
    "lstm": lstm(False),
    "lstm from zeros": lstm(True),
    "windows": windows(),
    "embedding": embedding(),
    "class token": class_token(),
    "rows merged": of(chain(("Reshape", ["s"], {}), ("MatMul", ["w"], {}), ("Reshape", ["t"], {})),
                      {"s": ints(-1, 8), "w": weights(8, 4), "t": ints(-1, 6, 4)}, x=("batch", 6, 8)),
    "softmax": one("Softmax", axis=1),
    "last token": one("Gather", np.array(-1, np.int64), inputs={"x": ("batch", "s", 6)}, axis=1),
    "best": one("TopK", ints(3), outputs=2, axis=2),
    "many best": one("TopK", ints(300), inputs={"x": ("batch", 900)}, outputs=2, axis=1),
    "argmax": one("ArgMax", axis=1),
    "sums": one("CumSum", np.array(1, np.int64)),
    "group normalization": one("GroupNormalization", weights(4), weights(4), inputs=PICTURE, num_groups=2),
    "instance normalization": one("InstanceNormalization", weights(4), weights(4), inputs=PICTURE),
    "depth to space": one("DepthToSpace", inputs=PICTURE, blocksize=2),
    "transposed convolution": one("ConvTranspose", weights(4, 3, 2, 2), inputs=PICTURE, strides=[2, 2]),
    "scattered": one("ScatterElements", inputs={**PAIR, "u": ("batch", 2)}, axis=1),
    "gathered": one("GatherElements", inputs=PAIR, axis=1),
    "grid": one("GridSample", inputs={"x": ("batch", 2, 4, 4), "g": ("batch", 3, 3, 2)}),
    "reversed": one("ReverseSequence", inputs={"x": ("batch", 4), "il": ("batch",)}, batch_axis=0, time_axis=1),
    "cut": one("Slice", ints(1), ints(END), ints(1)),
    "padded": one("Pad", ints(0, 1, 0, 0, 2, 0)),
    "product": one("Einsum", weights(6, 5), equation="bij,jk->bik"),
}  # fmt: skip
"""Models whose rows do not see each other."""


def counted() -> ModelProto:
    nodes, constants = extents("x", 0)
    nodes += [node("Cast", ["n0"], ["f"], to=TensorProto.FLOAT), node("Mul", ["x", "f"], ["y"])]
    return of(nodes, constants, x=("batch", 4))


def numbered() -> ModelProto:
    nodes, constants = extents("x", 0)
    nodes += [node("Squeeze", ["n0"], ["s"]), node("Range", ["zero", "s", "one"], ["r"])]
    nodes += [node("Cast", ["r"], ["f"], to=TensorProto.FLOAT), node("Unsqueeze", ["f", "axis"], ["u"])]
    nodes += [node("Add", ["x", "u"], ["y"])]
    constants |= {"zero": np.int64(0), "one": np.int64(1), "axis": ints(1)}
    return of(nodes, constants, x=("batch", 4))


def quantized() -> ModelProto:
    """The scale is that of all rows together."""
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), node("MatMulInteger", ["q", "w", "z"], ["m"])]
    nodes += [node("Cast", ["m"], ["f"], to=TensorProto.FLOAT), node("Mul", ["f", "s"], ["l"])]
    nodes += [node("ArgMax", ["l"], ["y"], axis=1, keepdims=0)]
    return of(nodes, {"w": RANDOM.integers(-100, 100, (64, 10)).astype(np.int8)}, x=("batch", 64))


def guarded() -> ModelProto:
    """Nothing is seen of the others until one of them is large."""
    nodes = [node("ReduceMax", ["x"], ["m"], keepdims=0), node("Greater", ["m", "limit"], ["c"])]
    nodes += [node("Add", ["x", "m"], ["xm"]), node("Where", ["c", "xm", "x"], ["y"])]
    return of(nodes, {"limit": np.float32(1000)}, x=("batch", 8))


def against(step: tuple[str, Sequence[str], Mapping[str, Any]], **constants: Any) -> ModelProto:
    """``x - step(x)``."""
    op, more, attributes = step
    return of([node(op, ["x", *more], ["m"], **attributes), node("Sub", ["x", "m"], ["y"])], constants, x=("batch", 4))


def branching() -> ModelProto:
    inner = helper.make_graph([node("Neg", ["x"], ["a"])], "t", [], [some("a")])
    other = helper.make_graph([node("Abs", ["x"], ["b"])], "e", [], [some("b")])
    nodes = [node("ReduceMax", ["x"], ["m"], keepdims=0), node("Greater", ["m", "limit"], ["c"])]
    nodes += [node("If", ["c"], ["y"], then_branch=inner, else_branch=other)]
    return of(nodes, {"limit": np.float32(1000)}, x=("batch", 8))


def sorted_rows() -> ModelProto:
    nodes, constants = extents("x", 0)
    nodes += [node("TopK", ["x", "n0"], ["y", "z"], axis=0)]
    return of(nodes, constants, ("y", "z"), x=("batch", 4))


def states_of_others() -> ModelProto:
    """Each row begins with what another one holds."""
    nodes = [node("Transpose", ["x"], ["t"], perm=[1, 0, 2]), node("Slice", ["t", "s", "e", "one", "s"], ["b"])]
    nodes += [node("Slice", ["b", "zero", "one", "zero"], ["start"])]
    nodes += [node("GRU", ["t", "w", "r", "", "", "start"], ["o", "last"], hidden_size=3)]
    nodes += [node("Squeeze", ["last", "zero"], ["y"])]
    held = {"w": weights(1, 9, 3), "r": weights(1, 9, 3), "s": ints(-1), "e": ints(-END), "zero": ints(0)}
    return of(nodes, held | {"one": ints(1)}, x=("batch", 4, 3))


MIXED: Mapping[str, ModelProto] = {
    "sorted rows": sorted_rows(),
    "states of others": states_of_others(),
    "mean": against(("ReduceMean", ["axes"], {"keepdims": 1}), axes=ints(0)),
    "mean of what is called otherwise": of(
        chain(("Reshape", ["s"], {}), ("ReduceMean", ["axes"], {})),
        {"s": ints(0, 100, 3), "axes": ints(0)},
        x=("n", "s"),
    ),
    "first row": against(("Slice", ["s", "e", "a"], {}), s=ints(0), e=ints(1), a=ints(0)),
    "quantized by all": quantized(),
    "guarded": guarded(),
    "branch": branching(),
    "rows counted": counted(),
    "rows numbered": numbered(),
    "softmax of the batch": one("Softmax", axis=0),
    "sums along the batch": one("CumSum", np.array(0, np.int64)),
    "backwards": one("Slice", ints(-1), ints(-END), ints(0), ints(-1)),
    "training": one("BatchNormalization", *(abs(weights(4)),) * 4, inputs=PICTURE, training_mode=1),
    "other rows": one("Gather", inputs={"x": ("batch", 4), "ix": ("batch",)}, axis=0),
    "rows written": one("ScatterElements", inputs={**PAIR, "u": ("batch", 2)}, axis=0),
    "rows against rows": of(
        [node("Transpose", ["x"], ["t"]), node("MatMul", ["t", "x"], ["g"]), node("MatMul", ["x", "g"], ["y"])],
        x=("batch", 4),
    ),
    "rows dealt out": of(
        chain(("Reshape", ["s"], {}), ("Transpose", [], {}), ("Reshape", ["t"], {})),
        {"s": ints(4, -1), "t": ints(-1, 4)},
        x=("batch", 4),
    ),
    "a sequence of rows": of(
        [node("LSTM", ["x", "w", "r"], ["o"], hidden_size=5), node("Squeeze", ["o", "a"], ["y"])],
        {"w": weights(1, 20, 3), "r": weights(1, 20, 5), "a": ints(1)},
        x=("batch", 4, 3),
    ),
    "random numbers": of(
        [node("RandomNormalLike", ["x"], ["r"], seed=1.0), node("Add", ["x", "r"], ["y"])], x=("batch", 4)
    ),
    "how many are not 0": of(
        [
            node("NonZero", ["x"], ["z"]),
            node("Shape", ["z"], ["s"]),
            node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
            node("ReduceSum", ["f"], ["t"], keepdims=0),
            node("Mul", ["x", "t"], ["y"]),
        ],
        x=("batch", 4),
    ),
    "a batch that is an extent too": one("MatMul", inputs={"x": ("batch", "batch"), "w": ("batch", 4)}),
}
"""Models in which a row sees others, how many there are, or which one it is."""
