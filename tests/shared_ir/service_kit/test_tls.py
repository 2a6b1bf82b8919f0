"""TLS that is incomplete or does not fit is refused before anything listens or connects."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from ingot.channel import open_channel
from ingot.endpoint import Endpoint
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.calls.lanes import Lane
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.rpc.server import RpcServer
from shared_ir.service_kit.tls import ClientTls, TlsFiles, authorities, client_tls, tls_files
from tests.services.certificates import pair


def bind(files: TlsFiles) -> int:
    """Where gRPC listens with them."""
    lane = Lane("calls", 1)
    server = RpcServer(lambda method: lane, RequestRoom(1 << 20), 1000)
    try:
        return server.bind("127.0.0.1:0", files)
    finally:
        server.stop(0)


def test_what_fits_is_taken(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, "a")
    files = tls_files(str(certificate), str(key), str(certificate))
    assert files is not None
    assert bind(files)
    assert authorities(certificate) == certificate.read_bytes()
    assert tls_files("", "", "") is None


@pytest.mark.parametrize("given", [("a", "", ""), ("", "a", ""), ("", "", "a"), ("a", "", "a"), ("", "a", "a")])
def test_half_of_it_is_refused(given: tuple[str, str, str]) -> None:
    with pytest.raises(IngotError, match="by half") as caught:
        tls_files(*given)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "kind", ["the key of another", "no PEM", "empty", "a folder", "missing", "password", "authority"]
)
def test_what_does_not_fit_is_refused_by_both_servers(kind: str, tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, "a")
    other = {
        "the key of another": pair(tmp_path, "b")[1],
        "no PEM": tmp_path / "text",
        "empty": tmp_path / "empty",
        "a folder": tmp_path,
        "missing": tmp_path / "none",
        "password": pair(tmp_path, "c", b"secret")[1],
    }
    (tmp_path / "text").write_text("ssh-ed25519 AAAA")
    (tmp_path / "empty").write_text("")
    files = TlsFiles(certificate, key, key) if kind == "authority" else TlsFiles(certificate, other[kind])
    for use in (files.context, partial(bind, files)):
        with pytest.raises(IngotError, match="TLS file cannot be used") as caught:
            use()
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert "PRIVATE" not in str(caught.value)


@pytest.mark.parametrize("kind", ["no PEM", "a key", "missing"])
def test_what_does_not_fit_is_refused_by_clients(kind: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("nothing")
    path = {"no PEM": tmp_path / "text", "a key": pair(tmp_path, "a")[1], "missing": tmp_path / "none"}[kind]
    for connect in (
        lambda: open_channel("localhost:1", ClientTls(path)),
        lambda: Endpoint("localhost:1", ca_certificate=path),
        lambda: Endpoint("localhost:1", "http", ca_certificate=path),
    ):
        with pytest.raises(IngotError, match="TLS file cannot be used"):
            connect()


def test_a_client_certificate_comes_with_its_key(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, "a")
    for given in ((None, certificate, None), (None, None, key), (certificate, certificate, None)):
        with pytest.raises(IngotError, match="by half"):
            client_tls(*given)
    with pytest.raises(IngotError, match="TLS file cannot be used"):
        ClientTls(certificate, certificate, pair(tmp_path, "b")[1]).grpc_credentials()
    assert client_tls(None, "", None) is None
    assert client_tls(None, certificate, key) == ClientTls(None, certificate, key)


def test_what_an_operator_should_know_is_said_once_at_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = pair(tmp_path, "good")
    assert tls_files(str(good[0]), str(good[1]), "") is not None
    assert not caplog.records
    expired = pair(tmp_path, "expired", lasts=timedelta(hours=1))
    early = pair(tmp_path, "early", lasts=timedelta(days=9), starts=timedelta(days=1))
    for certificate, key in (expired, early):
        caplog.clear()
        assert tls_files(str(certificate), str(key), "") is not None
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert str(certificate) in record.message
    caplog.clear()
    for mode in (0o666, 0o604, 0o602):
        good[1].chmod(mode)
        tls_files(str(good[0]), str(good[1]), "")
    assert [str(good[1]) in record.message for record in caplog.records] == [True] * 3
    good[1].chmod(0o640)  # a group may be given it, as Kubernetes does
    assert TlsFiles(*good).doubts() == []
