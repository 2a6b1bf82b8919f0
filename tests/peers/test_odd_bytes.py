"""Odd bytes at the ports of a runtime service: typed answers, one line in the log, nothing of others, nothing left behind."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ingot.endpoint import Endpoint
from runtime_service.server import RuntimeServer
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.status import http_document
from tests.peers import fuzzer
from tests.peers.http_bytes import framed_twice

pytestmark = pytest.mark.services
EMBEDDED = b"GET /v2/models/stats HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def running() -> Iterator[RuntimeServer]:
    with fuzzer.server() as server:
        yield server


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_unwanted_comes_back(running: RuntimeServer, seed: int) -> None:
    found = fuzzer.fuzz(running, 5.0, seed)
    assert found.sent > 20
    assert not found.faults, "\n".join(found.faults)
    fuzzer.settled(running)


@pytest.mark.parametrize("sent", framed_twice(EMBEDDED), ids=lambda sent: repr(sent.split(b"\r\n\r\n")[0][66:])[:50])
def test_no_request_is_found_inside_of_another(running: RuntimeServer, sent: bytes) -> None:
    (answer,) = fuzzer.answers(fuzzer.exchange(fuzzer.port_of(running, "http"), sent))
    assert answer[0] in (400, 501)
    assert json.loads(answer[1])["code"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("head", "status", "text"),
    [
        ("GET /v2 HTTP/1.1\r\nHost: evil.example\r\n", 421, "no such name"),
        ("GET /v2 HTTP/1.1\r\nHost: 127.0.0.1.evil.example:8000\r\n", 421, "no such name"),
        ("GET /v2 HTTP/1.1\r\nHost: localhost.evil\r\n", 421, "no such name"),
        ("GET http://evil.example/v2 HTTP/1.1\r\nHost: localhost\r\n", 421, "no such name"),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n", 421, "no such name"),
        (
            "POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n",
            403,
            "other sites",
        ),
        (
            "POST /v2/repository/index HTTP/1.1\r\nHost: localhost:80\r\nOrigin: http://localhost:81\r\n",
            403,
            "other sites",
        ),
        ("POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n", 403, "other sites"),
        ("POST /v2/repository/index HTTP/1.1\r\nHost: localhost:80\r\nOrigin: http://localhost:80\r\n", 200, ""),
        ("POST /v2/repository/index HTTP/1.1\r\nHost: known.example\r\nOrigin: https://known.example\r\n", 200, ""),
        ("GET /v2 HTTP/1.1\r\nHost: a.below.example:99\r\n", 200, ""),
        ("GET /v2 HTTP/1.1\r\nHost: [::1]:8000\r\n", 200, ""),
        ("GET /v2 HTTP/1.1\r\nHost: 10.2.3.4\r\n", 200, ""),
        ("GET /v2 HTTP/1.0\r\n", 200, ""),
        ("GET /v2/health/ready HTTP/1.1\r\nHost: evil.example\r\n", 200, ""),
    ],
)
def test_names_and_pages_that_are_not_ours(head: str, status: int, text: str) -> None:
    with fuzzer.server(hosts="known.example, .below.example") as running:
        answer = fuzzer.exchange(fuzzer.port_of(running, "http"), f"{head}Content-Length: 0\r\n\r\n".encode())
    ((found, body),) = fuzzer.answers(answer)
    assert found == status
    assert text in (json.loads(body)["error"] if status != 200 else "")


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_without_the_token_no_body_is_read(name: str) -> None:
    """The body never comes; who waits for it does not answer."""
    with fuzzer.server(token="s3cret") as running, fuzzer.log_lines() as lines:
        if name == "http":
            with socket.create_connection(("127.0.0.1", fuzzer.port_of(running, "http")), 5) as connection:
                connection.sendall(b"POST /v2/models/scale/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.1 401")
        else:
            with fuzzer.unfinished(fuzzer.port_of(running, "grpc"), f"/{fuzzer.SERVICE}/ModelInfer", 1) as (call,):
                assert call.exception(5).code().name == "UNAUTHENTICATED"
        assert len(lines.records) == 1
        assert "s3cret" not in lines.records[0].getMessage()


def test_an_error_is_the_same_over_both_protocols(running: RuntimeServer) -> None:
    found = []
    for protocol in ("grpc", "http"):
        endpoint = Endpoint(running.addresses[protocol], protocol)
        for model, array in (("scale", np.zeros((1, 3), np.float32)), ("none\x1b[31m", np.zeros((1, 4), np.float32))):
            with pytest.raises(IngotError) as caught:
                endpoint.infer(model, {"x": array})
            found.append(caught.value.to_dict())
        endpoint.close()
    assert found[:2] == found[2:]
    assert found[0]["tensor"] == "x"
    assert "\x1b" not in json.dumps(found, ensure_ascii=False)


def test_folders_of_the_machine_are_not_named() -> None:
    document = http_document(
        IngotError(ErrorCode.INTERNAL, f"no {tempfile.gettempdir()}/a/b", field=f"{Path.home()}/c")
    )
    assert document["message"] == "no <temporary>/a/b"
    assert document["field"] == "~/c"
