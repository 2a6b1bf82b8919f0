"""Operands whose extents must be equal and are symbols of their own: sizes that fit are answered as ONNX Runtime does, and those
that do not fit end the run, where a longer operand would be cut and a shorter one read beyond its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from runtime_service.loading.loader import load_model
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.dynamic.compiled import (
    EXECUTORS,
    FLOAT,
    INT32,
    INT64,
    Array,
    Feeds,
    compiled,
    constant,
    graph,
    model,
    node,
    normal,
    tensor,
)

UINT8 = onnx.TensorProto.UINT8
MICROSOFT = "com.microsoft"
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Integers:
    """Elements of an operand, drawn up to ``most``."""

    most: int
    kind: int = INT64


@dataclass(frozen=True)
class Operator:
    """A node with operands of symbolic extents.

    Attributes:
        inputs: the dims of each, those that are no numbers symbols.
        tied: symbols that must be equal, with a size for them.
        single: symbols that may be 1 where the others of their group are not.
        also: sizes that fit too.
        beyond: elements that no operand of this name may have.
        misfits: sizes that do not fit, besides those with one symbol of a group changed.
    """

    node: onnx.NodeProto
    inputs: Mapping[str, str]
    tied: Mapping[str, int]
    integers: Mapping[str, Integers] = field(default_factory=dict)
    single: str = ""
    also: tuple[Sizes, ...] = ()
    misfits: tuple[Sizes, ...] = ()
    beyond: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    opset: int = 21

    @property
    def proto(self) -> onnx.ModelProto:
        inputs = [
            tensor(n, [int(d) if d.isdigit() else d for d in dims.split()], self._kind(n))
            for n, dims in self.inputs.items()
        ]
        outputs = [tensor(o, None, INT32 if o == "count" else self._result) for o in self.node.output]
        whole = helper.make_graph([self.node], "main", inputs, outputs)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(whole, opset_imports=imports, ir_version=10)

    @property
    def _result(self) -> int:
        return int(UINT8 if self.node.op_type == "QuantizeLinear" else FLOAT)

    def _kind(self, name: str) -> int:
        return self.integers[name].kind if name in self.integers else FLOAT

    @property
    def sizes(self) -> dict[str, int]:
        return {symbol: size for group, size in self.tied.items() for symbol in group.split()}

    def fitting(self) -> Iterator[Sizes]:
        yield self.sizes
        for symbol in self.single.split():
            yield {**self.sizes, symbol: 1}
        for sizes in self.also:
            yield {**self.sizes, **sizes}

    def unfitting(self) -> Iterator[Sizes]:
        for group, size in self.tied.items():
            for symbol in group.split() if " " in group else ():
                allowed = {size, 1} if symbol in self.single.split() else {size}
                yield from ({**self.sizes, symbol: other} for other in {size + 1, size - 1, 1} - allowed)
        for sizes in self.misfits:
            yield {**self.sizes, **sizes}

    def feeds(self, sizes: Sizes) -> Feeds:
        shapes = {n: [int(d) if d.isdigit() else sizes[d] for d in dims.split()] for n, dims in self.inputs.items()}
        return {n: self._elements(n, shape, seed) for seed, (n, shape) in enumerate(shapes.items())}

    def feeds_beyond(self) -> Iterator[Feeds]:
        for name, elements in self.beyond.items():
            for element in elements:
                request = dict(self.feeds(self.sizes))
                request[name].flat[-1] = element
                yield request

    def _elements(self, name: str, shape: list[int], seed: int) -> Array:
        if name not in self.integers:
            return np.abs(normal(*shape, seed=seed)) + np.float32(0.1)
        integers = self.integers[name]
        dtype = helper.tensor_dtype_to_np_dtype(integers.kind)
        return (np.arange(np.prod(shape, dtype=int)) % (integers.most + 1)).astype(dtype).reshape(shape)


def scanned() -> onnx.NodeProto:
    body = graph(
        [node("Add", ["s", "a"], ["t"]), node("Add", ["t", "b"], ["s_out"]), node("Mul", ["a", "b"], ["p"])],
        [tensor("s", [3]), tensor("a", [3]), tensor("b", [3])],
        [tensor("s_out", [3]), tensor("p", [3])],
    )
    return node("Scan", ["s0", "x", "z"], ["last", "y"], body=body, num_scan_inputs=2)


def recurrent(op: str, gates: int, *states: str) -> Operator:
    inputs = {"x": "t n 3", "w": f"1 {2 * gates} 3", "r": f"1 {2 * gates} 2", "l": "m"}
    return Operator(
        node(op, ["x", "w", "r", "", "l", *states], ["y"], hidden_size=2),
        inputs | {state: f"1 {state}n 2" for state in states},
        {" ".join(["n m", *(f"{state}n" for state in states)]): 3, "t": 4},
        {"l": Integers(4, INT32)},
        beyond={"l": (5, -1)},
    )


def microsoft(op: str, inputs: Mapping[str, str], tied: Mapping[str, int], **rest: Any) -> Operator:
    attributes, outputs = rest.pop("attributes", {}), rest.pop("outputs", ["y"])
    return Operator(node(op, list(inputs), outputs, domain=MICROSOFT, **attributes), inputs, tied, **rest)


def quantized(op: str) -> Operator:
    """One scale for the tensor where there turns out to be one."""
    kinds = {"z": Integers(9, UINT8)} | ({"x": Integers(200, UINT8)} if op == "DequantizeLinear" else {})
    inputs = {"x": "n c", "s": "k", "z": "j"}
    return Operator(node(op, list(inputs), ["y"]), inputs, {"c k j": 4, "n": 2}, kinds, also=({"k": 1, "j": 1},))


_NORMS = {"epsilon": 1e-5}

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        "Conv": Operator(
            node("Conv", ["x", "w", "b"], ["y"]),
            {"x": "n c 8", "w": "m d 3", "b": "e"},
            {"c d": 3, "m e": 4, "n": 2},
        ),
        "Conv of groups": Operator(
            node("Conv", ["x", "w", "b"], ["y"], group=2),
            {"x": "n 4 8", "w": "m d 3", "b": "e"},
            {"m e": 4, "n": 2, "d": 2},
            misfits=({"m": 5, "e": 5}, {"d": 1}, {"d": 3}),
        ),
        "ConvTranspose": Operator(
            node("ConvTranspose", ["x", "w", "b"], ["y"], strides=[2]),
            {"x": "n c 8", "w": "d m 3", "b": "e"},
            {"c d": 3, "m e": 4, "n": 2},
        ),
        "ConvTranspose with a shape of its output": Operator(
            node("ConvTranspose", ["x", "w"], ["y"], strides=[4], output_shape=[12]),
            {"x": "n 1 s", "w": "1 1 2"},
            {"s": 3, "n": 2},
            also=({"s": 4}, {"s": 6}),
            misfits=({"s": 0}, {"s": 1}, {"s": 2}),
        ),
        "ConvTranspose with a shape of its output, apart": Operator(
            node("ConvTranspose", ["x", "w"], ["y"], strides=[3], dilations=[2], output_shape=[10]),
            {"x": "n 1 s", "w": "1 1 3"},
            {"s": 2, "n": 2},
            also=({"s": 3},),
            misfits=({"s": 0}, {"s": 1}),
        ),
        "RoiAlign": Operator(
            node("RoiAlign", ["x", "r", "i"], ["y"], output_height=2, output_width=2, sampling_ratio=2),
            {"x": "n c h w", "r": "m q", "i": "k"},
            {"n": 2, "c": 3, "h": 5, "w": 6, "m k": 3, "q": 4},
            {"i": Integers(0)},
            misfits=({"q": 0}, {"q": 2}, {"q": 3}, {"q": 5}),
        ),
        "ConvTranspose of groups": Operator(
            node("ConvTranspose", ["x", "w"], ["y"], group=2),
            {"x": "n c 8", "w": "d 2 3"},
            {"c d": 4, "n": 2},
            misfits=({"c": 5, "d": 5},),
        ),
        "ReverseSequence": Operator(
            node("ReverseSequence", ["x", "l"], ["y"], batch_axis=0, time_axis=1),
            {"x": "n 4", "l": "m"},
            {"n m": 3},
            {"l": Integers(4)},
            beyond={"l": (5, -1)},
        ),
        "BatchNormalization": Operator(
            node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"]),
            {"x": "n c 5", "s": "d", "b": "e", "m": "f", "v": "g"},
            {"c d e f g": 4, "n": 2},
        ),
        "InstanceNormalization": Operator(
            node("InstanceNormalization", ["x", "s", "b"], ["y"]),
            {"x": "n c 5", "s": "d", "b": "e"},
            {"c d e": 4, "n": 2},
        ),
        "GroupNormalization": Operator(
            node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2),
            {"x": "n 4 5", "s": "c", "b": "e"},
            {"c e": 4, "n": 2},
            misfits=({"c": 2, "e": 2}, {"c": 8, "e": 8}),
        ),
        "LayerNormalization": Operator(
            node("LayerNormalization", ["x", "s", "b"], ["y"]),
            {"x": "n c", "s": "d", "b": "e"},
            {"c d e": 4, "n": 2},
            single="d e",
            misfits=({"c": 1, "d": 4, "e": 4},),
        ),
        "QuantizeLinear": quantized("QuantizeLinear"),
        "DequantizeLinear": quantized("DequantizeLinear"),
        "LSTM": recurrent("LSTM", 4, "h", "c"),
        "GRU": recurrent("GRU", 3, "h"),
        "RNN": recurrent("RNN", 1, "h"),
        "GatherND": Operator(
            node("GatherND", ["x", "i"], ["y"], batch_dims=1), {"x": "n 3", "i": "m 1"}, {"n m": 3}, {"i": Integers(2)}
        ),
        "ScatterND": Operator(
            node("ScatterND", ["x", "i", "u"], ["y"]),
            {"x": "5 a", "i": "k 1", "u": "m b"},
            {"a b": 2, "k m": 3},
            {"i": Integers(4)},
        ),
        "ScatterElements": Operator(
            node("ScatterElements", ["x", "i", "u"], ["y"]),
            {"x": "5 6", "i": "k l", "u": "m b"},
            {"l b": 3, "k m": 3},
            {"i": Integers(4)},
            misfits=({"l": 7, "b": 7},),
        ),
        "Scan": Operator(scanned(), {"s0": "3", "x": "t 3", "z": "u 3"}, {"t u": 4}),
        "MaxUnpool": Operator(
            node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[2], strides=[2]),
            {"x": "n c t", "i": "m d s"},
            {"n m": 1, "c d": 1, "t s": 3},
            {"i": Integers(5)},
            beyond={"i": (6, -1)},
        ),
        "TensorScatter": Operator(
            node("TensorScatter", ["x", "u", "i"], ["y"], axis=1),
            {"x": "n 4 c", "u": "m 1 d", "i": "k"},
            {"n m k": 3, "c d": 2},
            {"i": Integers(3)},
            beyond={"i": (4, -1)},
            opset=24,
        ),
        "Einsum": Operator(node("Einsum", ["x"], ["y"], equation="ii->i"), {"x": "n m"}, {"n m": 3}),
        "NegativeLogLikelihoodLoss": Operator(
            node("NegativeLogLikelihoodLoss", ["x", "l", "w"], ["y"], reduction="none"),
            {"x": "n c", "l": "m", "w": "d"},
            {"n m": 3, "c d": 4},
            {"l": Integers(2)},
        ),
        "RotaryEmbedding": Operator(
            node("RotaryEmbedding", ["x", "c", "s", "p"], ["y"]),
            {"x": "n 2 t 4", "c": "k 2", "s": "l 2", "p": "m u"},
            {"n m": 2, "t u": 3, "k l": 8},
            {"p": Integers(5)},
            opset=23,
        ),
        "RotaryEmbedding of ONNX Runtime": microsoft(
            "RotaryEmbedding",
            {"x": "n 2 t 4", "p": "m u", "c": "k 2", "s": "l 2"},
            {"n m": 2, "t u": 3, "k l": 8},
            integers={"p": Integers(5)},
        ),
        "SkipLayerNormalization": microsoft(
            "SkipLayerNormalization",
            {"x": "n t c", "s": "m u d", "g": "e", "b": "f", "a": "h"},
            {"n m": 2, "t u": 3, "c d e f h": 4},
            single="m",
            attributes=_NORMS,
        ),
        "SkipSimplifiedLayerNormalization": microsoft(
            "SkipSimplifiedLayerNormalization",
            {"x": "n t c", "s": "m u d", "g": "e"},
            {"n m": 2, "t u": 3, "c d e": 4},
            single="m",
            attributes=_NORMS,
        ),
        "BiasGelu": microsoft("BiasGelu", {"x": "n c", "b": "d"}, {"c d": 4, "n": 2}),
        "FastGelu": microsoft("FastGelu", {"x": "n c", "b": "d"}, {"c d": 4, "n": 2}),
        "EmbedLayerNormalization": microsoft(
            "EmbedLayerNormalization",
            {"i": "n t", "s": "m u", "w": "5 4", "p": "6 4", "k": "2 4", "g": "4", "b": "4"},
            {"n m": 2, "t u": 3},
            integers={"i": Integers(4, INT32), "s": Integers(1, INT32)},
            attributes=_NORMS,
            outputs=["y", "count"],
        ),
    }
)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("opt_level", [3, 0])
@pytest.mark.parametrize("name", OPERATORS)
def test_operands_fit(name: str, opt_level: int) -> None:
    operator = OPERATORS[name]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(operator.proto.SerializeToString(), options, ["CPUExecutionProvider"])
    artifact = compiled(operator.proto, opt_level)
    for executor in EXECUTORS:
        with load_model(artifact, threads=2, executor=executor) as loaded:
            for sizes in operator.fitting():
                found, expected = loaded.run(operator.feeds(sizes)), session.run(["y"], dict(operator.feeds(sizes)))
                np.testing.assert_allclose(found["y"], expected[0], 1e-4, 1e-4, err_msg=f"{executor}: {sizes}")
            for request in operator.feeds_beyond():
                _refused(loaded.run, request, f"{executor}: {[request[n] for n in operator.beyond]}")
            for sizes in operator.unfitting():
                _refused(loaded.run, operator.feeds(sizes), f"{executor}: {sizes}")


def _refused(run: Callable[[Feeds], Any], request: Feeds, where: str) -> None:
    error = _error_of(run, request)
    assert error is not None, f"answered what does not fit; {where}"
    assert error.code is ErrorCode.INVALID_ARGUMENT, where


def _error_of(run: Callable[[Feeds], Any], request: Feeds) -> IngotError | None:
    try:
        run(request)
    except IngotError as error:
        return error
    return None


@pytest.mark.parametrize("level", [0, 3])
def test_one_hot_takes_two_values(level: int) -> None:
    inputs = [tensor("i", ["n"], INT64), tensor("v", ["k"])]
    nodes = [constant("d", 3), node("OneHot", ["i", "d", "v"], ["y"])]
    proto = model(nodes, inputs, [tensor("y", None)])
    with load_model(compiled(proto, level), threads=1) as loaded:
        feeds: Feeds = {"i": np.array([0, 2]), "v": np.array([5, 7], np.float32)}
        assert loaded.run(feeds)["y"].tolist() == [[7, 5, 5], [5, 5, 7]]
        for count in (0, 1, 3):
            with pytest.raises(IngotError, match="k must be 2") as caught:
                loaded.run({**feeds, "v": np.ones(count, np.float32)})
            assert caught.value.code is ErrorCode.INVALID_ARGUMENT
