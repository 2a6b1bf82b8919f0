"""The three images as compose starts them, but for the containers: what pip installs for each, its entry point, its settings
and its health check, as its user, with a real Redis and an S3 endpoint. A model goes all the way."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.ingot.small_models import scale
from tests.packaging.clean_environment import CleanEnvironment, nobody, wait_until
from tests.packaging.compose import Place, services
from tests.packaging.extras import importable
from tests.packaging.images import image
from tests.packaging.test_base import IMPORT_ALL
from tests.services.redis_server import redis_binary
from tests.services.s3_server import s3_server

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(900)]
IMAGES = ("compiler-api", "compiler-worker", "runtime")


@pytest.fixture
def place() -> Iterator[Place]:
    with s3_server("ingot") as storage, tempfile.TemporaryDirectory(prefix="ingot-images-") as folder:
        yield Place.make(Path(folder), storage, nobody())


class Containers:
    """What runs, and the environments it runs in."""

    def __init__(self, place: Place, wheel: Path, running: ExitStack) -> None:
        self.place = place
        self.running = running
        self.environments = {
            extra: CleanEnvironment.make(place.root / extra, wheel, extra)
            for extra in sorted({image(name).extra for name in IMAGES})
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def environment(self, name: str) -> CleanEnvironment:
        return self.environments[image(name).extra]

    def log(self, name: str) -> Path:
        return self.place.root / f"{name}.log"

    def settings(self, name: str) -> dict[str, str]:
        return self.place.settings(image(name).variables | services()[name]["environment"], name)

    def start(self, name: str) -> None:
        self.place.container(name)
        command = [self.place.here(word, name) for word in image(name).command]
        service = self.environment(name).service(command, self.log(name), self.settings(name), nobody())
        self.processes[name] = self.running.enter_context(service)

    def is_healthy(self, name: str) -> bool:
        command = [self.place.here(word, name) for word in image(name).health]
        return self.environment(name).run(*command).returncode == 0

    def wait(self, name: str, condition: Callable[[], bool]) -> None:
        wait_until(condition, self.processes[name], self.log(name), 90.0)


def start_redis(place: Place, running: ExitStack) -> None:
    program, *arguments = services()["redis"]["command"]
    assert program == "redis-server"
    more = ["--port", place.ports["6379"], "--bind", "127.0.0.1", "--dir", str(place.root)]
    own = [shutil.which(program) or redis_binary(), *map(place.here, arguments), *more]
    process = subprocess.Popen(own, stdout=subprocess.DEVNULL, cwd=place.root)
    running.callback(process.wait)
    running.callback(process.kill)


def make_keys(place: Place, environment: CleanEnvironment) -> None:
    service = services()["keys"]
    (code,) = service["command"]
    environment.check(*service["entrypoint"], place.here(code), more={"HOME": str(place.root)})


def test_a_model_goes_through_the_images(place: Place, wheel: Path) -> None:
    with ExitStack() as running:
        containers = Containers(place, wheel, running)
        for extra, environment in containers.environments.items():
            environment.check("python", "-c", IMPORT_ALL, json.dumps(importable(extra)))
        start_redis(place, running)
        make_keys(place, containers.environment("compiler-api"))
        for name in IMAGES:
            containers.start(name)
        for name in IMAGES:
            containers.wait(name, partial(containers.is_healthy, name))
        publish(containers)
        infer(containers)
        compile_here(containers)
        for process in containers.processes.values():
            process.terminate()
        for name, process in containers.processes.items():
            assert process.wait(60) == 0, containers.log(name).read_text()


def publish(containers: Containers) -> None:
    client = containers.environment("runtime")  # the command needs the base alone
    (client.home / "scale.onnx").write_bytes(scale().SerializeToString())
    address = {"INGOT_COMPILER_ADDRESS": f"127.0.0.1:{containers.place.ports['8500']}"}
    done = client.run("ingot", "compile", "scale.onnx", "--label", "stable", more=address)
    assert done.returncode == 0, done.stderr + containers.log("compiler-worker").read_text()


def infer(containers: Containers) -> None:
    client, place = containers.environment("runtime"), containers.place
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(client.home / "x.npy", x)
    address = {"INGOT_RUNTIME_ADDRESS": f"127.0.0.1:{place.ports['8001']}"}
    command = ("ingot", "infer", "scale", "--input", "x=x.npy", "--save", "out")
    containers.wait("runtime", lambda: client.run(*command, more=address).returncode == 0)
    np.testing.assert_array_equal(np.load(client.home / "out" / "y.npy"), x * 2)
    health = [place.here(word) for word in image("runtime").health if word != "liveness"]
    assert client.run(*health).returncode == 0  # ready, not only alive


def compile_here(containers: Containers) -> None:
    """The extra `compiler` without any service."""
    compiler = containers.environment("compiler-worker")
    (compiler.home / "scale.onnx").write_bytes(scale().SerializeToString())
    assert "can be compiled" in compiler.check("ingot", "check", "--local", "scale.onnx")
    assert "Mul" in compiler.check("ingot", "inspect", "scale.onnx")
    warm = {"INGOT_CACHE_DIR": containers.settings("compiler-worker")["INGOT_CACHE_DIR"]}
    compiler.check("ingot", "compile", "--local", "scale.onnx", more=warm)
    assert "float32" in compiler.check("ingot", "run", "scale.ingot", "--input", "x=random:3x4")
