"""Who watches health: told at once and of every change, by no thread of his own, whatever others do not take."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from h2.events import DataReceived, StreamEnded

from shared_ir.service_kit.calls.handler import with_behaviour
from shared_ir.service_kit.calls.lanes import Lane
from shared_ir.service_kit.calls.outlet import is_detached
from shared_ir.service_kit.health import WATCH, Health
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.rpc.server import RpcServer
from tests.shared_ir.service_kit.rpc.test_server import Caller, until

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
CROWD = 300


class Around(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Puts a function of its own around every method, as those do that count calls."""

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        inner = handler.unary_unary or handler.unary_stream
        own = inner if is_detached(inner) else lambda request, context: inner(request, context)
        return with_behaviour(handler, own)


@dataclass
class Watched:
    health: Health
    server: RpcServer
    lane: Lane
    port: int

    def stub(self, channel: grpc.Channel) -> Any:
        return health_pb2_grpc.HealthStub(channel)

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(f"127.0.0.1:{self.port}", [("grpc.use_local_subchannel_pool", 1)])


@pytest.fixture
def watched() -> Iterator[Watched]:
    health, lane = Health(), Lane("checks", 2, most_waiting=2 * CROWD)
    server = RpcServer(lambda method: lane, RequestRoom(1 << 20), 1 << 20, [Around()])
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    port = server.bind("127.0.0.1:0")
    health.set("", True)
    server.start()
    yield Watched(health, server, lane, port)
    health.leave()
    assert server.stop(2.0).wait(10)


def test_watchers_are_told_of_every_change_and_the_end(watched: Watched) -> None:
    with watched.channel() as channel:
        watch = watched.stub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=20)
        assert next(watch).status == SERVING
        watched.health.set("", False)
        assert next(watch).status == NOT_SERVING
        watched.health.set("", False)
        watched.health.set("", True)
        assert next(watch).status == SERVING
        other = watched.stub(channel).Watch(health_pb2.HealthCheckRequest(service="m"), timeout=20)
        assert next(other).status == UNKNOWN
        watched.health.set_others({"m": True})
        assert next(other).status == SERVING
        watched.health.leave()
        assert [each.status for each in watch] == [NOT_SERVING]
        assert [each.status for each in other] == [NOT_SERVING]
        until(lambda: not watched.health._watchers)
        late = watched.stub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=20)
        assert [each.status for each in late] == [NOT_SERVING]


def test_a_crowd_of_watchers_takes_no_threads_and_no_turns(watched: Watched) -> None:
    request, before = health_pb2.HealthCheckRequest(), set(threading.enumerate())
    with watched.channel() as channel, watched.channel() as other:
        crowd = [watched.stub(channel).Watch(request, timeout=60) for _ in range(CROWD)]
        assert {next(each).status for each in crowd} == {SERVING}
        assert len(set(threading.enumerate()) - before) <= 4  # two of the lane, who tells, and one of the client
        assert watched.stub(other).Check(request, timeout=5).status == SERVING
        mine = watched.stub(other).Watch(request, timeout=5)
        assert next(mine).status == SERVING
        watched.health.set("", False)
        assert next(mine).status == NOT_SERVING
        assert {next(each).status for each in crowd} == {NOT_SERVING}
        for each in crowd:
            each.cancel()
        mine.cancel()
        until(lambda: not watched.health._watchers)


def test_one_who_takes_nothing_keeps_nobody_waiting_and_hears_the_last(watched: Watched) -> None:
    stuck = Caller(watched.port, window=0)
    stream = stuck.call(WATCH, b"")
    until(lambda: watched.health._watchers)
    with watched.channel() as channel:
        watch = watched.stub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=20)
        told = [next(watch).status]
        for number in range(100):
            watched.health.set("", bool(number % 2))
            told.append(next(watch).status)
        assert told == [SERVING, *[NOT_SERVING, SERVING] * 50]
        (one,) = [each for each in watched.health._watchers if each.outlet.outstanding]
        assert one.outlet.outstanding < 20
        watched.health.set("", False)
        assert next(watch).status == NOT_SERVING
        stuck.http.increment_flow_control_window(1 << 16, stream)
        stuck.say()
        until(lambda: not one.outlet.outstanding and one.told == NOT_SERVING)
        watched.health.leave()
        found = b"".join(each.data for each in stuck.events(StreamEnded, stream) if isinstance(each, DataReceived))
        assert found == b"\0\0\0\0\2\x08\1" + b"\0\0\0\0\2\x08\2"


def test_checks_are_answered_whatever_waits_for_threads(watched: Watched) -> None:
    """They take none, behind interceptors neither."""
    lane, over = watched.lane, threading.Event()
    for _ in range(lane.threads + lane.most_waiting):
        lane.executor.submit(over.wait, 20)
    try:
        with watched.channel() as channel:
            answers = [
                watched.stub(channel).Check.future(health_pb2.HealthCheckRequest(), timeout=5) for _ in range(100)
            ]
            assert {each.result().status for each in answers} == {SERVING}
    finally:
        over.set()
