"""The metrics table, its document, and a live scrape are the same thing; what is scraped is bounded."""

from __future__ import annotations

import logging
import re
import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from runtime_service import metrics as table
from runtime_service import triton_metrics
from runtime_service.batching.execution import BatchResult, Execution, ReleaseReason
from runtime_service.batching.messages import InferRequest, TensorData
from runtime_service.batching.statistics import ModelObserver
from runtime_service.metrics import FAILURE, FAMILIES, PENDING, WEIGHTS, Metrics, markdown
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from tests.runtime_service.toy_models import (
    ToyModel,
    ToySource,
    running_server,
    sample,
    sample_of,
    scale_model,
    wait_until,
)

DOCUMENT = Path("docs/metrics.md")
EXECUTION = Execution(2, 5, 0.001, 0.010, 0.002, ReleaseReason.FULL)
OPEN = "application/openmetrics-text; version=1.0.0"


def served(metrics: Metrics, model: str, version: int = 1) -> ModelObserver:
    """A version that has answered a request."""
    observer = metrics.observer(model, version)
    observer.executed(EXECUTION)
    observer.succeeded(BatchResult({}, 0.1, EXECUTION), 0.5)
    return observer


def lines(metrics: Metrics) -> list[str]:
    """Samples of a scrape, without those of the process."""
    page = metrics.scrape()[0].decode()
    return [line for line in page.splitlines() if line.startswith(("ingot_", "nv_"))]


def test_the_document_is_the_table() -> None:
    text = DOCUMENT.read_text().partition("<!-- generated -->\n")[2].partition("<!-- end -->")[0]
    assert text == markdown(), "run: python -m runtime_service.metrics --write docs/metrics.md"


@pytest.mark.services
def test_every_described_metric_is_scraped_and_every_scraped_one_described() -> None:
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    with running_server(source, models="scale") as server:
        page = urllib.request.urlopen(f"http://{server.addresses['metrics']}/metrics").read().decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert {name for name in families if name.startswith("ingot_")} == {re.sub("_total$", "", f.name) for f in FAMILIES}
    for described in FAMILIES:
        family = families[re.sub("_total$", "", described.name)]
        assert (family.type, family.documentation) == (described.kind, described.help)
    assert {"process_cpu_seconds", "python_info"} <= families.keys()


def test_labels_are_those_described() -> None:
    metrics = Metrics(triton=True)
    served(metrics, "m").failed(ErrorCode.INTERNAL, 0.1)
    metrics.set_state("m", 1, "READY")
    metrics.load_failed("m", ErrorCode.ARTIFACT_CORRUPT)
    described = {each.name: each.labels for each in (*FAMILIES, *triton_metrics.FAMILIES)}
    for family in text_string_to_metric_families(metrics.scrape()[0].decode()):
        for own in family.samples:
            suffix = {"histogram": "_(bucket|sum|count)$", "counter": "_total$"}.get(family.type, "$")
            name = own.name if own.name in described else re.sub(suffix, "", own.name)
            assert not name.startswith(("ingot", "nv")) or tuple(k for k in own.labels if k != "le") == described[name]


def test_names_follow_the_conventions() -> None:
    for described in FAMILIES:
        assert re.fullmatch(r"ingot_[a-z_]+", described.name)
        assert described.name.endswith("_total") == (described.kind == "counter")
        if "duration" in described.name:
            assert described.name.endswith("_seconds")


def test_both_formats_say_the_same() -> None:
    metrics = Metrics(triton=True)
    served(metrics, "m").failed(ErrorCode.INTERNAL, 0.1)
    plain, kind = metrics.scrape()
    opened, open_kind = metrics.scrape(OPEN)
    assert (kind.split(";")[0], open_kind.split(";")[0]) == ("text/plain", "application/openmetrics-text")
    assert opened.endswith(b"# EOF\n")
    found = [
        {
            (s.name.removesuffix("_total"), *s.labels.items()): s.value
            for f in parsed
            for s in f.samples
            if s.name[:3] in ("ing", "nv_")
        }
        for parsed in (
            text_string_to_metric_families(plain.decode()),
            open_families(opened.decode()),  # type: ignore[no-untyped-call]
        )
    ]
    assert found[0] == found[1] != {}


def test_an_observer_sums_what_it_sees() -> None:
    metrics = Metrics()
    observer = ModelObserver("m", "1", wall_clock=lambda: 12.5)
    metrics._versions["m", "1"] = observer
    observer.executed(EXECUTION)
    for queue_time in (0.1, 0.3):
        observer.succeeded(BatchResult({}, queue_time, EXECUTION), 0.5)
    observer.failed(ErrorCode.INVALID_ARGUMENT, 0.01)
    observer.pending(3)
    observer.watch_queue(lambda: 0.25)
    snapshot = observer.snapshot()
    assert (snapshot.inference_count, snapshot.execution_count, snapshot.last_inference) == (5, 1, 12500)
    assert (snapshot.success.count, snapshot.success.nanoseconds) == (2, 1_000_000_000)
    assert (snapshot.queue.count, snapshot.queue.nanoseconds) == (2, 400_000_000)
    assert (snapshot.fail.count, snapshot.fail.nanoseconds) == (1, 10_000_000)
    assert snapshot.requests.compute_infer.count == 2
    assert snapshot.batches[5].compute_infer.nanoseconds == 10_000_000

    def counted(name: str, **labels: str) -> float | None:
        return sample_of(metrics, f"ingot_inference_{name}", model="m", version="1", **labels)

    assert counted("rows_total") == 5
    assert counted("executions_total") == 1
    assert counted("request_success_total") == 2
    assert counted("request_failure_total", reason="INVALID_ARGUMENT") == 1
    assert counted("batch_release_total", reason="full") == 1
    assert counted("queue_duration_seconds_sum") == pytest.approx(0.4)
    assert counted("compute_duration_seconds_count") == 1
    assert counted("batch_rows_bucket", le="4.0") == 0
    assert counted("batch_rows_bucket", le="8.0") == 1
    assert counted("request_duration_seconds_bucket", le="0.25") == 1
    assert counted("request_duration_seconds_bucket", le="+Inf") == 3
    assert counted("pending_requests") == 3
    assert counted("oldest_pending_seconds") == 0.25


def test_batch_sizes_are_bounded() -> None:
    """Rows of nothing may be as many as a client thinks of."""
    observer = ModelObserver("m", "1")
    for rows in range(1, 3000):
        observer.executed(Execution(1, rows, 0, 0, 0, ReleaseReason.IDLE))
    assert len(observer.snapshot().batches) == 1024
    assert observer.snapshot().execution_count == 2999
    assert observer.snapshot(has_batches=False) == replace(observer.snapshot(), batches={})


def test_a_thousand_models_are_a_bounded_page(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics(50)
    observers = [metrics.observer(f"m{number}", 1) for number in range(1000)]
    for number in range(1000):
        metrics.set_state(f"m{number}", 1, "READY")
    idle = len(lines(metrics))
    assert idle < 7.1 * 1000, "a version that answered nothing has seven samples"
    assert not [line for line in lines(metrics) if "_bucket" in line and "load" not in line]
    with caplog.at_level(logging.WARNING):
        for observer in observers:
            observer.executed(EXECUTION)
            observer.succeeded(BatchResult({}, 0.1, EXECUTION), 0.5)
    assert len(lines(metrics)) - idle <= 1000 + 51 * 56
    assert "INGOT_RUNTIME_MAX_HISTOGRAMS" in caplog.text
    assert len(caplog.records) == 1
    together = {"model": table.OTHERS, "version": ""}
    assert sample_of(metrics, "ingot_inference_request_duration_seconds_count", **together) == 950
    assert sample_of(metrics, "ingot_inference_request_success_total", model="m999", version="1") == 1
    observers[0].close()
    served(metrics, "next")
    assert sample_of(metrics, "ingot_inference_request_duration_seconds_count", model="next", version="1") == 1


def test_what_is_retired_is_scraped_no_more() -> None:
    metrics = Metrics(triton=True)
    before = lines(metrics)
    observer = served(metrics, "m")
    observer.failed(ErrorCode.INTERNAL, 0.1)
    metrics.set_state("m", 1, "READY")
    metrics.refused("m", ErrorCode.UNAVAILABLE)
    metrics.load_failed("m", ErrorCode.ARTIFACT_CORRUPT)
    assert any('model="m"' in line for line in lines(metrics))
    observer.close()
    metrics.drop_state("m", 1)
    assert {line.partition("{")[0] for line in lines(metrics) if 'model="m"' in line} == {
        "ingot_inference_request_failure_total",
        "ingot_model_load_failure_total",
    }
    metrics.forget("m")
    assert lines(metrics) == before


def test_a_version_that_is_loaded_again_takes_the_place_of_the_one_that_ends() -> None:
    metrics = Metrics()
    old = served(metrics, "m")
    new = metrics.observer("m", 1)
    assert sample_of(metrics, "ingot_inference_request_success_total", model="m", version="1") == 0
    old.close()
    assert sample_of(metrics, "ingot_inference_request_success_total", model="m", version="1") == 0
    new.close()
    assert sample_of(metrics, "ingot_inference_request_success_total", model="m", version="1") is None


@pytest.mark.services
def test_requests_are_counted_for_the_model_that_they_name_while_it_is_served() -> None:
    def broken() -> ToyModel:
        raise IngotError(ErrorCode.ARTIFACT_CORRUPT, "a byte was flipped")

    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    source.publish("broken", 1, broken, "stable")
    with running_server(source, wait=False, models="scale,broken", model_control="explicit", token="t") as server:
        wait_until(lambda: sample(server, "ingot_model_state", model="broken", version="1", state="FAILED") == 1)
        wait_until(lambda: sample(server, "ingot_model_state", model="scale", version="1", state="READY") == 1)
        asked = (("broken", ""), ("scale", "7"), ("scale", ""), ("nobody", ""), ("x" * 1000, ""))
        for model, version in asked:
            with pytest.raises(IngotError):
                server.dataplane.infer(InferRequest(model, (), version))
        failures = [line.partition("{")[2] for line in lines(server.metrics) if line.startswith(FAILURE.name)]
        assert failures == [
            'model="scale",version="1",reason="INVALID_ARGUMENT"} 1',
            'model="",version="",reason="NOT_FOUND"} 2',
            'model="broken",version="",reason="UNAVAILABLE"} 1',
            'model="scale",version="",reason="NOT_FOUND"} 1',
        ]
        server.dataplane.unload("scale")
        server.dataplane.unload("broken")
        wait_until(lambda: not [line for line in lines(server.metrics) if re.search('model="[a-z]', line)])


@pytest.mark.services
def test_a_version_whose_label_has_moved_is_scraped_no_more_after_its_last_request() -> None:
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    with running_server(source, models="scale") as server:
        x = TensorData("x", DType.FLOAT32, np.ones((1, 4), np.float32))
        server.dataplane.infer(InferRequest("scale", (x,)))
        source.publish("scale", 2, scale_model, "stable")
        wait_until(lambda: sample(server, PENDING.name, model="scale", version="2") == 0)
        wait_until(lambda: not [line for line in lines(server.metrics) if 'version="1"' in line])
        assert sample(server, WEIGHTS.name, model="scale", version="2") == 1000


def test_names_of_strangers_are_one_series() -> None:
    metrics = Metrics()
    metrics.set_state("known", 0, "LOADING")
    for name in ("known", *(f"stranger{number}" for number in range(100))):
        metrics.refused(name, ErrorCode.NOT_FOUND)
    refused = [line for line in lines(metrics) if "request_failure" in line]
    assert refused == [
        'ingot_inference_request_failure_total{model="",version="",reason="NOT_FOUND"} 100',
        'ingot_inference_request_failure_total{model="known",version="",reason="NOT_FOUND"} 1',
    ]


def test_tritons_metrics_are_there_where_they_are_asked_for() -> None:
    metrics = Metrics(triton=True)
    observer = served(metrics, "m")
    for code in (ErrorCode.RESOURCE_EXHAUSTED, ErrorCode.CANCELLED, ErrorCode.INTERNAL, ErrorCode.INVALID_ARGUMENT):
        observer.failed(code, 1.0)
    observer.pending(2)
    found = {line for line in lines(metrics) if line.startswith("nv_")}
    version = 'model="m",version="1"'
    times = {"request": 500000, "queue": 100000, "compute_input": 1000, "compute_infer": 10000, "compute_output": 2000}
    reasons = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
    assert found == {
        f"nv_inference_request_success{{{version}}} 1",
        f"nv_inference_count{{{version}}} 5",
        f"nv_inference_exec_count{{{version}}} 1",
        f"nv_inference_pending_request_count{{{version}}} 2",
        *(f'nv_inference_request_failure{{{version},reason="{reason}"}} 1' for reason in reasons),
        *(f"nv_inference_{name}_duration_us{{{version}}} {value}" for name, value in times.items()),
    }
    assert b"# TYPE nv_inference_request_success counter\n" in metrics.scrape()[0]
    assert not [line for line in lines(Metrics()) if line.startswith("nv_")]
