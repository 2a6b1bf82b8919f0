"""A TCP proxy in front of an object store that refuses, fails, slows down or cuts off, as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import threading


class Mode(enum.Enum):
    PASS = "pass"
    REFUSE = "refuse"
    """Connections end at once."""
    FAIL = "fail"
    """Every request is answered with 503."""
    SLOW = "slow"
    """Bytes of requests wait."""
    CUT = "cut"
    """Connections end in the middle."""
    HANG = "hang"
    """Connections are taken, and nothing comes of them."""


_FAILURE = b"<Error><Code>SlowDown</Code><Message>injected</Message></Error>"
_SLOW_SECONDS, _CUT_SECONDS = 0.15, 0.2
_PIECE_BYTES = 65536


class FaultyProxy:
    """Listens on a port of its own until it is stopped."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._mode = Mode.PASS
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self.port = 0
        self._thread = threading.Thread(target=self._run, name="faulty-proxy", daemon=True)
        self._thread.start()
        self._is_up.wait()

    def set(self, mode: Mode) -> None:
        """From now on; what is open ends when the mode changes."""
        self._mode = mode
        self._loop.call_soon_threadsafe(self._close_all)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._is_up.set()
        self._loop.run_forever()

    def _close_all(self) -> None:
        for writer in list(self._open):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            if self._mode is Mode.FAIL:
                await reader.readuntil(b"\r\n\r\n")
                head = f"HTTP/1.1 503 Injected\r\nContent-Length: {len(_FAILURE)}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode() + _FAILURE)
                await writer.drain()
            elif self._mode is Mode.HANG:
                while await reader.read(_PIECE_BYTES):
                    pass
            elif self._mode is not Mode.REFUSE:
                await self._pass_on(reader, writer)
        self._open.discard(writer)
        writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(*self._upstream)
        self._open.add(ours)
        if self._mode is Mode.CUT:
            self._loop.call_later(_CUT_SECONDS, writer.close)
        pause = _SLOW_SECONDS if self._mode is Mode.SLOW else 0.0
        await asyncio.gather(_pump(reader, ours, pause), _pump(theirs, writer, 0.0))
        self._open.discard(ours)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause: float) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE_BYTES):
            await asyncio.sleep(pause)
            writer.write(data)
            await writer.drain()
    writer.close()
