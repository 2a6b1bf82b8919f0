"""One client that holds all it can get, at every port; another one, and health, are answered meanwhile."""

from __future__ import annotations

import http.client
import json
import os
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from runtime_service.server import RuntimeServer
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from shared_ir.service_kit import health
from tests.peers import fuzzer
from tests.runtime_service.toy_models import wait_until
from tests.services.certificates import pair

pytestmark = pytest.mark.services
MANY = 3 * 16
INFER = b"POST /v2/models/scale/infer HTTP/1.1\r\nHost: localhost\r\n"
CROWDS = {
    "say nothing": b"",
    "send no whole head": INFER + b"X: ",
    "send no whole body": INFER + b"Content-Length: 900000\r\n\r\nxxx",
    "send no whole chunk": INFER + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\nxxx",
    "are refused and stay": b"POST /v2/none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n",
    "take no answer": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500,
}


@pytest.fixture
def running() -> Iterator[RuntimeServer]:
    with fuzzer.server(max_in_flight=8) as server:
        yield server


@contextmanager
def crowd(port: int, data: bytes, count: int = MANY) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(5)
            connection.connect(("127.0.0.1", port))
            held.append(connection)
            connection.setblocking(False)
            try:
                connection.send(data)
            except OSError:  # closed already for another
                continue
        yield held


def asks(running: RuntimeServer, name: str = "http") -> float:
    """Seconds that health and an inference over a new connection take."""
    begin = time.monotonic()
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]})
    paths = [("GET", "/v2/health/live", None), ("GET", "/v2/health/ready", None)]
    for method, path, data in paths + [("POST", "/v2/models/scale/infer", body)] * (name == "http"):
        connection = http.client.HTTPConnection("127.0.0.1", fuzzer.port_of(running, name), timeout=5)
        connection.request(method, path, data)
        assert connection.getresponse().status == 200
        connection.close()
    return time.monotonic() - begin


def asks_grpc(running: RuntimeServer) -> float:
    """As :func:`asks`, over gRPC."""
    begin, address = time.monotonic(), f"127.0.0.1:{fuzzer.port_of(running, 'grpc')}"
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert stub.Check(health_pb2.HealthCheckRequest(), timeout=5).status == health_pb2.HealthCheckResponse.SERVING
        request = pb.ModelInferRequest(model_name="scale", raw_input_contents=[bytes(16)])
        request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
        assert len(GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=5).raw_output_contents) == 1
    return time.monotonic() - begin


@pytest.mark.parametrize("name", ["http", "metrics"])
@pytest.mark.parametrize("kind", CROWDS)
def test_clients_that_hold_connections(running: RuntimeServer, kind: str, name: str) -> None:
    with crowd(fuzzer.port_of(running, name), CROWDS[kind], MANY if name == "http" else 4 * MANY):
        for _ in range(5):
            assert asks(running, name) < 2.0
    wait_until(lambda: not running._http[name]._connections)


def test_a_server_without_descriptors_goes_on(running: RuntimeServer) -> None:
    """Nobody can be accepted while there are none; afterwards everybody is."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    port = fuzzer.port_of(running, "http")
    with socket.socket() as waiting:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
        fillers = []
        try:
            with suppress(OSError):
                while True:
                    fillers.append(os.dup(0))
            waiting.connect(("127.0.0.1", port))
            time.sleep(0.3)
        finally:
            for descriptor in fillers:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert asks(running) < 2.0
        waiting.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        waiting.settimeout(5)
        assert waiting.recv(100).startswith(b"HTTP/1.1 200")


def test_clients_that_send_request_upon_request() -> None:
    """Without waiting for answers, so that the threads of their connections never wait for them."""
    data = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000
    with fuzzer.server(max_in_flight=128) as running, crowd(fuzzer.port_of(running, "http"), data, 150):
        for _ in range(3):
            assert asks(running) < 1.5


def test_handshakes_that_never_end(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, "a")
    files = {"tls_certificate": str(certificate), "tls_key": str(key)}
    with fuzzer.server(max_in_flight=8, **files) as running, crowd(fuzzer.port_of(running, "http"), b"\x16\x03\x01"):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for _ in range(5):
            with (
                socket.create_connection(("127.0.0.1", fuzzer.port_of(running, "http")), 5) as plain,
                context.wrap_socket(plain) as connection,
            ):
                connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.1 200")


METHODS = [f"/{fuzzer.SERVICE}/{name}" for name in ("ModelInfer", "ModelStreamInfer", "ServerLive", "ModelMetadata")]
METHODS += [health.CHECK, health.WATCH, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"]


@pytest.mark.parametrize("method", METHODS)
def test_calls_whose_message_never_comes(running: RuntimeServer, method: str) -> None:
    with fuzzer.unfinished(fuzzer.port_of(running, "grpc"), method, MANY):
        time.sleep(0.3)
        for _ in range(3):
            assert asks_grpc(running) < 3.0
        assert asks(running) < 2.0


def test_uploads_that_stand_still_leave_room_for_others() -> None:
    """A million bytes each, and room for four: those that have stood still for a second go."""
    with fuzzer.server(max_in_flight=64, max_bytes_in_flight=8 << 20) as running:
        port, part = fuzzer.port_of(running, "http"), INFER + b"Content-Length: 1000000\r\n\r\n" + bytes(990_000)
        with ExitStack() as stack:
            held = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 5)) for _ in range(4)]
            for connection in held:
                connection.sendall(part)
            wait_until(lambda: running._http["http"].room.held > 3_900_000)
            whole = INFER + b"Connection: close\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000)
            ((status, body),) = fuzzer.answers(fuzzer.exchange(port, whole))
            assert (status, json.loads(body)["code"]) == (429, "RESOURCE_EXHAUSTED")  # all of them are young
            time.sleep(1.1)
            ((status, _),) = fuzzer.answers(fuzzer.exchange(port, whole))
            assert status == 400  # no JSON, but it was read
            statuses = [next(iter(fuzzer.answers(connection.recv(10_000))))[0] for connection in held[:1]]
            assert statuses == [503]
    assert running._http["http"].room.held == 0


INFERENCES = pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])


@INFERENCES
def test_parts_of_messages_are_counted(running: RuntimeServer, method: str) -> None:
    """What has come of a message takes memory before it is whole; up to 16 kB of it are not counted."""
    room, held = running._http["http"].room, []
    with ExitStack() as stack:
        for _ in range(4):
            held.append(
                stack.enter_context(socket.create_connection(("127.0.0.1", fuzzer.port_of(running, "grpc")), 5))
            )
            held[-1].sendall(fuzzer.raw_call(f"/{fuzzer.SERVICE}/{method}", bytes(60_000), 900_000))
        wait_until(lambda: room.held > 4 * 44_000)
    wait_until(lambda: room.held == 0)


@INFERENCES
def test_answers_that_nobody_takes_are_counted(running: RuntimeServer, method: str) -> None:
    """Over gRPC the thread of a call is free once its answer is there; what waits to be taken still takes memory."""
    request = pb.ModelInferRequest(model_name="scale", raw_input_contents=[bytes(16 * 3_500)])
    request.inputs.add(name="x", datatype="FP32", shape=[3_500, 4])
    data, room = request.SerializeToString(), running._http["http"].room
    with socket.create_connection(("127.0.0.1", fuzzer.port_of(running, "grpc")), 5) as connection:
        connection.sendall(fuzzer.raw_call(f"/{fuzzer.SERVICE}/{method}", data, len(data), window=0))
        wait_until(lambda: room.held > 3 * 16 * 3_500)  # the message, parsed, and the answer
        time.sleep(0.5)
        assert room.held > 3 * 16 * 3_500
        assert asks_grpc(running) < 2.0
    wait_until(lambda: room.held == 0)
