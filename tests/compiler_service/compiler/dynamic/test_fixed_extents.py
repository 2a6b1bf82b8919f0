"""Extents that the specification fixes need no name in the model: they are taken as fixed, and the run checks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from runtime_service.loading.loader import load_model
from shared_ir.errors import ErrorCode, IngotError

Feeds = Mapping[str, np.ndarray]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def unnamed(node: onnx.NodeProto, feeds: Feeds, opset: int, **constants: np.ndarray) -> onnx.ModelProto:
    """``node`` on inputs of known rank, of which nothing else is known."""
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * a.ndim) for n, a in feeds.items()]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def check(model: onnx.ModelProto, good: Sequence[Feeds], bad: Sequence[Feeds], opt_level: int) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    source, options = ModelSource.of(model.SerializeToString()), CompileOptions(opt_level=opt_level)
    with load_model(compile_model(source, host_target(), options, workers=0), threads=1) as loaded:
        for feeds in good:
            found = loaded.run(feeds)
            for name, expected in zip(found, session.run(list(found), dict(feeds)), strict=True):
                np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)
        for feeds in bad:
            with pytest.raises(IngotError) as caught:
                loaded.run(feeds)
            assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.sampled
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent(op: str, gates: int, directions: int, opt_level: int) -> None:
    direction = "bidirectional" if directions == 2 else "forward"

    def feeds(hidden: int) -> Feeds:
        rows = gates * hidden
        weights = {"w": random(directions, rows, 5), "r": random(directions, rows, hidden)}
        return {"x": random(3, 2, 5), **weights, "b": random(directions, 2 * rows), "h": random(directions, 2, hidden)}

    node = helper.make_node(op, ["x", "w", "r", "b", "", "h"], ["y", "y_h"], hidden_size=4, direction=direction)
    check(unnamed(node, feeds(4), 21), [feeds(4)], [feeds(3), {**feeds(4), "b": random(directions, 1)}], opt_level)


@pytest.mark.parametrize("opt_level", [0, 3])
def test_grids(opt_level: int) -> None:
    feeds = {"x": random(2, 3, 4, 5), "grid": random(2, 2, 3, 2)}
    node = helper.make_node("GridSample", ["x", "grid"], ["y"])
    check(unnamed(node, feeds, 20), [feeds], [{**feeds, "grid": random(2, 2, 3, 3)}], opt_level)


@pytest.mark.parametrize("opt_level", [0, 3])
def test_fourier_transforms(opt_level: int) -> None:
    node = helper.make_node("DFT", ["x"], ["y"], axis=1)
    real, complex_numbers, neither = ({"x": random(2, 6, parts)} for parts in (1, 2, 3))
    check(unnamed(node, real, 17), [real, complex_numbers], [neither], opt_level)
    node = helper.make_node("STFT", ["x", "step", "", "length"], ["y"])
    constants = {"step": np.array(2), "length": np.array(4)}
    check(unnamed(node, {"x": random(2, 9, 1)}, 17, **constants), [{"x": random(2, 9, 1)}], [], opt_level)


@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("training", [0, 1])
def test_batch_normalization(training: int, opt_level: int) -> None:
    outputs = ["y", "mean", "variance"] if training else ["y"]
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], outputs, training_mode=training)
    feeds = {"x": random(2, 3, 4), "s": random(3), "b": random(3), "m": random(3), "v": np.abs(random(3))}
    bad = [{**feeds, name: np.ones(1, np.float32)} for name in "sbmv"] + [{**feeds, "x": random(2, 1, 4)}]
    check(unnamed(node, feeds, 15), [feeds], bad, opt_level)
