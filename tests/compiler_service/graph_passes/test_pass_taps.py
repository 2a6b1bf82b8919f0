"""Convolutions of few results are one product for all taps, and a sum."""

from __future__ import annotations

import numpy as np
import pytest
from pass_graphs import assert_same, ops, run_passes

from compiler_service.graph_passes.builder import Builder
from compiler_service.graph_passes.choose_layout import ChooseLayout
from compiler_service.graph_passes.separate_taps import SeparateTaps
from shared_ir.dim import Dim, symbol
from shared_ir.dtype import DType
from shared_ir.graph import Attribute, Graph, Value
from shared_ir.types import TensorType

H, W = symbol("h"), symbol("w")


def convolution(
    outputs: int,
    channels: int = 8,
    taps: tuple[int, ...] = (3, 3),
    spatial: tuple[Dim, ...] = (6, 5),
    *,
    bias: bool = False,
    dtype: DType = DType.FLOAT32,
    **attributes: Attribute,
) -> Graph:
    """``Relu(Conv(Relu(x)))``: its layout is the compiler's own."""
    random = np.random.default_rng(0)
    x = Value("x", TensorType(dtype, (2, channels, *spatial)))
    builder = Builder.of(Graph("main", (x,), (), ()))
    group = int(attributes.get("group", 1))  # type: ignore[arg-type]
    weight = builder.constant(random.standard_normal((outputs, channels // group, *taps)).astype(dtype.numpy), "w")
    operands = [builder.node("Relu", (x,)), weight]
    if bias:
        operands.append(builder.constant(random.standard_normal(outputs).astype(dtype.numpy), "b"))
    kind: dict[str, Attribute] = {"kernel_shape": taps, **attributes}
    y = builder.node("Relu", (builder.node("Conv", operands, kind, name="conv"),))
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


WINDOWS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Attribute]]] = {
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
