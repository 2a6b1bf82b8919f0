"""Calls that end before they are answered, in every way there is: they leave nothing behind that others would need."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import pytest

from runtime_service.server import RuntimeServer
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from tests.peers import fuzzer

pytestmark = pytest.mark.services
TOKEN = "a-token-of-sixteen-characters-and-more"
METADATA = (("authorization", f"Bearer {TOKEN}"),)
MANY = 300
"""More than may wait for the threads of any lane."""


@pytest.fixture
def running() -> Iterator[RuntimeServer]:
    with fuzzer.server(max_in_flight=1, token=TOKEN) as server:
        yield server


@pytest.fixture
def channel(running: RuntimeServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(running.addresses["grpc"]) as opened:
        yield opened


def refused(call: Any) -> None:
    call(b"", timeout=10)


def refused_for_another_token(call: Any) -> None:
    call(b"", timeout=10, metadata=(("authorization", "Bearer none"),))


def cancelled(call: Any) -> None:
    call.future(b"", timeout=10, metadata=METADATA).cancel()


def late(call: Any) -> None:
    call(b"", timeout=1e-4, metadata=METADATA)


def malformed(call: Any) -> None:
    call(b"\xff\xff", timeout=10, metadata=METADATA)


def when_there_is_room(call: Callable[[], Any]) -> Any:
    """What ``call`` answers, within ten seconds: a busy server may still be about to see that calls before have ended."""
    end = time.monotonic() + 10
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or time.monotonic() > end:
                raise
        time.sleep(0.05)


@pytest.mark.parametrize("method", ["ModelInfer", "ModelMetadata", "NoSuchMethod"])
@pytest.mark.parametrize("ask", [refused, refused_for_another_token, cancelled, late, malformed])
def test_calls_that_end_early_leave_no_trace(channel: grpc.Channel, ask: Callable[[Any], None], method: str) -> None:
    untyped: Any = channel
    call = untyped.unary_unary(f"/{fuzzer.SERVICE}/{method}")
    for _ in range(MANY):
        with suppress(grpc.RpcError):
            ask(call)
    stub = GRPCInferenceServiceStub(channel)
    asked = pb.ModelMetadataRequest(name="scale")
    metadata = when_there_is_room(lambda: stub.ModelMetadata(asked, metadata=METADATA, timeout=10))
    assert metadata.name == "scale"
    request = pb.ModelInferRequest(model_name="scale", raw_input_contents=[bytes(16)])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    answer = when_there_is_room(lambda: stub.ModelInfer(request, metadata=METADATA, timeout=10))
    assert answer.raw_output_contents == [bytes(16)]
