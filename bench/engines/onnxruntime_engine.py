"""ONNX Runtime's CPU provider with every graph optimisation, as it is set up for latency."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime

from bench.engines.engine import LoadRequest
from bench.inputs import Array


class OnnxRuntimeEngine:
    """NOTE: its threads spin between operators, which is its default and its fastest; the process is stopped when idle."""

    def load(self, request: LoadRequest) -> dict[str, Any]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = request.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        session, seconds = _open(request.model, options)
        if not request.dynamic and _pin(options, session, request):
            session, seconds = _open(request.model, options)
        self._session = session
        return {"version": onnxruntime.__version__, "load_seconds": seconds}

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        self._feeds = {i.name: feeds[i.name] for i in self._session.get_inputs()}

    def run(self) -> None:
        self._session.run(None, self._feeds)

    def outputs(self) -> dict[str, Array]:
        names = [o.name for o in self._session.get_outputs()]
        return dict(zip(names, self._session.run(None, self._feeds), strict=True))


def _open(model: Path, options: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return session, time.perf_counter() - start


def _pin(options: Any, session: Any, request: LoadRequest) -> bool:
    """Give every named dim of the inputs its number; what has no name stays open. Whether there was one."""
    numbers: dict[str, set[int]] = {}
    for value in session.get_inputs():
        for dim, extent in zip(value.shape, request.shapes[value.name], strict=True):
            if isinstance(dim, str):
                numbers.setdefault(dim, set()).add(extent)
    for name, found in numbers.items():
        if len(found) == 1:
            options.add_free_dimension_override_by_name(name, found.pop())
    return bool(numbers)
