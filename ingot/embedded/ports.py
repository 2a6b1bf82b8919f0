"""Which ports to listen on."""

from __future__ import annotations

import socket
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """Port of each server on the loopback interface; 0 takes a free one, ``None`` the usual one if it is free."""

    compiler: int | None = None
    compiler_metrics: int | None = 0
    grpc: int | None = None
    http: int | None = None
    metrics: int | None = 0

    @classmethod
    def free(cls) -> Ports:
        """A free one for every server."""
        return cls(0, 0, 0, 0, 0)


def choose(wanted: int | None, usual: int) -> int:
    """The port to bind: ``wanted``, or ``usual`` where nothing listens on it yet, or 0."""
    if wanted is not None:
        return wanted
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, usual))
        except OSError:
            return 0
    return usual
