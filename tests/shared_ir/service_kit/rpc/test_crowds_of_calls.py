"""One client that takes all it can get of a server of calls: heads, threads, turns, connections; and streams that hold no thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import BytesValue as Bytes
from h2.events import StreamEnded

from shared_ir.service_kit.calls.lanes import Lane
from shared_ir.service_kit.calls.outlet import Attach, Outlet, detached
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.rpc import server
from shared_ir.service_kit.rpc.messages import framed
from shared_ir.service_kit.rpc.server import RpcServer
from tests.shared_ir.service_kit.rpc.test_server import Caller, serving, status, unary, until

OTHER = "127.0.0.2"


def test_large_heads_are_counted_as_what_they_take() -> None:
    """A field that was said once takes a byte on its way from then on, and a hundred here."""
    with serving() as running:
        caller = Caller(running.port)
        many = [(f"k{number:03}", "v") for number in range(300)]
        for _ in range(20):
            caller.call("/s/Echo", None, *many)
        until(lambda: len(running.server._calls) == 20)
        assert running.room.held > 20 * 300 * 100
        small = Caller(running.port)
        small.call("/s/Echo", None, ("a", "b"))
        until(lambda: len(running.server._calls) == 21)
        caller.socket.close()
        until(lambda: not running.room.held)
        small.socket.close()


def test_large_heads_for_which_there_is_no_room_are_refused() -> None:
    with serving() as running:
        running.room.enter("another", lambda: None).take(1 << 26)
        caller = Caller(running.port)
        refused = caller.call("/s/Echo", b"x", *((f"k{number:03}", "v") for number in range(300)))
        assert status(caller.events(StreamEnded, refused), refused) == "8"
        small = caller.call("/s/Echo", b"x")
        assert status(caller.events(StreamEnded, small), small) == "0"


def drip(caller: Caller, stream: int, over: threading.Event) -> None:
    """A message of a byte now and then, always sooner than who is silent would be let go."""
    while not over.wait(0.1):
        caller.http.send_data(stream, framed(Bytes(value=b"x").SerializeToString()))
        try:
            caller.say()
        except OSError:
            return


@pytest.mark.parametrize("is_paced", [False, True])
def test_streams_of_drops_give_their_threads_to_others(is_paced: bool) -> None:
    """Of another address always; of the same one where it is all waiting that counts."""
    with serving(threads=4) as running:
        running.lane.is_paced, running.lane.grace = is_paced, 0.5
        over, drips = threading.Event(), []
        for _ in range(4):
            caller = Caller(running.port)
            drips.append(threading.Thread(target=drip, args=(caller, caller.call("/s/Count"), over)))
            drips[-1].start()
        try:
            until(lambda: len(running.lane.running) == 4)
            other = Caller(running.port, source="127.0.0.1" if is_paced else OTHER)
            mine = other.call("/s/Echo", b"x")
            assert status(other.events(StreamEnded, mine), mine) == "0"
        finally:
            over.set()
            for each in drips:
                each.join(10)


def test_streams_that_send_as_they_may_keep_their_threads() -> None:
    def parts() -> Iterator[Bytes]:
        for _ in range(10):  # 600 kB a second
            yield Bytes(value=bytes(60_000))
            time.sleep(0.1)

    with serving(threads=1) as running, running.channel() as channel:
        running.lane.is_paced, running.lane.grace = True, 0.3
        count = channel.stream_unary("/s/Count", Bytes.SerializeToString, Bytes.FromString).future(parts(), timeout=10)
        until(lambda: len(running.lane.running) == 1)
        waiting = Caller(running.port, source=OTHER)
        mine = waiting.call("/s/Echo", b"x")
        assert count.result().value == b"600000"
        assert status(waiting.events(StreamEnded, mine), mine) == "0"


def test_one_peer_leaves_others_places_to_wait() -> None:
    with serving(threads=1, most_waiting=8) as running:
        crowd, other = Caller(running.port), Caller(running.port, source=OTHER)
        calls = [crowd.call("/s/Wait", b"x") for _ in range(8)]
        refused = crowd.events(StreamEnded, calls[-1])
        assert status(refused, calls[-1]) == "8"
        until(lambda: running.lane.waiting == 6)
        mine = other.call("/s/Wait", b"x")
        until(lambda: running.lane.waiting == 7)
        running.service.gate.set()
        assert status(other.events(StreamEnded, mine), mine) == "0"
        until(lambda: not running.lane.waiting and not running.server._calls)
        assert not running.lane.executor._by_peer


def test_busy_connections_of_one_peer_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a call that waits for its message, so none of them is idle."""
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 8)
    with serving() as running:
        crowd = []
        for _ in range(6):
            crowd.append(Caller(running.port))
            crowd[-1].call("/s/Echo")
        with pytest.raises((AssertionError, ConnectionError)):
            Caller(running.port)
        others = [Caller(running.port, source=OTHER) for _ in range(2)]
        for other in others:
            mine = other.call("/s/Echo", b"x")
            assert status(other.events(StreamEnded, mine), mine) == "0"
        for each in (*crowd, *others):
            each.socket.close()
        until(lambda: not running.server._endpoints)
        assert not running.server._connections_of


class Telling:
    """A detached method, and the outlets of its calls."""

    def __init__(self) -> None:
        self.outlets: list[Outlet] = []

    @detached
    def Tell(self, request: Bytes, context: Any) -> Attach:
        return self.outlets.append


@pytest.fixture
def telling() -> Iterator[tuple[Telling, RpcServer, int]]:
    lane, service = Lane("calls", 1), Telling()
    made = RpcServer(lambda method: lane, RequestRoom(1 << 26), 1 << 20)
    handler = grpc.unary_stream_rpc_method_handler(service.Tell, Bytes.FromString, Bytes.SerializeToString)
    made.add_registered_method_handlers("s", {"Tell": handler})
    port = made.bind("127.0.0.1:0")
    made.start()
    yield service, made, port
    assert made.stop(0).wait(10)


def test_who_tells_waits_for_nobody(telling: tuple[Telling, RpcServer, int]) -> None:
    service, made, port = telling
    caller, drained = Caller(port, window=0), threading.Event()
    stream = caller.call("/s/Tell", b"")
    until(lambda: service.outlets)
    (outlet,) = service.outlets
    for _ in range(100):
        assert outlet.send(Bytes(value=bytes(1000)))
    assert outlet.outstanding > 100_000
    outlet.when_drained(drained.set)
    (call,) = made._calls
    before = call.watched.since
    outlet.send(Bytes(value=b"more"))
    assert call.watched.since == before  # it lets us wait for as long as before
    assert call.watched.is_late(before + 200)
    assert not drained.wait(0.3)
    outlet.when_drained(drained.set)
    caller.http.increment_flow_control_window(1 << 20, stream)
    caller.say()
    assert drained.wait(10)
    until(lambda: not outlet.outstanding)
    assert not call.watched.is_late(before + 1e6)
    outlet.end()
    assert status(caller.events(StreamEnded, stream), stream) == "0"


def test_what_is_on_its_way_is_drained_at_once(telling: tuple[Telling, RpcServer, int]) -> None:
    service, _, port = telling
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_stream("/s/Tell", Bytes.SerializeToString, Bytes.FromString)(Bytes(), timeout=10)
        until(lambda: service.outlets)
        for number in range(50):
            service.outlets[0].send(Bytes(value=b"%d" % number))
        service.outlets[0].end()
        assert [each.value for each in call] == [b"%d" % number for number in range(50)]
    taken: list[int] = []
    service.outlets[0].when_drained(lambda: taken.append(1))
    assert taken == [1]


def test_a_crowd_is_no_matter_of_others_at_rest() -> None:
    """What is counted of peers goes with their calls."""
    with serving() as running, running.channel() as channel:
        for _ in range(5):
            assert unary(channel, "Echo")(Bytes(value=b"x"), timeout=10).value == b"x"
        until(lambda: not running.server._calls)
        assert not running.server._by_peer
        assert not running.lane.executor._by_peer
