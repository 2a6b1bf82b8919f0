"""Shapes of results that only the run knows: rows that a loop stacks, outputs that are views, axes that Squeeze leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import helper

from runtime_service.loading.loader import load_model
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.dynamic.compiled import (
    EXECUTORS,
    Array,
    Feeds,
    assert_equals_onnxruntime,
    compiled,
    normal,
)

_LEVELS = pytest.mark.parametrize("opt_level", [0, 3])


def parsed(graph: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {graph}')


def numbers(*values: int) -> Array:
    return np.array(values, np.int64)


def assert_refused(proto: onnx.ModelProto, feeds: Feeds, opt_level: int, text: str) -> None:
    """By the run of either executor."""
    for executor in EXECUTORS:
        with load_model(compiled(proto, opt_level), threads=1, executor=executor) as loaded:
            with pytest.raises(IngotError, match=text) as caught:
                loaded.run(feeds)
            assert caught.value.code is ErrorCode.INVALID_ARGUMENT


# -- rows that are stacked

_ROWS: Mapping[str, tuple[str, str]] = {
    "compressed": ("c = Greater(v, z) r = Compress <axis = 0> (v, c)", "[k]"),
    "found": ("w = Relu(v) f = NonZero(w) r = Cast <to = 1> (f)", "[1, k]"),
    "growing": ("r = Slice(v, at, next)", "[k]"),
    "carried": ("r = Identity(v)", "[k]"),
}


def stacking(row: str, shape: str) -> onnx.ModelProto:
    """Each iteration adds 1 to what is carried, and, where that is what is stacked, leaves out its first element."""
    update = "u = Slice(s, one, far)" if row == _ROWS["carried"][0] else "u = Identity(s)"
    return parsed(
        f"""g (float[n] x, int64 m) => (float total, int64[rank] extents)
        <int64[1] at = {{0}}, int64[1] one = {{1}}, int64[1] far = {{100}}, float z = {{0}}, float step = {{1}}> {{
            t = Constant <value = bool {{1}}> ()
            last, all = Loop (m, t, x) <body = b (int64 i, bool ci, float[k] v) => (bool co, float[k] u, float{shape} r) {{
                co = Identity(ci)
                vector = Reshape(i, one)
                next = Add(vector, one)
                {row}
                s = Add(v, step)
                {update}
            }}>
            total = ReduceSum <keepdims = 0> (all)
            extents = Shape(all)
        }}"""
    )


@_LEVELS
@pytest.mark.parametrize("row", _ROWS.values(), ids=_ROWS)
def test_rows_of_other_extents_than_the_first_are_refused(row: tuple[str, str], opt_level: int) -> None:
    proto, x = stacking(*row), np.array([-0.5, 1, 2, -1.5], np.float32)
    assert_equals_onnxruntime(proto, [{"x": x, "m": np.array(1)}], opt_level)
    assert_refused(proto, {"x": x, "m": np.array(3)}, opt_level, "must be equally large")


@_LEVELS
def test_rows_whose_size_the_run_decides_are_stacked_where_it_does_not_change(opt_level: int) -> None:
    x = np.array([-9, 1, 2, -7], np.float32)
    for row in (_ROWS["compressed"], _ROWS["found"]):
        assert_equals_onnxruntime(stacking(*row), [{"x": x, "m": np.array(m)} for m in (1, 4)], opt_level)


# -- outputs that are views


@_LEVELS
@pytest.mark.parametrize("before", ["Neg", "Identity", "Abs"])
def test_an_output_may_be_a_view_of_a_shape_of_the_run(before: str, opt_level: int) -> None:
    """The inputs say how many elements it has, the run how they are arranged."""
    proto = parsed(f"g (float[n] x, int64[2] s) => (float[p, q] y) {{ t = {before}(x) y = Reshape(t, s) }}")
    shapes = (2, 2), (2, -1), (-1, 1), (4, 1)
    assert_equals_onnxruntime(proto, [{"x": normal(4), "s": numbers(*s)} for s in shapes], opt_level)
    assert_refused(proto, {"x": normal(4), "s": numbers(3, 2)}, opt_level, "n must be")


@_LEVELS
def test_outputs_of_known_and_of_other_shapes_stand_side_by_side(opt_level: int) -> None:
    proto = parsed(
        """g (float[n] x, int64[2] s) => (float[n] a, float[p, q] y, float[q, p] z) {
            a = Neg(x) t = Exp(x) y = Reshape(t, s) z = Transpose(y)
        }"""
    )
    assert_equals_onnxruntime(proto, [{"x": normal(6), "s": numbers(*s)} for s in ((2, 3), (6, -1))], opt_level)


# -- Squeeze without axes

_FLAT = parsed(
    "g (float[a, 1, b] x) => (float[k] z) <int64[1] m = {-1}> { t = Squeeze(x) u = Exp(t) z = Reshape(u, m) }"
)


def in_session(proto: onnx.ModelProto, feeds: Feeds) -> Sequence[int]:
    """The shape of the output in ONNX Runtime."""
    (found,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, dict(feeds))
    shape: Sequence[int] = found.shape
    return shape


@_LEVELS
def test_what_follows_a_squeeze_is_compiled_for_extents_of_1_too(opt_level: int) -> None:
    shapes = (2, 1, 3), (1, 1, 3), (2, 1, 1), (1, 1, 1), (0, 1, 3)
    assert_equals_onnxruntime(_FLAT, [{"x": normal(*s)} for s in shapes], opt_level)


@_LEVELS
def test_an_extent_of_1_that_only_the_run_knows_is_no_axis_of_a_squeezed_output(opt_level: int) -> None:
    """The result would have fewer axes than what is compiled."""
    proto = parsed("g (float[a, 1, b] x) => (float[c, d] z) { z = Squeeze(x) }")
    assert_equals_onnxruntime(proto, [{"x": normal(*s)} for s in ((2, 1, 3), (0, 1, 3))], opt_level)
    narrow = {"x": normal(1, 1, 3)}
    assert in_session(proto, narrow) == (3,)
    assert_refused(proto, narrow, opt_level, "a must not be 1")


@_LEVELS
def test_extents_that_data_decides_are_not_squeezed(opt_level: int) -> None:
    proto = parsed("g (float[n] x) => (int64[k] z) { t = NonZero(x) z = Squeeze(t) }")
    assert_equals_onnxruntime(proto, [{"x": np.array([1, 0, 2], np.float32)}], opt_level)
    assert_refused(proto, {"x": np.array([1, 0, 0], np.float32)}, opt_level, "must not be 1")


@_LEVELS
def test_axes_that_are_left_out_have_a_name_of_their_own(opt_level: int) -> None:
    """Whatever the model calls its values, and its node: ``s/axes`` is what an Unsqueeze reads behind it."""
    proto = parsed(
        """g (float[n] x) => (float[1, n, 1] y, float[n] z)
        <int64[2] axes = {0, 2}, float[1, 1, 3] w = {1, 2, 3}> {
            wide = Unsqueeze(x, axes)
            narrow = Squeeze(w)
            total = ReduceSum(narrow)
            y = Unsqueeze(x, axes)
            z = Squeeze(wide, axes)
        }"""
    )
    proto.graph.output.append(helper.make_tensor_value_info("total", onnx.TensorProto.FLOAT, [1]))
    for node in proto.graph.node:
        node.name = "s" if "narrow" in node.output else ""
        for names in (node.input, node.output):
            names[:] = ["s/axes" if name == "axes" else name for name in names]
    proto.graph.initializer[0].name = "s/axes"
    assert_equals_onnxruntime(proto, [{"x": normal(4)}], opt_level)
