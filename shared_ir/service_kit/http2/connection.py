"""One HTTP/2 connection of a server, without its socket: bytes in, calls of a listener and bytes out (RFC 9113).

Nothing waits here, and nothing grows with what a peer sends but the bytes of one frame or header block: what a listener is given it
counts itself, and a stream gets a wider window only as far as its listener grants it. What is to be sent waits for the
peer's windows, stream by stream in turns. A peer that reads nothing is to be read from no more (``is_choked``), so that answers to its
pings and settings do not pile up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from shared_ir.service_kit.http2.frames import (
    ACK,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW_BYTES,
    END_HEADERS,
    END_STREAM,
    HEAD_BYTES,
    MOST_FRAME,
    MOST_WINDOW,
    PADDED,
    PREFACE,
    PRIORITISED,
    SETTINGS_ACK,
    Code,
    ConnectionFault,
    FrameKind,
    Setting,
    StreamFault,
    goaway,
    parse_settings,
    ping,
    settings,
    window_update,
    word,
)
from shared_ir.service_kit.http2.headers import MOST_BYTES, HeadReader
from shared_ir.service_kit.http2.patience import WasteAllowance
from shared_ir.service_kit.http2.sending import Http2Listener, Sending, Stream

_MOST_FRAME_BYTES = 64 * 1024
"""Bytes of a frame that a peer may send."""
_CONNECTION_WINDOW_BYTES = 1 << 24
_FRAMES_A_LOOK, _BYTES_A_FRAME = 16, 128
"""Frames between two looks at the clock; one that is no data, and so is read byte by byte, counts once more for as many bytes."""
_MOST_BLOCK = 2 * MOST_BYTES
"""Bytes of a header block, before it is decompressed."""
_RAPID_SECONDS, _RAPID_COST = 1.0, 2.0
"""A stream that is taken back sooner was opened to make work (CVE-2023-44487)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """``streams`` are those of one connection at a time."""

    streams: int = 4096


@dataclass(slots=True)
class _Block:
    """A header block that is not whole."""

    stream: int
    ended: bool
    parts: bytearray


class Http2Connection(Sending):
    """Every method is called from one thread."""

    def __init__(
        self, listener: Http2Listener, limits: Limits = Limits(), patience: WasteAllowance | None = None
    ) -> None:
        super().__init__(listener, patience or WasteAllowance())
        self.is_leaving = False
        self.out += [
            settings(
                {
                    Setting.MAX_CONCURRENT_STREAMS: limits.streams,
                    Setting.MAX_FRAME_SIZE: _MOST_FRAME_BYTES,
                    Setting.MAX_HEADER_LIST_SIZE: MOST_BYTES,
                }
            ),
            window_update(0, _CONNECTION_WINDOW_BYTES - DEFAULT_WINDOW_BYTES),
        ]
        self._limits = limits
        self._heads = HeadReader()
        self._rest = b""
        self._is_greeted = False
        self.is_introduced = False
        """The peer's settings have come, which are its first frame."""
        self._block: _Block | None = None
        self._last = 0
        self._credit = _CONNECTION_WINDOW_BYTES
        self._peer_window = DEFAULT_WINDOW_BYTES
        self._frames: dict[int, Callable[[int, int, bytes], None]] = {
            FrameKind.DATA: self._on_data,
            FrameKind.HEADERS: self._on_headers,
            FrameKind.PRIORITY: self._on_priority,
            FrameKind.RST_STREAM: self._on_reset,
            FrameKind.SETTINGS: self._on_settings,
            FrameKind.PUSH_PROMISE: self._on_promise,
            FrameKind.PING: self._on_ping,
            FrameKind.GOAWAY: self._on_goaway,
            FrameKind.WINDOW_UPDATE: self._on_window,
            FrameKind.CONTINUATION: self._on_continuation,
        }

    # ---- in

    @property
    def held(self) -> int:
        """Bytes of what is not whole: of a frame, or of a header block."""
        return len(self._rest) + (0 if self._block is None else len(self._block.parts))

    @property
    def progress(self) -> object:
        """Is another one when data, or the head of a stream, have come since."""
        return self._credit, self._last

    def receive(self, data: bytes, until: float = math.inf) -> bool:
        """Bytes that came. Whether there was time for all of them before ``until``, on ``time.monotonic``: else the rest is here, and waits
        for the next call.

        Raises:
            ConnectionFault: the peer has broken the protocol, and is to be told by :meth:`fail`.
        """
        data = self._rest + data if self._rest else data
        at, end = 0, len(data)
        if not self._is_greeted:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise ConnectionFault(Code.PROTOCOL_ERROR, "no HTTP/2")
            if end < len(PREFACE):
                self._rest = data
                return True
            self._is_greeted, at = True, len(PREFACE)
        seen = 0
        while end - at >= HEAD_BYTES:
            if seen >= _FRAMES_A_LOOK:
                if time.monotonic() > until:
                    self._rest = data[at:]
                    return False
                seen = 0
            size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if size > _MOST_FRAME_BYTES:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            start = at + HEAD_BYTES
            if end - start < size:
                break
            kind, flags, at = data[at + 3], data[at + 4], start + size
            seen += 1 if kind == FrameKind.DATA else 1 + size // _BYTES_A_FRAME
            stream = int.from_bytes(data[start - 4 : start], "big") & MOST_WINDOW
            self._frame(kind, flags, stream, data[start:at])
        self._rest = data[at:]
        return True

    def waste(self, count: float) -> None:
        """What the peer asked for led to nothing. Raises ConnectionFault as :meth:`receive`, of which it is to be part."""
        self._patience.spend(count)

    def grant(self, stream: int, count: int) -> None:
        """So much more may come on a stream."""
        found = self._streams.get(stream)
        if found is not None and not found.has_ended:
            found.credit += count
            self.out.append(window_update(stream, count))

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if not self.is_introduced:
            if kind != FrameKind.SETTINGS or flags & ACK:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "settings come first")
            self.is_introduced = True
        block = self._block
        if block is not None and (kind != FrameKind.CONTINUATION or stream != block.stream):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a header block is not whole")
        on = self._frames.get(kind)
        if on is None:
            self._patience.spend(1)
            return
        try:
            on(flags, stream, payload)
        except StreamFault as fault:
            self.reset(stream, fault.code)
            self._listener.left(stream)
            self._patience.spend(4)

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._credit -= size
        if self._credit < 0:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "more data than the connection may send")
        if self._credit < _CONNECTION_WINDOW_BYTES // 2:
            self.out.append(window_update(0, _CONNECTION_WINDOW_BYTES - self._credit))
            self._credit = _CONNECTION_WINDOW_BYTES
        data = _unpadded(payload) if flags & PADDED else payload
        stream = self._streams.get(number)
        if stream is None:
            self._require_known(number)
            self._patience.spend(1)  # it was sent before its stream was over
            return
        if stream.has_ended:
            raise StreamFault(Code.STREAM_CLOSED, "data behind the end")
        stream.credit -= size
        if stream.credit < 0:
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "more data than the stream may send")
        ended = bool(flags & END_STREAM)
        if not data and not ended:
            self._patience.spend(1)
        if size > len(data):
            self.grant(number, size - len(data))
        stream.has_ended = ended
        self._listener.received(number, data, ended)

    def _on_headers(self, flags: int, number: int, payload: bytes) -> None:
        if number % 2 == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a stream that is none of a client")
        fragment = _unpadded(payload) if flags & PADDED else payload
        if flags & PRIORITISED:
            if len(fragment) < 5:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a priority that is not whole")
            fragment = fragment[5:]
        if len(fragment) > _MOST_BLOCK:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block without end")
        ended = bool(flags & END_STREAM)
        if flags & END_HEADERS:
            self._head(number, ended, fragment)
        else:
            self._block = _Block(number, ended, bytearray(fragment))

    def _on_continuation(self, flags: int, number: int, payload: bytes) -> None:
        block = self._block
        if block is None:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a continuation of nothing")
        self._patience.spend(1)
        block.parts += payload
        if len(block.parts) > _MOST_BLOCK:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block without end")
        if flags & END_HEADERS:
            self._block = None
            self._head(number, block.ended, bytes(block.parts))

    def _head(self, number: int, ended: bool, block: bytes) -> None:
        if number <= self._last:
            self._trailers(number, ended, block)
            return
        self._last = number
        head = self._heads.read(block)
        if self.is_leaving or len(self._streams) >= self._limits.streams:
            raise StreamFault(Code.REFUSED_STREAM, "no stream is opened now")
        self._streams[number] = Stream(number, self._peer_window, has_ended=ended)
        self._listener.opened(number, head, ended)

    def _trailers(self, number: int, ended: bool, block: bytes) -> None:
        self._heads.skip(block)
        stream = self._streams.get(number)
        if stream is None:
            self._patience.spend(2)
            return
        if not ended or stream.has_ended:
            raise StreamFault(Code.PROTOCOL_ERROR, "headers behind the head")
        stream.has_ended = True
        self._listener.received(number, b"", True)

    def _on_priority(self, flags: int, number: int, payload: bytes) -> None:
        self._patience.spend(1)
        if not number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a priority of no stream")
        if len(payload) != 5:
            raise StreamFault(Code.FRAME_SIZE_ERROR, "a priority that is not whole")

    def _on_reset(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a reset that is not whole")
        self._require_known(number)
        stream = self._forget(number)
        is_rapid = stream is not None and time.monotonic() - stream.since < _RAPID_SECONDS
        self._patience.spend(_RAPID_COST if is_rapid else 1)
        if stream is not None:
            self._listener.left(number)

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number or (flags & ACK and payload):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "settings of a stream, or behind an acknowledgement")
        if flags & ACK:
            return
        self._patience.spend(10)
        for name, value in dict(
            parse_settings(payload)
        ).items():  # each may be looked up in all streams: of several values the last counts
            self._set(name, value)
        self.out.append(SETTINGS_ACK)
        self._waiting.update((each.number, each) for each in self._streams.values() if each.queue)
        self._pump_all()

    def _set(self, name: int, value: int) -> None:
        if name == Setting.INITIAL_WINDOW_SIZE:
            if value > MOST_WINDOW:
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a window beyond all bounds")
            change, self._peer_window = value - self._peer_window, value
            for stream in self._streams.values():
                stream.window += change
                if stream.window > MOST_WINDOW:
                    raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a window beyond all bounds")
        elif name == Setting.MAX_FRAME_SIZE:
            if not DEFAULT_FRAME_BYTES <= value <= MOST_FRAME:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "a size of frames out of bounds")
            self._peer_frame = value
        elif name == Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a switch that is neither on nor off")

    def _on_promise(self, flags: int, number: int, payload: bytes) -> None:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "clients promise nothing")

    def _on_ping(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a ping of a stream")
        if len(payload) != 8:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a ping that is not 8 bytes")
        self._patience.spend(1)
        if not flags & ACK:
            self.out.append(ping(payload, ACK))

    def _on_goaway(self, flags: int, number: int, payload: bytes) -> None:
        self._patience.spend(1)
        if number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a stream cannot go away")

    def _on_window(self, flags: int, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a window that is not whole")
        self._patience.spend(1)
        count = word(payload)
        if number == 0:
            self._window += count
            if not count or self._window > MOST_WINDOW:
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR if count else Code.PROTOCOL_ERROR, "a window")
            self._pump_all()
            return
        self._require_known(number)
        stream = self._streams.get(number)
        if stream is None:
            return
        stream.window += count
        if not count or stream.window > MOST_WINDOW:
            raise StreamFault(Code.FLOW_CONTROL_ERROR if count else Code.PROTOCOL_ERROR, "a window")
        self._pump(stream)

    def _require_known(self, number: int) -> None:
        if number == 0 or number > self._last or number % 2 == 0:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a frame of a stream that was not opened")

    # ---- ends

    def fail(self, fault: ConnectionFault) -> None:
        """Say why nothing more is read; the transport is to be closed behind it."""
        self.out.append(goaway(self._last, fault.code, str(fault)))

    def leave(self) -> None:
        """Streams that are there may end; new ones are refused, which their client may try again elsewhere."""
        if not self.is_leaving:
            self.is_leaving = True
            self.out.append(goaway(self._last, Code.NO_ERROR))


def _unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(Code.PROTOCOL_ERROR, "more padding than there is")
    return payload[1 : len(payload) - payload[0]]
