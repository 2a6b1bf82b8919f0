"""The model in double precision by the reference implementation of ONNX, to measure the rounding of the others against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from bench.double_precision import widen
from bench.engines.engine import LoadRequest
from bench.inputs import Array

Wide = NDArray[np.float64]


class GatherElements(OpRun):  # type: ignore[misc]
    """NOTE: that of onnx 1.23 fails for indices whose leading extents are 1."""

    op_domain = ""

    def _run(self, data: Array, indices: NDArray[np.int64], axis: int = 0) -> tuple[Array]:
        # axes of indices may be shorter than those of data; take_along_axis wants them equal but for the gathered one
        others = tuple(slice(None) if a == axis % data.ndim else slice(n) for a, n in enumerate(indices.shape))
        return (np.take_along_axis(data[others], indices, axis),)


class BatchNormalization(OpRun):  # type: ignore[misc]
    """NOTE: that of onnx 1.23 takes the statistics of its input before opset 14, as if it were training."""

    op_domain = ""

    def _run(
        self, x: Wide, scale: Wide, bias: Wide, mean: Wide, variance: Wide, epsilon: float = 1e-5, **other: object
    ) -> tuple[Wide]:
        if other.get("training_mode"):
            raise NotImplementedError("BatchNormalization that trains")
        along = (slice(None), *[None] * (x.ndim - 2))
        return ((x - mean[along]) / np.sqrt(variance[along] + epsilon) * scale[along] + bias[along],)


class ReferenceEngine:
    """NOTE: it is not timed; one run takes seconds."""

    def load(self, request: LoadRequest) -> dict[str, Any]:
        model = onnx.load(request.model)
        widen(model)
        self._evaluator = ReferenceEvaluator(model, new_ops=[GatherElements, BatchNormalization])
        return {"version": onnx.__version__}

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        self._feeds = {name: _wide(feeds[name]) for name in self._evaluator.input_names if name in feeds}

    def run(self) -> None:
        self.outputs()

    def outputs(self) -> dict[str, Array]:
        return dict(zip(self._evaluator.output_names, self._evaluator.run(None, self._feeds), strict=True))


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype in (np.float32, np.float16) else array
