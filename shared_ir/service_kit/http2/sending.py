"""What one side of an HTTP/2 connection sends: it waits for the windows of the peer, stream by stream in turns (RFC 9113, section 5.2)."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from shared_ir.service_kit.http2.frames import (
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW_BYTES,
    END_HEADERS,
    END_STREAM,
    Code,
    FrameKind,
    head,
    reset,
)
from shared_ir.service_kit.http2.headers import Http2Head
from shared_ir.service_kit.http2.patience import WasteAllowance

MOST_OUT = 256 * 1024
"""Bytes of answers that are given to the transport at a time: what it has not sent is nowhere counted."""
FRAMES_EARNED = 8.0
"""Frames without effect that a peer may send for each message of an answer: clients measure how far away a server is by pings."""
_BYTES_A_FRAME = 2048
"""Bytes of answers for which one more is earned: clients widen windows as they read, of the stream and of the connection."""


class Http2Listener(Protocol):
    """Learns what a peer sends. None of these raises, but :meth:`opened` what :meth:`Http2Connection.waste` does."""

    def opened(self, stream: int, head: Http2Head, ended: bool, /) -> None:
        """A request begins; where it has ``ended`` it has no body."""

    def received(self, stream: int, data: bytes, ended: bool, /) -> None:
        """More of its body."""

    def left(self, stream: int, /) -> None:
        """The peer is not interested any more; nothing can be sent."""

    def drained(self, stream: int, /) -> None:
        """All that was to be sent has been handed to the transport."""


@dataclass(slots=True)
class Stream:
    """``window`` is what may be sent, ``credit`` what may come; ``trailers`` wait behind ``queue``; ``has_ended`` is the request."""

    number: int
    window: int
    credit: int = DEFAULT_WINDOW_BYTES
    queue: deque[memoryview] = field(default_factory=deque)
    trailers: bytes | None = None
    since: float = field(default_factory=time.monotonic)
    has_ended: bool = False


class Sending:
    """The half of a connection that sends. ``out`` is what is to be written."""

    def __init__(self, listener: Http2Listener, patience: WasteAllowance) -> None:
        self.is_choked = False
        """The transport takes nothing for the moment: data waits here."""
        self.out: list[bytes | memoryview] = []
        self._listener = listener
        self._patience = patience
        self._streams: dict[int, Stream] = {}
        self._waiting: dict[int, Stream] = {}
        """Those that could send something if the connection could, the one first whose turn it is."""
        self._budget = MOST_OUT
        self._window = DEFAULT_WINDOW_BYTES
        self._peer_frame = DEFAULT_FRAME_BYTES

    @property
    def open(self) -> int:
        """Streams that are not over."""
        return len(self._streams)

    def is_open(self, stream: int) -> bool:
        """Whether an answer, or more of it, can be sent."""
        return stream in self._streams

    def send_head(self, stream: int, block: bytes) -> None:
        """The head of an answer, compressed; data follows."""
        self.out.append(head(FrameKind.HEADERS, END_HEADERS, stream, len(block)) + block)

    def send(self, stream: int, data: bytes) -> None:
        """More of an answer, as far as the peer's windows let it; the rest waits."""
        found = self._streams.get(stream)
        if found is None:
            return
        if data:
            self._patience.earn(FRAMES_EARNED)
            found.queue.append(memoryview(data))
        self._pump(found)

    def send_last(self, stream: int, trailers: bytes) -> None:
        """The trailers of an answer, compressed, behind what waits."""
        found = self._streams.get(stream)
        if found is None:
            return
        found.trailers = trailers
        self._pump(found)

    def answer(self, stream: int, block: bytes, data: bytes, trailers: bytes) -> None:
        """A whole answer at once."""
        found = self._streams.get(stream)
        if found is None:
            return
        size = len(data)
        is_short = size <= min(self._peer_frame, found.window, self._window, self._budget)
        if not is_short or self.is_choked:
            self.send_head(stream, block)
            self.send(stream, data)
            self.send_last(stream, trailers)
            return
        found.window -= size
        self._window -= size
        self._budget -= size
        self._patience.earn(size / _BYTES_A_FRAME)
        self.out += (
            head(FrameKind.HEADERS, END_HEADERS, stream, len(block)) + block + head(FrameKind.DATA, 0, stream, size),
            data,
            head(FrameKind.HEADERS, END_HEADERS | END_STREAM, stream, len(trailers)) + trailers,
        )
        self._end(found)

    def refuse(self, stream: int, block: bytes) -> None:
        """An answer that is nothing but a head."""
        found = self._streams.get(stream)
        if found is not None:
            self.out.append(head(FrameKind.HEADERS, END_HEADERS | END_STREAM, stream, len(block)) + block)
            self._end(found)

    def reset(self, stream: int, code: Code) -> None:
        """End a stream at once; its listener is not told."""
        self._forget(stream)
        self.out.append(reset(stream, code))

    def take(self) -> list[bytes | memoryview]:
        """What is to be written now. Where that is not nothing, there may be more once the transport has it."""
        if not self.out and self._budget < MOST_OUT and not self.is_choked:
            self._budget = MOST_OUT
            self._pump_all()
        out, self.out = self.out, []
        return out

    def unchoke(self) -> None:
        self.is_choked = False
        self._pump_all()

    def _pump_all(self) -> None:
        for number, stream in tuple(self._waiting.items()):
            if self._waiting.pop(number, None) is not None:
                self._pump(stream)  # where it has to wait again, others are first
                if min(self._window, self._budget) <= 0:
                    return

    def _pump(self, stream: Stream) -> None:
        """Send what the windows let go."""
        queue, was_waiting = stream.queue, bool(stream.queue)
        while queue and not self.is_choked:
            most = min(self._window, stream.window, self._peer_frame, self._budget)
            if most <= 0:
                break
            part = queue[0]
            if len(part) > most:
                part, queue[0] = part[:most], part[most:]
            else:
                queue.popleft()
            stream.window -= len(part)
            self._window -= len(part)
            self._budget -= len(part)
            self._patience.earn(len(part) / _BYTES_A_FRAME)
            self.out += (head(FrameKind.DATA, 0, stream.number, len(part)), part)
        if queue:
            if stream.window > 0:
                self._waiting[stream.number] = stream
            else:
                self._waiting.pop(stream.number, None)
            return
        self._waiting.pop(stream.number, None)
        if stream.trailers is not None:
            block = stream.trailers
            self.out.append(head(FrameKind.HEADERS, END_HEADERS | END_STREAM, stream.number, len(block)) + block)
            self._end(stream)
        elif was_waiting:
            self._listener.drained(stream.number)

    def _end(self, stream: Stream) -> None:
        """Our side of a stream is over; what its client had still to say is not wanted."""
        self._patience.earn(FRAMES_EARNED)
        if not stream.has_ended:
            self.out.append(reset(stream.number, Code.NO_ERROR))
        self._forget(stream.number)
        self._listener.drained(stream.number)

    def _forget(self, stream: int) -> Stream | None:
        self._waiting.pop(stream, None)
        return self._streams.pop(stream, None)
