"""The HTTP server against clients that want more than their turn, their time or their room, and applications that fail."""

from __future__ import annotations

import gc
import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from shared_ir.errors import IngotError
from shared_ir.service_kit.calls.lanes import Threads
from shared_ir.service_kit.http.message import Admission, HttpRequest, HttpResponse
from shared_ir.service_kit.http1.limits import HttpLimits
from shared_ir.service_kit.http1.phase import ConnectionPhase
from shared_ir.service_kit.http1.server import HttpServer
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.tls import TlsFiles
from shared_ir.service_kit.waiting import WouldWait
from tests.runtime_service.toy_models import wait_until
from tests.services.certificates import pair
from tests.shared_ir.service_kit.emptying import Emptying

pytestmark = pytest.mark.services
MOST_BODY = 64 << 20
QUICK = b"GET /quick HTTP/1.1\r\nHost: h\r\n\r\n"
FAULT = ZeroDivisionError("a fault of the application")


class Faulty:
    """Answers with its path, with ``large`` bytes at ``/large``; the other paths are faults."""

    def __init__(self, large: int = 0) -> None:
        self.large = bytes(large)
        self.place: Emptying | None = None
        self.threads: list[str] = []

    def admit(self, request: HttpRequest) -> HttpResponse | Admission:
        return Admission(MOST_BODY, self.answer, lambda size: self._is_quick(request.path))

    def _is_quick(self, path: str) -> bool:
        if path == "/judged":
            raise FAULT
        return path in ("/quick", "/turned", "/put-off")

    def refused(self, request: HttpRequest, error: IngotError) -> None:
        if request.path == "/refused":
            raise FAULT

    def answer(self, request: HttpRequest) -> HttpResponse:
        match request.path:
            case "/answered":
                raise FAULT
            case "/named":
                return HttpResponse(headers={"Name": "\u2603"})
            case "/large":
                return HttpResponse(parts=(self.large,))
            case "/put-off":
                if not request.waits and self.place is not None and not self.place.is_empty:
                    raise WouldWait(self.place)
                self.threads.append(threading.current_thread().name)
                return HttpResponse(parts=(b"done",))
            case "/turned" if not request.waits:
                request.grow(20_000)
                raise WouldWait
            case _:
                return HttpResponse(parts=(request.path.encode(),))


@contextmanager
def serving(application: Faulty, **settings: Any) -> Iterator[HttpServer]:
    tls = settings.pop("tls", None)
    room = settings.pop("room", None)
    server = HttpServer(application, "127.0.0.1:0", HttpLimits(**settings), tls, room)
    server.start()
    try:
        yield server
    finally:
        server.stop(0.1)


@contextmanager
def connected(server: HttpServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        yield connection


def answers(connection: socket.socket, count: int) -> bytes:
    """What comes, until it holds so many answers that end with their path."""
    found = b""
    while found.count(b"/quick") < count:
        found += connection.recv(1 << 16)
    return found


def ahead(server: HttpServer) -> int:
    """Bytes that were read of requests which are not answered."""
    return max((len(each._arriving.source) for each in list(server._connections)), default=0)


def test_requests_that_came_together_are_not_read_ahead_of_their_answers() -> None:
    seen = 0
    with serving(Faulty()) as server, connected(server) as greedy, connected(server) as other:
        greedy.settimeout(0.2)

        def flood() -> None:
            with suppress(OSError):  # the server takes no more than it answers, and the answers are not read
                for _ in range(200):
                    greedy.sendall(QUICK * 1000)

        flooding = threading.Thread(target=flood)
        flooding.start()
        while flooding.is_alive():
            other.sendall(QUICK)
            assert answers(other, 1).startswith(b"HTTP/1.1 200")
            seen = max(seen, ahead(server))
        flooding.join()
        assert 0 < seen <= 2 * 64 * 1024


def test_a_client_whose_requests_came_together_is_idle_behind_the_last() -> None:
    with serving(Faulty(), head_timeout=0.2, idle_timeout=30.0) as server, connected(server) as connection:
        for _ in range(20):
            connection.sendall(QUICK * 5)
            answers(connection, 5)
        wait_until(lambda: all(each.phase is ConnectionPhase.IDLE for each in server._connections))
        connection.settimeout(0.6)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        connection.settimeout(10)
        connection.sendall(QUICK)
        assert answers(connection, 1).startswith(b"HTTP/1.1 200")


def test_a_body_of_tiny_chunks_leaves_turns_to_others() -> None:
    """Each chunk is of four bytes, which is as small as one may be on the whole."""
    with serving(Faulty()) as server, connected(server) as busy, connected(server) as other:
        busy.sendall(b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")

        def chunks() -> None:
            for _ in range(50):
                busy.sendall(b"5\r\nabcde\r\n" * 2000)
            busy.sendall(b"0\r\n\r\n")

        sending = threading.Thread(target=chunks)
        sending.start()
        while sending.is_alive():
            other.sendall(QUICK)
            assert answers(other, 1).startswith(b"HTTP/1.1 200")
        sending.join()
        assert busy.recv(100).startswith(b"HTTP/1.1 200")


def test_a_large_answer_arrives_whole_over_tls_however_slowly_it_is_taken(tmp_path: Any) -> None:
    files = TlsFiles(*pair(tmp_path, "localhost"))
    size = 6 << 20
    trusting = ssl.create_default_context(cafile=files.certificate)
    with (
        serving(Faulty(size), idle_timeout=0.5, tls=files) as server,
        connected(server) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        taken = len(connection.recv(1000).partition(b"\r\n\r\n")[2])
        assert server.room.held >= size // 2  # what has not left is counted
        while piece := connection.recv(1 << 16):
            taken += len(piece)
            time.sleep(0.02)
        assert taken == size


def test_who_leaves_does_not_wait_for_idle_clients_of_tls(tmp_path: Any) -> None:
    files = TlsFiles(*pair(tmp_path, "localhost"))
    trusting = ssl.create_default_context(cafile=files.certificate)
    with (
        serving(Faulty(), tls=files) as server,
        connected(server) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        connection.sendall(QUICK)
        answers(connection, 1)  # NOTE: and nothing is read from here on, not even that the server says good-bye
        with ThreadPoolExecutor(1) as pool:
            pool.submit(server.stop, 60.0).result(20)


def test_room_is_taken_from_no_more_peers_than_needed() -> None:
    room = RequestRoom(1_000_000)
    evicted: list[int] = []
    others = [room.enter(f"10.0.0.{number}", partial(evicted.append, number)) for number in range(9)]
    for each in others:
        each.take(110_000)
        each.waits_since = 0.0
    asking = room.enter("local", lambda: None)
    for _ in range(20):  # those who are told to go have not gone yet
        with pytest.raises(WouldWait):
            asking.take_at_once(100_000)
    assert len(evicted) == 1
    others[evicted[0]].leave()
    asking.take_at_once(100_000)
    assert len(evicted) == 1
    asking.waits = False
    for ask in (asking.grow, asking.settle, asking.take):
        with pytest.raises(WouldWait):
            ask(500_000)
    assert len(evicted) == 1


def test_a_quick_answer_that_would_wait_leaves_nothing_counted() -> None:
    with serving(Faulty()) as server, connected(server) as connection:
        for _ in range(3):
            connection.sendall(QUICK.replace(b"quick", b"turned"))
            assert b"/turned" in connection.recv(1000)
        wait_until(lambda: server.room.held == 0)


@pytest.mark.parametrize(("looks", "is_loop"), [(0, True), (3, True), (1 << 30, False)])
def test_a_quick_answer_is_put_off_until_others_have_gone(looks: int, is_loop: bool) -> None:
    application = Faulty()
    application.place = Emptying(looks)
    with serving(application) as server, connected(server) as connection:
        connection.sendall(QUICK.replace(b"quick", b"put-off"))
        assert b"done" in connection.recv(1000)
        assert [name.startswith("http_") for name in application.threads] == [not is_loop]
        wait_until(lambda: server.room.held == 0)


def test_a_client_that_leaves_while_it_is_put_off_leaves_nothing_behind() -> None:
    application = Faulty()
    application.place = Emptying(1 << 30)
    with serving(application) as server:
        with connected(server) as connection:
            connection.sendall(QUICK.replace(b"quick", b"put-off"))
        wait_until(lambda: not server._connections)
        assert server.room.held == 0


def test_a_large_body_that_breaks_off_leaves_no_memory() -> None:
    size = 10_000_001

    def bodies() -> list[memoryview]:
        return [each for each in gc.get_objects() if isinstance(each, memoryview) and each.nbytes == size]

    with serving(Faulty()) as server:
        gc.disable()
        try:
            with connected(server) as connection:
                connection.sendall(
                    b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size + bytes(size - 100)
                )
                wait_until(lambda: server.room.held > size // 2)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            wait_until(lambda: not server._connections)
            assert bodies() == []
        finally:
            gc.enable()
        assert server.room.held == 0


@pytest.mark.parametrize(("path", "status"), [("/judged", 200), ("/answered", 500), ("/named", 200), ("/refused", 408)])
def test_faults_of_an_application_end_their_request_alone(path: str, status: int) -> None:
    body = b"x" * 100_000
    head = b"POST %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (
        path.encode(),
        len(body),
    )
    with serving(Faulty(), request_timeout=0.5, idle_timeout=0.5) as server, connected(server) as other:
        with connected(server) as connection:
            connection.sendall(head + (body if status != 408 else body[:50_000]))
            answer = connection.recv(1000)
            assert answer.startswith(b"HTTP/1.1 %d" % status) or (status == 408 and not answer)
        assert other.recv(1) == b""  # it was idle for too long, and somebody has looked
        wait_until(lambda: not server._connections and server.room.held == 0)


def test_a_server_without_threads_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Faulty()) as server:
        monkeypatch.setattr(threading.Thread, "start", _no_thread)
        with connected(server) as connection:
            connection.sendall(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 503")
        monkeypatch.undo()
        wait_until(lambda: not server._connections)
        with connected(server) as connection:
            connection.sendall(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert server._threads.waiting == 0


def _no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_what_no_thread_was_found_for_is_not_run_later(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(2, "few")
    ran: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _no_thread)
        with pytest.raises(RuntimeError):
            threads.submit(ran.append, 1)
    assert threads.waiting == 0
    threads.submit(ran.append, 2).result(10)
    threads.shutdown()
    assert (ran, threads.waiting) == ([2], 0)


def test_an_idle_connection_holds_nothing() -> None:
    body = gzip.compress(json.dumps(list(range(5000))).encode())
    head = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serving(Faulty()) as server, connected(server) as connection:
        for _ in range(3):
            connection.sendall(head + body)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        wait_until(lambda: server.room.held == 0)
        assert ahead(server) == 0


def test_options_of_a_connection_are_words() -> None:
    with serving(Faulty()) as server, connected(server) as connection:
        for option in (b"xclose", b"keep-alive, x"):
            connection.sendall(QUICK.replace(b"\r\n\r\n", b"\r\nConnection: %s\r\n\r\n" % option))
            assert b"Connection" not in answers(connection, 1)
        connection.sendall(QUICK.replace(b"\r\n\r\n", b"\r\nConnection: x, close\r\n\r\n"))
        assert b"Connection: close" in answers(connection, 1)


@pytest.mark.parametrize(
    "begun",
    [
        b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 15000\r\n\r\n" + bytes(14_000),
        b"POST /x HTTP/1.1\r\nHost: h\r\n" + b"Name: %s\r\n" % (b"x" * 15_000),
    ],
)
def test_small_requests_that_do_not_come_whole_stay_within_the_room(begun: bytes) -> None:
    room = RequestRoom(200_000)
    with serving(Faulty(), max_connections=64, room=room) as server, ExitStack() as stack:
        connections = [stack.enter_context(connected(server)) for _ in range(20)]
        for each in connections:
            each.sendall(begun)
        refused = 0
        for each in connections:
            each.settimeout(0.5)
            with suppress(TimeoutError):
                refused += b"429" in each.recv(4096)
        assert refused >= 13
        assert 80_000 < room.held <= 100_000
        for each in connections:
            each.close()
        wait_until(lambda: room.held == 0)
