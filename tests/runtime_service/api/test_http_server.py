"""The HTTP server against bytes that a careful client would not send."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ingot.endpoint import Endpoint
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from shared_ir.service_kit.calls.lanes import Lane
from shared_ir.service_kit.http.message import Admission, HttpRequest, HttpResponse
from shared_ir.service_kit.http1.limits import HttpLimits
from shared_ir.service_kit.http1.phase import ConnectionPhase
from shared_ir.service_kit.http1.server import HttpServer
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.rpc.server import RpcServer
from shared_ir.service_kit.tls import TlsFiles
from tests.runtime_service.toy_models import ToySource, running_server, scale_model, wait_until

pytestmark = pytest.mark.services
LIMITS = HttpLimits(max_connections=8, idle_timeout=0.5, head_timeout=0.5, request_timeout=0.5)
MOST_BODY = 1000
GATE = threading.Event()


class Echo:
    """Answers what it was asked; at ``/wait`` when the gate opens, at ``/secret`` nobody. ``refusals`` are of what did not come."""

    def __init__(self) -> None:
        self.refusals: list[tuple[str, ErrorCode]] = []

    def admit(self, request: HttpRequest) -> HttpResponse | Admission:
        if request.path == "/secret":
            return HttpResponse.failure(IngotError(ErrorCode.NOT_FOUND, "no such path", field=request.path))
        return Admission(MOST_BODY, self.answer, lambda size: request.path == "/quick")

    def refused(self, request: HttpRequest, error: IngotError) -> None:
        self.refusals.append((request.path, error.code))

    def answer(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/wait":
            GATE.wait(10)
        return HttpResponse.json({"method": request.method, "path": request.path, "body": bytes(request.body).decode()})


@pytest.fixture
def server() -> Iterator[HttpServer]:
    GATE.clear()
    made = HttpServer(Echo(), "127.0.0.1:0", LIMITS)
    made.start()
    yield made
    GATE.set()
    made.stop(1.0)


def exchange(server: HttpServer, data: bytes, timeout: float = 5.0) -> bytes:
    """Everything the server sends until it closes the connection (or falls silent)."""
    with socket.create_connection(("127.0.0.1", server.port), timeout) as connection:
        connection.sendall(data)
        received = b""
        try:
            while chunk := connection.recv(65536):
                received += chunk
        except ConnectionResetError:
            pass
        return received


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer[9:12])


def post(headers: str, body: bytes = b"") -> bytes:
    return f"POST /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}\r\n".encode("latin-1") + body


def test_requests_on_one_connection(server: HttpServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
        stream = connection.makefile("rb")
        for body in (b"a", b"", b"ccc"):
            connection.sendall(b"POST /x?q=1 HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            assert stream.readline() == b"HTTP/1.1 200 OK\r\n"
            headers = dict(line.split(b": ") for line in iter(lambda: stream.readline().strip(), b""))
            document = json.loads(stream.read(int(headers[b"Content-Length"])))
            assert document == {"method": "POST", "path": "/x", "body": body.decode()}


def test_pipelined_requests(server: HttpServer) -> None:
    answer = exchange(
        server, b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    )
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert answer.index(b'"/1"') < answer.index(b'"/2"')


def test_head_has_no_body(server: HttpServer) -> None:
    answer = exchange(server, b"HEAD /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert status_of(answer) == 200
    assert answer.endswith(b"\r\n\r\n")


def test_chunked_body(server: HttpServer) -> None:
    body = b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n"
    answer = exchange(server, post("Transfer-Encoding: chunked\r\n", body))
    assert status_of(answer) == 200
    assert b'"abc0123456789"' in answer


def test_compressed_body(server: HttpServer) -> None:
    body = gzip.compress(b"text")
    answer = exchange(server, post(f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n", body))
    assert b'"text"' in answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    {
        "garbage": (b"\x00\x01\x02\r\n\r\n", 400),
        "no version": (b"GET\r\n\r\n", 400),
        "future version": (b"GET / HTTP/9.9\r\n\r\n", 505),
        "header without colon": (post("nonsense\r\nContent-Length: 0\r\n"), 400),
        "long line": (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", 414),
        "many headers": (post("".join(f"h{i}: v\r\n" for i in range(200))), 431),
        "body too large": (post("Content-Length: 1001\r\n", bytes(1001)), 413),
        "body far too large": (post(f"Content-Length: {10**30}\r\n"), 413),
        "negative length": (post("Content-Length: -1\r\n"), 400),
        "length with sign": (post("Content-Length: +1\r\n", b"a"), 400),
        "two lengths": (post("Content-Length: 1\r\nContent-Length: 2\r\n", b"ab"), 400),
        "length and chunks": (post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"), 400),
        "unknown transfer coding": (post("Transfer-Encoding: gzip, chunked\r\n"), 501),
        "bad chunk size": (post("Transfer-Encoding: chunked\r\n", b"xyz\r\n"), 400),
        "signed chunk size": (post("Transfer-Encoding: chunked\r\n", b"-3\r\nabc\r\n"), 400),
        "chunks too large": (post("Transfer-Encoding: chunked\r\n", b"fff\r\n" + bytes(4095)), 413),
        "chunk without end": (post("Transfer-Encoding: chunked\r\n", b"3\r\nabcdef\r\n"), 400),
        "unknown content coding": (post("Content-Encoding: br\r\nContent-Length: 1\r\n", b"a"), 415),
        "a blank that is none": (post("Content-Length: 5\xa0\r\n", b"hello"), 400),
        "blank behind a chunk size": (post("Transfer-Encoding: chunked\r\n", b"5 \r\nhello\r\n0\r\n\r\n"), 400),
        "control in an extension": (post("Transfer-Encoding: chunked\r\n", b"5;a\x00\r\nhello\r\n0\r\n\r\n"), 400),
        "trailer that is no field": (post("Transfer-Encoding: chunked\r\n", b"0\r\n\x00bad\r\n\r\n"), 400),
        "chunks of a byte each": (
            post("Transfer-Encoding: chunked\r\n", (b"1;" + b"e" * 80 + b"\r\na\r\n") * 900),
            431,
        ),
        "a version that is none": (b"GET / HTTP/1.7\r\nHost: h\r\n\r\n", 505),
        "not gzip": (post("Content-Encoding: gzip\r\nContent-Length: 4\r\n", b"abcd"), 400),
    }.values(),
    ids=lambda value: str(value)[:40],
)
def test_malformed_requests(server: HttpServer, request_bytes: bytes, status: int | None) -> None:
    answer = exchange(server, request_bytes)
    if status is not None:
        assert status_of(answer) == status
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert status_of(exchange(server, post("Content-Length: 0\r\n"))) == 200


def test_a_compression_bomb_is_refused(server: HttpServer) -> None:
    bomb = gzip.compress(bytes(500_000))
    assert len(bomb) < MOST_BODY
    answer = exchange(server, post(f"Content-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n", bomb))
    assert status_of(answer) == 413


def test_a_refusal_arrives_though_its_client_goes_on(server: HttpServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
        connection.sendall(post("Content-Length: 2000000\r\n"))
        for _ in range(20):
            connection.sendall(bytes(10_000))
            time.sleep(0.01)
        assert status_of(connection.recv(1000)) == 413


def test_expect_continue_refuses_before_the_body(server: HttpServer) -> None:
    head = "Expect: 100-continue\r\nContent-Length: {}\r\n"
    answer = exchange(server, post(head.format(5000)))
    assert status_of(answer) == 413
    with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
        connection.sendall(post(head.format(2)))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"ab")
        assert status_of(connection.recv(1000)) == 200
    assert (
        status_of(exchange(server, post(head.format(2), b"ab"))) == 200
    )  # who does not wait for the word is not told it


def test_the_application_is_told_of_bodies_that_do_not_come(server: HttpServer) -> None:
    exchange(server, post("Content-Length: 1001\r\n", bytes(1001)))
    exchange(server, post("Transfer-Encoding: chunked\r\n", b"xyz\r\n"))
    exchange(server, post("Content-Length: 10\r\n", b"abc"))
    exchange(server, post("Content-Length: 2\r\n", b"ab"))
    exchange(server, b"GET /secret HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    exchange(server, b"\x00\r\n\r\n")
    codes = (ErrorCode.LIMIT_EXCEEDED, ErrorCode.INVALID_ARGUMENT, ErrorCode.DEADLINE_EXCEEDED)
    assert isinstance(server.application, Echo)
    assert server.application.refusals == [("/x", code) for code in codes]


def test_slow_clients_are_cut_off(server: HttpServer) -> None:
    begin = time.monotonic()
    assert exchange(server, b"") == b""  # never begins
    assert status_of(exchange(server, post("Content-Length: 10\r\n", b"abc"))) == 408  # never ends
    with socket.create_connection(("127.0.0.1", server.port), 5) as connection:  # one byte at a time
        try:
            for _ in range(100):
                connection.sendall(b"G")
                time.sleep(0.05)
        except OSError:
            pass
        else:
            pytest.fail("the connection was kept")
    assert time.monotonic() - begin < 5


def test_clients_that_leave_harm_nobody(server: HttpServer) -> None:
    for data in (b"POST /x HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc", b"GET /", b""):
        connection = socket.create_connection(("127.0.0.1", server.port), 5)
        connection.sendall(data)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        connection.close()  # with a reset
    assert status_of(exchange(server, post("Content-Length: 0\r\n"))) == 200


def test_connections_are_bounded_and_the_idlest_goes(server: HttpServer) -> None:
    held = []
    for _ in range(3 * LIMITS.max_connections):
        held.append(socket.create_connection(("127.0.0.1", server.port), 5))
        assert status_of(exchange(server, post("Content-Length: 0\r\n"))) == 200
        assert sum(not c.evicted for c in list(server._connections)) <= LIMITS.max_connections
    assert held[0].recv(1) == b""
    held[-1].sendall(post("Content-Length: 0\r\n"))
    assert status_of(held[-1].recv(1000)) == 200
    for connection in held:
        connection.close()


def test_what_computes_is_not_closed_for_another(server: HttpServer) -> None:
    with ThreadPoolExecutor(LIMITS.max_connections) as pool:
        waiting = [
            pool.submit(exchange, server, b"GET /wait HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            for _ in range(LIMITS.max_connections)
        ]
        wait_until(lambda: sum(c.phase is ConnectionPhase.OURS for c in server._connections) == LIMITS.max_connections)
        for _ in range(3):
            assert status_of(exchange(server, post("Content-Length: 0\r\n"))) == 200
        GATE.set()
        assert [status_of(answer.result(5)) for answer in waiting] == [200] * LIMITS.max_connections


def test_stopping_finishes_what_was_begun() -> None:
    GATE.clear()
    server = HttpServer(Echo(), "127.0.0.1:0", HttpLimits())
    server.start()
    idle = socket.create_connection(("127.0.0.1", server.port), 5)
    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(exchange, server, b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
        wait_until(lambda: any(connection.busy for connection in server._connections))
        stopping = pool.submit(server.stop, 5.0)
        wait_until(lambda: server.stopping)
        assert idle.recv(1) == b""
        assert not stopping.done()
        GATE.set()
        assert status_of(answer.result(5)) == 200
        assert b"Connection: close" in answer.result()
        stopping.result(5)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), 1)


def test_an_address_in_use_is_one_sentence(server: HttpServer) -> None:
    with pytest.raises(IngotError, match="cannot listen"):
        HttpServer(Echo(), f"127.0.0.1:{server.port}", LIMITS)
    with pytest.raises(IngotError, match="cannot listen"):
        HttpServer(Echo(), "127.0.0.1:http", LIMITS)


@pytest.fixture
def certificate(tmp_path: Path) -> TlsFiles:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now() - timedelta(days=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=10))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (tmp_path / "tls.crt").write_bytes(made.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "tls.key").write_bytes(private)
    return TlsFiles(tmp_path / "tls.crt", tmp_path / "tls.key")


def test_tls_on_both_ports(certificate: TlsFiles) -> None:
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    files: dict[str, Any] = {"tls_certificate": str(certificate.certificate), "tls_key": str(certificate.key)}
    with running_server(source, models="scale", **files) as server:
        context = ssl.create_default_context(cafile=certificate.certificate)
        port = int(server.addresses["http"].rpartition(":")[2])
        with (
            socket.create_connection(("127.0.0.1", port), 5) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        with socket.create_connection(("127.0.0.1", port), 5) as plain, suppress(ConnectionResetError):
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert not plain.recv(100).startswith(b"HTTP")
        credentials = grpc.ssl_channel_credentials(certificate.certificate.read_bytes())
        port = int(server.addresses["grpc"].rpartition(":")[2])
        with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
            assert GRPCInferenceServiceStub(channel).ServerReady(pb.ServerReadyRequest()).ready
        for protocol in ("grpc", "http"):
            address = f"localhost:{server.addresses[protocol].rpartition(':')[2]}"
            endpoint = Endpoint(address, protocol, ca_certificate=certificate.certificate, timeout=10)
            assert endpoint.infer("scale", {"x": np.ones((1, 4), np.float32)})["y"].tolist() == [[2, 2, 2, 2]]
            endpoint.close()


def test_unusable_tls_files_are_named(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "none.crt", tmp_path / "none.key")
    lane = Lane("calls", 1)
    server = RpcServer(lambda method: lane, RequestRoom(1 << 20), 1000)
    for use in (files.context, partial(server.bind, "127.0.0.1:0", files)):
        with pytest.raises(IngotError, match=r"none\.(crt|key)"):
            use()


@pytest.mark.parametrize("leaves", ["closes", "closes its side"])
def test_a_client_that_hangs_up_ends_its_run(leaves: str) -> None:
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()
    head = f"POST /v2/models/scale/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with running_server(source, models="scale") as server:
        port, model = int(server.addresses["http"].rpartition(":")[2]), source.model("scale", 1)
        model.gate.clear()
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(head + body)
            wait_until(lambda: server.lifecycle.in_flight == 1)
            time.sleep(0.1)  # a client that stays is waited for
            assert server.lifecycle.in_flight == 1
            if leaves == "closes its side":
                connection.shutdown(socket.SHUT_WR)
                wait_until(lambda: server.lifecycle.in_flight == 0)
        wait_until(lambda: server.lifecycle.in_flight == 0, timeout=3)
        assert not model.gate.is_set()
