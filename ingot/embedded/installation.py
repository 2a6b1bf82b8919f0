"""All services of Ingot on one machine, as child processes."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from ingot.embedded.ports import LOOPBACK, Ports, choose
from ingot.embedded.process import ChildProcess
from ingot.embedded.redis import PrivateRedis
from ingot.home import ADDRESS_FILE, Addresses
from shared_ir.artifact.signature import local_keys
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.extras import BROUGHT, require
from shared_ir.storage.faults import require_writable, told

START_SECONDS = 90.0
STOP_SECONDS = 30.0
"""How long requests and stages under way may take to end."""
_PAUSE_SECONDS = 0.05
_TLS = ("INGOT_TLS_", "INGOT_RUNTIME_TLS_")

Announce = Callable[[str], None]
"""Told of each step of starting and stopping, in a few words."""


@dataclass
class Installation:
    """What runs. ``redis_url`` is that of our own Redis or of the one that ``INGOT_REDIS_URL`` names."""

    home: Path
    redis_url: str = ""
    addresses: Addresses = field(default_factory=Addresses)
    children: list[ChildProcess] = field(default_factory=list)

    def start(self, name: str, command: list[str], environment: Mapping[str, str]) -> ChildProcess:
        child = ChildProcess.start(name, command, environment, self.home / "logs" / f"{name}.log")
        self.children.append(child)
        return child

    def fallen(self) -> ChildProcess | None:
        """A child that has ended by itself."""
        return next((child for child in self.children if not child.is_alive), None)

    def check(self) -> None:
        """Raises IngotError UNAVAILABLE when a child has ended by itself."""
        child = self.fallen()
        if child is not None:
            raise IngotError(
                ErrorCode.UNAVAILABLE,
                f"{child.name} ended with status {child.process.returncode}: {child.last_words()}",
                field=str(child.log),
                remedy="The log says more.",
            )

    def wait_for(self, name: str, is_there: Callable[[], bool], deadline: float) -> None:
        while not is_there():
            self.check()
            if time.monotonic() > deadline:
                raise IngotError(
                    ErrorCode.UNAVAILABLE,
                    f"{name} did not answer within {START_SECONDS:.0f} s",
                    field=str(self.home / "logs"),
                    remedy="Its log says more; perhaps the machine is too busy: try again.",
                )
            time.sleep(_PAUSE_SECONDS)

    def stop(self) -> None:
        """Take everything down: the services first, so that they can still say goodbye to Redis."""
        services = [child for child in self.children if child.name != "redis"]
        for child in services:
            child.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for child in services:
            child.wait(deadline - time.monotonic())
        for child in self.children:
            child.terminate()
            child.wait(5.0)
        self.children.clear()


@contextmanager
def running(
    home: Path, ports: Ports | None = None, models: str | None = None, announce: Announce = lambda text: None
) -> Iterator[Installation]:
    """Start everything in ``home``, and take it down at the end of the block, whatever happens in it.

    Args:
        ports: where to listen.
        models: what the runtime service serves; by default what ``INGOT_RUNTIME_MODELS`` says, or ``*@stable``.

    Raises:
        IngotError: ALREADY_EXISTS when an installation is up in ``home``; UNAVAILABLE when a service is not installed or does not start.
    """
    require("embedded", "what `ingot up` starts", BROUGHT["runtime"] + BROUGHT["compiler"])
    require_writable(home, "the home folder")
    with told("the home folder cannot be used", home):
        home.mkdir(parents=True, exist_ok=True)
    with _locked(home), _temporary_folder() as scratch:
        installation = Installation(home)
        try:
            _start(installation, ports or Ports(), models, scratch, announce)
            yield installation
        finally:
            announce("stopping")
            (home / ADDRESS_FILE).unlink(missing_ok=True)
            installation.stop()
            _sweep(home)


def _start(installation: Installation, ports: Ports, models: str | None, scratch: Path, announce: Announce) -> None:
    home, deadline = installation.home, time.monotonic() + START_SECONDS
    local_keys(home)
    run = home / "run"
    run.mkdir(exist_ok=True, mode=0o700)
    for name in ("compiler.json", "runtime.json", "worker.alive"):
        (run / name).unlink(missing_ok=True)
    announce("starting Redis")
    installation.redis_url = _start_redis(installation, scratch, deadline)
    environment = service_environment(home, installation.redis_url, ports, models)
    for name in overruled(environment):
        announce(f"{name} does not count here: `ingot up` stays on {LOOPBACK}, on the ports that its options choose")
    announce("starting compiler service, worker and runtime service")
    for name, module in (
        ("compiler", ["compiler_service.server", "--ready-file", str(run / "compiler.json")]),
        ("worker", ["compiler_service.worker"]),
        ("runtime", ["runtime_service.server"]),
    ):
        installation.start(name, [sys.executable, "-m", *module], environment)
    for name in ("compiler.json", "runtime.json", "worker.alive"):
        installation.wait_for(Path(name).stem, (run / name).exists, deadline)
    addresses = _addresses(run)
    installation.wait_for("the runtime service", lambda: _is_live(addresses.http), deadline)
    installation.wait_for("the compiler service", lambda: _is_serving(addresses.compiler), deadline)
    installation.addresses = addresses
    addresses.write(home)


def service_environment(home: Path, redis_url: str, ports: Ports, models: str | None) -> dict[str, str]:
    """Settings of all services, as environment variables.

    What the user's own environment sets stays as it is, but for TLS: everything here stays on the loopback interface.
    """
    run = home / "run"
    own = {
        "INGOT_RUNTIME_MODELS": "*@stable",
        "INGOT_RUNTIME_POLL_INTERVAL": "0.5",
        "INGOT_LOG_FORMAT": "text",  # people read the logs of an installation of their own
    }
    fixed = {
        "INGOT_HOME": str(home),
        "INGOT_REDIS_URL": redis_url,
        "INGOT_COMPILER_HOST": LOOPBACK,
        "INGOT_COMPILER_PORT": str(choose(ports.compiler, 8500)),
        "INGOT_COMPILER_METRICS_PORT": str(choose(ports.compiler_metrics, 8501)),
        "INGOT_LIVENESS_FILE": str(run / "worker.alive"),
        "INGOT_RUNTIME_GRPC_ADDRESS": f"{LOOPBACK}:{choose(ports.grpc, 8001)}",
        "INGOT_RUNTIME_HTTP_ADDRESS": f"{LOOPBACK}:{choose(ports.http, 8000)}",
        "INGOT_RUNTIME_METRICS_ADDRESS": f"{LOOPBACK}:{choose(ports.metrics, 8002)}",
        "INGOT_RUNTIME_ADDRESS_FILE": str(run / "runtime.json"),
    }
    given = {name: value for name, value in os.environ.items() if not name.startswith(_TLS)}
    return own | given | fixed | ({} if models is None else {"INGOT_RUNTIME_MODELS": models})


def overruled(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Variables of the user's own environment that are not what the services get, but for those that options stand for."""
    chosen = ("INGOT_HOME", "INGOT_REDIS_URL", "INGOT_RUNTIME_MODELS")
    given = (name for name in os.environ if name.startswith("INGOT_") and name not in chosen)
    return tuple(sorted(name for name in given if environment.get(name) != os.environ[name]))


def _start_redis(installation: Installation, scratch: Path, deadline: float) -> str:
    given = os.environ.get("INGOT_REDIS_URL")
    if given:
        return given
    redis = PrivateRedis.place(installation.home, scratch)
    installation.start("redis", redis.command(), dict(os.environ))
    installation.wait_for("Redis", redis.is_ready, deadline)
    return redis.url


def _addresses(run: Path) -> Addresses:
    compiler = json.loads((run / "compiler.json").read_text())
    runtime = json.loads((run / "runtime.json").read_text())
    return replace(
        Addresses(pid=os.getpid()),
        compiler=compiler["address"],
        compiler_metrics=compiler["metrics"],
        grpc=runtime["grpc"],
        http=runtime["http"],
        metrics=runtime["metrics"],
    )


def _is_live(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=2.0)
    try:
        connection.request("GET", "/v2/health/live")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _is_serving(address: str) -> bool:
    # NOTE: imported here so that the module can be imported without the extra that brings gRPC health checks.
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(address) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2.0)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    with (home / "up.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise IngotError(
                ErrorCode.ALREADY_EXISTS,
                "Ingot is up in this folder already",
                field=str(home),
                remedy="Use what runs there, or give another folder with --home.",
            ) from error
        yield


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="ingot-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _sweep(home: Path) -> None:
    """What only makes sense while it runs."""
    shutil.rmtree(home / "run", ignore_errors=True)
    shutil.rmtree(home / "work", ignore_errors=True)
