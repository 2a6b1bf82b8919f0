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
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

_TCP_INFO_BYTES = 192
_RECEIVED = struct.Struct("<Q")
_RECEIVED_AT = 128
"""Offset of ``tcpi_bytes_received`` in ``struct tcp_info`` of Linux."""
_OVERHEAD_BYTES = 512
"""Bytes around a message on its connection: headers, frames."""
_INTERNET = (socket.AF_INET, socket.AF_INET6)


@dataclass
class _Connection:
    """What is known of one.

    Attributes:
        whole: bytes of its messages that were whole, with what is around them.
        seen: ``whole`` at the last look.
        inode: of its socket at the last look: another one has come with the address of the first, to be counted from ``seen`` on.
        missed: ``whole`` at the last look, if there was no such connection.
    """

    whole: int = 0
    seen: int = 0
    inode: int = 0
    missed: int | None = None


class Arrivals:
    """Bytes of messages that are on their way, by :func:`connection_of`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: defaultdict[str, _Connection] = defaultdict(_Connection)

    def __len__(self) -> int:
        """How many connections are remembered."""
        return len(self._connections)

    def add(self, connection: str, count: int) -> None:
        """A message of so many bytes is whole."""
        with self._lock:
            self._connections[connection].whole += count + _OVERHEAD_BYTES

    def on_their_way(self) -> dict[str, int]:
        """Of every connection that there is. What has ended is forgotten."""
        received = _received()
        with self._lock:
            for name in self._connections.keys() - received.keys():
                self._miss(name)
            return {name: self._rest(name, *of) for name, of in received.items()}

    def _miss(self, name: str) -> None:
        """Of a connection that is not there: one that had a message since the last look may have come after this one began."""
        connection = self._connections[name]
        if connection.whole in (connection.seen, connection.missed):
            del self._connections[name]
        else:
            connection.missed = connection.whole

    def _rest(self, name: str, inode: int, count: int) -> int:
        connection = self._connections[name]
        if connection.inode != inode:
            connection.whole -= connection.seen
            connection.inode = inode
        connection.seen, connection.missed = connection.whole, None
        return max(0, count - connection.whole - count // 64)


def _received() -> dict[str, tuple[int, int]]:
    """The inode of each TCP connection of this process, and the bytes that came over it."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile, or no connection
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as connection:
                    if connection.family in _INTERNET and connection.type == socket.SOCK_STREAM:
                        host, port = connection.getpeername()[:2]
                        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                        (count,) = _RECEIVED.unpack_from(info, _RECEIVED_AT)
                        found[f"{host.removeprefix('::ffff:')} {port}"] = os.fstat(connection.fileno()).st_ino, count
    return found


@functools.lru_cache(maxsize=4096)
def connection_of(peer: str) -> str:
    """The key of a connection, from gRPC's name of its peer: ``ipv4:10.0.0.1:5000``, ``ipv6:%5B::1%5D:5000``."""
    host, _, port = unquote(peer.partition(":")[2]).rpartition(":")
    return f"{host.strip('[]')} {port}"
