"""What a serving process is told by the one that has started it."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from runtime_service.settings import RuntimeSettings
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.cores import usable_cores
from shared_ir.service_kit.connection_counts import ConnectionCounts
from shared_ir.service_kit.listening import SharedSockets
from shared_ir.service_kit.unix_sockets import UNIX

_MOST_PACKET = 1 << 16
_MOST_SOCKETS = 64
_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1
ALL = "all.sock"
"""In the folder of the processes: where the metrics of all are."""


def own_socket(number: int) -> str:
    """In that folder: where those of one process are, and whether it is ready."""
    return f"{number}.sock"


@dataclass(frozen=True)
class Told:
    """Attributes:
    number: of the process, from 0.
    count: of all processes.
    folder: of their sockets.
    sockets: that listen for what the settings say, ``grpc`` and ``http``; all processes accept from them, and count their connections.
    channel: of weights, see :mod:`lending`.
    """

    number: int
    count: int
    folder: Path
    sockets: Mapping[str, SharedSockets]
    channel: socket.socket

    @classmethod
    def receive(cls, descriptor: int) -> Self:
        """What was sent by :meth:`send` over the socket that ``descriptor`` is the other end of. Raises IngotError UNAVAILABLE."""
        channel = socket.socket(fileno=descriptor)
        os.set_inheritable(descriptor, False)
        packet, descriptors, _, _ = socket.recv_fds(channel, _MOST_PACKET, _MOST_SOCKETS)
        if not packet:
            raise IngotError(ErrorCode.UNAVAILABLE, "the process that has started this one has ended")
        told = json.loads(packet)
        taken = iter(descriptors)
        sockets = {}
        for name, count in told["sockets"].items():
            counts = ConnectionCounts(next(taken), told["number"])
            sockets[name] = SharedSockets(tuple(socket.socket(fileno=next(taken)) for _ in range(count)), counts)
        return cls(told["number"], told["count"], Path(told["folder"]), sockets, channel)

    def send(self) -> None:
        """Over its channel, to who has the other end."""
        told = {
            "number": self.number,
            "count": self.count,
            "folder": str(self.folder),
            "sockets": {name: len(each.sockets) for name, each in self.sockets.items()},
        }
        descriptors = []
        for shared in self.sockets.values():
            descriptors += [shared.counts.descriptor, *(each.fileno() for each in shared.sockets)]
        socket.send_fds(self.channel, [json.dumps(told).encode()], descriptors)

    def settings(self, whole: RuntimeSettings) -> RuntimeSettings:
        """Of one process, where those of all are ``whole``: its part of the cores and of the bytes in flight."""
        cores = whole.cores or usable_cores()
        return replace(
            whole,
            processes=1,
            cores=max(1, cores // self.count),
            metrics_address=f"{UNIX}{self.folder / own_socket(self.number)}",
            max_bytes_in_flight=max(4 * whole.max_request_bytes, whole.bytes_in_flight // self.count),
            address_file="",
        )

    def end_with_parent(self, most_seconds: float) -> None:
        """Have this process told to stop once the other end of the channel is closed: nobody would start it anew, or stop it. What has not
        ended ``most_seconds`` later is killed. NOTE: one that is stopped (SIGSTOP) is made to go on, else it would notice nothing."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)
        hung_up = select.poll()
        hung_up.register(self.channel, 0)

        def wait() -> None:
            hung_up.poll()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(min(most_seconds, threading.TIMEOUT_MAX))
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=wait, name="parent", daemon=True).start()

    def scrape_all(self, accept: str = "") -> tuple[bytes, str]:
        """The metrics of all processes. Raises IngotError UNAVAILABLE."""
        return fetch(self.folder / ALL, "/metrics", accept)


def fetch(place: Path, path: str, accept: str = "", seconds: float = _SECONDS) -> tuple[bytes, str]:
    """The body and the type that are served at ``path`` over a socket in a folder; ``seconds`` is the longest silence.

    Raises:
        IngotError: UNAVAILABLE, nobody answers, or not with 200.
    """
    connection = _Local(place, seconds)
    try:
        connection.request("GET", path, headers={"Accept": accept} if accept else {})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != http.client.OK:
            raise _silent(place, f"status {answer.status}")
        return body, answer.headers.get("Content-Type", "")
    except (OSError, http.client.HTTPException) as error:
        raise _silent(place, str(error)) from error
    finally:
        connection.close()


class _Local(http.client.HTTPConnection):
    def __init__(self, place: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._place, self._seconds = place, seconds

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self._seconds)
        self.sock.connect(str(self._place))


def _silent(place: Path, why: str) -> IngotError:
    return IngotError(
        ErrorCode.UNAVAILABLE,
        "a serving process does not answer",
        field=place.name,
        received=why,
        remedy="Try again in a moment: it is started anew where it has ended.",
    )
