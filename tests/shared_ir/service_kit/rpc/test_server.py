"""The server with clients of gRPC: every kind of call, its ends, what it holds, TLS, and how it leaves."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import BytesValue as Bytes
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    PingAckReceived,
    ResponseReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.calls.lanes import CallStage, Lane
from shared_ir.service_kit.http2.frames import Code, FrameKind
from shared_ir.service_kit.listening import CannotListen
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.rpc import server
from shared_ir.service_kit.rpc.messages import framed
from shared_ir.service_kit.rpc.method import admitted, at_once
from shared_ir.service_kit.rpc.request_head import SUCCESS
from shared_ir.service_kit.rpc.server import RpcServer
from shared_ir.service_kit.tls import TlsFiles
from shared_ir.service_kit.waiting import WouldWait
from tests.services.certificates import pair
from tests.shared_ir.service_kit.emptying import Emptying

MOST = 8 << 20


class Service:
    """``gate`` holds up who waits for it."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.ended: list[str] = []
        self.threads: list[str] = []
        self.beginnings: list[bytes] = []
        self.is_free = True
        self.begun = False
        self.place: Emptying | None = None

    def Echo(self, request: Bytes, context: Any) -> Bytes:
        return request

    def _is_small(self, message: bytes) -> bool:
        return len(message) < 500

    @at_once(_is_small)
    def Quick(self, request: Bytes, context: Any) -> Bytes:
        if context.is_at_once and not (self.is_free if self.place is None else self.place.is_empty):
            raise WouldWait(self.place)
        self.threads.append(threading.current_thread().name)
        return request

    def _admit(self, beginning: bytes, peer: str) -> None:
        self.beginnings.append(beginning)
        if b"unwanted" in beginning:
            raise IngotError(ErrorCode.UNAVAILABLE, "not now")

    @admitted(_admit)
    def Picky(self, request: Bytes, context: Any) -> Bytes:
        return request

    def Wait(self, request: Bytes, context: Any) -> Bytes:
        context.add_callback(lambda: self.ended.append("over"))
        self.begun = True
        self.gate.wait(10)
        self.ended.append("active" if context.is_active() else "gone")
        return request

    def Fail(self, request: Bytes, context: Any) -> Bytes:
        if request.value == b"bug":
            raise ZeroDivisionError
        if request.value == b"abort":
            context.abort(grpc.StatusCode.DATA_LOSS, "größer % als\n")
        raise IngotError(ErrorCode.NOT_FOUND, "no such thing", field="thing")

    def Count(self, requests: Iterator[Bytes], context: Any) -> Bytes:
        total = 0
        try:
            for request in requests:
                total += len(request.value)
        except grpc.RpcError:
            self.ended.append("broken off")
            raise
        self.ended.append("whole")
        return Bytes(value=str(total).encode())

    def Split(self, request: Bytes, context: Any) -> Iterator[Bytes]:
        for at in range(0, len(request.value), 1000):
            yield Bytes(value=request.value[at : at + 1000])

    def Talk(self, requests: Iterator[Bytes], context: Any) -> Iterator[Bytes]:
        yield from requests

    def Swell(self, request: Bytes, context: Any) -> Bytes:
        return Bytes(value=bytes(int(request.value)))

    def Odd(self, request: Bytes, context: Any) -> Bytes:
        if request.value == b"metadata":
            context.set_trailing_metadata((("a", 1),))
        else:
            context.add_callback(lambda: 1 // 0)
            context.cancel()
        return request

    def Who(self, request: Bytes, context: Any) -> Bytes:
        names = context.auth_context().get("x509_common_name", [b"nobody"])
        metadata = dict(context.invocation_metadata())
        context.set_trailing_metadata((("seen", metadata.get("say", "")), ("raw-bin", metadata.get("raw-bin", b""))))
        return Bytes(value=names[0])


KINDS = {
    "Echo": grpc.unary_unary_rpc_method_handler,
    "Quick": grpc.unary_unary_rpc_method_handler,
    "Picky": grpc.unary_unary_rpc_method_handler,
    "Wait": grpc.unary_unary_rpc_method_handler,
    "Fail": grpc.unary_unary_rpc_method_handler,
    "Swell": grpc.unary_unary_rpc_method_handler,
    "Odd": grpc.unary_unary_rpc_method_handler,
    "Who": grpc.unary_unary_rpc_method_handler,
    "Count": grpc.stream_unary_rpc_method_handler,
    "Split": grpc.unary_stream_rpc_method_handler,
    "Talk": grpc.stream_stream_rpc_method_handler,
}


@dataclass
class Running:
    service: Service
    server: RpcServer
    lane: Lane
    room: RequestRoom
    port: int

    @contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{self.port}", options=options) as channel:
            yield channel


@contextmanager
def serving(threads: int = 4, most_waiting: int = 0, tls: TlsFiles | None = None) -> Iterator[Running]:
    service, lane, room = Service(), Lane("calls", threads, most_waiting=most_waiting), RequestRoom(1 << 26)
    server = RpcServer(lambda method: lane, room, MOST)
    handlers = {
        name: kind(getattr(service, name), Bytes.FromString, Bytes.SerializeToString) for name, kind in KINDS.items()
    }
    server.add_registered_method_handlers("s", handlers)
    port = server.bind("127.0.0.1:0", tls)
    server.start()
    try:
        yield Running(service, server, lane, room, port)
    finally:
        service.gate.set()
        assert server.stop(5.0).wait(10)


@pytest.fixture
def running() -> Iterator[Running]:
    with serving() as found:
        yield found


@pytest.fixture
def channel(running: Running) -> Iterator[grpc.Channel]:
    with running.channel() as found:
        yield found


def unary(channel: grpc.Channel, name: str) -> Any:
    return channel.unary_unary(f"/s/{name}", Bytes.SerializeToString, Bytes.FromString)


def until(condition: Any) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_384, 65_530, 65_536, 300_000, 4_000_000])
def test_messages_of_any_size(running: Running, channel: grpc.Channel, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert unary(channel, "Echo")(Bytes(value=data), timeout=20).value == data
    count = channel.stream_unary("/s/Count", Bytes.SerializeToString, Bytes.FromString)
    assert count((Bytes(value=data) for _ in range(5)), timeout=20).value == str(5 * size).encode()
    split = channel.unary_stream("/s/Split", Bytes.SerializeToString, Bytes.FromString)
    assert b"".join(part.value for part in split(Bytes(value=data), timeout=20)) == data
    talk = channel.stream_stream("/s/Talk", Bytes.SerializeToString, Bytes.FromString)
    assert [each.value for each in talk(iter([Bytes(value=data)] * 3), timeout=20)] == [data] * 3
    until(lambda: running.room.held == 0)


def test_many_at_once_over_one_connection(running: Running, channel: grpc.Channel) -> None:
    call = unary(channel, "Echo")
    with ThreadPoolExecutor(16) as pool:
        sent = [bytes([at % 256]) * (at * 137 % 90_000) for at in range(200)]
        assert [each.value for each in pool.map(lambda data: call(Bytes(value=data), timeout=30), sent)] == sent
    until(lambda: running.room.held == 0)
    assert running.lane.waiting == 0


def test_what_is_too_large_is_refused_before_it_has_come(running: Running, channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        unary(channel, "Echo")(Bytes(value=bytes(MOST + 1)), timeout=20)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than this server takes" in (caught.value.details() or "")


def test_a_large_message_that_is_not_wanted_need_not_come(running: Running, channel: grpc.Channel) -> None:
    small, large = b"unwanted", b"wanted" + bytes(200_000)
    assert unary(channel, "Picky")(Bytes(value=small), timeout=10).value == small  # it has come as soon as its head
    assert unary(channel, "Picky")(Bytes(value=large), timeout=10).value == large
    caller = Caller(running.port)
    stream = caller.call("/s/Picky")
    caller.http.send_data(stream, framed(Bytes(value=b"unwanted" + bytes(200_000)).SerializeToString())[:1000])
    caller.say()
    assert status(caller.events(StreamEnded, stream), stream) == "14"
    assert [b"unwanted" in each for each in running.service.beginnings] == [False, True]
    assert all(len(each) <= 256 for each in running.service.beginnings)


def test_quick_calls_are_answered_by_the_loop(running: Running, channel: grpc.Channel) -> None:
    call = unary(channel, "Quick")
    assert call(Bytes(value=b"a"), timeout=10).value == b"a"
    assert call(Bytes(value=bytes(1000)), timeout=10).value == bytes(1000)
    running.service.is_free = False
    assert call(Bytes(value=b"b"), timeout=10).value == b"b"
    assert [name.split("_")[0] for name in running.service.threads] == ["rpc", "grpc-calls", "grpc-calls"]


@pytest.mark.parametrize(("looks", "thread"), [(0, "rpc"), (3, "rpc"), (1 << 30, "grpc-calls")])
def test_a_quick_call_is_put_off_until_others_have_gone(
    running: Running, channel: grpc.Channel, looks: int, thread: str
) -> None:
    running.service.place = Emptying(looks)
    assert unary(channel, "Quick")(Bytes(value=b"a"), timeout=10).value == b"a"
    assert [name.split("_")[0] for name in running.service.threads] == [thread]


def test_a_call_that_is_put_off_may_be_cancelled(running: Running, channel: grpc.Channel) -> None:
    running.service.place = Emptying(1 << 30)
    call = unary(channel, "Quick").future(Bytes(value=b"a"), timeout=10)
    until(lambda: running.server._calls)
    call.cancel()
    until(lambda: not running.server._calls)
    time.sleep(0.05)
    assert running.room.held == 0
    running.service.place = None
    assert unary(channel, "Quick")(Bytes(value=b"b"), timeout=10).value == b"b"


def test_statuses(channel: grpc.Channel) -> None:
    for what, code, text in (
        (b"abort", grpc.StatusCode.DATA_LOSS, "größer % als\n"),
        (b"bug", grpc.StatusCode.INTERNAL, "ZeroDivisionError"),
        (b"", grpc.StatusCode.NOT_FOUND, "no such thing"),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            unary(channel, "Fail")(Bytes(value=what), timeout=10)
        assert caught.value.code() is code
        assert text in (caught.value.details() or "")
    with pytest.raises(grpc.RpcError) as caught:
        unary(channel, "None")(Bytes(), timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_metadata_both_ways(channel: grpc.Channel) -> None:
    answer, call = unary(channel, "Who").with_call(
        Bytes(), metadata=(("say", "hi"), ("raw-bin", b"\0\xff")), timeout=10
    )
    assert answer.value == b"nobody"
    assert {("seen", "hi"), ("raw-bin", b"\0\xff")} <= set(call.trailing_metadata())


def test_a_deadline_ends_the_call_and_tells_who_computes(running: Running, channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        unary(channel, "Wait")(Bytes(), timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: running.service.ended == ["over"])
    running.service.gate.set()
    until(lambda: running.service.ended == ["over", "gone"])


def test_an_answer_that_nobody_waits_for_any_more_is_not_counted(running: Running, channel: grpc.Channel) -> None:
    """Nobody would give its bytes back."""
    call = unary(channel, "Wait").future(Bytes(value=bytes(400_000)), timeout=60)
    until(lambda: running.service.begun)
    call.cancel()
    until(lambda: running.service.ended == ["over"])
    running.service.gate.set()
    until(lambda: running.service.ended == ["over", "gone"])
    time.sleep(0.1)
    assert running.room.held == 0


def test_a_client_that_takes_its_call_back(running: Running, channel: grpc.Channel) -> None:
    future = unary(channel, "Wait").future(Bytes(), timeout=10)
    until(lambda: running.lane.executor._work_queue.empty() and running.server._calls)
    future.cancel()
    until(lambda: "over" in running.service.ended)


def test_a_connection_that_breaks_ends_its_calls(running: Running) -> None:
    with running.channel() as channel:
        future = unary(channel, "Wait").future(Bytes(), timeout=10)
        until(lambda: running.server._calls)
    until(lambda: "over" in running.service.ended)
    with pytest.raises(grpc.RpcError):
        future.result()


def test_a_stream_that_is_broken_off_is_not_whole(running: Running, channel: grpc.Channel) -> None:
    going = threading.Event()

    def endless() -> Iterator[Bytes]:
        yield Bytes(value=b"abc")
        going.wait(10)

    method: Any = channel.stream_unary("/s/Count", Bytes.SerializeToString, Bytes.FromString)
    count = method.future(endless(), timeout=10)
    until(lambda: running.server._calls)
    time.sleep(0.05)
    count.cancel()
    going.set()
    until(lambda: running.service.ended == ["broken off"])


def test_calls_beyond_those_that_may_wait_are_refused() -> None:
    with serving(threads=1, most_waiting=2) as running, running.channel() as channel:
        call = unary(channel, "Wait")
        waiting = [call.future(Bytes(), timeout=20) for _ in range(3)]
        until(lambda: running.lane.waiting == 2)
        with pytest.raises(grpc.RpcError) as caught:
            call(Bytes(), timeout=20)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        running.service.gate.set()
        assert [each.result().value for each in waiting] == [b""] * 3
        assert call(Bytes(), timeout=20).value == b""


def test_who_leaves_finishes_what_is_in_flight(running: Running) -> None:
    with running.channel() as channel:
        future = unary(channel, "Wait").future(Bytes(value=b"x"), timeout=10)
        until(lambda: running.server._calls)
        stopped = running.server.stop(10.0)
        time.sleep(0.2)
        assert not stopped.is_set()
        running.service.gate.set()
        assert future.result().value == b"x"
        assert stopped.wait(5)
    with running.channel() as channel, pytest.raises(grpc.RpcError) as caught:
        unary(channel, "Echo")(Bytes(), timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_who_leaves_waits_no_longer_than_said(running: Running) -> None:
    with running.channel() as channel:
        future = unary(channel, "Wait").future(Bytes(), timeout=20)
        until(lambda: running.server._calls)
        assert running.server.stop(0.2).wait(5)
        with pytest.raises(grpc.RpcError):
            future.result()


def test_clients_that_show_a_certificate_have_a_name(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, "localhost")
    with serving(tls=TlsFiles(certificate, key, certificate)) as running:
        own = grpc.ssl_channel_credentials(certificate.read_bytes(), key.read_bytes(), certificate.read_bytes())
        with grpc.secure_channel(f"localhost:{running.port}", own) as channel:
            assert unary(channel, "Who")(Bytes(), timeout=10).value == b"localhost"
            assert unary(channel, "Echo")(Bytes(value=bytes(1 << 20)), timeout=10).value == bytes(1 << 20)
        for other in (grpc.ssl_channel_credentials(certificate.read_bytes()), None):
            address = f"localhost:{running.port}"
            with grpc.secure_channel(address, other) if other else grpc.insecure_channel(address) as channel:
                with pytest.raises(grpc.RpcError) as caught:
                    unary(channel, "Who")(Bytes(), timeout=5)
                assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


class Caller:
    """A client of one connection whose windows are as wide as ``window``, and which reads when it is told to."""

    def __init__(self, port: int, window: int = 1 << 30, source: str = "127.0.0.1") -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.bind((source, 0))
        self.socket.settimeout(10)
        self.socket.connect(("127.0.0.1", port))
        self.http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.http.initiate_connection()
        self.http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.http.increment_flow_control_window(1 << 30)
        self.say()
        self.events(SettingsAcknowledged)

    def say(self) -> None:
        self.socket.sendall(self.http.data_to_send())

    def call(self, path: str, message: bytes | None = None, *more: tuple[str, str]) -> int:
        """A stream with a whole message, or with none that comes."""
        stream: int = self.http.get_next_available_stream_id()
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "x"),
            ("content-type", "application/grpc"),
            *more,
        ]
        self.http.send_headers(stream, fields)
        if message is not None:
            data = framed(Bytes(value=message).SerializeToString())
            for at in range(0, len(data), 16_384):
                self.http.send_data(stream, data[at : at + 16_384], end_stream=at + 16_384 >= len(data))
        self.say()
        return stream

    def events(self, kind: type[Any], stream: int = 0) -> list[Any]:
        """What comes until something of a kind does, on a stream if that is given."""
        found: list[Any] = []
        while not any(isinstance(each, kind) and (not stream or each.stream_id == stream) for each in found):
            data = self.socket.recv(1 << 16)
            assert data, "the connection has ended"
            found += self.http.receive_data(data)
            self.say()
        return found


def status(events: Sequence[Any], stream: int) -> str:
    """Of a call, from its trailers or its head."""
    kinds = (TrailersReceived, ResponseReceived)
    heads: list[dict[Any, Any]] = [
        dict(each.headers) for each in events if isinstance(each, kinds) and each.stream_id == stream
    ]
    return str(heads[-1].get("grpc-status", "none")) if heads else "none"


def test_handshakes_count_as_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_most_connections", lambda: 3)
    lane = Lane("calls", 1)
    made = RpcServer(lambda path: lane, RequestRoom(1 << 20), MOST)
    port = made.bind("127.0.0.1:0", TlsFiles(*pair(tmp_path, "localhost")))
    made.start()
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(3)]
        until(lambda: len(made._endpoints) == 3)
        with socket.create_connection(("127.0.0.1", port), 10) as another:
            assert another.recv(1) == b""
        for each in silent:
            each.close()
        until(lambda: not made._endpoints)
    made.stop(0).wait(10)


def test_the_last_answer_leaves_whole_when_the_server_does(running: Running) -> None:
    caller = Caller(running.port)
    caller.call("/s/Swell", b"6000000")
    until(lambda: [call.watched.stage for call in running.server._calls] == [CallStage.ANSWERING])
    stopped = running.server.stop(10.0)
    data = b"".join(iter(partial(caller.socket.recv, 1 << 16), b""))
    assert len(data) > 6_000_000
    assert data.endswith(SUCCESS)
    assert stopped.wait(10)


def test_a_deadline_within_an_answer_ends_the_stream_and_is_no_second_head(running: Running) -> None:
    caller = Caller(running.port, window=1000)
    stream = caller.call("/s/Echo", bytes(50_000), ("grpc-timeout", "300m"))
    (end,) = [each for each in caller.events(StreamReset, stream) if isinstance(each, StreamReset)]
    assert end.error_code == Code.CANCEL
    until(lambda: not running.server._calls)


def test_who_takes_no_end_is_waited_for_as_who_takes_no_answer(running: Running) -> None:
    caller = Caller(running.port, window=0)
    caller.call("/s/Split", bytes(500))
    until(lambda: [call.watched.stage for call in running.server._calls] == [CallStage.ANSWERING])
    (call,) = running.server._calls
    until(lambda: call.code() is None and call.has_head and not call.outgoing)
    assert call.watched.limit < 120


def test_one_peer_leaves_room_for_others(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST_CALLS", 8)
    crowd, other = Caller(running.port), Caller(running.port, source="127.0.0.2")
    for _ in range(5):
        last = crowd.call("/s/Echo")
    assert status(crowd.events(StreamEnded, last), last) == "8"
    since = time.monotonic()
    for call in running.server._calls:
        call.watched.since = since  # all are late at once: of some that are let go first, the rest would be no crowd
    mine = other.call("/s/Echo", b"x")
    assert status(other.events(StreamEnded, mine), mine) == "0"
    until(lambda: not running.server._calls)  # they have let the server wait for too long
    again = crowd.call("/s/Echo", b"x")
    assert status(crowd.events(StreamEnded, again), again) == "0"
    assert not running.server._by_peer


def test_idle_connections_of_one_peer_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 8)
    with serving() as running:
        crowd = [Caller(running.port) for _ in range(6)]
        with pytest.raises((AssertionError, ConnectionError)):
            Caller(running.port)
        until(lambda: len(running.server._endpoints) < 6)
        crowd.append(Caller(running.port))
        other = Caller(running.port, source="127.0.0.2")
        mine = other.call("/s/Echo", b"x")
        assert status(other.events(StreamEnded, mine), mine) == "0"
        for each in crowd:
            each.socket.close()


@pytest.mark.parametrize(("files", "most"), [(resource.RLIM_INFINITY, 16_384), (1024, 512), (1 << 20, 16_384)])
def test_connections_leave_files_to_others(monkeypatch: pytest.MonkeyPatch, files: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (files, files))
    assert RpcServer(lambda method: Lane("calls", 1), RequestRoom(1), 1)._most_connections == most


def test_who_asks_for_what_there_is_not_may_not_go_on_for_ever(running: Running) -> None:
    caller = Caller(running.port)

    def ask() -> None:
        for _ in range(30):
            streams = [caller.call("/s/None", b"") for _ in range(100)]
            caller.events(StreamEnded, streams[-1])

    with pytest.raises((AssertionError, ConnectionError)):
        ask()
    with running.channel() as channel:
        assert unary(channel, "Echo")(Bytes(value=b"x"), timeout=10).value == b"x"


def test_a_stream_without_room_asks_for_it_once_at_a_time(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    retries: list[Any] = []
    monkeypatch.setattr(running.server, "retry", lambda *asked: retries.append(asked))
    running.room.enter("another", lambda: None).take(1 << 26)
    caller = Caller(running.port)
    stream = caller.call("/s/Count")
    caller.http.send_data(stream, framed(bytes(100_000))[:16_000])
    for _ in range(3):
        caller.http.send_data(stream, bytes(14_000))
    for _ in range(200):
        caller.http.send_data(stream, b"x")
    caller.say()
    until(lambda: running.server._calls and next(iter(running.server._calls)).assembler.held == 58_200)
    assert len(retries) == 1


def test_what_fails_after_a_call_harms_no_other(running: Running, channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError):
        unary(channel, "Odd")(Bytes(value=b"callback"), timeout=10)
    with pytest.raises(grpc.RpcError):
        unary(channel, "Odd")(Bytes(value=b"metadata"), timeout=10)
    assert unary(channel, "Echo")(Bytes(value=b"x"), timeout=10).value == b"x"
    until(lambda: not running.server._calls and not running.room.held)


def test_an_interceptor_that_fails_ends_its_call_alone(
    running: Running, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = unary(channel, "Wait").future(Bytes(value=b"x"), timeout=10)
    until(lambda: running.server._calls)
    with monkeypatch.context() as patch:
        patch.setattr(running.server, "_find", lambda details: 1 // 0)
        with pytest.raises(grpc.RpcError) as caught:
            unary(channel, "Echo")(Bytes(), timeout=10)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    running.service.gate.set()
    assert waiting.result().value == b"x"


def test_a_quick_call_that_finds_no_room_goes_where_it_may_wait(running: Running, channel: grpc.Channel) -> None:
    asked: list[str] = []
    victim = running.room.enter("another", lambda: asked.append(threading.current_thread().name))
    victim.take(1 << 26)
    victim.waits_since = time.monotonic() - 10
    with pytest.raises(grpc.RpcError) as caught:
        unary(channel, "Quick")(Bytes(value=bytes(400)), timeout=10)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    until(lambda: not running.server._calls)
    assert running.room.held == 1 << 26
    assert [name.split("_")[0] for name in asked] == ["grpc-calls"]


def test_an_address_that_is_taken(running: Running) -> None:
    with pytest.raises(CannotListen, match="cannot listen"):
        RpcServer(lambda method: running.lane, running.room, 1000).bind(f"127.0.0.1:{running.port}")
    for address in ("127.0.0.1:99999", "127.0.0.1:x", "no.such.host.invalid:1"):
        with pytest.raises(CannotListen):
            RpcServer(lambda method: running.lane, running.room, 1000).bind(address)


def test_sockets_in_folders(tmp_path: Path) -> None:
    service, lane = Service(), Lane("calls", 1)
    server = RpcServer(lambda method: lane, RequestRoom(1 << 20), 1000)
    handler = grpc.unary_unary_rpc_method_handler(service.Echo, Bytes.FromString, Bytes.SerializeToString)
    server.add_registered_method_handlers("s", {"Echo": handler})
    server.bind(f"unix:{tmp_path}/socket")
    server.start()
    assert (tmp_path / "socket").stat().st_mode & 0o777 == 0o600
    with grpc.insecure_channel(f"unix:{tmp_path}/socket") as channel:
        assert unary(channel, "Echo")(Bytes(value=b"x"), timeout=5).value == b"x"
    assert server.stop(0).wait(5)


def test_many_messages_that_do_not_come_whole_stay_within_the_room(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []
    monkeypatch.setattr(running.room, "total", 1_000_000)
    monkeypatch.setattr(running.room, "share", 500_000)
    monkeypatch.setattr(running.room, "passed", passed.append)
    caller = Caller(running.port)

    def send(count: int) -> None:
        for _ in range(count):
            stream = caller.call("/s/Echo")
            caller.http.send_data(stream, framed(bytes(100_000))[:10_000])
            caller.say()
        caller.http.ping(bytes(8))
        caller.say()
        caller.events(PingAckReceived)

    def held() -> int:
        return sum(call.assembler.held for call in running.server._calls)

    send(200)
    assert 400_000 < held() <= running.room.held <= 500_000
    assert sum(passed) == 1_500_000 + 10_000 * (50 - len(running.server._calls))
    time.sleep(1.1)  # from now on they may be told to go
    before = set(running.server._calls)
    send(20)
    until(lambda: len(before - running.server._calls) >= 16)
    assert held() <= running.room.held <= 500_000
    caller.socket.close()
    until(lambda: not running.server._calls and not running.room.held)
    assert sum(passed) == 2_200_000


def test_frames_that_do_not_come_whole_stay_within_the_room(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.room, "total", 400_000)
    monkeypatch.setattr(running.room, "share", 200_000)
    callers = [Caller(running.port) for _ in range(8)]
    begun = (60_000).to_bytes(3, "big") + bytes([FrameKind.DATA, 0, 0, 0, 0, 1]) + bytes(50_000)
    for each in callers:
        each.call("/s/Echo")
        each.socket.sendall(begun)
    until(lambda: len(running.server._endpoints) <= 4)  # others have been let go
    assert 100_000 < running.room.held <= 200_000
    assert sum(each._connection.held for each in running.server._endpoints) <= 201_000
    with running.channel() as channel:  # and those that stay are let go where there is need of their room
        assert unary(channel, "Echo")(Bytes(value=bytes(30_000)), timeout=10, wait_for_ready=True).value == bytes(
            30_000
        )
    for each in callers:
        each.socket.close()
    until(lambda: not running.server._endpoints and not running.room.held)
