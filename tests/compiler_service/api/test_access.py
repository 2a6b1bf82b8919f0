"""What a token allows: every method of the service, over a real connection."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

import ingot
from compiler_service.api.permissions import SCOPES, SERVICE, is_change, scopes_of
from compiler_service.settings import CompilerSettings
from ingot.cli.main import main
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.service_kit.access.principal import EVERY_SCOPE, Principal, TokenScope
from shared_ir.service_kit.access.token_file import editing
from shared_ir.service_kit.status import attached_error
from tests.compiler_service.api.test_api_server import self_signed, start
from tests.services.installation import Client, wait_until
from tests.services.redis_server import redis_server

pytestmark = pytest.mark.services
METHODS = pb.DESCRIPTOR.services_by_name["CompilerService"].methods_by_name

REQUESTS: dict[str, Any] = {name: getattr(pb, method.input_type.name) for name, method in METHODS.items()}


def trailing(error: Any) -> Any:
    return error.trailing_metadata()


class Guarded:
    """A server with a file of tokens."""

    def __init__(self, settings: CompilerSettings) -> None:
        self.file = settings.home / "tokens.json"
        with editing(self.file):
            pass
        self.settings = settings
        self.running = start(replace(settings, api_tokens=str(self.file)))

    def client(self, user: str, *scopes: TokenScope, namespace: str = "") -> Client:
        """Of somebody with a new token."""
        with editing(self.file) as held:
            held[0], token = held[0].with_token(Principal(user, namespace, frozenset(scopes or EVERY_SCOPE)))
        return Client(f"127.0.0.1:{self.running.port}", (("authorization", f"Bearer {token}"),))


@pytest.fixture(name="guarded")
def fixture_guarded(tmp_path: Path) -> Iterator[Guarded]:
    with redis_server() as url:
        home = tmp_path / "home"
        home.mkdir()
        settings = CompilerSettings(
            redis_url=url, home=home, compiler_port=0, compiler_metrics_port=-1, drain_seconds=1.0
        )
        guarded = Guarded(settings)
        yield guarded
        guarded.running.stop(0)


def status(client: Client, name: str, request: Any) -> grpc.StatusCode:
    """Of a call of any kind."""
    method = METHODS[name]
    argument = iter([request]) if method.client_streaming else request
    try:
        answer = getattr(client.stub, name)(argument, metadata=client.metadata, timeout=10)
        if method.server_streaming:
            list(answer)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_every_method_says_what_it_needs() -> None:
    assert set(SCOPES) <= set(METHODS)
    for name in METHODS:
        assert set(scopes_of(f"/{SERVICE}/{name}")) == set(SCOPES.get(name, EVERY_SCOPE))
    assert scopes_of(f"/{SERVICE}/NoSuchMethod") == EVERY_SCOPE
    assert scopes_of("/other.Service/GetJob") == EVERY_SCOPE


@pytest.mark.parametrize("scope", list(TokenScope))
def test_a_scope_allows_what_is_its_own(guarded: Guarded, scope: TokenScope) -> None:
    client = guarded.client("x", scope)
    for name, needed in SCOPES.items():
        request = REQUESTS[name]()
        allowed = set(needed) <= {scope}
        assert (status(client, name, request) is not grpc.StatusCode.PERMISSION_DENIED) == allowed, name


def test_the_token_that_the_page_makes_for_a_ci_compiles_and_waits() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operating.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith("ingot tokens new ci "))
    given = set(line.partition("--scope ")[2].split()[0].split(","))
    called = ("QueryUpload", "UploadModel", "Compile", "WatchJob", "GetJob", "GetModel")
    assert given >= {scope.value for method in called for scope in SCOPES[method]}


def test_labels_of_a_compilation_need_their_scope(guarded: Guarded) -> None:
    client = guarded.client("x", TokenScope.UPLOAD, TokenScope.COMPILE, TokenScope.PUBLISH)
    request = pb.CompileRequest(
        name="m",
        source=pb.ModelSource(model_sha256=client.upload(json.dumps({}).encode())),
        targets=["x86-64-v3"],
        labels=["stable"],
    )
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Compile(request, metadata=client.metadata, timeout=10)
    error = attached_error(trailing(caught.value))
    assert error is not None
    assert (error.code, error.expected) == ("PERMISSION_DENIED", "label")
    request.ClearField("labels")
    assert status(client, "Compile", request) is grpc.StatusCode.OK


def test_a_call_is_refused_before_its_body(guarded: Guarded) -> None:
    """The answer comes while the client has not sent a message yet."""
    client = guarded.client("x", TokenScope.READ)

    gate = threading.Event()

    def never() -> Iterator[pb.UploadModelRequest]:
        gate.wait(20)
        yield pb.UploadModelRequest()

    for metadata, expected in ((client.metadata, "PERMISSION_DENIED"), ((), "UNAUTHENTICATED")):
        with pytest.raises(grpc.RpcError) as caught:
            client.stub.UploadModel(never(), metadata=metadata, timeout=10)
        assert caught.value.code().name == expected
    gate.set()


def test_a_token_that_is_taken_away_is_refused_at_the_next_call(guarded: Guarded) -> None:
    client = guarded.client("x", TokenScope.READ)
    assert status(client, "ListModels", pb.ListModelsRequest()) is grpc.StatusCode.OK
    with editing(guarded.file) as held:
        held[0] = held[0].without("x")
    assert status(client, "ListModels", pb.ListModelsRequest()) is grpc.StatusCode.UNAUTHENTICATED


def test_streams_of_a_token_end_when_it_is_taken_away(guarded: Guarded) -> None:
    """What it may not see or send any more: events of a job, and the rest of a file."""
    client, other = guarded.client("x"), guarded.client("y")
    sha256 = client.upload(b"{}")
    compiled = pb.CompileRequest(name="m", source=pb.ModelSource(model_sha256=sha256), targets=["x86-64-v3"])
    job = client.stub.Compile(compiled, metadata=client.metadata, timeout=10).job.id
    asked = pb.WatchJobRequest(id=job)
    watches = [each.stub.WatchJob(asked, metadata=each.metadata, timeout=20) for each in (client, other)]
    assert {next(each).WhichOneof("event") for each in watches} == {"job"}
    going = threading.Event()

    def parts() -> Iterator[pb.UploadModelRequest]:
        yield pb.UploadModelRequest(header=pb.UploadHeader(name="n", size=4, sha256="1" * 64))
        yield pb.UploadModelRequest(chunk=b"ab")
        going.wait(20)
        yield pb.UploadModelRequest(chunk=b"cd")

    upload = client.stub.UploadModel.future(parts(), metadata=client.metadata, timeout=20)
    query = pb.QueryUploadRequest(sha256="1" * 64, size=4)
    wait_until(lambda: client.stub.QueryUpload(query, metadata=client.metadata).received == 2)
    with editing(guarded.file) as held:
        held[0] = held[0].without("x")
    going.set()
    assert upload.exception(20).code() is grpc.StatusCode.UNAUTHENTICATED
    other.stub.CancelJob(pb.CancelJobRequest(id=job), metadata=other.metadata, timeout=10)
    with pytest.raises(grpc.RpcError) as caught:
        list(watches[0])
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert list(watches[1])[-1].job.state == pb.JOB_STATE_CANCELLED
    assert other.stub.QueryUpload(query, metadata=other.metadata).received == 2


def test_clients_show_a_certificate_where_they_are_asked_for_one(tmp_path: Path, guarded: Guarded) -> None:
    settings, (certificate, key) = guarded.settings, self_signed(tmp_path)
    tls: dict[str, Any] = {"tls_certificate": str(certificate), "tls_key": str(key), "tls_client_ca": str(certificate)}
    running = start(replace(settings, **tls))
    address = f"127.0.0.1:{running.port}"
    with ingot.Client(address, ca_certificate=certificate, client_certificate=certificate, client_key=key) as client:
        assert client.models() == ()
    with (
        ingot.Client(address, ca_certificate=certificate, timeout=5) as stranger,
        pytest.raises(ingot.IngotError) as caught,
    ):
        stranger.models()
    assert caught.value.code == "UNAVAILABLE"
    shown = ["--ca-certificate", str(certificate), "--client-certificate", str(certificate), "--client-key", str(key)]
    assert main(["models", "--json", "--address", address, *shown]) == 0
    assert main(["models", "--json", "--address", address, *shown[:2]]) == 3
    running.stop(0)


def test_a_command_takes_its_token_from_a_file(
    tmp_path: Path, guarded: Guarded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = ["--json", "--file", str(guarded.file)]
    assert main(["tokens", "new", "ci", "--scope", "read", *tokens]) == 0
    for days in ("nan", "inf", "-1", "0", "1e300"):
        with pytest.raises(SystemExit, match="2"):
            main(["tokens", "new", "other", "--scope", "read", "--days", days, *tokens[1:]])
    told = capsys.readouterr()
    assert told.err.count("is not a number from 0.0001 to 36500") == 5
    secret = tmp_path / "secret"
    secret.write_text(json.loads(told.out)["token"])
    asked = ["models", "--json", "--address", f"127.0.0.1:{guarded.running.port}"]
    monkeypatch.setenv("INGOT_TOKEN_FILE", str(secret))
    assert main(asked) == 0
    assert main(["models", "m", "--set-label", "a=1", *asked[1:]]) == 1
    assert "PERMISSION_DENIED" in capsys.readouterr().err
    assert main(["tokens", "remove", "ci", *tokens]) == 0
    assert main(asked) == 1
    assert "UNAUTHENTICATED" in capsys.readouterr().err


def test_no_line_is_as_long_as_a_client_likes(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    client = guarded.client("ann", *TokenScope)
    caplog.set_level("INFO")
    long = "a\nb" * 200_000
    targets = ["x86-64-v3" + " " * 3000] * 64
    status(client, "Compile", pb.CompileRequest(name=long, targets=targets, idempotency_key=long))
    status(client, "CancelJob", pb.CancelJobRequest(id=long))
    status(client, "GetJob", pb.GetJobRequest(id=long))
    fields = [record.__dict__.get("ingot", {}) for record in caplog.records if record.name.startswith("ingot.")]
    texts = [text for said in fields for text in said.values() if isinstance(text, str)]
    assert len(fields) == 3
    assert max(map(len, texts)) < 2000
    assert not any("\n" in text for text in texts)


def test_who_changes_something_is_told_in_a_line(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    client = guarded.client("ann", TokenScope.LABEL, TokenScope.READ, namespace="vision")
    caplog.set_level("INFO")
    assert status(client, "SetLabel", pb.SetLabelRequest(name="m", label="stable", version=3)).name == "NOT_FOUND"
    assert status(client, "ListModels", pb.ListModelsRequest()) is grpc.StatusCode.OK
    lines = [(record.name, record.__dict__.get("ingot", {})) for record in caplog.records]
    told = [(name, said["method"], said["user"], said["code"]) for name, said in lines if name.startswith("ingot.")]
    assert told == [
        ("ingot.audit", "SetLabel", "ann", "NOT_FOUND"),
        ("ingot.access", "ListModels", "ann", "OK"),
    ]
    (audit,) = (said for name, said in lines if name == "ingot.audit")
    change = {name: text for name, text in audit.items() if name.startswith("change.")}
    assert change == {"change.name": "vision.m", "change.label": "stable", "change.version": "3"}
    changes = {name for name in METHODS if is_change(f"/{SERVICE}/{name}")}
    known = {"Compile", "CancelJob", "RetryJob", "SetLabel", "DeleteLabel", "DeleteVersion", "DeleteModel"}
    assert changes == known | (set(METHODS) - set(SCOPES))
