"""Streams whose messages are answered one by one, over a service of our own."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.calls.exchange import Terms, exchange
from shared_ir.service_kit.calls.lanes import Lane
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.rpc.server import RpcServer

Text = health_pb2.HealthCheckRequest


class Service:
    """Messages are ``key milliseconds what``; ``what`` is answered, or ``fails``."""

    def __init__(self) -> None:
        self.channel: Any = None
        self.lock = threading.Lock()
        self.running: list[str] = []
        self.most_together = 0
        self.together: set[tuple[str, str]] = set()
        self.order: list[str] = []
        self.kept: list[bytes] = []

    @exchange(Terms(most=8, refused=lambda error, message: b"refused"))
    def Keep(self, request: bytes, context: Any) -> bytes:
        self.kept.append(request)
        return b"kept"

    @exchange(
        Terms(
            most=8,
            refused=lambda error, message: Text(service=f"refused {error.message}"),
            key=lambda message: message.service.split()[0].strip("-"),
        )
    )
    def Answer(self, request: Any, context: Any) -> Any:
        key, milliseconds, what = request.service.split()
        with self.lock:
            self.together |= {(key, other) for other in self.running}
            self.running.append(key)
            self.order.append(what)
            self.most_together = max(self.most_together, len(self.running))
        time.sleep(int(milliseconds) / 1e3)
        with self.lock:
            self.running.remove(key)
        if what == "fails":
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "as asked")
        if what == "breaks":
            raise ZeroDivisionError
        return Text(service=what)


@pytest.fixture
def served() -> Iterator[tuple[Service, Any, RequestRoom, Lane]]:
    service, work = Service(), Lane("work", 8)
    streams = Lane("streams", 4, work=work)
    room = RequestRoom(1 << 30)
    server = RpcServer(lambda method: streams, room, 1 << 20)
    handler = grpc.stream_stream_rpc_method_handler(service.Answer, Text.FromString, Text.SerializeToString)
    plain = grpc.stream_stream_rpc_method_handler(service.Keep)
    server.add_registered_method_handlers("s", {"Answer": handler, "Keep": plain})
    port = server.bind("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        service.channel = channel
        yield service, channel.stream_stream("/s/Answer", Text.SerializeToString, Text.FromString), room, work
    server.stop(0).wait()


def answers(method: Any, *messages: str) -> list[str]:
    return [answer.service for answer in method((Text(service=each) for each in messages), timeout=30)]


def test_messages_without_a_key_are_answered_together(served: Any) -> None:
    service, method, _, _ = served
    assert answers(method, *(f"- 100 {at}" for at in range(16))) == [str(at) for at in range(16)]
    assert 2 <= service.most_together <= 8


def test_messages_of_one_key_are_answered_one_after_the_other(served: Any) -> None:
    service, method, room, work = served
    messages = [f"{'ab-'[at % 3]} {at % 4} {at}" for at in range(120)]
    assert answers(method, *messages) == [str(at) for at in range(120)]
    assert service.together.isdisjoint({("a", "a"), ("b", "b")})
    assert [what for what in service.order if int(what) % 3 == 0] == [str(at) for at in range(0, 120, 3)]
    assert (work.waiting, work.running, room.held) == (0, set(), 0)


@pytest.mark.parametrize("what", ["fails", "breaks"])
def test_what_fails_holds_up_nobody_of_its_key(served: Any, what: str) -> None:
    _, method, _, _ = served
    found = answers(method, f"a 1 {what}", "a 1 x", f"a 1 {what}", f"- 1 {what}", "a 1 y")
    assert [each for each in found if "refused" not in each] == ["x", "y"]
    assert [at for at, each in enumerate(found) if "refused" in each] == [0, 2, 3]


def test_a_lane_that_is_full_refuses_messages_and_the_stream_goes_on(served: Any) -> None:
    _, method, _, work = served
    work.most_waiting = 1
    work.executor.waiting = 1  # as if another call waited
    found = answers(method, "a 1 x", "a 1 y", "- 1 z")
    assert found == ["refused too many calls wait on this server"] * 3
    work.executor.waiting = 0
    assert answers(method, "a 1 x", "a 1 y", "- 1 z")[0] == "x"


def test_a_silent_stream_keeps_nothing_of_what_it_has_sent(served: Any) -> None:
    service, _, room, _ = served
    silence = threading.Event()

    def messages() -> Iterator[bytes]:
        for each in range(3):
            yield bytes([each]) * 100_000
        silence.wait(20)

    answers = service.channel.stream_stream("/s/Keep")(messages())
    assert [next(answers) for _ in range(3)] == [b"kept"] * 3
    end = time.monotonic() + 10
    while any(sys.getrefcount(service.kept[at]) > 2 for at in range(3)) and time.monotonic() < end:
        time.sleep(0.01)
    assert [sys.getrefcount(service.kept[at]) for at in range(3)] == [2, 2, 2]  # the list, and who asks
    assert room.held == 0
    silence.set()
    assert list(answers) == []
