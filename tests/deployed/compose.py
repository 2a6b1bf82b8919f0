"""deploy/compose.yaml as containers: what it says of images that deploy/Dockerfile builds, and what stands for the others."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

from tests.deployed.containers import Container, Mount, Network, Running
from tests.deployed.dockerfile import ROOT, image
from tests.deployed.roots import Roots, place
from tests.services.redis_server import redis_binary

COMPOSE = ROOT / "deploy/compose.yaml"
TMPFS = "rw,nosuid,nodev,mode=1777"
S3, BEHIND = 9000, 9010
"""The port of MinIO, and that of what stands for it behind the proxy."""
MAKE_BUCKET = """
import boto3, os, sys
keys = {"aws_access_key_id": os.environ["MINIO_USER"], "aws_secret_access_key": os.environ["MINIO_PASSWORD"]}
client = boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1", **keys)
client.create_bucket(Bucket="ingot")
"""


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def order() -> list[str]:
    """The services of no profile, each after those that it waits for."""
    found = {name: service.get("depends_on", {}) for name, service in services().items() if "profiles" not in service}
    return list(TopologicalSorter(found).static_order())


def filled(text: str) -> str:
    """With the defaults of variables, as compose reads it."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text).replace("$$", "$")


@dataclass
class Compose:
    """The services of the file, on a network, with volumes in a folder."""

    roots: Roots
    network: Network
    folder: Path
    running: dict[str, Running] = field(default_factory=dict)
    _redis: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        """As ``docker compose up --wait``: each service once those that it waits for are healthy or done."""
        for name in order():
            self._others.get(name, self._start)(name)
        for name in self.running:
            self.wait(name)

    def up_backends(self) -> None:
        """Redis and the store alone."""
        for name in ("redis", "minio", "bucket"):
            self._others[name](name)

    @property
    def _others(self) -> Mapping[str, Callable[[str], None]]:
        return {"redis": lambda _: self.start_redis(), "minio": self._start_minio, "bucket": self._make_bucket}

    def container(self, name: str) -> Container:
        service = services()[name]
        stage = service["build"]["target"]
        found = image(stage)
        entry = service.get("entrypoint", list(found.command)) + service.get("command", [])
        own = {variable: filled(value) for variable, value in service.get("environment", {}).items()}
        return Container(
            root=self.roots.of(stage),
            command=tuple(filled(word) for word in entry),
            variables=found.variables | own,
            user=service.get("user", found.user),
            mounts=tuple(self._mounts(service, self.roots.of(stage))),
            read_only=service.get("read_only", False),
            confined=service.get("cap_drop") == ["ALL"] and "no-new-privileges:true" in service["security_opt"],
        )

    def _mounts(self, service: Mapping[str, Any], root: Path) -> list[Mount]:
        found = []
        for text in service.get("volumes", []):
            name, target, *options = text.split(":")
            found.append(Mount(target, self._volume(name, place(root, target)), ",".join(options)))
        for text in service.get("tmpfs", []):
            target, _, options = text.partition(":")
            noexec = "" if "exec" in options.split(",") else ",noexec"
            more = ",".join(option for option in options.split(",") if option != "exec")
            found.append(Mount(target, None, f"{TMPFS}{noexec}" + (f",{more}" if more else "")))
        return found

    def _volume(self, name: str, initial: Path | None = None) -> Path:
        """An empty volume gets what the image has at its place, owner and mode included."""
        folder = self.folder / "volumes" / name
        if not folder.exists():
            folder.parent.mkdir(exist_ok=True)
            if initial and initial.exists():
                subprocess.run(["cp", "-aT", initial, folder], check=True)
            else:
                folder.mkdir()
        return folder

    def _start(self, name: str) -> None:
        running = self.network.start(name, self.container(name))
        if name == "keys":
            assert running.outer.wait(60) == 0, running.log.read_text()
        else:
            self.running[name] = running

    def run_once(self, name: str) -> str:
        """As ``docker compose run --rm NAME``: what it says, once it has ended well."""
        done = self.network.start(name, self.container(name))
        assert done.outer.wait(120) == 0, done.log.read_text()
        return done.log.read_text()

    def is_healthy(self, name: str) -> bool:
        return self.running[name].run(*image(services()[name]["build"]["target"]).health).returncode == 0

    def wait(self, name: str, condition: Callable[[], bool] | None = None, seconds: float = 90.0) -> None:
        self.running[name].wait_until(condition or (lambda: self.is_healthy(name)), seconds)

    def start_redis(self) -> None:
        """Redis with the command of the file; its data are where they were."""
        program, *arguments = (filled(word) for word in services()["redis"]["command"])
        data = self._volume("redis")
        binary = shutil.which(program) or redis_binary()
        self._redis = self.network.program("redis", binary, *arguments, "--dir", data)

    def stop_redis(self) -> None:
        assert self._redis is not None
        self._redis.terminate()
        assert self._redis.wait(20) == 0

    def _start_minio(self, name: str) -> None:
        self.network.program(name, sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(BEHIND))
        self.store("pass")
        proxy = ("tests.deployed.faults", str(S3), str(BEHIND), str(self.folder / "mode"))
        self.network.program("faults", sys.executable, "-m", *proxy)

    def store(self, mode: str) -> None:
        """How the object store answers from now on: ``pass``, ``fail``, ``refuse``."""
        (self.folder / "mode").write_text(mode)

    def _make_bucket(self, name: str) -> None:
        keys = {variable: filled(value) for variable, value in services()[name]["environment"].items()}
        for _ in range(40):
            done = self.network.run(sys.executable, "-c", MAKE_BUCKET, f"http://127.0.0.1:{S3}", **keys)
            if done.returncode == 0:
                return
        raise AssertionError(done.stderr)
