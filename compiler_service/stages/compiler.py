"""The stages of a job, done by the compiler: ``python -m compiler_service.stages.compiler`` is the process of one stage."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler_service.compiler.codegen.toolchain.bundle import prepare
from compiler_service.compiler.codegen.toolchain.emulation import emulator_for, loading_program
from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.frontend.report import Obstacle, ObstacleReport
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import check_model, compile_model, inference, tune_model, verify_artifact
from compiler_service.stages.process import Progress, SourceFiles, main
from shared_ir.artifact.exchange import read_artifact
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.text import print_module
from shared_ir.machine.target import Target

RUN_ONCE = (sys.executable, "-m", "runtime_service.loading.once")
"""Runs an artifact in a process of its own: the one place where the two services meet, and only by a command."""


class PipelineStages:
    """Implements :class:`compiler_service.stages.process.Stages`."""

    def check(self, source: SourceFiles, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return check_to_dict(check_model(model_source(source), CompileOptions.from_dict(options)))

    def prepare(self, target: Target, options: Mapping[str, Any]) -> None:
        chosen = CompileOptions.from_dict(options)
        prepare(target, chosen.bundle)
        if chosen.verification != "off" and emulator_for(target) is not None:
            loading_program(target)

    def tune(
        self,
        source: SourceFiles,
        target: Target,
        options: Mapping[str, Any],
        records: bytes,
        journal: Path,
        progress: Progress,
    ) -> None:
        tune_model(model_source(source), target, CompileOptions.from_dict(options), progress, records, journal)

    def build(
        self, source: SourceFiles, target: Target, options: Mapping[str, Any], records: bytes, progress: Progress
    ) -> CompiledArtifact:
        return compile_model(model_source(source), target, CompileOptions.from_dict(options), progress, records)

    def verify(
        self, artifact: Path, source: SourceFiles, options: Mapping[str, Any], progress: Progress
    ) -> Mapping[str, Any]:
        chosen = CompileOptions.from_dict(options)
        return verify_artifact(read_artifact(artifact), model_source(source), chosen, RUN_ONCE, artifact)


def graph_text(source: ModelSource) -> str:
    """The graph that a model is imported as, printed."""
    return print_module(import_model(source, ImportOptions(), inference()))


def model_source(source: SourceFiles) -> ModelSource:
    return ModelSource(source.model, source.blobs)


def check_to_dict(report: ObstacleReport) -> dict[str, Any]:
    """A report as it travels; obstacles become errors."""
    return {
        "opsets": dict(report.opsets),
        "operators": dict(report.operators),
        "inputs": dict(report.inputs),
        "outputs": dict(report.outputs),
        "issues": [_error(obstacle).to_dict() for obstacle in report.obstacles],
    }


def _error(obstacle: Obstacle) -> IngotError:
    operator = f"{obstacle.node} ({obstacle.operator}, {obstacle.domain} {obstacle.opset})" if obstacle.operator else ""
    return IngotError(
        ErrorCode(obstacle.code),
        obstacle.reason,
        node=operator,
        tensor=obstacle.tensor,
        field=obstacle.field,
        remedy=obstacle.remedy,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], PipelineStages()))
