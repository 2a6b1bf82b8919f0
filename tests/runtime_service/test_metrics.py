"""The metrics table, its document, and a live scrape are the same thing."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from runtime_service.batching.execution import BatchResult, Execution, ReleaseReason
from runtime_service.batching.statistics import ModelObserver
from runtime_service.metrics import Metrics, markdown
from shared_ir.errors import ErrorCode
from tests.runtime_service.toy_models import ToySource, running_server, scale_model

DOCUMENT = Path("docs/metrics.md")


def test_the_document_is_the_table() -> None:
    table = DOCUMENT.read_text().partition("<!-- generated -->\n")[2].partition("<!-- end -->")[0]
    assert table == markdown(), "run: python -m runtime_service.metrics --write docs/metrics.md"


@pytest.mark.services
def test_every_described_metric_is_scraped_and_every_scraped_one_described() -> None:
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    with running_server(source, models="scale") as server:
        page = urllib.request.urlopen(f"http://{server.addresses['metrics']}/metrics").read().decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    scraped = {name for name in families if name.startswith("ingot_") and not name.endswith("_created")}
    described = {re.sub("_total$", "", d.name): d for d in server.metrics.descriptions}
    assert scraped == set(described)
    for name, description in described.items():
        assert families[name].type == description.kind
        assert families[name].documentation == description.help


def test_names_and_labels_follow_the_conventions() -> None:
    for description in Metrics(CollectorRegistry()).descriptions:
        assert re.fullmatch(r"ingot_[a-z_]+", description.name)
        assert description.name.endswith("_total") == (description.kind == "counter")
        if "duration" in description.name:
            assert description.name.endswith("_seconds")


def test_an_observer_sums_what_it_sees() -> None:
    metrics = Metrics(CollectorRegistry())
    observer = ModelObserver(metrics, "m", "1", wall_clock=lambda: 12.5)
    execution = Execution(2, 5, 0.001, 0.010, 0.002, ReleaseReason.FULL)
    observer.executed(execution)
    for queue_time in (0.1, 0.3):
        observer.succeeded(BatchResult({}, queue_time, execution), 0.5)
    observer.failed(ErrorCode.INVALID_ARGUMENT, 0.01)
    observer.pending(3)
    snapshot = observer.snapshot()
    assert (snapshot.inference_count, snapshot.execution_count, snapshot.last_inference) == (5, 1, 12500)
    assert (snapshot.success.count, snapshot.success.nanoseconds) == (2, 1_000_000_000)
    assert (snapshot.queue.count, snapshot.queue.nanoseconds) == (2, 400_000_000)
    assert (snapshot.fail.count, snapshot.fail.nanoseconds) == (1, 10_000_000)
    assert snapshot.requests.compute_infer.count == 2
    assert snapshot.batches[5].compute_infer.nanoseconds == 10_000_000

    def sample(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"model": "m", "version": "1", **labels})

    assert sample("ingot_inference_rows_total") == 5
    assert sample("ingot_inference_executions_total") == 1
    assert sample("ingot_inference_request_success_total") == 2
    assert sample("ingot_inference_request_failure_total", reason="INVALID_ARGUMENT") == 1
    assert sample("ingot_inference_batch_release_total", reason="full") == 1
    assert sample("ingot_inference_queue_duration_seconds_sum") == pytest.approx(0.4)
    assert sample("ingot_inference_compute_duration_seconds_count") == 1
    assert sample("ingot_inference_pending_requests") == 3
    observer.close()
    assert sample("ingot_inference_pending_requests") is None
    assert sample("ingot_inference_rows_total") == 5
