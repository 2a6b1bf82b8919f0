"""A compiler service as processes that can be killed and started again: Redis, an object store behind a faulty proxy, servers, workers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from tests.chaos.proxy import FaultyProxy
from tests.services.redis_server import redis_binary
from tests.services.s3_server import s3_server
from tests.services.small_disk import small_disk

ROOT = Path(__file__).parents[2]
SERVER = (sys.executable, "-m", "compiler_service.server")
WORKER = (sys.executable, "-m", "compiler_service.worker")
LEASE_SECONDS = 4.0
_START_SECONDS = 60.0
_DISK_BYTES = 192 << 20


@dataclass
class Rig:
    """Processes by name (``redis``, ``server0``, ``worker1``), each started again by the same name.

    Attributes:
        commands: how servers and workers are started; ports and the ready file are added for servers.
        disk: a small file system for what workers write, where one can be mounted.
    """

    home: Path
    proxy: FaultyProxy
    environment: Mapping[str, str]
    redis_port: int
    ports: Sequence[int]
    workers: int
    server: Sequence[str] = SERVER
    worker: Sequence[str] = WORKER
    disk: Path | None = None
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def names(self) -> Sequence[str]:
        servers = [f"server{n}" for n in range(len(self.ports))]
        return ["redis", *servers, *(f"worker{n}" for n in range(self.workers))]

    def start(self, name: str) -> None:
        """Start what is not running, and wait for nothing."""
        old = self.processes.get(name)
        if old is None or old.poll() is not None:
            with (self.home / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    self._command(name),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**self.environment, **self._own(name)},
                    cwd=ROOT,
                    start_new_session=True,
                )

    def start_all(self) -> None:
        """Raises AssertionError when something does not come up."""
        for name in self.names:
            self.start(name)
        for port in (self.redis_port, *self.ports):
            wait_for_port(port)

    def kill(self, name: str) -> None:
        process = self.processes[name]
        process.kill()
        process.wait()

    @contextlib.contextmanager
    def hanging(self, name: str) -> Iterator[None]:
        """It stands still, and does not know it."""
        process = self.processes[name]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def forget(self) -> None:
        """Redis dies and its data with it."""
        self.kill("redis")
        for path in (self.home / "redis").iterdir():
            path.unlink()

    def kill_a_stage(self) -> bool:
        """A process of a stage, where one runs."""
        for name, process in self.processes.items():
            if name.startswith("worker") and process.poll() is None:
                for child in children(process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                        return True
        return False

    def redis(self) -> Redis:
        return Redis(port=self.redis_port, decode_responses=True)

    def logs(self) -> Iterator[tuple[str, str]]:
        for path in sorted(self.home.glob("*.log")):
            yield path.stem, path.read_text(errors="replace")

    def stop(self) -> None:
        for name in reversed(self.names):
            process = self.processes.get(name)
            if process is not None and process.poll() is None:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _own(self, name: str) -> dict[str, str]:
        if name.startswith("server"):
            port = self.ports[int(name.removeprefix("server"))]
            return {"INGOT_COMPILER_PORT": str(port), "INGOT_COMPILER_METRICS_PORT": "-1"}
        return {"INGOT_LIVENESS_FILE": str(self.home / f"{name}.alive")}

    def _command(self, name: str) -> Sequence[str]:
        if name == "redis":
            folder = self.home / "redis"
            folder.mkdir(exist_ok=True)
            options = ("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--bind", "127.0.0.1")
            return (redis_binary(), "--port", str(self.redis_port), "--dir", str(folder), *options)
        if name.startswith("server"):
            return self.server
        return self.worker


@contextlib.contextmanager
def rig(
    home: Path, servers: int = 2, workers: int = 2, server: Sequence[str] = SERVER, worker: Sequence[str] = WORKER
) -> Iterator[Rig]:
    """All of it running; stopped afterwards."""
    home.mkdir(parents=True, exist_ok=True)
    with s3_server("models") as url, small_disk(home / "disk", _DISK_BYTES) as disk:
        proxy = FaultyProxy(("127.0.0.1", int(url.rpartition(":")[2])))
        redis_port, *ports = free_ports(1 + servers)
        own = {name: text for name, text in os.environ.items() if not name.startswith("INGOT_")}
        own |= {
            "PYTHONPATH": str(ROOT),
            "INGOT_HOME": str(disk or home / "home"),
            "INGOT_SIGNING_KEY": str(home / "keys" / "signing.pem"),
            "INGOT_TRUST": str(home / "keys" / "trust"),
            "INGOT_CACHE_DIR": str(home / "cache"),
            "INGOT_REDIS_URL": f"redis://127.0.0.1:{redis_port}/0",
            "INGOT_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
            "INGOT_STORE_URL": "s3://models/chaos",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
        made = Rig(home, proxy, own, redis_port, ports, workers, server, worker, disk)
        try:
            made.start_all()
            yield made
        finally:
            made.stop()
            proxy.stop()


def fill(disk: Path) -> Path:
    """A file that leaves no room."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * (1 << 16)):
            pass
    return path


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for own in sockets:
            own.bind(("127.0.0.1", 0))
        return [own.getsockname()[1] for own in sockets]


def wait_for_port(port: int) -> None:
    end = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < end, f"nothing listens on port {port}"
        time.sleep(0.05)


def children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def redis_answers(made: Rig) -> bool:
    try:
        return bool(made.redis().ping())
    except RedisError:
        return False
