"""Ingot: compiled in a process of its own, loaded and run as ``ingot.load`` does it for anyone."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ingot
from bench.compilation import compile_model
from bench.engines.engine import LoadRequest
from bench.inputs import Array
from shared_ir.artifact.exchange import read_artifact

_METHODS = ("winograd", "strassen")
"""Of the report; kernels that use them are counted."""


class IngotEngine:
    """``load`` compiles afresh: the seconds, the peak of memory and the size of the artifact are among its facts."""

    _model: ingot.Model

    def load(self, request: LoadRequest) -> dict[str, Any]:
        shapes = {} if request.dynamic else request.shapes
        with tempfile.TemporaryDirectory(prefix="ingot-bench-") as folder:
            compilation = compile_model(request.model, shapes, Path(folder) / "artifact")
            artifact = read_artifact(Path(folder) / "artifact")
            self._model = ingot.load(artifact, threads=request.threads)
        return {
            "version": artifact.manifest.compiler_version,
            "compile_seconds": compilation.seconds,
            "peak_bytes": compilation.peak_bytes,
            "artifact_bytes": compilation.artifact_bytes,
            "kernels": len(artifact.plan.kernels),
            **{f"{m}_kernels": sum(m in a["algorithm"] for a in artifact.report["algorithms"]) for m in _METHODS},
            "launches": artifact.report.get("launches", len(artifact.plan.steps)),
        }

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        self._feeds = {spec.name: feeds[spec.name] for spec in self._model.inputs}

    def run(self) -> None:
        self._model.run(self._feeds)

    def outputs(self) -> dict[str, Array]:
        return self._model.run(self._feeds)
