"""Operands and batches whose extent only the run knows, where the rest of the model does not hang on it, beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from shared_ir.errors import ErrorCode, IngotError
from tests.cases import every
from tests.conformance.compiled import check_against_onnx_runtime, run_compiled

X = np.random.default_rng(5).normal(size=(2, 3, 4)).astype(np.float32)
OPERATORS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL1", "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd")


def reduction(op: str, noop: int) -> onnx.ModelProto:
    attributes = f"keepdims: int = 1, noop_with_empty_axes: int = {noop}"
    text = f"g (float[a, b, c] x, int64[q] axes) => (float[d, e, f] y) {{ y = {op}<{attributes}>(x, axes) }}"
    model: onnx.ModelProto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}')
    return model


@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("op", every(OPERATORS, quick={"ReduceSum", "ReduceLogSumExp"}))
def test_as_many_axes_as_the_run_says(op: str, noop: int) -> None:
    model, x = reduction(op, noop), np.abs(X)
    for axes in ([], [1], [-1, 0], [2, 1, 0]) if op == "ReduceSum" else ([], [-1, 0]):
        check_against_onnx_runtime(model, {"x": x, "axes": np.array(axes, np.int64)})


def test_axes_that_there_are_not() -> None:
    for axes in ([3], [0, -4]):
        with pytest.raises(IngotError, match="axes of 'axes' that are not within -3 and 2") as caught:
            run_compiled(reduction("ReduceSum", 0), {"x": X, "axes": np.array(axes)})
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("directions", ["", "directions: ints = [1], "])
@pytest.mark.parametrize("rows", [1, 2, 70])
def test_scans_of_as_many_rows_as_the_run_says(rows: int, directions: str) -> None:
    body = "body: graph = b (float[n] s, float[n] x) => (float[n] t, float[n] y) { t = Add(s, x) u = Neg(w) y = Mul(s, u) }"
    scan = f"h, ys = Scan<{directions}num_scan_inputs: int = 1, {body}>(, h0, xs)"
    text = f"g (float[r, t, n] xs, float[r, n] h0, float[n] w) => (float[r, n] h, float[r, a, n] ys) {{ {scan} }}"
    model = parser.parse_model(f'<ir_version: 7, opset_import: ["" : 8]> {text}')
    xs = np.random.default_rng(rows).normal(size=(rows, 3, 2)).astype(np.float32)
    check_against_onnx_runtime(model, {"xs": xs, "h0": xs[:, 1], "w": xs[0, 0]})
