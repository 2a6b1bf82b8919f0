"""One compilation by Ingot in a fresh process: how long it takes from a cold start, and how much memory.

``python -m bench.compilation MODEL DIRECTORY SHAPES``: SHAPES is JSON, the artifact is written into the new DIRECTORY.
``python -m bench.compilation --scaling``: how compile time grows with a model (:mod:`bench.scaling`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ingot
from bench.inputs import Shape
from shared_ir.artifact.exchange import write_artifact
from shared_ir.errors import IngotError

_SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class Compilation:
    """What a compilation cost.

    Attributes:
        seconds: from the start of the process to its end: Python's start, imports and linking included.
        peak_bytes: of the process and its children together, shared pages counted once; sampled every 0.1 s.
        artifact_bytes: code, weights and plan.
    """

    seconds: float
    peak_bytes: int
    artifact_bytes: int


def compile_model(model: Path, shapes: Mapping[str, Shape], directory: Path) -> Compilation:
    """Compile ``model`` for this machine into the new ``directory`` (:mod:`shared_ir.artifact.exchange`).

    Raises:
        IngotError: what the compiler says of the model.
        RuntimeError: the process died.
    """
    command = [sys.executable, "-m", "bench.compilation", str(model), str(directory), json.dumps(dict(shapes))]
    start, peak = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        while True:
            try:
                output, errors = child.communicate(timeout=_SAMPLE_SECONDS)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, tree_bytes(child.pid))
    seconds = time.perf_counter() - start
    if child.returncode:
        lines = output.strip().splitlines()
        if lines and lines[-1].startswith("{"):
            raise IngotError.from_dict(json.loads(lines[-1]))
        raise RuntimeError(f"the compiler died with status {child.returncode}: {errors[-400:]}")
    size = sum(f.stat().st_size for f in directory.rglob("*") if f.is_file())
    return Compilation(seconds, peak, size)


def tree_bytes(process: int) -> int:
    """Memory of a process and its descendants: proportional set sizes, so that shared pages count once."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    total, pending = 0, [process]
    while pending:
        one = pending.pop()
        total += _proportional_bytes(one)
        pending += children.get(one, [])
    return total


def _proportional_bytes(process: int) -> int:
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:  # it has ended
        return 0
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--scaling"]:
        from bench.scaling import main as scaling  # draws, which a compilation that is timed does not wait for

        return scaling(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m bench.compilation", description=__doc__)
    parser.add_argument("model", type=Path, help="an ONNX file")
    parser.add_argument("directory", type=Path, help="a new folder, for the artifact")
    parser.add_argument("shapes", type=json.loads, help='sizes by input as JSON, such as {"x": [1, 3, 224, 224]}')
    given = parser.parse_args(arguments)
    try:
        artifact = ingot.compile(given.model, shapes=given.shapes, in_process=True)  # whose memory is measured
    except IngotError as error:
        print(json.dumps(error.to_dict()))
        return 1
    write_artifact(given.directory, artifact)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
