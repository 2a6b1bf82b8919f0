"""Quantised products: exact sums of integers at every level, by whatever units they are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.pipeline import CompileOptions, compile_model
from shared_ir.machine.target import parse_target
from tests.cases import every
from tests.conformance.compiled import check_against_onnx_runtime, run_compiled, run_onnx_runtime

RNG = np.random.default_rng(5)


def model_of(
    op: str, feeds: dict[str, np.ndarray], constants: dict[str, np.ndarray], dtype: int, **attributes: Any
) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), [f"{n}_rows", *x.shape[1:]])
        for n, x in feeds.items()
    ]
    names = [*feeds, *constants]
    order = sorted(names, key=lambda n: int(n[1:]))
    node = helper.make_node(op, order, ["y"], **attributes)
    held = [numpy_helper.from_array(x, n) for n, x in constants.items()]
    graph = helper.make_graph([node], op, inputs, [helper.make_tensor_value_info("y", dtype, None)], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def bytes_(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("depth", [7, 300, 1200])
@pytest.mark.parametrize("is_constant", [True, False])
def test_sums_beyond_the_digits_of_a_float_are_exact(level: int, depth: int, is_constant: bool) -> None:
    a, b = np.full((3, depth), 255, np.uint8), bytes_(depth, 5)
    b[:, 0] = 255
    zeros = {"x2": np.array(0, np.uint8), "x3": np.array(1, np.uint8)}
    feeds, constants = ({"x0": a}, {"x1": b, **zeros}) if is_constant else ({"x0": a, "x1": b}, zeros)
    model = model_of("MatMulInteger", feeds, constants, onnx.TensorProto.INT32)
    (found,) = run_compiled(model, feeds, level)
    np.testing.assert_array_equal(found, a.astype(np.int32) @ (b.astype(np.int32) - 1))


@pytest.mark.parametrize(
    ("kernel", "group", "stride"), every([(3, 1, 1), (3, 1, 2), (1, 1, 1), (3, 4, 1)], quick={(3, 1, 2), (3, 4, 1)})
)
def test_convolutions(kernel: int, group: int, stride: int) -> None:
    x, w = bytes_(2, 8, 9, 9), bytes_(12, 8 // group, kernel, kernel)
    constants = {"x1": w, "x2": np.array(128, np.uint8), "x3": np.array(77, np.uint8)}
    options = {"group": group, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
    model = model_of("ConvInteger", {"x0": x}, constants, onnx.TensorProto.INT32, **options)
    check_against_onnx_runtime(model, {"x0": x}, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channels", "group", "kernel"), [(64, 2, (3, 3)), (64, 2, (5, 5)), (128, 4, (3,)), (32, 1, (3, 3))]
)
def test_sums_that_filtering_would_round(channels: int, group: int, kernel: tuple[int, ...]) -> None:
    """Layers that Winograd's method would take, were they floats."""
    x, w = bytes_(1, channels, *(28,) * len(kernel)), bytes_(channels, channels // group, *kernel, dtype=np.int8)
    options = {"group": group, "pads": [k // 2 for k in kernel] * 2}
    model = model_of("ConvInteger", {"x0": x}, {"x1": w}, onnx.TensorProto.INT32, **options)
    without_dots = (
        [parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")]
        if host_target().architecture == "x86_64"
        else []
    )
    for target in (host_target(), *without_dots):
        (found,) = run_compiled(model, {"x0": x}, target=target)
        np.testing.assert_array_equal(found, run_onnx_runtime(model, {"x0": x})[0])


@pytest.mark.slow
@pytest.mark.parametrize("per_channel", [True, False])
def test_rounded_convolutions(per_channel: bool) -> None:
    x, w = bytes_(2, 8, 9, 9), bytes_(12, 8, 3, 3, dtype=np.int8)
    scales = RNG.uniform(0.001, 0.01, 12).astype(np.float32) if per_channel else np.array(0.01, np.float32)
    zeros = np.zeros(12 if per_channel else (), np.int8)
    constants: dict[str, np.ndarray] = {
        "x1": np.array(0.02, np.float32), "x2": np.array(120, np.uint8), "x3": w, "x4": scales, "x5": zeros,
        "x6": np.array(0.3, np.float32), "x7": np.array(100, np.uint8), "x8": RNG.integers(-999, 999, 12).astype(np.int32),
    }  # fmt: skip
    model = model_of("QLinearConv", {"x0": x}, constants, onnx.TensorProto.UINT8, pads=[1] * 4)
    plain, optimised = (run_compiled(model, {"x0": x}, level)[0] for level in (0, 3))
    np.testing.assert_array_equal(plain, optimised)
    check_against_onnx_runtime(model, {"x0": x}, rtol=0.02)


def test_one_scale_whatever_the_axis_beside_it() -> None:
    """What ONNX Runtime's quantizer writes for biases: a vector, scale [1], the default axis 1."""
    bias = RNG.integers(-99, 99, 6).astype(np.int32)
    constants = {"x1": np.array([0.5], np.float32), "x2": np.array([0], np.int32)}
    feeds = {"x0": bias}
    node = helper.make_node("DequantizeLinear", ["x0", "x1", "x2"], ["y"])
    graph = helper.make_graph(
        [node], "bias", [helper.make_tensor_value_info("x0", onnx.TensorProto.INT32, [6])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [6])],
        [numpy_helper.from_array(x, n) for n, x in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    np.testing.assert_array_equal(run_compiled(model, feeds)[0], bias * np.float32(0.5))


def test_quantizing_again_in_the_same_steps_changes_nothing() -> None:
    def quantized(name: str) -> list[onnx.NodeProto]:
        return [
            helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}q"]),
            helper.make_node("DequantizeLinear", [f"{name}q", "s", "z"], [f"{name}d"]),
        ]

    nodes = [*quantized("x"), *quantized("xd"), *quantized("xdd")]
    graph = helper.make_graph(
        nodes, "again", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 5])],
        [helper.make_tensor_value_info("xddd", onnx.TensorProto.FLOAT, ["n", 5])],
        [numpy_helper.from_array(np.array(0.037, np.float32), "s"), numpy_helper.from_array(np.array(31, np.uint8), "z")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feeds = {"x": (RNG.standard_normal((64, 5)) * 4).astype(np.float32)}
    np.testing.assert_array_equal(run_compiled(model, feeds, 0)[0], run_compiled(model, feeds, 3)[0])


def dequantized(nodes: list[onnx.NodeProto], x: np.ndarray, **constants: np.ndarray) -> onnx.ModelProto:
    """x of bytes -> y of floats"""
    held = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    graph = helper.make_graph(
        nodes, "g", [given], [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)], held
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize(("channels", "stride"), every([(8, 1), (8, 2), (3, 2)], quick={(8, 1), (3, 2)}))
def test_dequantized_convolutions_are_as_exact_as_integers(kind: type, channels: int, stride: int) -> None:
    x, w = bytes_(1, channels, 9, 9, dtype=kind), bytes_(20, channels, 3, 3, dtype=np.int8)
    zero: np.ndarray = np.array(3, kind)
    steps = RNG.uniform(0.001, 0.01, 20).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "t", "u"], ["e"], axis=0),
        helper.make_node("Conv", ["d", "e"], ["y"], pads=[1] * 4, strides=[stride] * 2),
    ]
    scale = np.array(0.02, np.float32)
    model = dequantized(nodes, x, w=w, s=scale, z=zero, t=steps, u=np.zeros(20, np.int8))
    (found,) = run_compiled(model, {"x": x})
    wide = [
        helper.make_node("ConvInteger", ["x", "w", "z"], ["i"], pads=[1] * 4, strides=[stride] * 2),
        helper.make_node("Cast", ["i"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    (sums,) = run_onnx_runtime(dequantized(wide, x, w=w, z=zero), {"x": x})
    wanted = sums.astype(np.float64) * (np.float64(scale) * steps.astype(np.float64))[:, None, None]
    np.testing.assert_allclose(found, wanted, rtol=2e-7)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_quantizing_what_is_no_number(kind: type, level: int) -> None:
    """Infinities become the ends of the range, NaN the least number."""
    x = np.array([np.nan, np.inf, -np.inf, 2.5, -3.0], np.float32)
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])
    cast = helper.make_node("Cast", ["q"], ["y"], to=onnx.TensorProto.FLOAT)
    model = dequantized([node, cast], x, s=np.array(1, np.float32), z=np.array(0, kind))
    limits = np.iinfo(kind)
    wanted = [limits.min, limits.max, limits.min, 2, max(-3, limits.min)]
    assert run_compiled(model, {"x": x}, level)[0].tolist() == wanted


@pytest.mark.slow
def test_layers_with_other_steps_share_a_kernel() -> None:
    layers = range(3)
    nodes = []
    for i in layers:
        name = "x" if i == 0 else f"q{i - 1}"
        nodes += [
            helper.make_node("DequantizeLinear", [name, f"s{i}", f"z{i}"], [f"d{i}"]),
            helper.make_node("Softmax", [f"d{i}"], [f"h{i}"]),
            helper.make_node("QuantizeLinear", [f"h{i}", f"t{i}", f"z{i}"], [f"q{i}"]),
        ]
    nodes.append(helper.make_node("Cast", [f"q{layers[-1]}"], ["y"], to=onnx.TensorProto.FLOAT))
    x = bytes_(4, 32)
    steps = {f"{s}{i}": np.array(0.003 * (i + 1), np.float32) for i in layers for s in "st"}
    zeros = {f"z{i}": np.array(i + 1, np.uint8) for i in layers}
    model = dequantized(nodes, x, **steps, **zeros)
    artifact = compile_model(ModelSource.of(model.SerializeToString()), host_target(), CompileOptions(), workers=0)
    labels = [k.name for k in artifact.plan.kernels]
    assert sum("softmax" in label for label in labels) <= 2  # the last one ends in a cast
    check_against_onnx_runtime(model, {"x": x})
