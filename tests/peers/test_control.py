"""Models are loaded and unloaded where that is asked for, and nowhere else."""

from __future__ import annotations

import json
import socket
import ssl
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path

import grpc
import pytest

from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from tests.peers import fuzzer
from tests.services.certificates import pair

pytestmark = pytest.mark.services
UNLOAD = b"POST /v2/repository/models/scale/unload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def test_a_socket_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with fuzzer.server(model_control="explicit", control_address=f"unix:{path}") as running:
        assert running.addresses["control"] == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for name in ("http", "metrics"):
            ((status, body),) = fuzzer.answers(fuzzer.exchange(fuzzer.port_of(running, name), UNLOAD))
            assert status == (400 if name == "http" else 404)
            assert name == "metrics" or "CONTROL_ADDRESS" in json.loads(body)["remedy"]
        with grpc.insecure_channel(running.addresses["grpc"]) as channel, pytest.raises(grpc.RpcError) as caught:
            GRPCInferenceServiceStub(channel).RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="scale"))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert running.dataplane.model_ready("scale")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(UNLOAD)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        ((status, _),) = fuzzer.answers(
            fuzzer.exchange(fuzzer.port_of(running, "http"), UNLOAD.replace(b"/unload", b"/load"))
        )
        assert status == 400


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    for _ in range(2):
        with (
            fuzzer.server(model_control="explicit", control_address=f"unix:{path}"),
            socket.socket(socket.AF_UNIX) as connection,
        ):
            connection.connect(str(path))


def test_the_control_address_infers_nothing(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with fuzzer.server(model_control="explicit", control_address=f"unix:{path}"):
        for method, target, status in (
            ("POST", "/v2/models/scale/infer", 404),
            ("GET", "/v2/models/scale/stats", 404),
            ("GET", "/metrics", 404),
            ("POST", "/v2/repository/index", 200),
            ("GET", "/v2/health/live", 200),
        ):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(path))
                connection.sendall(
                    f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
                )
                assert connection.recv(1000).startswith(f"HTTP/1.1 {status}".encode()), target


def test_client_certificates_are_asked_for_at_the_control_address_too(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, "server")
    files = {"tls_certificate": str(certificate), "tls_key": str(key), "tls_client_ca": str(certificate)}
    with fuzzer.server(model_control="explicit", control_address="127.0.0.1:0", **files) as running:
        port = fuzzer.port_of(running, "control")
        for unload in (_plainly, partial(_encrypted, certificate, None)):
            with suppress(OSError):
                assert not unload(port).startswith(b"HTTP/1.1 200")
            assert running.dataplane.model_ready("scale")
        assert _encrypted(certificate, key, port).startswith(b"HTTP/1.1 200")


def _plainly(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(UNLOAD)
        return connection.recv(1000)


def _encrypted(authority: Path, key: Path | None, port: int) -> bytes:
    context = ssl.create_default_context(cafile=authority)
    context.check_hostname = False
    if key is not None:
        context.load_cert_chain(authority, key)
    with socket.create_connection(("127.0.0.1", port), 5) as plain, context.wrap_socket(plain) as connection:
        connection.sendall(UNLOAD)
        return connection.recv(1000)
