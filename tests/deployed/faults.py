"""A proxy before a server that answers over HTTP: ``python -m tests.deployed.faults PORT TARGET_PORT MODE_FILE``.

The file says how it behaves now: ``pass``; ``fail`` answers 503 to everything; ``refuse`` closes every connection. Whoever
is connected when that changes is cut off."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

ANSWER = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """Passes bytes on, or does not."""

    def __init__(self, target: int, file: Path) -> None:
        self._target = target
        self._file = file
        self._mode = "pass"
        self._open: set[asyncio.StreamWriter] = set()

    async def watch(self) -> None:
        while True:
            mode = self._file.read_text().strip() if self._file.exists() else "pass"
            if mode not in ("", self._mode):
                self._mode = mode
                for writer in self._open:
                    writer.close()
            await asyncio.sleep(0.05)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            if self._mode == "fail":
                await reader.readuntil(b"\r\n\r\n")
                writer.write(ANSWER)
                await writer.drain()
            elif self._mode == "pass":
                await self._pass_on(reader, writer)
        writer.close()
        self._open.discard(writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, up = await asyncio.open_connection("127.0.0.1", self._target)
        self._open.add(up)
        await asyncio.gather(_pump(reader, up), _pump(upstream, writer))
        self._open.discard(up)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main(port: int, target: int, file: Path) -> None:
    proxy = Proxy(target, file)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", port)
    async with server:
        await asyncio.gather(server.serve_forever(), proxy.watch())


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
