"""What an attacker tries at the edge, one attempt for each promise: framing, names, versions of HTTP, admission, other listeners, TLS."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from ingot.cli.main import main
from ingot.endpoint import Endpoint
from runtime_service.lifecycle import ServerPhase
from runtime_service.server import RuntimeServer
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from tests.peers import fuzzer
from tests.runtime_service.toy_models import wait_until
from tests.services.certificates import pair

pytestmark = pytest.mark.services
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = 900_000


@pytest.fixture(scope="module")
def running() -> Iterator[RuntimeServer]:
    with fuzzer.server() as server:
        yield server


@pytest.mark.parametrize(
    "lines",
    [
        b"Host: localhost\r\nHost: localhost",
        b"Host: localhost\r\nHost: evil.example",
        b"Host: localhost, evil.example",
        b"Host: localhost evil.example",
        b"Host: user@localhost",
        b"Host: localhost/v2",
        b"Host: localhost:x",
        b"Host: [::1",
        b"Host: localhost\r\n evil.example",
        b"Host : localhost",
        b"X: y",
    ],
)
def test_a_request_has_one_host(lines: bytes) -> None:
    """With a token too, where names decide nothing; and the connection ends, so that nothing behind it is a request."""
    head = b"GET /v2/health/live HTTP/1.1\r\n" + lines + b"\r\n\r\n"
    for settings in ({}, {"token": "s3cret"}):
        with fuzzer.server(**settings) as server:
            statuses = [
                status for status, _ in fuzzer.answers(fuzzer.exchange(fuzzer.port_of(server, "http"), head + LIVE))
            ]
        assert statuses == [400]


@pytest.mark.parametrize(
    "line",
    [
        b"GET /v2/health/live\r\n",
        b"GET /v2/health/live \r\n",
        b"GET /v2/health/live HTTP/0.9\r\n",
        b"GET /v2/health/live HTTP/2.0\r\n",
        b"GET /v2/health/live HTTP/1.1 HTTP/1.1\r\n",
        b"GET  /v2/health/live HTTP/1.1\r\n",
        b"GET\t/v2/health/live\tHTTP/1.1\r\n",
        b"GET /v2/health/live HTTP/1.1\n",
    ],
)
def test_other_versions_of_http_are_not_answered(running: RuntimeServer, line: bytes) -> None:
    received = fuzzer.exchange(fuzzer.port_of(running, "http"), line + b"Host: localhost\r\n\r\n" + LIVE)
    assert [status for status, _ in fuzzer.answers(received)] in ([400], [505])


@contextmanager
def asked(server: RuntimeServer, path: str, framing: str) -> Iterator[socket.socket]:
    """The head of a request whose body never comes."""
    with socket.create_connection(("127.0.0.1", fuzzer.port_of(server, "http")), 5) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n".encode())
        yield connection


FRAMINGS = pytest.mark.parametrize("framing", [f"Content-Length: {LARGE}", "Transfer-Encoding: chunked"])


@FRAMINGS
def test_a_large_body_is_not_read_where_the_server_is_full(framing: str) -> None:
    with fuzzer.server(max_in_flight=1) as server, ExitStack() as stack:
        for _ in range(server.settings.max_in_flight):
            stack.enter_context(server.lifecycle.request("another"))
        with asked(server, "/v2/models/scale/infer", framing) as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 429")
        assert server._http["http"].room.held == 0


@FRAMINGS
def test_a_large_body_is_not_read_where_nobody_would_take_it(running: RuntimeServer, framing: str) -> None:
    for path in ("/v2/models/none/infer", "/v2/models/scale/versions/7/infer"):
        with asked(running, path, framing) as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 404")


def test_a_large_body_is_not_read_while_the_server_drains() -> None:
    with fuzzer.server() as server:
        server.lifecycle.enter(ServerPhase.DRAINING)
        with asked(server, "/v2/models/scale/infer", f"Content-Length: {LARGE}") as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 503")


def test_a_large_message_is_not_read_while_the_server_drains() -> None:
    with fuzzer.server() as server:
        server.lifecycle.enter(ServerPhase.DRAINING)
        tensor = np.zeros((50_000, 4), np.float32)
        endpoint = Endpoint(f"localhost:{fuzzer.port_of(server, 'grpc')}", "grpc", timeout=10)
        with pytest.raises(IngotError) as caught:
            endpoint.infer("scale", {"x": tensor})
        endpoint.close()
        assert caught.value.code is ErrorCode.UNAVAILABLE
        failures = [line for line in server.metrics.scrape("")[0].decode().splitlines() if "failure_total{" in line]
        assert any('model="scale"' in line and "UNAVAILABLE" in line and line.endswith(" 1") for line in failures), (
            failures
        )


def test_a_small_body_is_read_and_its_connection_goes_on(running: RuntimeServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", fuzzer.port_of(running, "http"), timeout=5)
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]})
    for _ in range(3):
        connection.request("POST", "/v2/models/none/infer", body)
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Connection"]) == (404, None)
        answer.read()
    connection.close()


def test_a_crowd_at_one_port_does_not_keep_the_other_from_being_scraped(running: RuntimeServer) -> None:
    over = threading.Event()
    refused = []

    def scrape() -> None:
        while not over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", fuzzer.port_of(running, "http"), timeout=20)
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            answer.read()
            refused.append(answer.status == 429)
            connection.close()

    threads = [threading.Thread(target=scrape) for _ in range(24)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: any(refused))
        for _ in range(20):
            connection = http.client.HTTPConnection("127.0.0.1", fuzzer.port_of(running, "metrics"), timeout=20)
            connection.request("GET", "/metrics")
            assert connection.getresponse().status == 200
            connection.close()
    finally:
        over.set()
        for thread in threads:
            thread.join(30)


def test_admin_calls_have_a_place_of_their_own(tmp_path: Path) -> None:
    """Whoever has the token of inference may not change a server whose control is elsewhere."""
    paths = (
        "/v2/logging",
        "/v2/trace/setting",
        "/v2/repository/models/scale/unload",
        "/v2/repository/models/scale/load",
    )
    place = f"unix:{tmp_path}/control.sock"
    with fuzzer.server(token="s3cret", model_control="explicit", control_address=place) as server:
        for path in paths:
            connection = http.client.HTTPConnection("127.0.0.1", fuzzer.port_of(server, "http"), timeout=5)
            connection.request("POST", path, "{}", {"Authorization": "Bearer s3cret"})
            assert connection.getresponse().status == 400, path
            connection.close()
        requests = {
            "LogSettings": pb.LogSettingsRequest(),
            "TraceSetting": pb.TraceSettingRequest(),
            "RepositoryModelLoad": pb.RepositoryModelLoadRequest(model_name="scale"),
            "RepositoryModelUnload": pb.RepositoryModelUnloadRequest(model_name="scale"),
        }
        with grpc.insecure_channel(server.addresses["grpc"]) as channel:
            stub: Any = GRPCInferenceServiceStub(channel)
            for name, request in requests.items():
                with pytest.raises(grpc.RpcError) as caught:
                    getattr(stub, name)(request, metadata=(("authorization", "Bearer s3cret"),))
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, name
        assert server.dataplane.model_ready("scale")


@pytest.mark.parametrize("protocol", [[], ["--http"]], ids=["grpc", "http"])
def test_ingot_infer_shows_a_certificate_where_one_is_asked_for(
    protocol: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = pair(tmp_path, "server")
    own, own_key = pair(tmp_path, "client")
    stranger, stranger_key = pair(tmp_path, "stranger")
    files = {"tls_certificate": str(certificate), "tls_key": str(key), "tls_client_ca": str(own)}
    with fuzzer.server(token="s3cret", **files) as server:
        port = fuzzer.port_of(server, "http" if protocol else "grpc")
        asking = ["infer", "scale", "--address", f"localhost:{port}", "--input", "x=random:1x4", "--json", *protocol]
        trusted = ["--ca-certificate", str(certificate)]
        shown = ["--client-certificate", str(own), "--client-key", str(own_key)]
        token = ["--token", "s3cret"]
        assert main([*asking, *trusted, *shown, *token]) == 0
        assert json.loads(capsys.readouterr().out)["outputs"]
        odd = ["--client-certificate", str(stranger), "--client-key", str(stranger_key)]
        for missing in (
            [*trusted, *token],  # no certificate
            [*trusted, *odd, *token],  # one that nobody trusts
            [*trusted, *shown],  # no token
            [*trusted, *shown, "--token", "other"],
            ["--ca-certificate", str(stranger), *shown, *token],  # the server is not whom the client trusts
            token,  # in the clear
        ):
            assert main([*asking, *missing]) in (1, 3), missing
            assert "s3cret" not in "".join(capsys.readouterr())
