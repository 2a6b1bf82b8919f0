"""Messages put together from any parts; heads read, and trailers written, as gRPC has them."""

from __future__ import annotations

import time
import tracemalloc
from urllib.parse import unquote_to_bytes

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http2.headers import HeadReader, Http2Head
from shared_ir.service_kit.rpc.messages import PREFIX_BYTES, Assembler, framed
from shared_ir.service_kit.rpc.request_head import read_head, trailers


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 60), min_size=1))
def test_messages_are_the_same_however_they_are_cut(messages: list[bytes], steps: list[int]) -> None:
    data, found, assembler, at, turn = b"".join(map(framed, messages)), [], Assembler(1000), 0, 0
    while at < len(data):
        size = steps[turn % len(steps)]
        found += assembler.feed(data[at : at + size])
        at, turn = at + size, turn + 1
        whole = sum(PREFIX_BYTES + len(each) for each in found)
        assert assembler.held == min(at, len(data)) - whole
        if assembler.held >= PREFIX_BYTES:
            assert assembler.missing + assembler.held == PREFIX_BYTES + len(messages[len(found)])
    assert found == messages
    assert assembler.is_between


def test_small_pieces_take_no_more_than_what_they_are() -> None:
    assembler, data = Assembler(1 << 20), framed(bytes(1 << 20))
    tracemalloc.start()
    try:
        found = [message for at in range(0, len(data), 2) for message in assembler.feed(data[at : at + 2])]
        assert tracemalloc.get_traced_memory()[1] < 3 << 20
    finally:
        tracemalloc.stop()
    assert found == [bytes(1 << 20)]


def test_many_messages_at_once_are_taken_apart_once() -> None:
    began = time.thread_time()
    assert Assembler(10).feed(bytes(5 << 18)) == [b""] * (1 << 18)
    assert time.thread_time() - began < 1


def test_what_is_no_message() -> None:
    with pytest.raises(IngotError, match="compressed") as caught:
        Assembler(10).feed(b"\x01\0\0\0\x01x")
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(IngotError, match="larger") as caught:
        Assembler(10).feed(b"\0\0\0\0\x0b")
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED


def head(*fields: tuple[bytes, bytes], method: bytes = b"POST") -> Http2Head:
    return Http2Head(method, b"/s/m", b"localhost", ((b"content-type", b"application/grpc+proto"), *fields))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"400m", 0.4), (b"99999999u", 99.999999), (b"5n", 5e-9), (b"0S", 0)],
)
def test_timeouts(text: bytes, seconds: float) -> None:
    assert read_head(head((b"grpc-timeout", text))).timeout == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"", b"1", b"S", b"-1S", b"1.5S", b"123456789S", b"1s", b"1 S"])
def test_timeouts_that_are_none(text: bytes) -> None:
    refusal = read_head(head((b"grpc-timeout", text))).refusal
    assert refusal is not None
    assert refusal[0] is grpc.StatusCode.INTERNAL


def test_metadata() -> None:
    found = read_head(head((b"te", b"trailers"), (b"a", b"b"), (b"a", b"c"), (b"x-bin", b"AAEC"), (b"y-bin", b"AQ")))
    assert found.metadata == (("a", "b"), ("a", "c"), ("x-bin", b"\0\1\2"), ("y-bin", b"\1"))
    assert read_head(head((b"x-bin", b"?"))).refusal is not None


def test_what_is_no_grpc() -> None:
    assert not read_head(head(method=b"GET")).is_grpc
    assert not read_head(Http2Head(b"POST", b"/", b"", ((b"content-type", b"text/html"),))).is_grpc
    compressed = read_head(head((b"grpc-encoding", b"gzip"))).refusal
    assert compressed is not None
    assert compressed[0] is grpc.StatusCode.UNIMPLEMENTED


@given(st.text(max_size=300), st.binary(max_size=100))
def test_trailers_carry_any_text_and_bytes(text: str, data: bytes) -> None:
    text = text.encode("utf-8", "replace").decode()
    block = b"\x83\x86\x84" + trailers(grpc.StatusCode.NOT_FOUND, text, (("x-bin", data),))
    found = read_head(HeadReader().read(block))
    given = dict(HeadReader().read(block).fields)
    assert given[b"grpc-status"] == b"5"
    assert unquote_to_bytes(given.get(b"grpc-message", b"")).decode() == text
    assert dict(found.metadata)["x-bin"] == data


@pytest.mark.parametrize("kind", [b"application/grpc", b"application/grpc+proto", b"application/grpc;charset=utf-8"])
def test_what_is_grpc(kind: bytes) -> None:
    assert read_head(Http2Head(b"POST", b"/s/m", b"", ((b"content-type", kind),))).is_grpc


@pytest.mark.parametrize("kind", [b"", b"application/json", b"application/grpc-web", b"application/grpc-web+proto"])
def test_what_is_framed_otherwise(kind: bytes) -> None:
    assert not read_head(Http2Head(b"POST", b"/s/m", b"", ((b"content-type", kind),))).is_grpc
