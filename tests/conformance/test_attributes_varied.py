"""Attributes of the standard that no case of the onnx package varies: another value gives what ONNX Runtime gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.conformance.compiled import one_node, run_compiled, run_onnx_runtime

pytestmark = pytest.mark.slow

Array = np.ndarray
RNG = np.random.default_rng(17)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def codes(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def recurrent(gates: int, directions: int = 1) -> dict[str, Array]:
    weights = {"w": floats(directions, gates * 5, 3), "r": floats(directions, gates * 5, 5)}
    return {"x": floats(4, 2, 3), **weights, "b": floats(directions, 2 * gates * 5)}


IMAGE = {"x": floats(2, 4, 7, 8)}
FILTERED = {**IMAGE, "w": floats(6, 4, 3, 2)}
QUANTIZED = {
    "x": codes(1, 4, 7, 8), "x_scale": np.array(0.02, np.float32), "x_zero": np.array(120, np.uint8),
    "w": codes(6, 4, 3, 2), "w_scale": np.array(0.01, np.float32), "w_zero": np.array(7, np.uint8),
    "y_scale": np.array(0.05, np.float32), "y_zero": np.array(128, np.uint8),
}  # fmt: skip
INTEGERS = {k: QUANTIZED[k] for k in ("x", "w", "x_zero", "w_zero")}
GROUPED = {"w": codes(6, 2, 3, 2)}
BOXES = np.array([[0, 0.5, 1.0, 5.0, 6.0], [0, 2.0, 1.5, 6.5, 5.0]], np.float32)
REGIONS = {**IMAGE, "rois": BOXES[:, 1:], "batch": np.zeros(2, np.int64)}
SAMPLED = {"x": floats(1, 2, 4, 5), "grid": floats(1, 3, 4, 2) * 1.5}
HARD = {"activations": ["HardSigmoid", "LeakyRelu"]}

ROWS: list[tuple[str, dict[str, Array], int, dict[str, Any]]] = [
    ("Celu", {"x": floats(3, 4)}, 1, {"alpha": 0.4}),
    ("Shrink", {"x": floats(3, 4)}, 1, {"lambd": 0.2, "bias": 0.1}),
    ("Conv", {**IMAGE, "w": floats(6, 2, 3, 2)}, 1, {"group": 2}),
    ("Conv", FILTERED, 1, {"dilations": [2, 3], "kernel_shape": [3, 2]}),
    ("ConvInteger", {**INTEGERS, **GROUPED}, 1, {"group": 2}),
    ("ConvInteger", INTEGERS, 1, {"strides": [2, 1], "dilations": [1, 2], "kernel_shape": [3, 2]}),
    ("ConvInteger", INTEGERS, 1, {"auto_pad": "SAME_LOWER"}),
    ("QLinearConv", {**QUANTIZED, **GROUPED}, 1, {"group": 2}),
    ("QLinearConv", QUANTIZED, 1, {"strides": [2, 1], "dilations": [1, 2], "kernel_shape": [3, 2]}),
    ("QLinearConv", QUANTIZED, 1, {"pads": [1, 0, 2, 1]}),
    ("QLinearConv", QUANTIZED, 1, {"auto_pad": "SAME_UPPER"}),
    ("DepthToSpace", {"x": floats(1, 9, 2, 3)}, 1, {"blocksize": 3}),
    ("SpaceToDepth", {"x": floats(1, 2, 6, 9)}, 1, {"blocksize": 3}),
    ("GlobalLpPool", IMAGE, 1, {"p": 3}),
    ("LRN", IMAGE, 1, {"size": 5}),
    ("MeanVarianceNormalization", IMAGE, 1, {"axes": [1, 2]}),
    ("MaxRoiPool", {**IMAGE, "rois": np.round(BOXES)}, 1, {"pooled_shape": [2, 3], "spatial_scale": 0.5}),
    ("RoiAlign", REGIONS, 1, {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.7}),
    ("GRU", recurrent(3), 2, {"hidden_size": 5, "linear_before_reset": 1, "clip": 0.4}),
    ("GRU", recurrent(3), 2, {"hidden_size": 5, **HARD, "activation_alpha": [0.3, 0.2], "activation_beta": [0.4, 0.0]}),
    ("LSTM", recurrent(4), 3, {"hidden_size": 5, "input_forget": 1}),
    ("LSTM", recurrent(4), 3, {"hidden_size": 5, "clip": 0.3, "activations": ["Sigmoid", "Relu", "Softsign"]}),
    ("RNN", recurrent(1), 2, {"hidden_size": 5, "clip": 0.3}),
    ("RNN", recurrent(1, 2), 2, {"hidden_size": 5, "direction": "bidirectional", "activations": ["Relu", "Tanh"]}),
    ("RNN", recurrent(1), 2, {"hidden_size": 5, "activations": ["Affine"], "activation_alpha": [0.3], "activation_beta": [0.1]}),
    *(("GridSample", SAMPLED, 1, {"mode": "cubic", "padding_mode": "border", "align_corners": a}) for a in (0, 1)),
    *(
        (f"Reduce{kind}", {"x": np.abs(floats(3, 4)), "axes": np.zeros(0, np.int64)}, 1, {"noop_with_empty_axes": 1})
        for kind in ("Max", "Mean", "Min", "Prod")
    ),
    ("Compress", {"x": floats(3, 2), "condition": np.array([True, False, True, True])}, 1, {"axis": 1}),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("op", "feeds", "outputs", "attributes"), ROWS)
def test_as_onnx_runtime(op: str, feeds: dict[str, Array], outputs: int, attributes: dict[str, Any]) -> None:
    model = one_node(op, feeds, outputs, **attributes)
    for info in model.graph.input:  # sizes of weights are static, that of the batch is not
        if info.name != "x":
            for dim, extent in zip(info.type.tensor_type.shape.dim, feeds[info.name].shape, strict=True):
                dim.dim_value = extent
    for found, expected in zip(run_compiled(model, feeds, 0), run_onnx_runtime(model, feeds), strict=True):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        step = 1 if found.dtype == np.uint8 else 1e-4
        assert np.abs(found.astype(np.float64) - expected.astype(np.float64)).max(initial=0) <= step
