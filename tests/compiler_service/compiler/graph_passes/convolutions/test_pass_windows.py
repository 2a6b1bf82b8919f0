"""Windows of convolutions: taps that meet only padding, and dilated ones as phases."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.graph_passes.cleaning.eliminate_dead_code import EliminateDeadCode
from compiler_service.compiler.graph_passes.convolutions.separate_phases import SeparatePhases
from compiler_service.compiler.graph_passes.pipelines import default_pipeline
from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, evaluate, symbol
from shared_ir.graph.ir import Attribute, Graph, Value
from shared_ir.types import TensorType
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, ops, run_passes


def convolution(
    shape: tuple[Dim, ...], kernel: tuple[int, ...], attributes: Mapping[str, Attribute], channels: int = 2
) -> Graph:
    """``[n, 2, *spatial]`` by 3 outputs, or as many as there are groups."""
    group = attributes.get("group", 1)
    assert isinstance(group, int)
    x = Value("x", TensorType(DType.FLOAT32, shape))
    weight = np.random.default_rng(0).standard_normal((3 * group, channels // group, *kernel)).astype(np.float32)
    builder = Builder.of(Graph("main", (x,), (), ()))
    y = builder.write("Conv", (x, builder.constant(weight)), attributes)
    return Graph("main", (x,), (y,), tuple(builder.nodes), dict(builder.added))


@pytest.mark.parametrize(
    ("extent", "kernel", "attributes", "kept", "pads"),
    [
        (5, 3, {"dilations": (6,), "pads": (6, 6)}, 1, (0, 0)),
        (5, 3, {"dilations": (4,), "pads": (4, 4)}, 3, None),  # the first and the last output meet the ends
        (1, 3, {"pads": (1, 1)}, 1, (0, 0)),
        (2, 5, {"pads": (3, 2)}, 4, (2, 2)),
        (3, 5, {"pads": (4, 0)}, 3, (2, 0)),
        (4, 7, {"pads": (3, 3), "strides": (2,)}, 6, (2, 3)),
        (1, 4, {"dilations": (3,), "pads": (2, 9)}, 1, (2, 0)),
        (2, 2, {"dilations": (4,), "pads": (3, 2)}, 2, (3, 2)),  # without the first, pads would be below zero
        (2, 3, {"dilations": (9,), "pads": (9, 9), "auto_pad": "NOTSET"}, 1, (0, 0)),
        (5, 3, {"pads": (1, 1)}, 3, None),
    ],
)
def test_taps_that_meet_only_padding_go(
    extent: int, kernel: int, attributes: dict[str, Attribute], kept: int, pads: tuple[int, ...] | None
) -> None:
    before = convolution((2, 2, extent), (kernel,), attributes)
    after = run_passes(before, SimplifyAlgebra())
    (node,) = (n for n in after.nodes if n.op == "Conv")
    assert node.operands[1].shape[2] == kept
    assert pads is None or node.attributes["pads"] == pads
    assert_same(before, after)


def test_taps_of_images_that_only_the_run_knows_stay() -> None:
    before = convolution((1, 2, symbol("h")), (3,), {"dilations": (9,), "pads": (9, 9)})
    assert run_passes(before, SimplifyAlgebra()) is before


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_without_dead_taps_a_convolution_computes_the_same(data: st.DataObject) -> None:
    def draw(low: int, high: int) -> tuple[int, int]:
        each = st.integers(low, high)
        return data.draw(each), data.draw(each)

    kernel, dilations = draw(1, 4), draw(1, 5)
    pads = (*draw(0, 8), *draw(0, 8))
    extents = draw(1, 6)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if any(n + pads[i] + pads[i + 2] < reach[i] for i, n in enumerate(extents)):
        return
    attributes: dict[str, Attribute] = {"dilations": dilations, "pads": pads, "strides": draw(1, 3)}
    before = convolution((1, 2, *extents), kernel, attributes)
    assert_same(before, run_passes(before, SimplifyAlgebra()))


@pytest.mark.parametrize(
    ("size", "attributes", "image"),
    [
        ((16, 24), {"dilations": (2, 2), "pads": (2,) * 4}, (8, 8, 12)),  # whole tiles: images of a batch
        ((20, 20), {"dilations": (4, 4), "pads": (4,) * 4}, (2, 24, 24)),  # 5 rows each and zeros between them
        ((20, 24), {"dilations": (4, 3), "pads": (4, 3) * 2}, (6, 24, 8)),
        ((35, 23), {"dilations": (2, 3), "pads": (2, 3) * 2}, (12, 18, 8)),
        ((18, 23), {"dilations": (1, 2), "pads": (0, 1, 2, 3)}, (4, 18, 12)),
        ((40, 27), {"dilations": (3, 2), "pads": (0,) * 4}, (12, 14, 14)),
        ((24, 24), {"dilations": (2, 2), "auto_pad": "SAME_UPPER"}, (8, 12, 12)),
        ((24, 24), {"dilations": (2, 2), "pads": (2,) * 4, "group": 2}, (8, 12, 12)),
        ((32, 32), {"dilations": (2, 2), "pads": (3, 1, 1, 2)}, None),
    ],
)
def test_phases_are_images(
    size: tuple[int, int], attributes: dict[str, Attribute], image: tuple[int, int, int] | None
) -> None:
    before = convolution((2, 4, *size), (3, 3), attributes, channels=4)
    after = run_passes(before, SeparatePhases(), EliminateDeadCode())
    (node,) = (n for n in after.nodes if n.op == "Conv")
    assert "dilations" not in node.attributes
    n, _, h, w = node.operands[0].shape
    assert image is None or (n, h, w) == image
    assert_same(before, after)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_phases_compute_what_the_convolution_does(data: st.DataObject) -> None:
    def draw(low: int, high: int) -> tuple[int, int]:
        each = st.integers(low, high)
        return data.draw(each), data.draw(each)

    dilations = draw(1, 4)
    pads = (*draw(0, 9), *draw(0, 9))
    extents = draw(8, 26)
    if any(n + pads[i] + pads[i + 2] < 2 * dilations[i] + 1 for i, n in enumerate(extents)):
        return
    before = convolution((1, 2, *extents), (3, 3), {"dilations": dilations, "pads": pads})
    assert_same(before, run_passes(before, SeparatePhases()))


def test_phases_of_any_number_of_images() -> None:
    before = convolution((symbol("batch"), 2, 8, 8), (3, 3), {"dilations": (2, 2), "pads": (2,) * 4})
    after = run_passes(before, SeparatePhases())
    assert "Transpose" in ops(after)
    assert_same(before, after)


@pytest.mark.parametrize(
    ("shape", "kernel", "attributes"),
    [
        ((1, 2, 8, 8), (3, 3), {"pads": (1,) * 4}),
        ((1, 2, 8, 8), (3, 3), {"dilations": (2, 2), "pads": (2,) * 4, "strides": (2, 2)}),
        ((1, 2, 16, 16), (5, 5), {"dilations": (2, 2), "pads": (4,) * 4}),
        ((1, 2, 16, 16), (3, 3), {"dilations": (2, 2), "pads": (2,) * 4, "group": 2}),
        (
            (1, 2, 13, 13),
            (3, 3),
            {"dilations": (12, 12), "pads": (12,) * 4},
        ),  # two rows a phase: taps in padding are most
        ((1, 2, symbol("h"), 8), (3, 3), {"dilations": (2, 2), "pads": (2,) * 4}),
        ((1, 2, 16), (3,), {"dilations": (2,), "pads": (2, 2)}),
    ],
)
def test_other_convolutions_have_no_phases(
    shape: tuple[Dim, ...], kernel: tuple[int, ...], attributes: dict[str, Attribute]
) -> None:
    before = convolution(shape, kernel, attributes)
    assert run_passes(before, SeparatePhases()) is before


def test_all_stay_where_nothing_is_filtered() -> None:
    assert not any(isinstance(p, SeparatePhases) for p in default_pipeline(3).passes)
    assert any(isinstance(p, SeparatePhases) for p in default_pipeline(3, filters=True).passes)


def transposed(
    extents: tuple[Dim, ...], kernel: tuple[int, ...], attributes: Mapping[str, Attribute], channels: int = 2
) -> Graph:
    group = attributes.get("group", 1)
    assert isinstance(group, int)
    x = Value("x", TensorType(DType.FLOAT32, (2, channels, *extents)))
    random = np.random.default_rng(0)
    weight, bias = (random.standard_normal(s).astype(np.float32) for s in ((channels, 3, *kernel), (3 * group,)))
    builder = Builder.of(Graph("main", (x,), (), ()))
    y = builder.write("ConvTranspose", (x, builder.constant(weight), builder.constant(bias)), attributes)
    return Graph("main", (x,), (y,), tuple(builder.nodes), dict(builder.added))


@pytest.mark.parametrize(
    ("extents", "kernel", "attributes", "parts"),
    [
        ((5, 4), (3, 3), {"strides": (2, 2), "pads": (1,) * 4, "output_padding": (1, 1)}, 4),
        ((5, 4), (3, 3), {"strides": (2, 2)}, 4),
        ((5, 4), (5, 4), {"strides": (2, 2), "pads": (2, 1, 2, 1)}, 4),
        ((6,), (7,), {"strides": (3,), "pads": (1, 3)}, 3),
        ((3, 4, 2), (3, 3, 2), {"strides": (2, 1, 2), "pads": (1, 1, 0) * 2}, 4),
        ((5, 4), (3, 3), {"strides": (2, 2), "group": 2}, 4),
        ((symbol("h"), 4), (3, 3), {"strides": (2, 2), "pads": (0, 1, 1, 1)}, 4),
    ],
)
def test_phases_of_a_transposed_convolution_have_taps_of_their_own(
    extents: tuple[Dim, ...], kernel: tuple[int, ...], attributes: dict[str, Attribute], parts: int
) -> None:
    before = transposed(extents, kernel, attributes, channels=4)
    after = run_passes(before, SimplifyAlgebra())
    assert ops(after).count("Conv") == parts
    taps = sum(math.prod(evaluate(d, {}) for d in n.operands[1].shape[2:]) for n in after.nodes if n.op == "Conv")
    assert taps == np.prod(kernel)
    assert_same(before, after)


@pytest.mark.parametrize(
    ("extents", "kernel", "attributes"),
    [
        ((5, 4), (3, 3), {}),
        ((5, 4), (3, 2), {"strides": (1, 1), "pads": (1, 0, 2, 1)}),
        ((5, 4), (3, 3), {"dilations": (2, 1), "group": 2}),
        ((9,), (4,), {"pads": (3, 0)}),
        ((symbol("h"), 4), (3, 3), {"pads": (1,) * 4}),
    ],
)
def test_a_transposed_convolution_of_stride_one_is_one_back_to_front(
    extents: tuple[Dim, ...], kernel: tuple[int, ...], attributes: dict[str, Attribute]
) -> None:
    before = transposed(extents, kernel, attributes, channels=4)
    after = run_passes(before, SimplifyAlgebra())
    assert ops(after) == ["Conv"]
    assert_same(before, after)


@pytest.mark.parametrize(
    ("extents", "kernel", "attributes", "wanted"),
    [
        ((5, 4), (2, 2), {"strides": (3, 3)}, ["ConvTranspose", "Slice", "Slice"]),
        ((5, 4), (1, 2), {"strides": (2, 2), "output_padding": (1, 0)}, ["ConvTranspose", "Slice"]),
        ((7,), (2,), {"strides": (4,), "pads": (1, 0)}, ["ConvTranspose", "Slice"]),
        ((symbol("h"), 4), (1, 1), {"strides": (2, 2), "group": 2}, ["ConvTranspose", "Slice", "Slice"]),
    ],
)
def test_windows_narrower_than_their_stride_are_filled_up(
    extents: tuple[Dim, ...], kernel: tuple[int, ...], attributes: dict[str, Attribute], wanted: list[str]
) -> None:
    before = transposed(extents, kernel, attributes, channels=4)
    after = run_passes(before, SimplifyAlgebra(split=False))
    assert [op for op in ops(after) if op in ("Conv", "ConvTranspose", "Slice")] == wanted
    assert_same(before, after)


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        ((4, 4), {"strides": (2, 2), "pads": (1,) * 4}),
        ((3, 3), {"strides": (1, 1), "pads": (3,) * 4}),  # the data would be cut off
        ((1, 3), {"strides": (2, 2), "dilations": (1, 2)}),
        ((3, 3), {"strides": (2, 2), "dilations": (2, 2)}),
        ((3, 3), {"strides": (2, 2), "output_shape": (10, 10)}),
        ((3, 3), {"strides": (2, 2), "pads": (2,) * 4}),  # the data would be cut off
    ],
)
def test_other_transposed_convolutions_stay(kernel: tuple[int, ...], attributes: dict[str, Attribute]) -> None:
    before = transposed((5, 4), kernel, attributes)
    assert run_passes(before, SimplifyAlgebra()) is before


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_phases_compute_what_the_transposed_convolution_does(data: st.DataObject) -> None:
    kernel, stride = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 4))
    pads = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4))
    more, extent = data.draw(st.integers(0, stride - 1)), data.draw(st.integers(2, 6))
    if (extent - 1) * stride + kernel + more - sum(pads) < 1:
        return
    before = transposed((extent,), (kernel,), {"strides": (stride,), "pads": pads, "output_padding": (more,)})
    assert_same(before, run_passes(before, SimplifyAlgebra()))
