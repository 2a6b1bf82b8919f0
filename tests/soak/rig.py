"""A runtime service over a store of small compiled models, as a process."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import ingot
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import local_keys
from shared_ir.storage.store import open_store
from tests.runtime_service.toy_models import wait_until

ROOT = Path(__file__).parents[2]
WIDTH = 16
STEADY, SWAPPED, COMING = "steady", "swapped", "coming"
FACTORS: dict[str, dict[int, float]] = {
    STEADY: {1: 2.0},
    SWAPPED: {1: 3.0, 2: 5.0},
    **{f"{COMING}-{number}": {1: 7.0 + number} for number in range(3)},
}
"""What version so and so of a model multiplies by: products of float32 by them are the same everywhere."""


class Rig:
    """``addresses`` are those of ``http`` and ``grpc``; models come and go at a socket."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "control.sock"
        self._file = folder / "addresses.json"
        self._log = folder / "server.log"
        key, trust = local_keys(folder / "home")
        self.repository = ArtifactRepository(open_store(str(folder / "home" / "store")), trust, key)
        for name, factors in FACTORS.items():
            self._publish(name, factors)
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "runtime_service.server"]
            self.process = subprocess.Popen(command, env=self._environment(folder), cwd=ROOT, stderr=log)
        wait_until(self._file.exists, 30)
        self.addresses: dict[str, str] = json.loads(self._file.read_text())
        wait_until(self._is_ready, 60)

    def port(self, protocol: str) -> int:
        return int(self.addresses[protocol].rpartition(":")[2])

    def move(self, version: int) -> None:
        """The label of the model that is swapped."""
        self.repository.set_label(SWAPPED, "stable", version)

    def control(self, name: str, what: str) -> tuple[int, bytes]:
        """``load`` or ``unload`` a model; status and body of the answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(str(self.socket))
            target = f"/v2/repository/models/{name}/{what}"
            head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return answer.status, answer.read()

    def resident(self) -> float:
        """Megabytes of memory that the process has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024

    def counted(self, name: str) -> int:
        """Threads (``task``) or descriptors (``fd``) of the process."""
        return len(os.listdir(f"/proc/{self.process.pid}/{name}"))

    def end(self) -> int:
        """The exit status after SIGTERM."""
        self.process.terminate()
        return self.process.wait(60)

    def complaints(self) -> list[str]:
        """Lines of the log that say that something is wrong."""
        found = []
        for line in self._log.read_text().splitlines():
            level = json.loads(line).get("level", "") if line.startswith("{") else "no JSON"
            if level not in ("DEBUG", "INFO"):
                found.append(line[:500])
        return found

    def _publish(self, name: str, factors: dict[int, float]) -> None:
        for number, factor in factors.items():
            artifact = ingot.compile(scaling(factor))
            self.repository.put_artifact(artifact)
            version = self.repository.publish(name, [artifact.manifest.key], labels=["stable"] * (number == 1))
            assert version.number == number

    def _environment(self, folder: Path) -> dict[str, str]:
        settings = {
            "MODELS": f"{STEADY},{SWAPPED}",
            "MODEL_CONTROL": "explicit",
            "CONTROL_ADDRESS": f"unix:{self.socket}",
            "ADDRESS_FILE": str(self._file),
            "POLL_INTERVAL": "0.2",
            **{f"{name}_ADDRESS": "127.0.0.1:0" for name in ("GRPC", "HTTP", "METRICS")},
        }
        return {
            "PATH": os.environ["PATH"],
            "INGOT_HOME": str(folder / "home"),
            "INGOT_LOG_FORMAT": "json",
            **{f"INGOT_RUNTIME_{name}": value for name, value in settings.items()},
        }

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        with suppress(OSError), urllib.request.urlopen(f"http://{self.addresses['http']}/v2/health/ready") as answer:
            return bool(answer.status == 200)
        return False


@contextmanager
def rig(folder: Path) -> Iterator[Rig]:
    made = Rig(folder)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait()


def scaling(factor: float) -> bytes:
    """``y = factor * x`` for x [batch, 16]."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH]) for name in "xy")
    weights = [numpy_helper.from_array(np.float32(factor), "factor")]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "factor"], ["y"])], "scaling", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())
