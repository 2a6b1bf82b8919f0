"""Operands that only the run knows where most models have constants, and extents that the rest of a node decides: through the
whole compiler and both executors, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from runtime_service.loading.loader import load_model
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.dynamic.compiled import (
    BOOL,
    INT64,
    Array,
    Case,
    assert_equals_onnxruntime,
    check_cases,
    compiled,
    graph,
    model,
    node,
    normal,
    tensor,
)

Y = tensor("y", None)
SIZES = ([-1, 1, 2, -2], [0, 0, 0, 0], [1, 2, 1, 1], [-1, -1, -1, -1], [-4, 0, 0, 0])
"""Of these, constants and wrapping take all but the last, reflection and edges what leaves two rows."""


def numbers(*values: int) -> Array:
    return np.array(values, np.int64)


def padding(mode: str, widths: Sequence[Sequence[int]]) -> Case:
    proto = model(
        [node("Pad", ["x", "p"], ["y"], mode=mode)], [tensor("x", ["a", "b"]), tensor("p", [4], INT64)], [Y], opset=19
    )
    return proto, [{"x": normal(4, 5), "p": numbers(*p)} for p in widths]


def pad_with_zeros() -> Case:
    return padding("constant", SIZES)


def pad_by_reflection() -> Case:
    return padding("reflect", SIZES[:3])


def pad_with_edges() -> Case:
    return padding("edge", [*SIZES[:4], [2, 0, -3, 1]])


def pad_around() -> Case:
    return padding("wrap", [*SIZES[:4], [2, 0, -3, 1]])


def pad_along_axes_of_the_run() -> Case:
    inputs = [tensor("x", ["a", "b", 3]), tensor("p", [2], INT64), tensor("axes", [1], INT64)]
    proto = model([node("Pad", ["x", "p", "", "axes"], ["y"])], inputs, [Y], opset=19)
    return proto, [{"x": normal(4, 5, 3), "p": numbers(-1, 2), "axes": numbers(a)} for a in (-2, 0, 2)]


def pad_by_as_many_as_there_are_axes() -> Case:
    proto = model(
        [node("Pad", ["x", "p"], ["y"])], [tensor("x", ["a", "b", 3, "c"]), tensor("p", ["q"], INT64)], [Y], opset=19
    )
    return proto, [{"x": normal(4, 5, 3, 2), "p": numbers(-1, 2, 1, 0, 1, -1, 0, 2)}]


def convolution(op: str, weights: Sequence[int | str], **attributes: Any) -> Case:
    proto = model(
        [node(op, ["x", "w"], ["y"], **attributes)], [tensor("x", ["n", 2, "h", "w"]), tensor("w", weights)], [Y]
    )
    channels = [d for d in weights if isinstance(d, int)]
    return proto, [{"x": normal(2, 2, 7, 8), "w": normal(*channels, 2, 3)}]


def convolution_of_stated_kernel() -> Case:
    return convolution("Conv", [4, 2, "k", "l"], kernel_shape=[2, 3], strides=[2, 1])


def convolution_of_any_kernel() -> Case:
    proto, (one,) = convolution("Conv", [4, 2, "k", "l"], pads=[1, 0, 2, 1], dilations=[2, 1])
    return proto, [one, {"x": normal(1, 2, 9, 9), "w": normal(4, 2, 3, 1)}]


def convolution_of_any_kernel_and_the_same_size() -> Case:
    return convolution("Conv", [4, 1, "k", "l"], group=2, auto_pad="SAME_UPPER")


def transposed_convolution_of_stated_kernel() -> Case:
    return convolution("ConvTranspose", [2, 4, "k", "l"], kernel_shape=[2, 3], strides=[2, 2])


def transposed_convolution_of_any_kernel() -> Case:
    return convolution("ConvTranspose", [2, 4, "k", "l"], strides=[2, 1])


def slice_by_a_slice() -> Case:
    nodes = [node("Slice", ["f", "i", "j"], ["starts"]), node("Slice", ["x", "starts", "e"], ["y"])]
    inputs = [tensor("x", ["n"]), tensor("f", ["m"], INT64), tensor("i", [1], INT64), tensor("j", [1], INT64)]
    proto = model(nodes, inputs, [Y], {"e": numbers(9)})
    return proto, [{"x": normal(6), "f": numbers(0, 2, 4), "i": numbers(i), "j": numbers(i + 1)} for i in (0, 1, 2)]


def slice_along_axes_of_the_run_by_vectors_of_unknown_length() -> Case:
    inputs = [tensor("x", ["a", "b"]), *(tensor(n, ["q"], INT64) for n in ("s", "e")), tensor("axes", [1], INT64)]
    proto = model([node("Slice", ["x", "s", "e", "axes"], ["y"])], inputs, [Y])
    return proto, [{"x": normal(4, 5), "s": numbers(1), "e": numbers(-1), "axes": numbers(a)} for a in (0, 1)]


def reshape_by_a_vector_whose_length_the_result_decides() -> Case:
    inputs = [tensor("x", ["n"]), tensor("s", ["q"], INT64)]
    proto = model([node("Reshape", ["x", "s"], ["y"])], inputs, [tensor("y", [None, None])])
    return proto, [{"x": normal(6), "s": numbers(*s)} for s in ((2, 3), (-1, 2), (0, -1))]


def positions_of_depth_that_ranks_decide() -> Case:
    nodes = [node("GatherND", ["x", "i"], ["u"]), node("ScatterND", ["x", "i", "u"], ["y"])]
    inputs = [tensor("x", ["a"]), tensor("i", ["p", "q"], INT64)]
    return model(nodes, inputs, [Y]), [{"x": normal(5), "i": np.array([[1], [-1]])}]


def expand_to_nothing() -> Case:
    nodes = [node("Expand", ["x", "s"], ["y"])]
    proto = model(nodes, [tensor("x", ["a", 1]), tensor("s", [2], INT64)], [Y])
    return proto, [{"x": normal(3, 1), "s": numbers(*s)} for s in ((3, 0), (1, 2), (3, 1))]


def resize_of_opset_10_by_scales_of_the_run() -> Case:
    inputs = [tensor("x", [1, 1, "h", "w"]), tensor("s", [4])]
    proto = model([node("Resize", ["x", "s"], ["y"])], inputs, [Y], opset=10)
    scales = ([1, 1, 2, 3], [1, 1, 0.5, 0.5], [1, 1, 1, 1])
    return proto, [{"x": normal(1, 1, 4, 6), "s": np.array(s, np.float32)} for s in scales]


def resize_without_aliasing_along_two_axes() -> Case:
    resize = node("Resize", ["x", "", "", "s"], ["y"], mode="cubic", antialias=1, exclude_outside=1)
    proto = model([resize], [tensor("x", [1, 2, "h", "w"])], [Y], {"s": numbers(1, 2, 5, 7)}, opset=19)
    return proto, [{"x": normal(1, 2, *size)} for size in ((16, 16), (4, 20), (5, 7))]


def resize_of_nearest_as_tensorflow_has_it() -> Case:
    resize = node(
        "Resize",
        ["x", "roi", "s"],
        ["y"],
        coordinate_transformation_mode="tf_half_pixel_for_nn",
        nearest_mode="floor",
    )
    weights = {"roi": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 0.6], np.float32)}
    return model([resize], [tensor("x", [1, 1, "h", "w"])], [Y], weights, opset=11), [{"x": normal(1, 1, 4, 5)}]


def whole_sequences_backwards() -> Case:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["time"]),
        node("Gather", ["shape", "ones"], ["batch"]),
        node("Expand", ["time", "batch"], ["lengths"]),
        node("ReverseSequence", ["x", "lengths"], ["y"], time_axis=0, batch_axis=1),
    ]
    proto = model(nodes, [tensor("x", ["t", "n", 5])], [Y], {"zero": np.array(0), "ones": numbers(1)})
    return proto, [{"x": normal(t, 2, 5)} for t in (1, 7)]


def loop_that_gains_axes() -> Case:
    inputs = [tensor("i", [], INT64), tensor("go", [], BOOL), tensor("s", None)]
    step = [node("Unsqueeze", ["s", "first"], ["s2"]), node("Neg", ["x"], ["o"])]
    body = graph(step, inputs, [tensor("go", [], BOOL), tensor("s2", None), tensor("o", None)])
    nodes = [node("Loop", ["limit", "", "x"], ["y", "all"], body=body)]
    weights = {"limit": np.array(3), "first": numbers(0)}
    return model(nodes, [tensor("x", ["n"])], [Y, tensor("all", None)], weights), [{"x": normal(4)}]


CASES = (
    pad_with_zeros,
    pad_by_reflection,
    pad_with_edges,
    pad_around,
    pad_along_axes_of_the_run,
    pad_by_as_many_as_there_are_axes,
    convolution_of_stated_kernel,
    convolution_of_any_kernel,
    convolution_of_any_kernel_and_the_same_size,
    transposed_convolution_of_stated_kernel,
    transposed_convolution_of_any_kernel,
    slice_by_a_slice,
    slice_along_axes_of_the_run_by_vectors_of_unknown_length,
    reshape_by_a_vector_whose_length_the_result_decides,
    positions_of_depth_that_ranks_decide,
    expand_to_nothing,
    resize_of_opset_10_by_scales_of_the_run,
    resize_without_aliasing_along_two_axes,
    resize_of_nearest_as_tensorflow_has_it,
    whole_sequences_backwards,
    loop_that_gains_axes,
)


@pytest.mark.sampled
@check_cases(CASES)
def test_equals_onnxruntime(case: Any, opt_level: int) -> None:
    proto, requests = case()
    assert_equals_onnxruntime(proto, requests, opt_level=opt_level)


def test_one_of_them_quickly() -> None:
    assert_equals_onnxruntime(*slice_by_a_slice())


def refused(proto: onnx.ModelProto, feeds: dict[str, Array]) -> IngotError:
    with pytest.raises(IngotError) as caught, load_model(compiled(proto), threads=1) as loaded:
        loaded.run(feeds)
    return caught.value


def test_a_kernel_of_another_size_than_stated_is_refused_by_the_run() -> None:
    proto, _ = convolution_of_stated_kernel()
    error = refused(proto, {"x": normal(2, 2, 7, 8), "w": normal(4, 2, 3, 3)})
    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert "k must be 2" in str(error)


def test_what_nothing_decides_is_refused_with_its_cause() -> None:
    inputs = [tensor("x", [3, 4]), tensor("i", ["p", "q"], INT64)]
    error = refused(model([node("GatherND", ["x", "i"], ["y"])], inputs, [Y]), {})
    assert (error.code, error.tensor, error.received) == (ErrorCode.UNSUPPORTED_ATTRIBUTE, "i", "[p, q]")
    assert "the last one decides the axes of the result" in str(error)
    inputs = [tensor("x", ["n"]), tensor("s", ["q"], INT64)]
    error = refused(model([node("Reshape", ["x", "s"], ["y"])], inputs, [Y]), {})
    assert (error.code, error.tensor, error.field) == (ErrorCode.UNSUPPORTED_ATTRIBUTE, "s", "shape")
    assert "nothing says how many there are" in str(error)
