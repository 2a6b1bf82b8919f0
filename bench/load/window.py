"""A turn of a server: clients ask it for some seconds, and what it does meanwhile is measured."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.load.client import READY, Window, Work
from bench.servers.processes import ServerProcess
from bench.timing import quantile

_PER_PROCESS = 16
"""Clients of one process."""
_END_SECONDS = 60.0


class LoadFailed(Exception):
    """The clients did not get what they should; the text says why."""


@dataclass(frozen=True)
class Turn:
    """What a server did in one window.

    Attributes:
        rate: requests a second.
        cpu: microseconds of its processes for one request.
        p50, p99: latencies in milliseconds.
    """

    rate: float
    cpu: float
    p50: float
    p99: float


def measure(server: ServerProcess, kind: str, clients: int, warm: float, seconds: float) -> Turn:
    """Clients ask for ``warm`` seconds before the window of ``seconds`` too.

    Raises:
        LoadFailed: a client was answered wrongly, or not at all.
    """
    address, counts = server.address(kind), _divided(clients, -(-clients // _PER_PROCESS))
    running = [_start(Work(kind, address, count)) for count in counts]
    try:
        for client in running:
            _wait(client)
        window = Window(time.monotonic() + warm, time.monotonic() + warm + seconds)
        for client in running:
            _tell(client, window)
        time.sleep(max(0.0, window.begin - time.monotonic()))
        before = server.cpu_seconds()
        time.sleep(max(0.0, window.end - time.monotonic()))
        spent = server.cpu_seconds() - before
        found = sorted(value for client in running for value in _latencies(client))
    finally:
        for client in running:
            client.kill()
            client.communicate()
    if not found:
        raise LoadFailed(f"{server.name}: nothing was answered in {seconds:g} s")
    return Turn(len(found) / seconds, spent * 1e6 / len(found), quantile(found, 0.5) / 1e3, quantile(found, 0.99) / 1e3)


def _divided(clients: int, processes: int) -> Sequence[int]:
    return [clients // processes + (index < clients % processes) for index in range(processes)]


def _start(work: Work) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.load.client", work.to_json()]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def _wait(client: subprocess.Popen[str]) -> None:
    assert client.stdout is not None
    if client.stdout.readline().strip() != READY:
        raise LoadFailed(client.communicate(timeout=_END_SECONDS)[1].strip()[-500:])


def _tell(client: subprocess.Popen[str], window: Window) -> None:
    assert client.stdin is not None
    client.stdin.write(window.to_json() + "\n")
    client.stdin.flush()


def _latencies(client: subprocess.Popen[str]) -> list[float]:
    try:
        out, errors = client.communicate(timeout=_END_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise LoadFailed("a client does not end") from error
    if client.returncode:
        raise LoadFailed(errors.strip()[-500:])
    found: list[float] = json.loads(out)
    return found
