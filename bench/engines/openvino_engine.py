"""OpenVINO's CPU plugin, set up for latency: in float32, or as it comes, which is bfloat16 where the machine can."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import openvino

from bench.engines.engine import LoadRequest
from bench.inputs import Array


class OpenVinoEngine:
    """NOTE: inputs and outputs are shared with the request, which saves OpenVINO the copies that Ingot does not make."""

    def __init__(self, precision: str | None = "f32") -> None:
        self._precision = precision

    def load(self, request: LoadRequest) -> dict[str, Any]:
        start = time.perf_counter()
        core = openvino.Core()
        model = core.read_model(request.model)
        if not request.dynamic:
            model.reshape({name: list(shape) for name, shape in request.shapes.items()})
        self._inputs = [i.get_any_name() for i in model.inputs]
        self._outputs = [o.get_any_name() for o in model.outputs]  # compiling may add names of values within
        config: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": request.threads,
            "PERFORMANCE_HINT": "LATENCY",
        }
        if self._precision is not None:
            config["INFERENCE_PRECISION_HINT"] = self._precision
        self._compiled = core.compile_model(model, "CPU", config)
        self._request = self._compiled.create_infer_request()
        return {"version": openvino.__version__, "load_seconds": time.perf_counter() - start}

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        self._feeds = [np.array(feeds[name], order="C") for name in self._inputs]

    def run(self) -> None:
        self._request.infer(self._feeds, share_inputs=True, share_outputs=True)

    def outputs(self) -> dict[str, Array]:
        results = self._request.infer(self._feeds, share_inputs=True, share_outputs=False)
        return {name: results[o] for name, o in zip(self._outputs, self._compiled.outputs, strict=True)}
