"""Compose as it is shipped, but for Docker: roots made by the lines of the Dockerfile, the services of the file with their
users, variables, mounts, limits and health checks, a real Redis, an S3 endpoint. A model goes all the way, also when Redis
starts again and the store fails meanwhile."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.deployed.compose import Compose, services
from tests.deployed.containers import Network, may_be_made
from tests.deployed.roots import Roots
from tests.ingot.small_models import scale
from tests.packaging.extras import importable
from tests.packaging.test_base import IMPORT_ALL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.services,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not may_be_made(), reason="only root may make the namespaces that stand for containers"),
]


@pytest.fixture
def compose() -> Iterator[Compose]:
    with tempfile.TemporaryDirectory(prefix="ingot-compose-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "roots").mkdir()
        with Network.make(folder, tuple(services())) as network:
            yield Compose(Roots(folder / "roots"), network, folder)


def test_what_is_shipped_compiles_publishes_and_serves(compose: Compose) -> None:
    compose.up()
    work = compose.folder / "work"
    work.mkdir()
    publish(compose, work, "plain")
    infer(compose, work, "plain")


def publish(compose: Compose, work: Path, name: str) -> None:
    (work / f"{name}.onnx").write_bytes(scale().SerializeToString())
    address = ("--address", "127.0.0.1:8500")
    done = compose.client(work, "ingot", "compile", "/work/plain.onnx", "--name", name, "--label", "stable")
    assert done.returncode == 0, done.stderr + compose.running["compiler-worker"].log.read_text()


def infer(compose: Compose, work: Path, name: str) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(work / "x.npy", x)
    command = ("ingot", "infer", name, "--input", "x=/work/x.npy", "--save", "/work/out")
    compose.wait("runtime", lambda: compose.client(work, *command).returncode == 0)
    np.testing.assert_array_equal(np.load(work / "out" / "y.npy"), x * 2)
