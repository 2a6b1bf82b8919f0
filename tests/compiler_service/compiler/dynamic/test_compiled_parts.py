"""Concatenations whose operands are made in their places: dense blocks, U-Nets, C2f, tokens; against ONNX Runtime."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from runtime_service.loading.loader import load_model
from shared_ir.plan.program import launches
from tests.compiler_service.compiler.dynamic.compiled import (
    Array,
    Case,
    assert_equals_onnxruntime,
    check_cases,
    compiled,
    constant,
    model,
    node,
    normal,
    tensor,
)


class Net:
    """Layers of a picture model, one after the other."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}
        self._count = 0

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        self._count += 1
        names = [f"{op.lower()}_{self._count}"] + [f"{op.lower()}_{self._count}_{i}" for i in range(1, outputs)]
        self.nodes.append(node(op, list(inputs), names, **attributes))
        return names[0]

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = normal(*shape, seed=len(self.weights)) / np.float32(np.sqrt(np.prod(shape[1:])))
        return name

    def conv(self, x: str, channels: int, out: int, kernel: int = 3, group: int = 1) -> str:
        made = self.add(
            "Conv",
            x,
            self.weight(out, channels // group, kernel, kernel),
            pads=[kernel // 2] * 4,
            kernel_shape=[kernel] * 2,
            group=group,
        )
        return self.add("Relu", made)

    def concat(self, *values: str, axis: int = 1) -> str:
        return self.add("Concat", *values, axis=axis)

    def model(self, shape: Sequence[int | str], *outputs: tuple[str, Sequence[int | str | None]]) -> onnx.ModelProto:
        return model(self.nodes, [tensor("x", shape)], [tensor(n, s) for n, s in outputs], self.weights)


def _pictures(*shapes: tuple[int, ...]) -> list[dict[str, Array]]:
    return [{"x": normal(*shape, seed=i)} for i, shape in enumerate(shapes)]


def dense_block(shape: Sequence[int | str] = (1, 16, 9, 10)) -> onnx.ModelProto:
    """Every layer reads all before it, through a batch norm of its own."""
    net = Net()
    features = [net.conv("x", 16, 16)]
    for layer in range(5):
        channels = 16 * (layer + 1)
        whole = net.concat(*features) if layer else features[0]
        scaled = net.add("Mul", whole, net.weight(1, channels, 1, 1))
        features.append(net.conv(net.conv(net.add("Relu", scaled), channels, 32, 1), 32, 16))
    net.add("GlobalAveragePool", last := net.concat(*features))
    return net.model(shape, (last, [None] * 4), (net.nodes[-1].output[0], [None] * 4))


def u_net(shape: Sequence[int | str] = (1, 3, 16, 24)) -> onnx.ModelProto:
    net = Net()
    first = net.conv("x", 3, 16)
    second = net.conv(net.add("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2]), 16, 32)
    third = net.conv(net.add("MaxPool", second, kernel_shape=[2, 2], strides=[2, 2]), 32, 32)
    up = net.add("ConvTranspose", third, net.weight(32, 32, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    merged = net.conv(net.concat(second, up), 64, 32)
    up = net.add("ConvTranspose", merged, net.weight(32, 16, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    last = net.conv(net.concat(up, first), 32, 8)
    return net.model(shape, (last, [None] * 4))


def c2f(shape: Sequence[int | str] = (1, 32, 10, 10)) -> onnx.ModelProto:
    """A block of YOLO: halves of a convolution, and what bottlenecks make of the second."""
    net = Net()
    whole = net.conv("x", 32, 32, 1)
    first = net.add("Split", whole, outputs=2, axis=1)
    parts = [first, f"{first}_1"]
    for _ in range(2):
        inner = net.conv(net.conv(parts[-1], 16, 16), 16, 16)
        parts.append(net.add("Add", parts[-1], inner))
    last = net.conv(net.concat(*parts), 64, 32, 1)
    return net.model(shape, (last, [None] * 4))


def pyramid(shape: Sequence[int | str] = (1, 16, 12, 12)) -> onnx.ModelProto:
    """Pools of pools beside each other, twice as large, beside what they came from; groups and short slices."""
    net = Net()
    found = [net.conv("x", 16, 32)]
    for _ in range(3):
        found.append(net.add("MaxPool", found[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1]))
    pools = net.concat(*found)
    small = net.conv(net.add("AveragePool", pools, kernel_shape=[2, 2], strides=[2, 2]), 128, 24, group=8)
    net.weights["scales"] = np.array([1, 1, 2, 2], np.float32)
    large = net.add("Resize", small, "", "scales", mode="nearest")
    narrow = net.conv(found[1], 32, 3)
    mixed = net.concat(large, net.conv(found[0], 32, 32, group=32), narrow, found[0])
    last = net.conv(mixed, 24 + 32 + 3 + 32, 16, 1)
    return net.model(shape, (last, [None] * 4), (mixed, [None] * 4))


def tokens(shape: Sequence[int | str] = (1, 7, 32)) -> onnx.ModelProto:
    """Along the tokens of one sequence there are no gaps; along features there are."""
    net = Net()
    queries = net.add("MatMul", "x", net.weight(32, 32))
    keys = net.add("MatMul", "x", net.weight(32, 32))
    both = net.concat(queries, keys)
    normed = net.add("Softmax", both, axis=-1)
    wide = net.concat(both, normed, axis=2)
    result = net.add("MatMul", wide, net.weight(64, 16))
    return net.model(shape, (result, [None] * 3), (wide, [None] * 3))


def static_dense_block() -> Case:
    return dense_block(), _pictures((1, 16, 9, 10))


def dense_block_of_any_size() -> Case:
    return dense_block(("n", 16, "h", "w")), _pictures((1, 16, 9, 10), (3, 16, 4, 1), (2, 16, 1, 7))


def static_u_net() -> Case:
    return u_net(), _pictures((1, 3, 16, 24))


def u_net_of_any_size() -> Case:
    return u_net(("n", 3, "h", "w")), _pictures((1, 3, 16, 24), (2, 3, 4, 8))


def static_c2f() -> Case:
    return c2f(), _pictures((1, 32, 10, 10))


def c2f_of_any_size() -> Case:
    return c2f(("n", 32, "h", "w")), _pictures((1, 32, 10, 10), (2, 32, 3, 5))


def static_pyramid() -> Case:
    return pyramid(), _pictures((1, 16, 12, 12))


def pyramid_of_any_batch() -> Case:
    return pyramid(("n", 16, 12, 12)), _pictures((1, 16, 12, 12), (3, 16, 12, 12))


def static_tokens() -> Case:
    return tokens(), _pictures((1, 7, 32))


def tokens_of_any_size() -> Case:
    return tokens(("n", "t", 32)), _pictures((1, 7, 32), (3, 5, 32))


def parts_read_by_control_flow() -> Case:
    """A value with gaps cannot be handed to a branch: it is copied into the whole instead."""
    net = Net()
    a = net.conv("x", 16, 16)
    b = net.conv(a, 16, 16)
    whole = net.concat(a, b)
    net.nodes.append(constant("zero", 0.0, np.float32))
    condition = net.add("Greater", net.add("ReduceMax", a, keepdims=0), "zero")
    arms = {
        f"{arm}_branch": onnx.helper.make_graph(
            [node(op, [b], [f"{arm}_out"])], arm, [], [tensor(f"{arm}_out", (1, 16, 5, 5))]
        )
        for arm, op in (("then", "Neg"), ("else", "Identity"))
    }
    chosen = net.add("If", condition, **arms)
    last = net.conv(whole, 32, 16)
    return net.model((1, 16, 5, 5), (last, [None] * 4), (chosen, [None] * 4)), _pictures((1, 16, 5, 5))


@pytest.mark.sampled
@check_cases(
    [
        static_dense_block,
        dense_block_of_any_size,
        static_u_net,
        u_net_of_any_size,
        static_c2f,
        c2f_of_any_size,
        static_pyramid,
        pyramid_of_any_batch,
        static_tokens,
        tokens_of_any_size,
        parts_read_by_control_flow,
    ]
)
def test_parts_equal_onnxruntime(case: Callable[[], Case], opt_level: int) -> None:
    proto, requests = case()
    assert_equals_onnxruntime(proto, requests, opt_level)


@pytest.mark.slow
@pytest.mark.parametrize("make", [dense_block, u_net, c2f])
def test_no_kernel_concatenates(make: Callable[[], onnx.ModelProto]) -> None:
    artifact = compiled(make())
    labels = [launch.label for launch in launches(artifact.plan.steps)]
    assert not any("Concat" in label for label in labels), labels
    (feeds,) = _pictures(tuple(int(str(d)) for d in artifact.plan.inputs[0].shape))
    results = []
    for threads in (1, 3):
        with load_model(artifact, threads=threads) as loaded:
            results.append(loaded.run(feeds))
    for name, found in results[0].items():
        np.testing.assert_array_equal(found, results[1][name])


@pytest.mark.slow
def test_a_program_with_everything_inside_gives_the_same(tmp_path: Path) -> None:
    source = ModelSource.of(c2f().SerializeToString())
    artifact = compile_model(source, host_target(), CompileOptions(bundle="executable"), workers=0)
    (feeds,) = _pictures((1, 32, 10, 10))
    with load_model(artifact, threads=1) as loaded:
        (expected,) = loaded.run(feeds).values()
    program = tmp_path / "program"
    program.write_bytes(artifact.attachments["program"])
    program.chmod(0o755)
    feeds["x"].tofile(tmp_path / "x.bin")
    subprocess.run([program, tmp_path / "x.bin", tmp_path / "y.bin"], check=True, capture_output=True)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "y.bin", np.float32).reshape(expected.shape), expected)
