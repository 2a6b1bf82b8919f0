"""Certificates are renewed while a server runs: new connections get the new one, and nobody has to restart anything."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from shared_ir.service_kit.tls import RenewedContext, TlsFiles
from tests.runtime_service.toy_models import ToySource, running_server, scale_model, wait_until
from tests.services.certificates import pair


def replace(files: TlsFiles, others: tuple[Path, Path]) -> None:
    """As those do it who renew: each file at once."""
    for old, new in ((files.certificate, others[0]), (files.key, others[1])):
        os.replace(new, old)


def shown(port: int) -> bytes | None:
    """The certificate that a server shows."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        return connection.getpeercert(binary_form=True)


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_new_connections_get_what_was_renewed(tmp_path: Path) -> None:
    files = TlsFiles(*pair(tmp_path, "served"))
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    given: dict[str, Any] = {"tls_certificate": str(files.certificate), "tls_key": str(files.key)}
    with running_server(source, models="scale", **given) as server:
        ports = [int(server.addresses[name].rpartition(":")[2]) for name in ("http", "grpc")]
        first = der(files.certificate)
        assert [shown(port) for port in ports] == [first, first]
        replace(files, pair(tmp_path, "renewed"))
        second = der(files.certificate)
        assert second != first
        for port in ports:
            wait_until(lambda port=port: shown(port) == second)  # type: ignore[misc]


def test_what_cannot_be_used_does_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files, now = TlsFiles(*pair(tmp_path, "served")), [0.0]
    contexts = RenewedContext(files, clock=lambda: now[0])
    first = contexts()
    certificate, key = pair(tmp_path, "renewed")
    os.replace(certificate, files.certificate)
    assert contexts() is first, "the files are looked at once a second"
    for _ in range(3):
        now[0] += 1.0
        assert contexts() is first, "the key is not yet that of the certificate"
    (record,) = caplog.records
    assert "cannot be used" in record.message
    os.replace(key, files.key)
    now[0] += 1.0
    second = contexts()
    assert second is not first
    files.key.unlink()
    now[0] += 1.0
    assert contexts() is second
