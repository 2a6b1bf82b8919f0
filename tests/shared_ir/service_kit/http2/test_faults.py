"""What breaks the protocol ends the stream or the connection, with the code of RFC 9113, and what leads to nothing is bounded."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterable

import pytest

from shared_ir.service_kit.http2.connection import Http2Connection
from shared_ir.service_kit.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    PRIORITISED,
    Code,
    ConnectionFault,
    FrameKind,
    head,
    literal,
    reset,
    settings,
    window_update,
)
from shared_ir.service_kit.http2.patience import WasteAllowance
from tests.shared_ir.service_kit.http2.peer import Seen

REQUEST = b"\x83\x86\x84" + literal(b"content-type", b"application/grpc")
"""POST, http, /"""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return head(kind, flags, stream, len(payload)) + payload


def opening(stream: int = 1, block: bytes = REQUEST, flags: int = END_HEADERS) -> bytes:
    return frame(FrameKind.HEADERS, flags, stream, block)


def greeted(patience: WasteAllowance | None = None) -> tuple[Http2Connection, Seen]:
    seen = Seen()
    seen.connection = found = Http2Connection(seen, patience=patience)
    found.receive(PREFACE + settings({}))
    found.take()
    return found, seen


def feed(connection: Http2Connection, parts: Iterable[bytes]) -> None:
    for part in parts:
        connection.receive(part)


LONG = struct.pack(">L", 0)
CONNECTION_FAULTS = {
    "a frame that is too large": (head(FrameKind.DATA, 0, 1, 1 << 20), Code.FRAME_SIZE_ERROR),
    "data of no stream": (frame(FrameKind.DATA, 0, 0, b"x"), Code.PROTOCOL_ERROR),
    "data of a stream that is not open": (frame(FrameKind.DATA, 0, 7, b"x"), Code.PROTOCOL_ERROR),
    "headers of no stream": (opening(0), Code.PROTOCOL_ERROR),
    "headers of a server's stream": (opening(2), Code.PROTOCOL_ERROR),
    "more padding than there is": (opening() + frame(FrameKind.DATA, PADDED, 1, b"\x05abc"), Code.PROTOCOL_ERROR),
    "padding of nothing": (opening() + frame(FrameKind.DATA, PADDED, 1), Code.PROTOCOL_ERROR),
    "a priority in part": (opening(flags=END_HEADERS | PRIORITISED, block=b"abc"), Code.FRAME_SIZE_ERROR),
    "a reset of an idle stream": (reset(9, Code.CANCEL), Code.PROTOCOL_ERROR),
    "a reset in part": (opening() + frame(FrameKind.RST_STREAM, 0, 1, b"abc"), Code.FRAME_SIZE_ERROR),
    "settings of a stream": (frame(FrameKind.SETTINGS, 0, 1), Code.PROTOCOL_ERROR),
    "settings in part": (frame(FrameKind.SETTINGS, 0, 0, b"abc"), Code.FRAME_SIZE_ERROR),
    "an acknowledgement with settings": (frame(FrameKind.SETTINGS, ACK, 0, bytes(6)), Code.PROTOCOL_ERROR),
    "push neither on nor off": (settings({2: 2}), Code.PROTOCOL_ERROR),
    "a window beyond all bounds": (settings({4: 1 << 31}), Code.FLOW_CONTROL_ERROR),
    "frames below the least size": (settings({5: 100}), Code.PROTOCOL_ERROR),
    "a promise": (frame(FrameKind.PUSH_PROMISE, END_HEADERS, 1, LONG), Code.PROTOCOL_ERROR),
    "a ping of a stream": (frame(FrameKind.PING, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
    "a ping in part": (frame(FrameKind.PING, 0, 0, bytes(7)), Code.FRAME_SIZE_ERROR),
    "a stream that goes away": (frame(FrameKind.GOAWAY, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
    "a window of nothing": (frame(FrameKind.WINDOW_UPDATE, 0, 0, LONG), Code.PROTOCOL_ERROR),
    "a window in part": (frame(FrameKind.WINDOW_UPDATE, 0, 0, b"a"), Code.FRAME_SIZE_ERROR),
    "windows that add up": (window_update(0, (1 << 31) - 1) * 2, Code.FLOW_CONTROL_ERROR),
    "a window of an idle stream": (window_update(5, 1), Code.PROTOCOL_ERROR),
    "a continuation of nothing": (opening() + frame(FrameKind.CONTINUATION, END_HEADERS, 1), Code.PROTOCOL_ERROR),
    "something inside of a header block": (
        opening(flags=0) + frame(FrameKind.PING, 0, 0, bytes(8)),
        Code.PROTOCOL_ERROR,
    ),
    "a block of another stream": (
        opening(flags=0) + frame(FrameKind.CONTINUATION, END_HEADERS, 3, b""),
        Code.PROTOCOL_ERROR,
    ),
    "a block that does not unpack": (opening(block=b"\xff\xff\xff\xff\xff\xff"), Code.COMPRESSION_ERROR),
    "a table beyond its bound": (opening(block=b"\x3f\xe1\xff\x03" + REQUEST), Code.COMPRESSION_ERROR),
    "a table whose size is said again and again": (opening(block=b"\x20" * 30_000), Code.COMPRESSION_ERROR),
    "a table of three sizes": (opening(block=b"\x3f\xe1\x1f\x20\x3f\x01" + REQUEST), Code.COMPRESSION_ERROR),
    "a block beyond its bound in one frame": (opening(block=b"\x00" * 40_000), Code.ENHANCE_YOUR_CALM),
    "a head beyond its bound": (opening(block=REQUEST + literal(b"x", b"y" * 20_000)), Code.COMPRESSION_ERROR),
    "a block without end": (
        opening(flags=0) + frame(FrameKind.CONTINUATION, 0, 1, bytes(16_000)) * 4,
        Code.ENHANCE_YOUR_CALM,
    ),
}


def test_a_peer_is_told_nothing_that_a_library_says() -> None:
    for block in (b"\xff" * 15_000 + b"\x01", b"\xbf", b"\x00\x85\xff\xff\xff\xff\xff\x00"):
        with pytest.raises(ConnectionFault) as caught:
            greeted()[0].receive(opening(block=block))
        assert str(caught.value) == "a header block that cannot be unpacked, or is too large"


@pytest.mark.parametrize("name", CONNECTION_FAULTS)
@pytest.mark.parametrize("step", [0, 1])
def test_faults_of_a_connection(name: str, step: int) -> None:
    data, code = CONNECTION_FAULTS[name]
    connection, _ = greeted()
    with pytest.raises(ConnectionFault) as caught:
        feed(connection, (data[at : at + (step or len(data))] for at in range(0, len(data), step or len(data))))
    assert caught.value.code is code
    connection.fail(caught.value)
    (last,) = connection.take()[-1:]
    assert last[3] == FrameKind.GOAWAY
    assert int.from_bytes(last[13:17], "big") == code


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", PREFACE[:-1] + b"x", b"PRI * HTTP/1.1"])
def test_what_is_no_http2(data: bytes) -> None:
    with pytest.raises(ConnectionFault):
        Http2Connection(Seen()).receive(data)


def test_settings_come_first() -> None:
    for data in (frame(FrameKind.PING, 0, 0, bytes(8)), opening(), frame(FrameKind.SETTINGS, ACK, 0)):
        with pytest.raises(ConnectionFault, match="first"):
            Http2Connection(Seen()).receive(PREFACE + data)


STREAM_FAULTS = {
    "an upper case name": REQUEST + literal(b"Xy", b"1"),
    "a field of connections": REQUEST + literal(b"connection", b"close"),
    "transfer-encoding": REQUEST + literal(b"transfer-encoding", b"chunked"),
    "te of something else": REQUEST + literal(b"te", b"gzip"),
    "no path": b"\x83\x86",
    "no method": b"\x86\x84",
    "two methods": b"\x83\x83\x86\x84",
    "a pseudo-header of answers": b"\x83\x86\x84\x88",
    "a pseudo-header behind a field": b"\x83\x86" + literal(b"a", b"b") + b"\x84",
    "a line break in a value": REQUEST + literal(b"a", b"b\r\nc"),
    "a zero in a value": REQUEST + literal(b"a", b"\0"),
    "a blank around a value": REQUEST + literal(b"a", b" b"),
    "an empty name": REQUEST + literal(b"", b"b"),
}


@pytest.mark.parametrize("name", STREAM_FAULTS)
def test_a_malformed_head_ends_its_stream_alone(name: str) -> None:
    connection, seen = greeted()
    connection.receive(opening(1, STREAM_FAULTS[name]) + opening(3))
    out = connection.take()
    assert out == [reset(1, Code.PROTOCOL_ERROR)]
    assert list(seen.heads) == [3]


def test_faults_of_a_stream() -> None:
    for more, code in (
        (frame(FrameKind.DATA, END_STREAM, 1, b"x") + frame(FrameKind.DATA, 0, 1, b"y"), Code.STREAM_CLOSED),
        (opening(), Code.PROTOCOL_ERROR),
        (window_update(1, (1 << 31) - 1), Code.FLOW_CONTROL_ERROR),
        (frame(FrameKind.WINDOW_UPDATE, 0, 1, LONG), Code.PROTOCOL_ERROR),
        (frame(FrameKind.PRIORITY, 0, 1, b"abc"), Code.FRAME_SIZE_ERROR),
    ):
        connection, seen = greeted()
        connection.receive(opening() + more)
        assert reset(1, code) in connection.take()
        assert seen.gone == [1]


def test_more_than_was_granted() -> None:
    connection, seen = greeted()
    seen.grants = False
    part = frame(FrameKind.DATA, 0, 1, bytes(16_384))
    connection.receive(opening() + part * 3)
    assert seen.gone == []
    connection.receive(part)
    assert seen.gone == [1]
    assert len(seen.data[1]) < 65_536


FLOODS = {
    "pings": frame(FrameKind.PING, 0, 0, bytes(8)),
    "settings": settings({}),
    "priorities": frame(FrameKind.PRIORITY, 0, 1, bytes(5)),
    "unknown frames": frame(99, 0, 0, b"abc"),
    "windows": window_update(0, 1),
    "empty data": frame(FrameKind.DATA, 0, 1),
    "data of a stream that is over": frame(FrameKind.DATA, 0, 3, b"x"),
    "resets of a stream that is over": reset(3, Code.CANCEL),
    "departures": frame(FrameKind.GOAWAY, 0, 0, bytes(8)),
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods_end_the_connection(name: str) -> None:
    connection, _ = greeted(WasteAllowance(lambda: 0.0))
    connection.receive(opening() + opening(3) + reset(3, Code.CANCEL))
    with pytest.raises(ConnectionFault) as caught:
        feed(connection, [FLOODS[name]] * 10_000)
    assert caught.value.code is Code.ENHANCE_YOUR_CALM


def test_streams_that_are_taken_back_at_once_end_the_connection() -> None:
    connection, _ = greeted(WasteAllowance(lambda: 0.0))
    with pytest.raises(ConnectionFault, match="lead to nothing"):
        feed(connection, (opening(number) + reset(number, Code.CANCEL) for number in range(1, 8001, 2)))


def test_who_makes_calls_that_are_answered_may_say_more() -> None:
    connection, _ = greeted(WasteAllowance(lambda: 0.0))
    for number in range(1, 40_001, 2):
        connection.receive(window_update(0, 1) + frame(FrameKind.PING, 0, 0, bytes(8)))
        connection.receive(opening(number, flags=END_HEADERS | END_STREAM) + window_update(number, 1))
        connection.answer(number, b"\x88", b"x", literal(b"grpc-status", b"0"))
        connection.take()


def test_patience_comes_back() -> None:
    now = [0.0]
    patience = WasteAllowance(lambda: now[0])
    with pytest.raises(ConnectionFault):
        patience.spend(10_000)
    now[0] += 1000.0
    patience.spend(1)


def test_noise_is_refused_or_understood() -> None:
    """Never anything but a fault of the protocol, and no more is kept than a frame or a block."""
    rng = random.Random(7)
    for _ in range(3000):
        connection, _ = greeted()
        try:
            for _ in range(rng.randrange(1, 12)):
                size = rng.choice((0, 1, 4, 5, 6, 8, 9, 40, 300))
                body = rng.choice((rng.randbytes(size), REQUEST, REQUEST[: size % 30], bytes(size)))
                flags = rng.choice((0, 1, 4, 5, 8, 0xC, 0x24, rng.randrange(256)))
                stream = rng.choice((0, 1, 1, 3, 5, 7, 2, (1 << 31) - 1))
                connection.receive(frame(rng.choice((*range(10), 0, 1, 1, 200)), flags, stream, body))
        except ConnectionFault as fault:
            connection.fail(fault)
        assert sum(map(len, connection.take())) < 100_000


def crowded(streams: int) -> Http2Connection:
    """With so many streams that send nothing."""
    found, _ = greeted(WasteAllowance(lambda: 0.0))
    feed(found, (opening(2 * at + 1) for at in range(streams)))
    found.take()
    return found


def processor_seconds(connection: Http2Connection, data: bytes) -> float:
    began = time.thread_time()
    connection.receive(data)
    return time.thread_time() - began


def test_settings_that_are_said_often_count_once() -> None:
    """One frame of ten thousand windows would go over each stream as often."""
    connection = crowded(4000)
    payload = b"".join(struct.pack(">HL", 4, 65_535 + at % 2) for at in range(10_000))
    assert processor_seconds(connection, frame(FrameKind.SETTINGS, 0, 0, payload)) < 0.3
    assert {stream.window for stream in connection._streams.values()} == {65_536}


def test_windows_are_no_matter_of_streams_that_send_nothing() -> None:
    connection = crowded(4000)
    assert processor_seconds(connection, window_update(0, 1) * 3900) < 0.2


def test_a_table_may_have_two_sizes_in_a_block() -> None:
    connection, seen = greeted()
    connection.receive(opening(block=b"\x20\x3f\xe1\x1f" + REQUEST))
    assert list(seen.heads) == [1]


def test_who_has_large_heads_waits_for_others_between_them() -> None:
    """Frames are looked at until time is up; one large head takes as long as many frames of other kinds."""
    connection, seen = greeted()
    large = [opening(number, REQUEST + literal(b"a", b"x" * 8000)) for number in range(1, 41, 2)]
    assert not connection.receive(b"".join(large), until=0.0)
    assert list(seen.heads) == [1]
    turns = 0
    while not connection.receive(b"", until=0.0):
        turns += 1
    assert turns == len(large) - 2
    assert len(seen.heads) == len(large)


def test_large_heads_are_not_remembered() -> None:
    connection, seen = greeted()
    for at in range(100):
        fields = literal(b"a", b"%d" % at * 5000) if at % 2 else b"\x90" * 200
        connection.receive(opening(2 * at + 1, REQUEST + fields + literal(b"b", b"%d" % at)))
    connection.receive(opening(1001, REQUEST) + opening(1003, REQUEST))
    assert len(seen.heads) == 102
    assert list(connection._heads._kept) == [REQUEST]
