"""Who uses what is deployed: the ``ingot`` command of an image, on the network of the services."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.deployed.containers import Container, Mount, Network
from tests.deployed.dockerfile import variables
from tests.deployed.roots import Roots

Array = np.ndarray[Any, Any]
WORK = "/work"
STAGE = "runtime"
AWAY = 3
"""The exit status of a command that did not reach the service."""


@dataclass(frozen=True)
class Client:
    """``folder`` of this machine is the one that its commands run in."""

    roots: Roots
    network: Network
    folder: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        own = {"HOME": WORK, "INGOT_HOME": WORK}
        mounts = (Mount(WORK, self.folder),)
        container = Container(self.roots.of(STAGE), command, variables(STAGE) | own, "0:0", mounts)
        script = container.script(self.network.folder / "hosts")
        return self.network.run("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script)

    def command(self, *words: str, seconds: float = 120.0) -> dict[str, Any]:
        """What ``ingot`` prints; whoever types it tries again where the service is away."""
        deadline = time.monotonic() + seconds
        while True:
            done = self.run("ingot", *words, "--json")
            if done.returncode == 0:
                found: dict[str, Any] = json.loads(done.stdout)
                return found
            assert done.returncode == AWAY, done.stderr
            assert time.monotonic() < deadline, done.stderr
            time.sleep(1.0)

    def file(self, name: str, model: onnx.ModelProto) -> str:
        (self.folder / f"{name}.onnx").write_bytes(model.SerializeToString())
        return f"{WORK}/{name}.onnx"

    def infer(self, model: str, **inputs: Array) -> dict[str, Array]:
        """What the runtime answers; nothing while it has not loaded the model."""
        words = []
        for name, value in inputs.items():
            np.save(self.folder / f"{name}.npy", value)
            words += ["--input", f"{name}={WORK}/{name}.npy"]
        done = self.run("ingot", "infer", model, *words, "--save", f"{WORK}/out-{model}")
        if done.returncode != 0:
            return {}
        return {path.stem: np.load(path) for path in (self.folder / f"out-{model}").glob("*.npy")}
