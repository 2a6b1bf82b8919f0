"""Random operators through compiled code: the generator element by element, distributions, seeds, iterations."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.pipeline import CompileOptions, compile_model, verify_artifact
from compiler_service.stages.compiler import RUN_ONCE
from shared_ir.errors import ErrorCode, IngotError
from tests.conformance.compiled import Array, run_compiled

pytestmark = pytest.mark.slow

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
MASK = (1 << 64) - 1


def model(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], *outputs: str) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "main", inputs, [onnx.ValueInfoProto(name=o) for o in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def drawn(op: str, shape: tuple[int, ...] = (20000,), opt_level: int = 3, **attributes: Any) -> Array:
    node = helper.make_node(op, [], ["y"], shape=shape, **attributes)
    return run_compiled(model([node], [], "y"), {}, opt_level)[0]


def split_mix(seed: float, place: int) -> int:
    own = zlib.crc32(f"seed {seed!r}".encode())
    z = (place * 0x9E3779B97F4A7C15 + (own << 32 | own)) & MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


@pytest.mark.parametrize("opt_level", [0, 3])
def test_every_element_is_the_hash_of_its_place(opt_level: int) -> None:
    single = drawn("RandomUniform", (3, 7), opt_level, seed=5.0)
    expected = [(split_mix(5.0, i) >> 40) * 2.0**-24 for i in range(21)]
    np.testing.assert_array_equal(single.reshape(-1), np.array(expected, np.float32))
    double = drawn("RandomUniform", (40,), opt_level, seed=5.0, dtype=onnx.TensorProto.DOUBLE)
    np.testing.assert_array_equal(double, [(split_mix(5.0, i) >> 11) * 2.0**-53 for i in range(40)])


def test_distributions() -> None:
    uniform = drawn("RandomUniform", seed=1.0, low=-2.0, high=6.0)
    assert -2 <= uniform.min() < -1.99
    assert 5.99 < uniform.max() < 6
    assert abs(uniform.mean() - 2) < 0.05
    normal = drawn("RandomNormal", seed=1.0, mean=3.0, scale=2.0)
    assert abs(normal.mean() - 3) < 0.05
    assert abs(normal.std() - 2) < 0.05
    assert abs(np.mean(np.abs(normal - 3) < 2) - 0.6827) < 0.01
    assert abs(np.corrcoef(normal[:-1], normal[1:])[0, 1]) < 0.03


def test_seeds() -> None:
    a, b, c = (drawn("RandomNormal", (50,), seed=s) for s in (1.0, 1.0, 2.0))
    np.testing.assert_array_equal(a, b)
    assert not np.any(a == c)
    nodes = [helper.make_node("RandomUniformLike", ["x"], [name], name=name) for name in ("p", "q")]
    x = helper.make_tensor_value_info("x", FLOAT, ["n"])
    p, q = run_compiled(model(nodes, [x], "p", "q"), {"x": np.zeros(50, np.float32)})
    assert not np.any(p == q)


def test_every_iteration_draws_other_numbers() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("RandomUniform", [], ["u"], shape=[6], seed=3.0),
        ],
        "body",
        [helper.make_tensor_value_info("i", INT64, []), helper.make_tensor_value_info("go", BOOL, [])],
        [helper.make_tensor_value_info("on", BOOL, []), helper.make_tensor_value_info("u", FLOAT, [6])],
    )
    node = helper.make_node("Loop", ["trips", ""], ["y"], body=body)
    (y,) = run_compiled(model([node], [helper.make_tensor_value_info("trips", INT64, [])], "y"), {"trips": np.array(5)})
    assert y.shape == (5, 6)
    assert len(np.unique(y)) == 30


def test_bernoulli_and_multinomial_follow_the_probabilities() -> None:
    x = helper.make_tensor_value_info("x", FLOAT, ["n"])
    node = helper.make_node("Bernoulli", ["x"], ["y"], seed=4.0, dtype=INT64)
    (y,) = run_compiled(model([node], [x], "y"), {"x": np.full(20000, 0.2, np.float32)})
    assert y.dtype == np.int64
    assert abs(y.mean() - 0.2) < 0.01
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=20000, seed=4.0)
    logits = np.log(np.array([[0.1, 0.6, 0.3], [0.5, 0.0, 0.5]], np.float32) + 1e-30)
    x = helper.make_tensor_value_info("x", FLOAT, [2, 3])
    (y,) = run_compiled(model([node], [x], "y"), {"x": logits})
    assert y.dtype == np.int32
    shares = [[np.mean(row == k) for k in range(3)] for row in y]
    np.testing.assert_allclose(shares, [[0.1, 0.6, 0.3], [0.5, 0.0, 0.5]], atol=0.01)


def test_dropout_while_training() -> None:
    x = helper.make_tensor_value_info("x", FLOAT, ["n"])
    inputs = [x, helper.make_tensor_value_info("r", FLOAT, []), helper.make_tensor_value_info("t", BOOL, [])]
    proto = model([helper.make_node("Dropout", ["x", "r", "t"], ["y", "mask"], seed=9)], inputs, "y", "mask")
    feeds = {"x": np.ones(20000, np.float32), "r": np.array(0.25, np.float32), "t": np.array(True)}
    y, mask = run_compiled(proto, feeds)
    assert abs(mask.mean() - 0.75) < 0.01
    np.testing.assert_allclose(y, mask / np.float32(0.75), rtol=1e-6)
    y, mask = run_compiled(proto, feeds | {"t": np.array(False)})
    assert mask.all()
    np.testing.assert_array_equal(y, feeds["x"])


def test_models_that_draw_are_not_held_against_another_generator() -> None:
    x = helper.make_tensor_value_info("x", FLOAT, ["n"])
    proto = model(
        [helper.make_node("RandomNormalLike", ["x"], ["n"]), helper.make_node("Add", ["x", "n"], ["y"])], [x], "y"
    )
    source = ModelSource.of(proto.SerializeToString())
    report = verify_artifact(compile_model(source, host_target(), workers=0), source, CompileOptions(), RUN_ONCE)
    assert report["state"] == "not run"
    assert "random numbers" in report["reason"]


def test_draws_inside_of_scan_are_refused() -> None:
    body = helper.make_graph(
        [helper.make_node("RandomUniformLike", ["e"], ["u"])],
        "body",
        [helper.make_tensor_value_info("e", FLOAT, [3])],
        [helper.make_tensor_value_info("u", FLOAT, [3])],
    )
    node = helper.make_node("Scan", ["x"], ["y"], num_scan_inputs=1, body=body)
    proto = model([node], [helper.make_tensor_value_info("x", FLOAT, ["n", 3])], "y")
    with pytest.raises(IngotError) as caught:
        run_compiled(proto, {"x": np.zeros((2, 3), np.float32)})
    assert caught.value.code is ErrorCode.UNSUPPORTED_OPERATOR
