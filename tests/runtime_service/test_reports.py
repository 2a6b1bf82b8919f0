"""Each inference has a line and spans where they are asked for, over both protocols; what clients send stays text."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import opentelemetry
import opentelemetry.propagate
import opentelemetry.trace
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tritonclient.utils import InferenceServerException

from runtime_service.batching.messages import NOWHERE, InferRequest, InferResponse
from runtime_service.server import RuntimeServer
from shared_ir.service_kit.telemetry.log import JsonFormatter
from shared_ir.service_kit.telemetry.tracing import TRACING
from tests.runtime_service.api.clients import CLIENTS, Triton
from tests.runtime_service.toy_models import ToySource, running_server, sample, scale_model, tensor, wait_until

pytestmark = pytest.mark.services
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEAD = {"traceparent": f"00-{TRACE}-{SPAN}-01", "x-request-id": "of the proxy"}


def toys() -> ToySource:
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    return source


@pytest.fixture
def server() -> Iterator[RuntimeServer]:
    with running_server(toys(), models="scale", access_log=True) as running:
        yield running


@pytest.fixture(params=CLIENTS)
def triton(request: pytest.FixtureRequest, server: RuntimeServer) -> Iterator[Triton]:
    client = Triton(request.param, server, HEAD)
    yield client
    client.close()


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    TRACING.use(provider, opentelemetry)
    yield exporter
    TRACING.close()


def infer(triton: Triton, model: str = "scale", request_id: str = "", width: int = 4) -> None:
    x = tensor(triton.module, "x", np.ones((2, width), np.float32), "FP32")
    triton.infer(model, [x], request_id=request_id)


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Lines of the access log, as they are written."""
    found = [json.loads(JsonFormatter("runtime").format(r)) for r in caplog.records if r.name == "ingot.access"]
    return [line for line in found if "request_id" in line]


def test_every_inference_has_a_line(triton: Triton, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        infer(triton, request_id="mine")
        infer(triton)
        with pytest.raises(InferenceServerException):
            infer(triton, width=5)
        with pytest.raises(InferenceServerException):
            infer(triton, "nobody")
    first, second, unfit, stranger = told(caplog)
    assert first["message"] == "inference on scale from 127.0.0.1: OK"
    known = {"model": "scale", "version": "1", "request_id": "mine", "protocol": triton.protocol, "code": "OK"}
    assert first.items() >= {**known, "peer": "127.0.0.1", "rows": 2, "requests": 1, "trace_id": TRACE}.items()
    assert 0 < first["compute_seconds"] <= first["seconds"] < 10
    assert 0 <= first["queue_seconds"] < first["seconds"]
    assert second["request_id"] == "of the proxy"
    assert (unfit["version"], unfit["code"]) == ("1", "INVALID_ARGUMENT")
    assert (stranger["model"], stranger["version"], stranger["code"]) == ("nobody", "", "NOT_FOUND")


def test_what_clients_choose_is_text_of_bounded_length(triton: Triton, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        infer(triton, request_id="a\n\x1b[31m" + "b" * 10_000)
        with pytest.raises(InferenceServerException):
            infer(triton, "c" * 2000)
    first, second = told(caplog)
    assert first["request_id"].startswith("a\\n\\x1b[31mbbb")
    assert len(first["request_id"]) == 100
    assert len(second["model"]) == 100


def test_a_request_that_cannot_be_read_is_told_of_and_counted(
    server: RuntimeServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Of gRPC and HTTP, for the model that it was meant for."""
    with caplog.at_level(logging.INFO):
        for protocol in CLIENTS:
            client = Triton(protocol, server, HEAD)
            x = tensor(client.module, "x", np.ones((2, 4), np.float32), "FP32")
            with pytest.raises(InferenceServerException):
                client.infer("scale", [x], timeout=10**18)
            client.close()
    lines = told(caplog)
    assert [(line["code"], line["model"], line["version"]) for line in lines] == [
        ("INVALID_ARGUMENT", "scale", "")
    ] * len(CLIENTS)
    assert {line["trace_id"] for line in lines} == {TRACE}
    refused = {"model": "scale", "version": "", "reason": "INVALID_ARGUMENT"}
    assert sample(server, "ingot_inference_request_failure_total", **refused) == len(CLIENTS)


def test_nothing_is_told_and_no_head_read_unless_it_is_asked_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_server(toys(), models="scale") as quiet, caplog.at_level(logging.INFO):
        seen: list[InferRequest] = []
        infer_there = quiet.dataplane.infer

        def infer_here(request: InferRequest) -> InferResponse:
            seen.append(request)
            return infer_there(request)

        monkeypatch.setattr(quiet.dataplane, "infer", infer_here)
        for protocol in CLIENTS:
            client = Triton(protocol, quiet, HEAD)
            infer(client)
            client.close()
    assert [request.origin for request in seen] == [NOWHERE] * len(CLIENTS)
    assert not told(caplog)


def by_name(found: tuple[ReadableSpan, ...]) -> dict[str, ReadableSpan]:
    return {span.name: span for span in found}


def test_spans_of_a_request_are_below_that_of_its_client(triton: Triton, spans: InMemorySpanExporter) -> None:
    infer(triton, request_id="mine")
    wait_until(lambda: len(spans.get_finished_spans()) == 5)
    found = by_name(spans.get_finished_spans())
    whole = found["infer"]
    parts = [found[name] for name in ("queue", "compute input", "compute", "compute output")]
    assert {f"{span.context.trace_id:032x}" for span in found.values()} == {TRACE}
    assert f"{whole.parent.span_id:016x}" == SPAN
    assert whole.kind is opentelemetry.trace.SpanKind.SERVER
    assert whole.status.is_ok
    assert {span.parent.span_id for span in parts} == {whole.context.span_id}
    for before, after in pairwise(parts):
        assert before.start_time <= before.end_time
        assert abs(after.start_time - before.end_time) < 1000, "nanoseconds"
    assert whole.start_time <= parts[0].start_time + 1000
    assert parts[-1].end_time <= whole.end_time + 1000
    about = {"ingot.model": "scale", "ingot.version": "1", "ingot.request_id": "mine", "ingot.rows": 2}
    assert whole.attributes.items() >= about.items()


def test_a_request_that_fails_is_a_span_with_its_code(triton: Triton, spans: InMemorySpanExporter) -> None:
    with pytest.raises(InferenceServerException):
        infer(triton, width=5)
    (span,) = spans.get_finished_spans()
    assert (span.status.is_ok, span.status.description) == (False, "INVALID_ARGUMENT")
    assert f"{span.context.trace_id:032x}" == TRACE


def test_what_the_client_does_not_sample_is_not_sent(server: RuntimeServer, spans: InMemorySpanExporter) -> None:
    client = Triton("grpc", server, {"traceparent": f"00-{TRACE}-{SPAN}-00"})
    infer(client)
    client.close()
    assert spans.get_finished_spans() == ()


def test_a_trace_begins_here_where_the_client_has_none(
    server: RuntimeServer, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for head in ({}, {"traceparent": "00-nonsense"}):
            client = Triton("http", server, head)
            infer(client)
            client.close()
    whole = [span for span in spans.get_finished_spans() if span.name == "infer"]
    assert [span.parent for span in whole] == [None, None]
    assert [line["trace_id"] for line in told(caplog)] == [f"{span.context.trace_id:032x}" for span in whole]
