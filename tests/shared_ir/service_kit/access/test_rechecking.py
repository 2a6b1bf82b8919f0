"""A stream of any kind ends with the first message after its caller is let in no longer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.access.bearer import AccessInterceptor
from shared_ir.service_kit.access.gate import unauthenticated
from shared_ir.service_kit.access.principal import Principal
from shared_ir.service_kit.calls.exchange import Terms, exchange
from shared_ir.service_kit.calls.lanes import Lane
from shared_ir.service_kit.calls.outlet import Attach, Outlet, detached
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.rpc.server import RpcServer
from tests.shared_ir.service_kit.rpc.test_server import until

TOKEN = (("authorization", "Bearer x"),)


class Door:
    """A gate that is open until it is closed."""

    changes = True

    def __init__(self) -> None:
        self.is_open = True

    def caller(self, header: str | bytes | None) -> Principal:
        if not self.is_open:
            raise unauthenticated()
        return Principal()


class Streams:
    def __init__(self) -> None:
        self.outlets: list[Outlet] = []
        self.taken: list[bytes] = []

    def Take(self, requests: Iterator[bytes], context: Any) -> bytes:
        self.taken.extend(requests)
        return b"all"

    def Give(self, request: bytes, context: Any) -> Iterator[bytes]:
        for _ in range(100):
            yield bytes(20_000)

    def Talk(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        yield from requests

    @exchange(Terms(most=4, refused=lambda error, message: error.code.value.encode()))
    def Each(self, message: bytes, context: Any) -> bytes:
        return message

    @detached
    def Tell(self, request: bytes, context: Any) -> Attach:
        return self.outlets.append

    def One(self, request: bytes, context: Any) -> bytes:
        return request


@pytest.fixture
def served() -> Iterator[tuple[Door, Streams, grpc.Channel]]:
    door, streams, lane = Door(), Streams(), Lane("calls", 8)
    server = RpcServer(lambda method: lane, RequestRoom(1 << 26), 1 << 20, [AccessInterceptor(door)])
    handlers = {
        "Take": grpc.stream_unary_rpc_method_handler(streams.Take),
        "Give": grpc.unary_stream_rpc_method_handler(streams.Give),
        "Talk": grpc.stream_stream_rpc_method_handler(streams.Talk),
        "Each": grpc.stream_stream_rpc_method_handler(streams.Each),
        "Tell": grpc.unary_stream_rpc_method_handler(streams.Tell),
        "One": grpc.unary_unary_rpc_method_handler(streams.One),
    }
    server.add_registered_method_handlers("s", handlers)
    port = server.bind("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield door, streams, channel
    assert server.stop(0).wait(10)


def refused(call: Any) -> bool:
    with pytest.raises(grpc.RpcError) as caught:
        for _ in call:
            pass
    return caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_who_sends(served: Any) -> None:
    door, streams, channel = served

    def messages() -> Iterator[bytes]:
        yield b"a"
        until(lambda: streams.taken == [b"a"])
        door.is_open = False
        yield b"b"

    with pytest.raises(grpc.RpcError) as caught:
        channel.stream_unary("/s/Take")(messages(), metadata=TOKEN, timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert streams.taken == [b"a"]


def test_who_is_given(served: Any) -> None:
    door, _, channel = served
    call = channel.unary_stream("/s/Give")(b"", metadata=TOKEN, timeout=10)
    assert next(call) == bytes(20_000)
    door.is_open = False
    assert refused(call)


def test_who_does_both(served: Any) -> None:
    door, _, channel = served

    def messages() -> Iterator[bytes]:
        yield b"a"
        until(lambda: not door.is_open)
        yield b"b"

    for name in ("Talk", "Each"):
        door.is_open = True
        call = channel.stream_stream(f"/s/{name}")(messages(), metadata=TOKEN, timeout=10)
        assert next(call) == b"a"
        door.is_open = False
        if name == "Talk":
            assert refused(call)
        else:  # its messages are calls of their own, each with its answer
            assert list(call) == [ErrorCode.UNAUTHENTICATED.value.encode()]


def test_who_is_told(served: Any) -> None:
    door, streams, channel = served
    call = channel.unary_stream("/s/Tell")(b"", metadata=TOKEN, timeout=10)
    until(lambda: streams.outlets)
    (outlet,) = streams.outlets
    assert outlet.send(b"a")
    assert next(call) == b"a"
    assert not outlet.outstanding
    door.is_open = False
    assert not outlet.send(b"b")
    assert refused(call)
    until(lambda: not outlet.is_open)


def test_single_messages_are_asked_once(served: Any) -> None:
    _, _, channel = served
    assert channel.unary_unary("/s/One")(b"a", metadata=TOKEN, timeout=10) == b"a"


def test_an_error_of_the_stream_itself_is_kept(served: Any) -> None:
    _, streams, channel = served
    call = channel.unary_stream("/s/Tell")(b"", metadata=TOKEN, timeout=10)
    until(lambda: streams.outlets)
    taken: list[int] = []
    streams.outlets[0].when_drained(lambda: taken.append(1))
    streams.outlets[0].end(IngotError(ErrorCode.NOT_FOUND, "gone"))
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert (caught.value.code(), taken) == (grpc.StatusCode.NOT_FOUND, [1])
