"""A client of :class:`Http2Connection` in memory: h2, an implementation of others, tells whether what comes back is HTTP/2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset, TrailersReceived

from shared_ir.service_kit.http2.connection import Http2Connection
from shared_ir.service_kit.http2.headers import Http2Head

POST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "localhost"),
    (":path", "/s/m"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


@dataclass
class Seen:
    """What a listener was told, by stream; ``grants`` lets a client go on with what it has sent."""

    heads: dict[int, Http2Head] = field(default_factory=dict)
    data: dict[int, bytearray] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    drains: list[int] = field(default_factory=list)
    grants: bool = True
    connection: Http2Connection | None = None

    def opened(self, stream: int, head: Http2Head, ended: bool) -> None:
        self.heads[stream] = head
        self.data[stream] = bytearray()
        self.ended += [stream] if ended else []

    def received(self, stream: int, data: bytes, ended: bool) -> None:
        self.data[stream] += data
        self.ended += [stream] if ended else []
        if self.grants and data and self.connection is not None:
            self.connection.grant(stream, len(data))

    def left(self, stream: int) -> None:
        self.gone.append(stream)

    def drained(self, stream: int) -> None:
        self.drains.append(stream)


def _texts(fields: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in fields}


class Peer:
    """A client and a server, and the bytes between them."""

    def __init__(self, **limits: Any) -> None:
        self.seen = Seen()
        self.server = Http2Connection(self.seen, **limits)
        self.seen.connection = self.server
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.events: list[Event] = []
        self._read = 0
        self.client.initiate_connection()
        self.exchange()

    def exchange(self, step: int = 0) -> None:
        """Until nobody says anything more; ``step`` bytes at a time."""
        while True:
            there = self.client.data_to_send()
            for at in range(0, len(there), step or len(there) or 1):
                self.server.receive(there[at : at + step] if step else there)
            back = b"".join(self.server.take())
            if back:
                self.events += self.client.receive_data(back)
            if not there and not back:
                return

    def call(self, data: bytes = b"", fields: Any = POST) -> int:
        """A request; ``data`` goes as far as the windows let it."""
        stream = self.client.get_next_available_stream_id()
        self.client.send_headers(stream, fields, end_stream=not data)
        self.say(stream, data, ended=True)
        return stream

    def say(self, stream: int, data: bytes, ended: bool) -> None:
        while data:
            self.exchange()
            most = min(self.client.local_flow_control_window(stream), self.client.max_outbound_frame_size)
            assert most > 0, "the server grants nothing"
            part, data = data[:most], data[most:]
            self.client.send_data(stream, part, end_stream=ended and not data)
        self.exchange()

    def answer(self, stream: int) -> tuple[dict[str, str], bytes, dict[str, str]]:
        """Head, body and trailers that have come; what was read is acknowledged."""
        head: dict[str, str] = {}
        trailers: dict[str, str] = {}
        body = b""
        for event in self.events:
            if getattr(event, "stream_id", None) != stream:
                continue
            if isinstance(event, ResponseReceived):
                head = _texts(event.headers)
            elif isinstance(event, TrailersReceived):
                trailers = _texts(event.headers)
            elif isinstance(event, DataReceived):
                body += event.data
        return head, body, trailers

    def acknowledge(self) -> None:
        """The client has read what came since it did so last."""
        fresh, self._read = self.events[self._read :], len(self.events)
        for event in fresh:
            if isinstance(event, DataReceived) and event.flow_controlled_length:
                self.client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self.exchange()

    def has(self, kind: type[StreamEnded | StreamReset], stream: int) -> bool:
        return any(isinstance(event, kind) and event.stream_id == stream for event in self.events)
