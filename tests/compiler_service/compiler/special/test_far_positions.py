"""Numbers that positions are multiplied by or compared with, far beyond any extent: steps, bounds, strides, regions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from compiler_service.compiler.tensor_expr.operators.movement import slice_
from compiler_service.compiler.tensor_expr.tensor import Compute, Load, Tensor, placeholder
from runtime_service.loading.loader import load_model
from shared_ir.dtype import DType
from shared_ir.errors import IngotError
from shared_ir.expr.dim import Dim, as_dim, evaluate, symbol

Array = np.ndarray[Any, Any]

STEPS = (-(2**63), -(2**62), -(2**48), -5, -2, -1, 1, 2, 5, 2**40, 2**48, 2**60, 2**61, 2**62, 2**63 - 1)
BOUNDS = (-(2**63), -(2**48), -(2**31), -(2**31) + 1, -6, -5, -4, -1, 0, 1, 5, 6, 2**31 - 1, 2**31, 2**48, 2**63 - 1)


def made(
    node: onnx.NodeProto, shape: Sequence[int | str], constants: Mapping[str, Array], dtype: int
) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node],
        "far",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)), None)],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def ran(model: onnx.ModelProto, opt_level: int, **feeds: Array) -> Array:
    source, options = ModelSource.of(model.SerializeToString()), CompileOptions(opt_level=opt_level)
    with load_model(compile_model(source, host_target(), options, workers=0), threads=1) as loaded:
        return np.asarray(dict(loaded.run(feeds))["y"])


@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("step", [2**40, 2**60, 2**61, 2**62, 2**63 - 1, -(2**62), -(2**63)])
def test_steps_beyond_the_extent(step: int, opt_level: int) -> None:
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    first, last = (1, 2**63 - 1) if step > 0 else (-1, -(2**63))
    numbers = {"a": first, "b": last, "c": -1, "d": step}
    constants = {name: np.array([number], np.int64) for name, number in numbers.items()}
    model = made(helper.make_node("Slice", ["x", *numbers], ["y"]), ["m", "n"], constants, onnx.TensorProto.FLOAT)
    assert ran(model, opt_level, x=x).tolist() == x[:, first:last:step].tolist()


@pytest.mark.sampled
@pytest.mark.parametrize("extent", [0, 1, 4, 5, 6])
def test_bounds_and_steps_are_those_of_python(extent: int) -> None:
    extents: tuple[Dim, ...] = (extent, symbol("n"))
    for first, last, step, own in itertools.product(BOUNDS, BOUNDS, STEPS, extents):
        sliced = slice_(placeholder("x", (own,), DType.FLOAT32), *(_known(n) for n in (first, last, 0, step)))
        assert isinstance(sliced.op, Compute)
        assert isinstance(sliced.op.body, Load)
        (place,), (axis,) = sliced.op.body.indices, sliced.op.axes
        count = evaluate(sliced.shape[0], {"n": extent})
        reached = [evaluate(as_dim(place), {"n": extent, axis.var.name: i}) for i in range(count)]
        assert reached == list(range(extent)[first:last:step]), (own, first, last, step)


def _known(number: int) -> Tensor:
    return replace(placeholder("number", (1,), DType.INT64), value=np.array([number], np.int64))


@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("far", [8.0, 30.0, 200.0, 1e3])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_that_reach_far_past_the_image(mode: str, far: float, opt_level: int) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 8, 9)).astype(np.float32)
    regions = np.array([[1, 0, far, 5], [-far, -far, far, far], [2, -far, 3, 4], [0, 0, 2, 3]], np.float32)
    node = helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], output_height=3, output_width=2, mode=mode)
    constants: dict[str, Array] = {"r": regions, "i": np.zeros(4, np.int64)}
    model = made(node, [1, 2, "h", "w"], constants, onnx.TensorProto.FLOAT)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(ran(model, opt_level, x=x), expected, rtol=1e-4, atol=max(1e-5, far * 1e-6))


def test_regions_of_no_numbers_are_refused() -> None:
    regions = np.array([[0, 0, np.inf, 4]], np.float32)
    align = helper.make_node("RoiAlign", ["x", "r", "i"], ["y"])
    model = made(align, [1, 1, 4, 4], {"r": regions, "i": np.zeros(1, np.int64)}, onnx.TensorProto.FLOAT)
    del model.graph.initializer[0]
    model.graph.input.append(helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, ["n", 4]))
    with pytest.raises(IngotError, match="infinite or no number"):
        ran(model, 3, x=np.zeros((1, 1, 4, 4), np.float32), r=regions)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "Conv"])
def test_strides_of_windows_have_a_limit(op: str) -> None:
    kernel: dict[str, Any] = {} if op == "Conv" else {"kernel_shape": [2]}
    operands = ["x", "w"] if op == "Conv" else ["x"]
    weights = {"w": np.ones((1, 1, 2), np.float32)}
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    for stride, fits in ((2**20, True), (2**60, False)):
        node = helper.make_node(op, operands, ["y"], strides=[stride], **kernel)
        model = made(node, [1, 1, "n"], weights, onnx.TensorProto.FLOAT)
        if fits:
            assert ran(model, 3, x=x).size == 1
        else:
            with pytest.raises(IngotError, match="strides"):
                ran(model, 3, x=x)


@pytest.mark.parametrize("opt_level", [0, 3])
def test_transposed_windows_far_apart(opt_level: int) -> None:
    w = np.random.default_rng(1).standard_normal((2, 3, 2, 2)).astype(np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2**18, 2**18])
    model = made(node, [1, 2, "h", "w_"], {"w": w}, onnx.TensorProto.FLOAT)
    x = np.ones((1, 2, 1, 1), np.float32)
    np.testing.assert_allclose(ran(model, opt_level, x=x)[0], w.sum(0), rtol=1e-6)
