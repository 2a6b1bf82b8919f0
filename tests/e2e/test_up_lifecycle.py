"""Starting and stopping `ingot up`: whatever ends it, nothing of it stays."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.platform_process import PlatformProcess, wait_until
from tests.ingot.small_models import classifier

pytestmark = pytest.mark.services


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    started: list[PlatformProcess] = []

    def make(home: Path = tmp_path, *arguments: str, **settings: Any) -> PlatformProcess:
        started.append(PlatformProcess(home, *arguments, **settings))
        return started[-1]

    yield make
    for running in started:
        running.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_takes_everything_down(start: Any, tmp_path: Path, number: signal.Signals) -> None:
    running = start()
    addresses = running.addresses
    assert running.announced["compiler"] == addresses.compiler
    assert running.stop(number) == 0
    assert running.left_over() == []
    assert not (tmp_path / "up.json").exists()
    assert not (tmp_path / "run").exists()
    for address in (addresses.compiler, addresses.grpc, addresses.http, addresses.metrics):
        with socket.socket() as connection:
            assert connection.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) != 0


def test_nothing_outlives_a_parent_that_is_killed_in_the_middle_of_a_job(start: Any) -> None:
    running = start()
    with running.client() as client:
        job = client.compile(classifier(), "m")
        wait_until(lambda: client.job(job.id).state != "QUEUED")
    running.process.kill()
    running.process.wait()
    assert running.left_over() == []
    again = start(running.home)  # and the home is as good as before
    with again.client() as client:
        assert client.wait(client.compile(classifier(), "m").id).state == "SUCCEEDED"
    assert again.stop() == 0


def test_published_models_outlive_a_restart(start: Any) -> None:
    first = start()
    with first.client() as client:
        assert client.wait(client.compile(classifier(), "m", labels=["stable"]).id).version == 1
    assert first.stop() == 0
    second = start(first.home)
    with second.client() as client:
        assert client.labels("m") == {"stable": 1}
        assert client.compile(classifier(), "m").cache_hit
    assert second.stop() == 0


def test_one_installation_per_home(start: Any) -> None:
    start()
    second = start(wait=False)
    _, errors = second.process.communicate(timeout=30)
    assert second.process.returncode == 1
    assert b"ALREADY_EXISTS" in errors


def test_a_service_that_ends_ends_everything(start: Any) -> None:
    running = start()
    runtime = [p for p in running.members() if b"runtime_service" in Path(f"/proc/{p}/cmdline").read_bytes()]
    assert len(runtime) == 1
    os.kill(runtime[0], signal.SIGKILL)
    _, errors = running.process.communicate(timeout=60)
    assert running.process.returncode == 3
    assert b"runtime ended with status" in errors
    assert running.left_over() == []


@pytest.mark.parametrize("option", ["--compiler-port", "--grpc-port", "--http-port"])
def test_a_taken_port_is_said(start: Any, tmp_path: Path, option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        running = start(tmp_path, option, port, wait=False)
        _, errors = running.process.communicate(timeout=60)
    assert running.process.returncode == 3
    assert port.encode() in errors
    assert running.left_over() == []
