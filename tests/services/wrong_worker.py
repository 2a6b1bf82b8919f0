"""A worker whose compiler is the real one but for a fault: it builds a model of other weights. ``python wrong_worker.py``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler_service.catalogue import PipelineCompiler
from compiler_service.settings import CompilerSettings
from compiler_service.stages.compiler import PipelineStages
from compiler_service.stages.process import Progress, SourceFiles, main
from compiler_service.worker.run import run_worker
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.machine.target import Target
from shared_ir.service_kit.telemetry.log import start_log


class WrongStages(PipelineStages):
    """The sign of the first weight is the other one."""

    def build(
        self, source: SourceFiles, target: Target, options: Mapping[str, Any], records: bytes, progress: Progress
    ) -> CompiledArtifact:
        artifact = super().build(source, target, options, records, progress)
        given = artifact.weights
        weights = bytearray(given.read_bytes() if isinstance(given, Path) else given)
        weights[3] ^= 0x80
        return replace(artifact, weights=bytes(weights))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(sys.argv[1:], WrongStages()))
    start_log("compiler-worker", is_whole=True)
    sys.exit(run_worker(CompilerSettings.from_environment(), PipelineCompiler(), (sys.executable, str(Path(__file__)))))
