"""Who takes connections while one of several processes has no models yet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.runtime_service.toy_models import wait_until

ROOT = Path(__file__).parents[3]
_REQUEST = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()


class TwoToys:
    """Two processes whose models load when the folder has no file ``loading``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.loading = folder, folder / "loading"
        environment = {
            "PATH": os.environ["PATH"],
            "TMPDIR": str(folder),
            "INGOT_HOME": str(folder),
            "INGOT_RUNTIME_MODELS": "*@stable",
            "INGOT_RUNTIME_PROCESSES": "2",
            "INGOT_RUNTIME_ADDRESS_FILE": str(folder / "addresses.json"),
            **{f"INGOT_RUNTIME_{name}_ADDRESS": "127.0.0.1:0" for name in ("GRPC", "HTTP", "METRICS")},
        }
        command = [sys.executable, "-m", "tests.runtime_service.toy_process", str(folder)]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
        wait_until((folder / "addresses.json").exists, 30)
        self.addresses = json.loads((folder / "addresses.json").read_text())

    def status(self, port: str, path: str, data: bytes | None = None) -> int:
        """Of the answer over a connection of its own."""
        try:
            with urllib.request.urlopen(f"http://{self.addresses[port]}{path}", data, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def answers(self, count: int = 24) -> Counter[int]:
        """The statuses of so many requests, each over a connection of its own."""
        with ThreadPoolExecutor(8) as clients:
            return Counter(clients.map(lambda _: self.status("http", "/v2/models/scale/infer", _REQUEST), range(count)))

    def are_ready(self) -> bool:
        return self.status("metrics", "/v2/health/ready") == 200

    def are_alive(self, count: int) -> bool:
        """Whether so many processes answer who asks for their metrics."""
        with urllib.request.urlopen(f"http://{self.addresses['metrics']}/metrics", timeout=30) as answer:
            return bool(answer.read().count(b"\ningot_server_ready{") == count)

    def pids(self) -> list[int]:
        found = subprocess.run(["pgrep", "-P", str(self.process.pid), "-f", "toy_process"], capture_output=True)
        return [int(line) for line in found.stdout.split()]

    def kill_one(self) -> None:
        """And wait until the next one answers in its place."""
        before = self.pids()
        (self.folder / "loads").unlink(missing_ok=True)
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: len(self.pids()) == 2 and before[0] not in self.pids(), 30)
        wait_until((self.folder / "loads").exists, 30)
        wait_until(lambda: self.are_alive(2), 30)

    def end(self) -> None:
        for pid in [*self.pids(), self.process.pid]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def toys(tmp_path: Path) -> Iterator[TwoToys]:
    made = TwoToys(tmp_path)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.services
def test_one_that_begins_anew_takes_connections_once_it_has_its_models(toys: TwoToys) -> None:
    wait_until(toys.are_ready, 60)
    toys.loading.touch()
    toys.kill_one()
    assert toys.answers() == {200: 24}
    assert not toys.are_ready()
    toys.loading.unlink()
    wait_until(toys.are_ready, 60)
    assert toys.answers() == {200: 24}


@pytest.mark.services
def test_where_none_has_its_models_clients_are_told_so(toys: TwoToys) -> None:
    wait_until(toys.are_ready, 60)
    toys.loading.touch()
    toys.kill_one()
    toys.kill_one()
    assert toys.answers() == {503: 24}
    assert toys.status("http", "/v2/health/live") == 200
    assert toys.status("http", "/v2/health/ready") == 503
    toys.loading.unlink()
    wait_until(toys.are_ready, 60)
    assert toys.answers() == {200: 24}
