"""``python -m tests.guard.compiling --seconds 600``: odd models to a compiler service, as its users start it, until time is up.

Each is a good model but for some bytes, a field or a number of its text form. It must be compiled or refused by a sentence: findings
are errors that blame the service, tracebacks in its logs, children that outlive the time or memory they were given, and jobs that
do not end.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import onnx
from google.protobuf import text_format

from ingot.client import Client
from ingot.demo.platform import processes_of
from shared_ir.errors import ErrorCode, IngotError
from tests.e2e.platform_process import PlatformProcess
from tests.guard.serving import Findings
from tests.oracle.families import FAMILIES
from tests.oracle.generate import drawn_case

JOB_SECONDS = 20
JOB_MEMORY_BYTES = 4 << 30
LATE_S = 40.0
"""What a job may take beyond its seconds: it waits for others, and every stage has as many."""
_FAULTS = (ErrorCode.COMPILER_FAULT, ErrorCode.INTERNAL, ErrorCode.ARTIFACT_CORRUPT, ErrorCode.NUMERIC_MISMATCH)
_NUMBERS = ("0", "-1", "1", "2", "7", "64", "65536", "2147483647", "-2147483648", "1000000007", "4611686018427387904")
_LARGEST_TEXT = 20_000


def changed(model: onnx.ModelProto, rng: random.Random) -> bytes:
    """``model`` with something odd in it; the same for the state of ``rng``."""
    whole = model.SerializeToString()
    return rng.choice((_cut, _flipped, _copied, _renumbered, _renumbered, _without, _doubled))(model, whole, rng)


def _cut(_: onnx.ModelProto, whole: bytes, rng: random.Random) -> bytes:
    return whole[: rng.randrange(len(whole))]


def _flipped(_: onnx.ModelProto, whole: bytes, rng: random.Random) -> bytes:
    found = bytearray(whole)
    for _ in range(rng.choice((1, 1, 2, 8))):
        found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


def _copied(_: onnx.ModelProto, whole: bytes, rng: random.Random) -> bytes:
    start, length, at = rng.randrange(len(whole)), rng.randrange(1, 64), rng.randrange(len(whole))
    return whole[:at] + whole[start : start + length] + whole[at:]


def _renumbered(model: onnx.ModelProto, whole: bytes, rng: random.Random) -> bytes:
    """Another number in the text form: an extent, an attribute, a type, a version."""
    text = text_format.MessageToString(model)
    places = list(re.finditer(r": (-?\d+)$", text, re.MULTILINE)) if len(text) < _LARGEST_TEXT else []
    if not places:
        return _flipped(model, whole, rng)
    place = rng.choice(places)
    return _parsed(text[: place.start(1)] + rng.choice(_NUMBERS) + text[place.end(1) :], whole)


def _without(model: onnx.ModelProto, whole: bytes, rng: random.Random) -> bytes:
    """Without one line of the text form."""
    lines = text_format.MessageToString(model).split("\n")
    simple = [i for i, line in enumerate(lines) if ":" in line]
    if not simple:
        return whole
    del lines[rng.choice(simple)]
    return _parsed("\n".join(lines), whole)


def _doubled(model: onnx.ModelProto, whole: bytes, rng: random.Random) -> bytes:
    """With one node, input or initializer twice, or a name for another."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    graph = other.graph
    for kind in rng.sample(("node", "input", "initializer", "names"), 4):
        if kind == "names" and graph.node:
            node, names = (
                rng.choice(graph.node),
                [v.name for v in graph.input] + [o for n in graph.node for o in n.output],
            )
            if node.input and names:
                node.input[rng.randrange(len(node.input))] = rng.choice(names)
                break
        elif kind != "names" and getattr(graph, kind):
            getattr(graph, kind).append(rng.choice(getattr(graph, kind)))
            break
    return bytes(other.SerializeToString())


def _parsed(text: str, whole: bytes) -> bytes:
    with suppress(text_format.ParseError):
        return bytes(text_format.Parse(text, onnx.ModelProto()).SerializeToString())
    return whole


def models(seed: int) -> Iterator[tuple[str, bytes]]:
    rng = random.Random(seed)
    families = sorted(FAMILIES)
    for number in range(1 << 30):
        family = rng.choice(families)
        case, _ = drawn_case(family, seed + number)
        yield f"{family} seed {seed + number}", changed(case.model, rng)


def ask(client: Client, drawn: str, model: bytes, found: Findings) -> None:
    start = time.monotonic()
    try:
        job = client.wait(client.compile(model, "m", targets=["host"]).id)
        code, text = ("OK", "") if job.error is None else (str(job.error.code), str(job.error))
        is_fault = job.error is not None and job.error.code in _FAULTS
    except IngotError as error:
        code, text, is_fault = str(error.code), str(error), error.code in _FAULTS
    found.count(code)
    if is_fault or "Traceback" in text:
        found.add(f"{drawn}: {code}: {text[:400]}")
    if time.monotonic() - start > JOB_SECONDS + LATE_S:
        found.add(f"{drawn}: ended after {time.monotonic() - start:.0f} s, {code}")


@contextmanager
def watched(home: Path, found: Findings) -> Iterator[None]:
    """Meanwhile, no process of ``home`` takes more memory than a job may."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.2):
            for process in processes_of(home):
                with suppress(OSError, StopIteration, ValueError):
                    status = Path(f"/proc/{process}/status").read_text()
                    size = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))
                    if size > JOB_MEMORY_BYTES:
                        found.add(f"process {process} takes {size} bytes")

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def fuzz(
    home: Path, seconds: float, clients: int, seed: int, drawn: Callable[[int], Iterator[tuple[str, bytes]]]
) -> Findings:
    found = Findings(Counter())
    platform = PlatformProcess(home, INGOT_JOB_SECONDS=str(JOB_SECONDS), INGOT_JOB_MEMORY=str(JOB_MEMORY_BYTES))
    try:
        end = time.monotonic() + seconds

        def storm(first: int) -> None:
            with platform.client() as client:
                for name, model in drawn(first):
                    if time.monotonic() > end:
                        return
                    ask(client, name, model, found)

        with watched(home, found):
            threads = [threading.Thread(target=storm, args=(seed + i * 1_000_000,)) for i in range(clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            with platform.client() as client:  # it serves on
                case, _ = drawn_case("Relu", 1)
                ask(client, "a good model", case.model.SerializeToString(), found)
        if not found.codes["OK"]:
            found.add("nothing was compiled")
        log = platform.logs()
        if "Traceback" in log:
            found.add(f"a process of the service wrote a traceback: {log[log.index('Traceback') :][:2000]}")
        if platform.stop() != 0:
            found.add("the service does not stop as it should")
    finally:
        platform.kill()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.guard.compiling", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--seed", type=int, default=None, help="by default another each time")
    given = parser.parse_args()
    seed = int(time.time()) * 1000 if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="ingot-guard-") as folder:
        found = fuzz(Path(folder), given.seconds, given.clients, seed, models)
    print(f"{found.requests} models from seed {seed} on, {len(found.lines)} findings; answers: {dict(found.codes)}")
    return int(bool(found.lines))


if __name__ == "__main__":
    sys.exit(main())
