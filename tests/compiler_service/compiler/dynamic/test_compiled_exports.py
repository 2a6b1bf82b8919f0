"""What exporters write around sizes that only the run knows, compiled and by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.conformance.compiled import check_against_onnx_runtime

RNG = np.random.default_rng(11)


def parsed(text: str, *weights: tuple[str, np.ndarray]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\n{text}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights)
    return model


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("step", [1.0, 0.5, -2.0])
def test_a_range_of_floats_up_to_a_size(step: float) -> None:
    ends = "first, limit" if step > 0 else "limit, first"
    model = parsed(
        f"""grid (float[n, m] x) => (float[k] y) {{
            rows = Shape<start = 0, end = 1>(x)
            most = Cast<to = 1>(rows)
            limit = Squeeze(most)
            first = Mul(limit, zero)
            y = Range({ends}, step)
        }}""",
        ("zero", np.array(0, np.float32)),
        ("step", np.array(step, np.float32)),
    )
    for rows in (1, 5, 8):
        check_against_onnx_runtime(model, {"x": floats(rows, 2)})


def test_the_spectrum_of_a_signal_without_an_axis_of_parts() -> None:
    model = parsed(
        "spectrum (float[b, t] x) => (float[b, f, 33, 2] y) { y = STFT(x, step, window, length) }",
        ("step", np.array(16, np.int64)),
        ("window", np.hanning(64).astype(np.float32)),
        ("length", np.array(64, np.int64)),
    )
    for length in (64, 200):
        check_against_onnx_runtime(model, {"x": floats(2, length)}, rtol=1e-3)


def test_the_last_row_broadcasts_to_all() -> None:
    """Position embeddings of DETR: ``cumsum / cumsum[:, -1:]``."""
    model = parsed(
        """normal (float[b, h, w] x) => (float[b, h, w] y) {
            total = Slice(x, minus_one, most, one)
            y = Div(x, total)
        }""",
        ("minus_one", np.array([-1], np.int64)),
        ("most", np.array([np.iinfo(np.int64).max], np.int64)),
        ("one", np.array([1], np.int64)),
    )
    for rows in (1, 4):
        check_against_onnx_runtime(model, {"x": np.abs(floats(2, rows, 3)) + 1})


@pytest.mark.slow
@pytest.mark.parametrize("columns", [3, 5, 11])
def test_groups_of_an_odd_number_of_channels(columns: int) -> None:
    model = parsed(
        "grouped (float[n, 4, t] x) => (float[n, c, u] y) { y = Conv<group = 2, kernel_shape = [3]>(x, w, b) }",
        ("w", floats(2 * columns, 2, 3)),
        ("b", floats(2 * columns)),
    )
    check_against_onnx_runtime(model, {"x": floats(2, 4, 6)})


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "groups", "stride"), [(64, 2, 1), (72, 3, 1), (128, 1, 2), (96, 2, 2)])
def test_convolutions_with_groups_and_strides_of_images_of_any_size(channels: int, groups: int, stride: int) -> None:
    """Wide enough for Winograd's filtering, with pads that differ from side to side."""
    own = f"group = {groups}, kernel_shape = [3, 3], strides = [{stride}, {stride}]"
    model = parsed(
        f"""images (float[n, {channels}, h, w] x) => (float[n, {channels}, p, q] y) {{
            z = Conv<{own}, pads = [1, 1, 1, 1]>(x, k, b)
            r = Relu(z)
            y = Conv<{own}, pads = [0, 1, 1, 0]>(r, k)
        }}""",
        ("k", floats(channels, channels // groups, 3, 3) / channels),
        ("b", floats(channels)),
    )
    for images, height, width in ((1, 13, 50), (2, 5, 7), (1, 28, 28)):
        check_against_onnx_runtime(model, {"x": floats(images, channels, height, width)}, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "stride", "dilation", "groups"),
    [(3, 1, 1, 1), (3, 1, 5, 1), (5, 2, 1, 1), (7, 1, 1, 1), (11, 1, 3, 1), (3, 1, 2, 2)],
)
def test_convolutions_of_lines_of_any_length(window: int, stride: int, dilation: int, groups: int) -> None:
    """Wide enough for Winograd's filtering along one axis, whole and as residual blocks of a vocoder."""
    pad = (window - 1) * dilation // 2
    own = f"group = {groups}, kernel_shape = [{window}], dilations = [{dilation}]"
    model = parsed(
        f"""lines (float[n, 64, t] x) => (float[n, 64, u] y) {{
            z = Conv<{own}, pads = [{pad}, {pad}], strides = [1]>(x, k, b)
            r = LeakyRelu<alpha = 0.1>(z)
            s = Add(r, x)
            y = Conv<{own}, pads = [{pad}, 0], strides = [{stride}]>(s, k)
        }}""",
        ("k", floats(64, 64 // groups, window) / 64),
        ("b", floats(64)),
    )
    for lines, length in ((1, 13), (2, 101), (1, 1000)):
        if length > (window - 1) * dilation // 2:
            check_against_onnx_runtime(model, {"x": floats(lines, 64, length)}, rtol=1e-3)


def test_a_convolution_of_images_of_which_one_row_fills_the_cache() -> None:
    model = parsed(
        """wide (float[n, h, w, c] x) => (float[n, 8, p, q] y) {
            z = Transpose<perm = [0, 3, 1, 2]>(x)
            y = Conv<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(z, k)
        }""",
        ("k", floats(8, 4, 3, 3)),
    )
    check_against_onnx_runtime(model, {"x": floats(1, 7, 9, 4)}, rtol=1e-3)
