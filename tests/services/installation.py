"""The compiler service as processes: Redis, an API server, workers, and a client. Everything is gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from shared_ir.digest import sha256_hex
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2_grpc
from tests.services.redis_server import redis_server

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FINISHED = (pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED)


@dataclass
class Installation:
    """A running installation.

    Attributes:
        home: its files; ``home/store`` is the object store unless the environment says otherwise.
        address, metrics: of the API server.
    """

    home: Path
    redis_url: str
    environment: Mapping[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    address: str = ""
    metrics: str = ""

    def start_server(self, script: Sequence[str] = (str(HERE / "toy_server.py"),)) -> subprocess.Popen[bytes]:
        ready = self.home / "ready.json"
        ready.unlink(missing_ok=True)
        process = self.start([*script, str(ready)], "server")
        wait_until(ready.exists, 30, lambda: process.poll() is None)
        answer = json.loads(ready.read_text())
        self.address, self.metrics = answer["address"], answer["metrics"]
        return process

    def start_worker(
        self, script: Sequence[str] = (str(HERE / "toy_worker.py"),), **environment: str
    ) -> subprocess.Popen[bytes]:
        alive = self.home / "worker.alive"
        alive.unlink(missing_ok=True)
        process = self.start(list(script), f"worker{len(self.processes)}", **environment)
        wait_until(alive.exists, 30, lambda: process.poll() is None)
        return process

    def start(self, arguments: Sequence[str], name: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self.environment, **environment},
                cwd=ROOT,
            )
        self.processes.append(process)
        return process

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(self.home.glob("*.log")))

    def client(self) -> Client:
        return Client(self.address)

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Client:
    """A plain gRPC client."""

    def __init__(self, address: str, metadata: Sequence[tuple[str, str]] = ()) -> None:
        self.channel = grpc.insecure_channel(address)
        self.stub = compiler_pb2_grpc.CompilerServiceStub(self.channel)
        self.metadata = metadata

    def upload(self, data: bytes, **header: Any) -> str:
        sha256 = sha256_hex(data)
        fields: dict[str, Any] = {"name": "model.onnx", "size": len(data), "sha256": sha256, "offset": 0} | header
        first = pb.UploadModelRequest(header=pb.UploadHeader(**fields))
        pieces = [data[i : i + 1000] for i in range(fields["offset"], len(data), 1000)]
        requests = [first, *(pb.UploadModelRequest(chunk=piece) for piece in pieces)]
        return str(self.stub.UploadModel(iter(requests), metadata=self.metadata, timeout=30).sha256)

    def compile(self, model: Any, name: str = "m", targets: Sequence[str] = ("x86-64-v3",), **request: Any) -> pb.Job:
        data = model if isinstance(model, bytes) else json.dumps(model).encode()
        source = pb.ModelSource(model_sha256=self.upload(data))
        message = pb.CompileRequest(name=name, source=source, targets=targets, **request)
        job: pb.Job = self.stub.Compile(message, metadata=self.metadata, timeout=30).job
        return job

    def job(self, job: str) -> pb.Job:
        found: pb.Job = self.stub.GetJob(pb.GetJobRequest(id=job), metadata=self.metadata)
        return found

    def wait(self, job: str, seconds: float = 60.0) -> pb.Job:
        """The job once it has finished."""
        wait_until(lambda: self.job(job).state in FINISHED, seconds)
        return self.job(job)

    def run(self, model: Any, **request: Any) -> pb.Job:
        return self.wait(self.compile(model, **request).id)


def wait_until(condition: Any, seconds: float = 20.0, alive: Any = lambda: True) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert alive(), "the process ended"
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


@contextmanager
def installation(home: Path, **environment: str) -> Iterator[Installation]:
    """An installation in ``home``: Redis runs, the rest is started by the test."""
    with redis_server() as redis_url:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("INGOT_")}
        settings = {
            "INGOT_REDIS_URL": redis_url,
            "INGOT_HOME": str(home),
            "INGOT_COMPILER_PORT": "0",
            "INGOT_COMPILER_METRICS_PORT": "0",
            "INGOT_LEASE_SECONDS": "2",
            "INGOT_WORKERS": "2",
            "INGOT_JOB_SECONDS": "60",
            "PYTHONPATH": str(ROOT),
        }
        home.mkdir(parents=True, exist_ok=True)
        running = Installation(home, redis_url, clean | settings | environment)
        try:
            yield running
        finally:
            running.stop()
