"""Who may call: every kind of method over a real connection."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from shared_ir.errors import ErrorCode
from shared_ir.service_kit.access.bearer import AccessInterceptor
from shared_ir.service_kit.access.gate import SingleToken
from shared_ir.service_kit.status import attached_error

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    handlers = {
        kind: getattr(grpc, f"{kind}_rpc_method_handler")(
            (lambda request, context: iter([b"yes"])) if kind.endswith("stream") else (lambda request, context: b"yes")
        )
        for kind in KINDS
    }
    server = grpc.server(ThreadPoolExecutor(1), interceptors=[AccessInterceptor(SingleToken("s3cret"))])
    for service in ("test.Service", "grpc.health.v1.Health"):
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened
    server.stop(0)


def ask(channel: grpc.Channel, service: str, kind: str, metadata: Any) -> bytes:
    request = iter([b"may I"]) if kind.startswith("stream") else b"may I"
    answer: Any = getattr(channel, kind)(f"/{service}/{kind}")(request, metadata=metadata, timeout=10)
    return answer if isinstance(answer, bytes) else b"".join(answer)


@pytest.mark.parametrize("kind", KINDS)
def test_the_token_is_needed_but_for_health(channel: grpc.Channel, kind: str) -> None:
    assert ask(channel, "test.Service", kind, (("authorization", "Bearer s3cret"),)) == b"yes"
    assert ask(channel, "grpc.health.v1.Health", kind, ()) == b"yes"
    for metadata in ((), (("authorization", "Bearer s3cre"),), (("authorization", "s3cret"),)):
        with pytest.raises(grpc.RpcError) as caught:
            ask(channel, "test.Service", kind, metadata)
        failure: Any = caught.value
        assert failure.code() is grpc.StatusCode.UNAUTHENTICATED
        attached = attached_error(failure.trailing_metadata())
        assert attached is not None
        assert (attached.code, attached.field) == (ErrorCode.UNAUTHENTICATED, "authorization")


def test_headers_of_any_form() -> None:
    bearer = SingleToken("s3crét")
    assert bearer.accepts("Bearer s3crét")
    assert bearer.accepts("bearer s3crét")  # RFC 9110: the scheme is written in whatever case
    assert not bearer.accepts("Bearer S3crét")
    assert bearer.accepts("Bearer s3crét".encode())
    for given in (None, "", b"", "Bearer", "Bearer \ud800", b"\xff"):
        assert not bearer.accepts(given)
