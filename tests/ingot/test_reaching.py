"""Where a client goes, and what it says where it does not get there."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ingot.client import Client
from ingot.endpoint import Endpoint
from ingot.home import Addresses
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.calls.lanes import Lane
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.rpc.server import RpcServer
from shared_ir.service_kit.tls import ClientTls, TlsFiles
from tests.services.certificates import pair

NO_ADDRESSES = [
    "127.0.0.1:87036",
    "h:65536",
    "h:-1",
    "h:0",
    "h:",
    "h",
    ":8500",
    "http://h:8000",
    "h:8500 ",
    "h\n:85",
    "h:٨",
]
MAKERS: dict[str, Callable[..., Any]] = {
    "compiler": Client,
    "grpc": Endpoint,
    "http": lambda address, **tls: Endpoint(address, "http", **tls),
}


@pytest.mark.parametrize("address", [*NO_ADDRESSES, 8500])
@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_no_address_is_asked_by_no_client(maker: str, address: Any) -> None:
    with pytest.raises(IngotError, match="not the address of a server") as caught:
        MAKERS[maker](address)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("variable", ["INGOT_COMPILER_ADDRESS", "INGOT_RUNTIME_ADDRESS", "INGOT_RUNTIME_HTTP_ADDRESS"])
def test_a_variable_that_holds_no_address_is_named(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "127.0.0.1:87036")
    with pytest.raises(IngotError, match=variable):
        Addresses.find(tmp_path)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "localhost:65535"])
def test_addresses_are_taken(address: str) -> None:
    for make in MAKERS.values():
        assert make(address).address == address


def test_the_port_of_grpc_is_not_that_of_http() -> None:
    lane = Lane("calls", 1)
    server = RpcServer(lambda method: lane, RequestRoom(1 << 20), 1000)
    port = server.bind("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(IngotError, match="may be the port of gRPC") as caught:
            Endpoint(f"127.0.0.1:{port}", "http", timeout=10).inputs("m")
    finally:
        server.stop(0)
    assert str(caught.value).isprintable()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("certificates")
    made = {name: pair(folder, name) for name in ("server", "client", "foreign")}
    return made | {"expired": pair(folder, "expired", lasts=timedelta(hours=1))}


@contextmanager
def listening(protocol: str, tls: TlsFiles | None) -> Iterator[str]:
    """The address of a server that answers nothing, and asks for certificates."""
    if protocol == "silent":
        with socket.create_server(("localhost", 0)) as silent:
            yield f"localhost:{silent.getsockname()[1]}"
        return
    if protocol == "http":
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
        if tls is not None:
            server.socket = tls.context().wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"localhost:{server.server_port}"
        server.shutdown()
        server.server_close()
        return
    lane = Lane("calls", 1)
    grpc_server = RpcServer(lambda method: lane, RequestRoom(1 << 20), 1000)
    port = grpc_server.bind("127.0.0.1:0", tls)
    grpc_server.start()
    yield f"localhost:{port}"
    grpc_server.stop(0).wait()


def asked(client: Client | Endpoint) -> object:
    return client.models() if isinstance(client, Client) else client.inputs("m")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    "client", ["in the clear", "to one in the clear", "none", "foreign", "expired", "another authority"]
)
@pytest.mark.parametrize("protocol", ["grpc", "http", "compiler"])
def test_where_tls_may_be_the_matter_the_settings_are_named(
    protocol: str, client: str, files: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    both = tmp_path / "ca.crt"
    both.write_bytes(files["client"][0].read_bytes() + files["expired"][0].read_bytes())
    served = None if client == "to one in the clear" else TlsFiles(*files["server"], both)
    authority = files["foreign" if client == "another authority" else "server"][0]
    shown = files.get(client, files["client"])
    own: dict[str, Any] = {} if client == "in the clear" else {"ca_certificate": authority}
    if client not in ("in the clear", "none"):
        own |= {"client_certificate": shown[0], "client_key": shown[1]}
    with listening(protocol, served) as address, pytest.raises(IngotError) as caught:
        asked(MAKERS[protocol](address, timeout=10.0, **own))
    assert caught.value.code is ErrorCode.UNAVAILABLE, caught.value
    for name in ("TLS", "INGOT_CA_CERTIFICATE", "INGOT_CLIENT_CERTIFICATE", "INGOT_CLIENT_KEY"):
        assert name in caught.value.remedy, caught.value
    assert len(str(caught.value)) < 900


@pytest.mark.parametrize("protocol", ["grpc", "http", "compiler"])
def test_where_nobody_listens_there_is_no_word_of_it(protocol: str) -> None:
    for address in ("127.0.0.1:1", "no-such-host.invalid:1"):
        made = MAKERS[protocol](address, timeout=10.0)
        with pytest.raises(IngotError, match="cannot be reached") as caught:
            asked(made)
        assert "ingot up" in caught.value.remedy
        assert "TLS" not in str(caught.value)


def test_the_certificates_of_these_tests_are_as_they_say(files: dict[str, tuple[Path, Path]]) -> None:
    for certificate, key in files.values():
        assert isinstance(ClientTls(certificate, certificate, key).context(), ssl.SSLContext)


@pytest.mark.parametrize("protocol", ["grpc", "http", "compiler"])
def test_a_service_that_does_not_answer_is_late(protocol: str) -> None:
    with listening("silent", None) as address, pytest.raises(IngotError, match="did not answer in time") as caught:
        asked(MAKERS[protocol](address, timeout=0.3))
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    assert caught.value.remedy
