"""The process of one compile stage: arguments ``DIRECTORY PROGRESS_FD``, the stages passed in.

Reads ``request.json`` from the directory, calls the compiler, writes ``result.json``. Progress goes to the descriptor as JSON
lines, logs to stdout. It is started inside the boundary (:mod:`compiler_service.boundary`), and nothing that it leaves behind
is trusted; see :mod:`compiler_service.stages.runner` for the other side.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from compiler_service.boundary.kernel import PR_SET_PDEATHSIG, prctl
from compiler_service.boundary.privileges import hide
from compiler_service.stages.outcome import NO_SPACE, RESULT_FILE
from compiler_service.stages.runner import PREPARE, REQUEST_FILE, VERIFY
from shared_ir.artifact.exchange import write_artifact
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target, target_from_dict
from shared_ir.storage.faults import lacks_room
from shared_ir.storage.files import write_atomically

Progress = Callable[[str, int, int, str], None]
"""Called with stage, steps done, steps in total (0 when unknown), message."""

Act = Callable[[Mapping[str, Any], Progress], Mapping[str, Any]]
"""Does what a request asks for; a JSON-ready answer."""

ARTIFACT = "artifact"
REPRODUCER = "reproducer.txt"
"""What shows a fault of the compiler again (:mod:`compiler_service.compiler.reproducer`)."""
RECORDS = "records.json"
JOURNAL = "trials.jsonl"
"""What a stage has measured, a line for each trial, added as it ends: it is there however the stage ends."""
MOST_RECORD_BYTES = 256 << 20
"""Bytes of the tuning records of a model on a target."""


@dataclass(frozen=True)
class SourceFiles:
    """The model file, and external-data files by the location that the model names."""

    model: Path
    blobs: Mapping[str, Path]


class Stages(Protocol):
    """What the compiler does in each stage. Options are normalised JSON values."""

    def check(self, source: SourceFiles, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Import only. A report with the fields of ``CheckModelResponse``; ``issues`` are errors as dicts."""

    def prepare(self, target: Target, options: Mapping[str, Any]) -> None:
        """Put into the cache what building and verifying for ``target`` reads there. No model is read."""

    def tune(
        self,
        source: SourceFiles,
        target: Target,
        options: Mapping[str, Any],
        records: bytes,
        journal: Path,
        progress: Progress,
    ) -> None:
        """Measure schedules that are not in ``records``; add what came of each to the ``journal`` as it ends."""

    def build(
        self, source: SourceFiles, target: Target, options: Mapping[str, Any], records: bytes, progress: Progress
    ) -> CompiledArtifact:
        """Compile."""

    def verify(
        self, artifact: Path, source: SourceFiles, options: Mapping[str, Any], progress: Progress
    ) -> Mapping[str, Any]:
        """Compare the answers of the artifact in a folder with the model's; a report. Raises IngotError NUMERIC_MISMATCH."""


def main(arguments: list[str], stages: Stages) -> int:
    """Exit status 0 means that ``result.json`` says how it went."""
    work, descriptor = Path(arguments[0]), int(arguments[1])
    return answer(work, descriptor, lambda request, progress: run(request, work, stages, progress))


def answer(work: Path, descriptor: int, act: Act) -> int:
    """Do what ``request.json`` asks for by ``act``, and write down how it went."""
    request = json.loads((work / REQUEST_FILE).read_bytes())
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # never outlive the worker
    hide()
    with os.fdopen(descriptor, "w", buffering=1) as pipe:
        try:
            result = act(request, _reporter(pipe.write))
        except MemoryError:
            result = {"error": _out_of_memory(request["limits"]["memory"]).to_dict()}
        except Exception as error:
            if lacks_room(error):
                return NO_SPACE
            result = {"error": _told(error).to_dict()}
            _keep(work, getattr(error, "reproducer", ""))
    try:
        write_atomically(work / RESULT_FILE, json.dumps(result).encode())
    except OSError as error:
        if lacks_room(error):
            return NO_SPACE
        raise
    return 0


def _keep(work: Path, reproducer: str) -> None:
    if reproducer:
        with contextlib.suppress(OSError):
            write_atomically(work / REPRODUCER, reproducer.encode())


def run(request: Mapping[str, Any], work: Path, stages: Stages, progress: Progress) -> Mapping[str, Any]:
    """Do what ``request`` asks for; a JSON-ready answer."""
    options = request["options"]
    if request["stage"] == PREPARE:
        stages.prepare(target_from_dict(request["target"]), options)
        return {}
    blobs = {location: Path(path) for location, path in request["source"]["blobs"].items()}
    source = SourceFiles(Path(request["source"]["model"]), blobs)
    if request["stage"] == "check":
        return {"report": dict(stages.check(source, options))}
    if request["stage"] == VERIFY:
        report = stages.verify(Path(request["artifact"]), source, options, progress)
        return {"report": dict(report)}
    target = target_from_dict(request["target"])
    records = (work / RECORDS).read_bytes()
    if request["stage"] == "tune":
        stages.tune(source, target, options, records, work / JOURNAL, progress)
        return {}
    write_artifact(work / ARTIFACT, stages.build(source, target, options, records, progress))
    return {}


def _reporter(write: Callable[[str], Any]) -> Progress:
    def progress(stage: str, done: int, total: int, message: str = "") -> None:
        line = {"stage": stage, "done": done, "total": total, "message": message[:1000]}
        write(json.dumps(line) + "\n")

    return progress


def _out_of_memory(limit: int) -> IngotError:
    return IngotError(
        ErrorCode.RESOURCE_LIMIT,
        "the compilation used more memory than a job may",
        expected=f"at most {limit} bytes",
        remedy="Compile a smaller model, or ask the operator of the service for a higher limit.",
    )


def _told(error: Exception) -> IngotError:
    if isinstance(error, IngotError):
        return error
    traceback.print_exception(error)
    return IngotError(
        ErrorCode.COMPILER_FAULT,
        f"the compiler failed: {type(error).__name__}: {error}"[:500],
        remedy="This is a bug in the compiler: please report it with the job's log.",
    )
