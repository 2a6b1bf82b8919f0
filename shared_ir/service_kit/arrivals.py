"""How much of a message has come that gRPC has not shown yet.

gRPC keeps the parts of a message to itself until it is whole; the kernel knows how many bytes came over each connection. What is more than
the messages of that connection that were whole is on its way.
"""

from __future__ import annotations

import functools
import os
import socket
import struct
import threading
from collections import Counter
from contextlib import suppress
from urllib.parse import unquote

_TCP_INFO_BYTES = 192
_RECEIVED = struct.Struct("<Q")
_RECEIVED_AT = 128
"""Offset of ``tcpi_bytes_received`` in ``struct tcp_info`` of Linux."""
_OVERHEAD_BYTES = 512
"""Bytes around a message on its connection: headers, frames."""
_MOST_CONNECTIONS = 1 << 16
"""That are remembered; those that have ended are forgotten then."""


class Arrivals:
    """Bytes of messages that are on their way, by :func:`connection_of`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._whole: Counter[str] = Counter()

    def add(self, connection: str, count: int) -> None:
        """A message of so many bytes is whole."""
        with self._lock:
            self._whole[connection] += count + _OVERHEAD_BYTES
            if len(self._whole) > _MOST_CONNECTIONS:
                self._whole = Counter({name: self._whole[name] for name in _received()})

    def on_their_way(self) -> dict[str, int]:
        """Of every connection that there is."""
        received = _received()
        with self._lock:
            return {name: max(0, count - self._whole[name] - count // 64) for name, count in received.items()}


def _received() -> dict[str, int]:
    """Bytes that came over each TCP connection of this process."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile, or no connection
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as connection:
                    host, port = connection.getpeername()[:2]
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                found[f"{host.removeprefix('::ffff:')} {port}"] = _RECEIVED.unpack_from(info, _RECEIVED_AT)[0]
    return found


@functools.lru_cache(maxsize=4096)
def connection_of(peer: str) -> str:
    """The key of a connection, from gRPC's name of its peer: ``ipv4:10.0.0.1:5000``, ``ipv6:%5B::1%5D:5000``."""
    host, _, port = unquote(peer.partition(":")[2]).rpartition(":")
    return f"{host.strip('[]')} {port}"
