"""The stages of the toy compiler: a "model" is a JSON object that says how its compilation goes.

    {"name": "m", "seconds": 0.2, "steps": 3}     builds in so many steps
    {"issues": ["Foo is not supported"]}          does not import
    {"report": {"issues": ...}}                   says something else of itself when it is checked
    {"trials": 3, "trial_seconds": 0.1, "tune_do": "hang"}    measures so often when it is tuned, and then does as with "do"
    {"do": "error" | "fault" | "raise" | "abort" | "hang" | "memory" | "file" | "leak"}    fails in the build stage; what hangs has
                                                  a child with ``mark`` in its command line
    {"mismatch": true}                            fails verification
    {"key": "..."}                                claims to be what another model comes to
    {"link": "model.so", "to": "/etc/passwd"}     leaves a link where the file of its artifact should be

A program of its own that imports little: most tests of services start it some dozens of times.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler_service.compiler.reproducer import pass_fault
from compiler_service.stages.process import ARTIFACT, Progress, SourceFiles, main
from shared_ir.artifact.value import CompiledArtifact, artifact_key
from shared_ir.digest import sha256_hex, source_digest
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target
from shared_ir.storage.appended import add_lines
from tests.services.artifacts import toy_artifact

VERSION = "toy-1"


def toy_key(model: str, target: Target, options: Mapping[str, Any], records: bytes) -> str:
    return artifact_key(model, target, options, sha256_hex(records) if records else "", VERSION)


def toy_record(number: int) -> bytes:
    """A line of the journal of a tuner."""
    return f'{{"kind":"trial","number":{number}}}\n'.encode()


class ToyStages:
    """:class:`compiler_service.stages.process.Stages` over JSON models."""

    def check(self, source: SourceFiles, options: Mapping[str, Any]) -> Mapping[str, Any]:
        model = _read(source)
        time.sleep(model.get("check_seconds", 0))
        issues = [
            IngotError(ErrorCode.UNSUPPORTED_OPERATOR, text, node=f"node{n} (Foo)", remedy="Use another.").to_dict()
            for n, text in enumerate(model.get("issues", []))
        ]
        inputs = {"x": "float32[batch, max(a, 2), 3]"}
        report = {"issues": issues, "opsets": {"ai.onnx": 17}, "operators": {"Add": 2}, "inputs": inputs, "outputs": {}}
        return report | dict(model.get("report", {}))

    def prepare(self, target: Target, options: Mapping[str, Any]) -> None:
        """Nothing is shared between builds."""

    def tune(
        self,
        source: SourceFiles,
        target: Target,
        options: Mapping[str, Any],
        records: bytes,
        journal: Path,
        progress: Progress,
    ) -> None:
        model = _read(source)
        for number in range(model.get("trials", 1)):
            add_lines(journal, toy_record(number))
            progress("tune", number + 1, model.get("trials", 1), f"task 1 of 1: {number + 1} trials")
            time.sleep(model.get("trial_seconds", 0))
        _misbehave(model.get("tune_do", ""), model)

    def build(
        self, source: SourceFiles, target: Target, options: Mapping[str, Any], records: bytes, progress: Progress
    ) -> CompiledArtifact:
        model = _read(source)
        print("building", model.get("name"))
        steps = model.get("steps", 2)
        for step in range(steps):
            progress("codegen", step, steps, f"kernel {step}")
            time.sleep(model.get("seconds", 0.0) / steps)
        progress("codegen", steps, steps, "")
        _misbehave(model.get("do", ""), model)
        if "link" in model:
            atexit.register(_link, Path(sys.argv[1]) / ARTIFACT / model["link"], model["to"])
        external = {location: sha256_hex(path.read_bytes()) for location, path in source.blobs.items()}
        digest = source_digest(sha256_hex(source.model.read_bytes()), external)
        artifact = toy_artifact(
            model.get("name", "toy"),
            weights=b"w" * 128,
            key=model.get("key", toy_key(digest, target, options, records)),
            triple=target.triple,
            cpu=target.cpu,
            features=target.features,
            model_sha256=digest,
            options=dict(options),
        )
        return replace(artifact, report={"pid": os.getpid(), "records": records.decode()})

    def verify(
        self, artifact: Path, source: SourceFiles, options: Mapping[str, Any], progress: Progress
    ) -> Mapping[str, Any]:
        if _read(source).get("mismatch"):
            raise IngotError(ErrorCode.NUMERIC_MISMATCH, "output y is off by 3", tensor="y")
        return {"max_abs_error": 0.0}


def _read(source: SourceFiles) -> dict[str, Any]:
    try:
        model: dict[str, Any] = json.loads(source.model.read_bytes())
    except ValueError as error:
        raise IngotError(ErrorCode.INVALID_MODEL, "not a model", remedy="Send a model.") from error
    return model


def _link(file: Path, target: str) -> None:
    file.unlink()
    file.symlink_to(target)


def _end(how: str, model: Mapping[str, Any]) -> None:
    match how:
        case "leave":
            os._exit(model["status"])
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "abort":
            os.abort()


def _misbehave(how: str, model: Mapping[str, Any]) -> None:
    match how:
        case "error":
            raise IngotError(ErrorCode.LIMIT_EXCEEDED, "too big", expected="small", received="big")
        case "fault":
            raise pass_fault("fuse", "fuse{most_nodes=8}", ["fold"], "graph g() {}\n", KeyError("lost"))
        case "raise":
            raise KeyError("lost")
        case "abort" | "leave" | "kill":
            _end(how, model)
        case "hang":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", model["mark"]])
            time.sleep(300)
        case "memory":
            block = bytearray(64 * 1024**3)
            block[0] = 1
        case "file":
            (Path.cwd() if "path" not in model else Path(model["path"])).write_bytes(b"\0" * 2**22)
        case "leak":
            print({name: value for name, value in os.environ.items() if "INGOT" in name or "AWS" in name})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], ToyStages()))
