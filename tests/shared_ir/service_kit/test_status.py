"""Errors on their way through a real server and a real client."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.service_kit.status import STATUS, _places, abort, attached_error, cleaned, error_from_pb

NAMES = ("message", "node", "tensor", "field", "expected", "received", "remedy")
WHOLE = {name: f"the {name}: ë, 北" for name in NAMES}


@pytest.fixture(scope="module")
def failures() -> dict[str, IngotError]:
    """What the server answers, by what it is asked for."""
    return {}


@pytest.fixture(scope="module")
def ask(failures: dict[str, IngotError]) -> Iterator[Any]:
    """Asks a server that does nothing but fail."""

    def fail(request: bytes, context: grpc.ServicerContext) -> bytes:
        abort(context, failures[request.decode()])

    server = grpc.server(ThreadPoolExecutor(1))
    handlers = {"Fail": grpc.unary_unary_rpc_method_handler(fail)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Failing", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel.unary_unary("/test.Failing/Fail", request_serializer=None, response_deserializer=None)
    server.stop(0)


def received(ask: Any, failures: dict[str, IngotError], error: IngotError) -> Any:
    failures["this"] = error
    with pytest.raises(grpc.RpcError) as caught:
        ask(b"this", timeout=10)
    return caught.value


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_error_arrives_whole(ask: Any, failures: dict[str, IngotError], code: ErrorCode) -> None:
    error = IngotError(code, **WHOLE)
    found = received(ask, failures, error)
    assert found.code() is STATUS[code][0]
    assert found.details() == str(error)
    attached = attached_error(found.trailing_metadata())
    assert attached is not None
    assert attached.to_dict() == error.to_dict()


@pytest.mark.parametrize("names", [("message",), ("received", "remedy"), NAMES])
@pytest.mark.parametrize("letter", ["a", "é", "北", "🙂", "\ud800"])
def test_long_errors_arrive_shortened(
    ask: Any, failures: dict[str, IngotError], names: tuple[str, ...], letter: str
) -> None:
    """More metadata than a client accepts would hide the error behind one of gRPC."""
    error = IngotError(ErrorCode.INVALID_MODEL, **(WHOLE | dict.fromkeys(names, letter * 50000)))
    found = received(ask, failures, error)
    assert found.code() is grpc.StatusCode.INVALID_ARGUMENT
    attached = attached_error(found.trailing_metadata())
    assert attached is not None
    for name in set(NAMES) - set(names):
        assert getattr(attached, name) == WHOLE[name]
    for name in names:
        assert getattr(attached, name).endswith("...")


def test_the_table_is_whole_and_agrees_with_blame() -> None:
    assert set(STATUS) == set(ErrorCode)
    ours = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
    for code in ErrorCode:
        assert (STATUS[code][0] in ours) == (IngotError(code, "x").blame == "service")


def test_codes_of_a_newer_service_keep_their_blame() -> None:
    for blame, code in ((pb.BLAME_USER, ErrorCode.INVALID_ARGUMENT), (pb.BLAME_SERVICE, ErrorCode.INTERNAL)):
        assert error_from_pb(pb.ErrorDetail(code="BRAND_NEW", blame=blame, message="m")).code is code


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("INGOT_STORE_URL", "s3://bucket/prefix", "no object in s3://bucket/prefix"),
        ("INGOT_STORE_URL", "file:///srv/models", "/srv/models/a is gone"),
        ("INGOT_STORE_URL", "/srv/models", "/srv/models/a is gone"),
        ("INGOT_REDIS_URL", "redis://:secret@queue:6379/0", "cannot connect to redis://:secret@queue:6379/0"),
        ("AWS_ENDPOINT_URL", "http://minio:9000", "error sending request for http://minio:9000/bucket"),
    ],
)
def test_what_lies_behind_a_service_is_not_told(
    variable: str, value: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    _places.cache_clear()
    try:
        told = cleaned(text)
    finally:
        monkeypatch.undo()
        _places.cache_clear()
    assert f"<{variable}>" in told
    assert value.removeprefix("file://") not in told
