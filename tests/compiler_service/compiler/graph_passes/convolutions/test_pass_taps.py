"""Convolutions of few results are one product for all taps, and a sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.graph_passes.convolutions.separate_taps import SeparateTaps
from compiler_service.compiler.graph_passes.layout.choose_layout import ChooseLayout
from compiler_service.compiler.graph_passes.rewriting.builder import Builder
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, symbol
from shared_ir.graph.ir import Attribute, Graph, Value
from shared_ir.types import TensorType
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, ops, run_passes

H, W = symbol("h"), symbol("w")


def convolution(
    outputs: int,
    channels: int = 8,
    taps: tuple[int, ...] = (3, 3),
    spatial: tuple[Dim, ...] = (6, 5),
    *,
    op: str = "Conv",
    bias: bool = False,
    dtype: DType = DType.FLOAT32,
    **attributes: Any,
) -> Graph:
    """``Relu(Conv(Relu(x)))``: its layout is the compiler's own."""
    random = np.random.default_rng(0)
    x = Value("x", TensorType(dtype, (2, channels, *spatial)))
    builder = Builder.of(Graph("main", (x,), (), ()))
    group = int(attributes.get("group", 1))
    sides = (outputs, channels // group) if op == "Conv" else (channels, outputs // group)
    weight = builder.constant(random.standard_normal((*sides, *taps)).astype(dtype.numpy), "w")
    operands = [builder.node("Relu", x), weight]
    if bias:
        operands.append(builder.constant(random.standard_normal(outputs).astype(dtype.numpy), "b"))
    kind: dict[str, Attribute] = {"kernel_shape": taps, **attributes}
    y = builder.node("Relu", builder.write(op, operands, kind, title="conv"))
    return Graph("main", (x,), (y,), tuple(builder.nodes), dict(builder.added))


def separated(before: Graph) -> Graph:
    return run_passes(before, ChooseLayout(), SeparateTaps())


@pytest.mark.parametrize("outputs", [1, 3, 12])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("spatial", [(6, 5), (H, W)])
def test_few_results_are_one_product_and_a_sum(outputs: int, bias: bool, spatial: tuple[Dim, ...]) -> None:
    before = convolution(outputs, 32, spatial=spatial, bias=bias, pads=(1, 1, 1, 1))
    after = separated(before)
    assert "Conv" not in ops(after)
    assert ops(after).count("Einsum") == ops(after).count("ingot.SumTaps") == 1
    assert_same(before, after, 1e-4)


WINDOWS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "no padding": ((3, 3), (6, 5), {}),
    "padding that differs": ((2, 3), (6, 5), {"pads": (0, 1, 1, 0)}),
    "more padding than window": ((2, 2), (4, 4), {"pads": (3, 3, 3, 3)}),
    "dilation": ((3, 3), (9, 8), {"pads": (2, 1, 2, 1), "dilations": (2, 1)}),
    "one axis": ((7,), (20,), {"pads": (3, 3)}),
    "three axes": ((2, 2, 2), (4, 3, 5), {"pads": (1, 0, 0, 0, 1, 1)}),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str) -> None:
    taps, spatial, attributes = WINDOWS[name]
    before = convolution(2, 16, taps, spatial, bias=True, **attributes)
    after = separated(before)
    assert "ingot.SumTaps" in ops(after)
    assert_same(before, after, 1e-4)


def test_nothing_is_moved_around_a_single_result() -> None:
    after = separated(convolution(1, 32, pads=(1, 1, 1, 1)))
    assert ops(after).count("Transpose") == 1  # of the model's input


TRANSPOSED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "by 2": ((4, 4), (5, 6), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "phases of one tap": ((2, 2), (5, 6), {"strides": (2, 2)}),
    "other strides on each axis": ((6, 4), (4, 5), {"strides": (3, 2), "pads": (2, 1, 1, 1)}),
    "an end that is cut off": ((4, 4), (5, 6), {"strides": (2, 2), "pads": (1, 1, 0, 0)}),
    "more at the end": ((4, 4), (5, 6), {"strides": (2, 2), "pads": (1, 1, 1, 1), "output_padding": (1, 0)}),
    "one axis": ((8,), (9,), {"strides": (4,), "pads": (2, 2)}),
}


@pytest.mark.parametrize("name", TRANSPOSED)
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_transposed_convolutions_add_up_phase_by_phase(name: str, outputs: int, bias: bool) -> None:
    taps, spatial, attributes = TRANSPOSED[name]
    before = convolution(outputs, 32, taps, spatial, op="ConvTranspose", bias=bias, **attributes)
    after = separated(before)
    assert ops(after).count("Einsum") == 1
    assert ops(after).count("ingot.SumTaps") == np.prod(attributes["strides"])
    assert_same(before, after, 1e-4)


def test_transposed_convolutions_of_unknown_images() -> None:
    before = convolution(2, 32, (4, 4), (H, W), op="ConvTranspose", bias=True, strides=(2, 2), pads=(1, 1, 1, 1))
    after = separated(before)
    assert "ingot.SumTaps" in ops(after)
    assert_same(before, after, 1e-4)


OTHER_TRANSPOSED: dict[str, Graph] = {
    "no whole strides": convolution(1, 32, op="ConvTranspose", strides=(2, 2)),
    "dilation": convolution(1, 32, (4, 4), op="ConvTranspose", strides=(2, 2), dilations=(2, 2)),
    "groups": convolution(2, 32, (4, 4), op="ConvTranspose", strides=(2, 2), group=2),
    "a phase that begins within the data": convolution(
        1, 32, (4, 4), (8, 8), op="ConvTranspose", strides=(2, 2), pads=(5, 5, 5, 5)
    ),
}


@pytest.mark.parametrize("name", OTHER_TRANSPOSED)
def test_other_transposed_convolutions_stay(name: str) -> None:
    laid_out = run_passes(OTHER_TRANSPOSED[name], ChooseLayout())
    assert "ConvTranspose" in ops(run_passes(laid_out, SeparateTaps()))


OTHERS: dict[str, Graph] = {
    "as many results as lanes": convolution(16, 64),
    "one tap": convolution(1, 32, (1, 1)),
    "few channels": convolution(1, 4),
    "products that take more memory than the data": convolution(4, 8),
    "steps": convolution(1, 32, strides=(2, 2)),
    "groups": convolution(2, 32, group=2),
    "double precision": convolution(1, 32, dtype=DType.FLOAT64),
    "padding by a rule": convolution(1, 32, auto_pad="SAME_UPPER"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_stay(name: str) -> None:
    laid_out = run_passes(OTHERS[name], ChooseLayout())
    assert "Conv" in ops(run_passes(laid_out, SeparateTaps()))


def test_before_a_layout_is_chosen_nothing_happens() -> None:
    before = convolution(1, 32)
    assert run_passes(before, SeparateTaps()) is before
