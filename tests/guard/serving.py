"""``python -m tests.guard.serving --seconds 600 --models 60``: odd requests to two servers of the same models, under guard pages.

The memory of one server is full of one byte, that of the other of another: where their answers differ, they hold what the run has
not computed. Findings are also: a server that ends, an answer that is no typed error, one that comes later than the deadline, an
instance that does not serve on, and memory that is kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import numpy as np

from ingot.endpoint import Endpoint
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import local_keys
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.store import open_store
from tests.guard.requests import Request, requests
from tests.guard.runs import POISONS, compiled
from tests.oracle.case import Array
from tests.oracle.families import FAMILIES
from tests.oracle.generate import drawn_case

ROOT = Path(__file__).parents[2]
DEADLINE_S = 5.0
LATE_S = 3.0
"""What an answer may come after its deadline, on a machine that is full."""
_RUN_MEMORY_BYTES = 256 << 20
_REQUESTS_OF_MODEL = 200
_REFUSALS = {
    ErrorCode.INVALID_ARGUMENT,
    ErrorCode.RESOURCE_EXHAUSTED,
    ErrorCode.DEADLINE_EXCEEDED,
    ErrorCode.TYPE_MISMATCH,
    ErrorCode.NOT_FOUND,
}
"""What a request may be told; all else blames the server."""
_MOST_GROWTH = 0.05
"""Of resident memory, between two looks after the same requests."""
_SECONDS_TO_TRIM = 4.0
"""A second without large messages, after which a server gives memory back, and what that takes under load."""


@dataclass(frozen=True)
class Asked:
    """A model that is served, a good request to it, and odd ones."""

    name: str
    drawn: str
    requests: tuple[Request, ...]


def store(home: Path, name: str, artifact: CompiledArtifact) -> None:
    """The store of ``home`` holds ``artifact`` as the stable version of ``name``."""
    key, trust = local_keys(home)
    repository = ArtifactRepository(open_store(str(home / "store")), trust, key)
    repository.put_artifact(artifact)
    repository.publish(name, [artifact.manifest.key], labels=["stable"])


def publish(home: Path, count: int, seed: int) -> list[Asked]:
    """``count`` models of as many families as there are, in the store of ``home``."""
    rng = random.Random(seed)
    families = sorted(FAMILIES)
    rng.shuffle(families)
    found: list[Asked] = []
    for number in range(100 * count):
        if len(found) == count:
            break
        family, own = families[number % len(families)], seed + number
        case, _ = drawn_case(family, own)
        name = f"m{len(found)}"
        try:
            store(home, name, compiled(case.model, name=name))
        except IngotError:
            continue
        drawn = requests(case.model, case.runs[0], own, _REQUESTS_OF_MODEL)
        found.append(Asked(name, f"{family} seed {own}", tuple(drawn)))
    return found


@dataclass
class Server:
    """A runtime service in a process of its own."""

    process: subprocess.Popen[bytes]
    endpoints: tuple[Endpoint, ...]

    def is_ready(self) -> bool:
        url = f"http://{self.endpoints[1].address}/v2/health/ready"
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
        return False

    def is_running(self) -> bool:
        return self.process.poll() is None

    def resident_bytes(self) -> int:
        if not self.is_running():
            return 0
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGESIZE")


@contextmanager
def served(home: Path, poison: int, models: int) -> Iterator[Server]:
    addresses, log = home / f"addresses-{poison}.json", home / f"server-{poison}.log"
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "INGOT_HOME": str(home),
        "INGOT_POISON": str(poison),
        "INGOT_RUNTIME_MODELS": "*@stable",
        "INGOT_RUNTIME_ADDRESS_FILE": str(addresses),
        "INGOT_RUNTIME_RUN_MEMORY_BYTES": str(_RUN_MEMORY_BYTES),
        "INGOT_RUNTIME_KEPT_MEMORY_BYTES": str(1 << 20),
        **{f"INGOT_RUNTIME_{name}_ADDRESS": "127.0.0.1:0" for name in ("GRPC", "HTTP", "METRICS")},
    }
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.guard.guarded_server"], env=environment, cwd=ROOT, stderr=errors
        )
    try:
        end = time.monotonic() + 60 + models
        while not addresses.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server does not start: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        known = json.loads(addresses.read_text())
        endpoints = (
            Endpoint(known["grpc"], "grpc", timeout=DEADLINE_S),
            Endpoint(known["http"], "http", timeout=DEADLINE_S + LATE_S),
        )
        server = Server(process, endpoints)
        while not server.is_ready():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server does not become ready: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield server
    finally:
        process.kill()
        process.wait()


@dataclass
class Findings:
    lines: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    def add(self, line: str) -> None:
        with self._lock:
            if not self.lines[line]:
                print(f"--- {line}", flush=True)
            self.lines[line] += 1

    def count(self, code: str) -> None:
        with self._lock:
            self.requests += 1
            self.codes[code] += 1


def ask(servers: Sequence[Server], model: Asked, request: Request, protocol: int, found: Findings) -> None:
    """One request to each of the servers."""
    answers = [_answer(s.endpoints[protocol], model.name, request, found, model.drawn) for s in servers]
    if len({a for a in answers if a != _LATE}) > 1 and not _differs_by_chance(
        servers[0], model, request, protocol, answers
    ):
        found.add(f"{model.drawn}: {request.change}: the answer holds what the run has not written: {answers}")


_LATE = "late"
_BYTES_SHOWN = 32


def _answer(endpoint: Endpoint, name: str, request: Request, found: Findings, drawn: str) -> str:
    start = time.monotonic()
    try:
        outputs = endpoint.infer(name, request.feeds)
        answer, code = repr([(n, a.shape, _bytes(a)) for n, a in outputs.items()]), "OK"
    except IngotError as error:
        answer, code = f"{error.code}: {error}", str(error.code)
        if error.code not in _REFUSALS:
            found.add(f"{drawn}: {request.change}: {answer}")
        answer = _LATE if error.code is ErrorCode.DEADLINE_EXCEEDED else answer
    except Exception as error:
        answer, code = f"{type(error).__name__}: {error}", type(error).__name__
        found.add(f"{drawn}: {request.change}: {answer}")
    found.count(code)
    taken = time.monotonic() - start
    if taken > DEADLINE_S + LATE_S:
        found.add(f"{drawn}: {request.change}: answered after {taken:.1f} s, {code}")
    return answer


def _bytes(array: Array) -> bytes:
    whole = repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
    return whole if len(whole) <= _BYTES_SHOWN else hashlib.blake2b(whole).digest()


def _differs_by_chance(server: Server, model: Asked, request: Request, protocol: int, answers: list[str]) -> bool:
    """Whether the same server answers otherwise when it is asked again: random numbers."""
    return _answer(server.endpoints[protocol], model.name, request, Findings(), model.drawn) != answers[0]


def _storm(servers: Sequence[Server], models: Sequence[Asked], end: float, seed: int, found: Findings) -> None:
    rng = random.Random(seed)
    while time.monotonic() < end and all(s.is_running() for s in servers):
        model = rng.choice(models)
        ask(servers, model, rng.choice(model.requests), rng.randrange(2), found)


def _calm(servers: Sequence[Server], models: Sequence[Asked], found: Findings) -> list[int]:
    """The good request to every model; then what memory the servers hold."""
    for model in models if all(s.is_running() for s in servers) else ():
        for protocol in range(2):
            ask(servers, model, model.requests[0], protocol, found)
    time.sleep(_SECONDS_TO_TRIM)
    return [s.resident_bytes() for s in servers]


def fuzz(home: Path, models: Sequence[Asked], seconds: float, clients: int, seed: int) -> Findings:
    found = Findings()
    with ExitStack() as stack:
        servers = [stack.enter_context(served(home, poison, len(models))) for poison in POISONS]
        with ThreadPoolExecutor(clients) as pool:

            def storm(duration: float, first: int) -> None:
                end = time.monotonic() + duration
                jobs = [pool.submit(_storm, servers, models, end, first + i, found) for i in range(clients)]
                for job in jobs:
                    job.result()

            storm(seconds / 4, seed)
            before = _calm(servers, models, found)
            storm(3 * seconds / 4, seed + clients)
            after = _calm(servers, models, found)
        for server, a, b in zip(servers, before, after, strict=True):
            print(f"resident memory {a >> 20} MB after a quarter, {b >> 20} MB at the end", flush=True)
            if b > a * (1 + _MOST_GROWTH):
                found.add(f"memory grew from {a} to {b} bytes")
            if not server.is_running():
                found.add(f"a server ended with status {server.process.returncode}")
    for poison in POISONS:
        text = (home / f"server-{poison}.log").read_text()
        if "Traceback" in text:
            found.add(f"a server wrote a traceback: {text[text.index('Traceback') :][:1500]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.guard.serving", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=None, help="by default another each time")
    given = parser.parse_args()
    seed = int(time.time()) * 1000 if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="ingot-guard-") as folder:
        models = publish(Path(folder), given.models, seed)
        print(f"{len(models)} models from seed {seed} on", flush=True)
        found = fuzz(Path(folder), models, given.seconds, given.clients, seed)
    print(f"{found.requests} requests, {len(found.lines)} findings; answers: {dict(found.codes)}")
    return int(bool(found.lines))


if __name__ == "__main__":
    sys.exit(main())
