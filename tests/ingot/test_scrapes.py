"""What is read from two pages of a runtime service's metrics, as the service writes them."""

from __future__ import annotations

import math

import pytest

from ingot.scrapes import Row, Scrape, View, quantile, view
from runtime_service.batching.execution import BatchResult, Execution, ReleaseReason
from runtime_service.batching.statistics import ModelObserver
from runtime_service.metrics import Metrics
from shared_ir.errors import ErrorCode, IngotError

EXECUTION = Execution(2, 6, 0.0, 0.001, 0.0, ReleaseReason.FULL)


def looked(metrics: Metrics, at: float) -> Scrape:
    return Scrape.of(metrics.scrape()[0].decode(), at)


def answer(observer: ModelObserver, count: int, seconds: float = 0.003) -> None:
    for _ in range(count):
        observer.executed(EXECUTION)
        observer.succeeded(BatchResult({}, 0.0, EXECUTION), seconds)


def row_of(seen: View, model: str) -> Row:
    (found,) = (row for row in seen.rows if row.model == model)
    return found


@pytest.fixture
def metrics() -> Metrics:
    found = Metrics()
    found.ready, found.in_flight = (lambda: True), (lambda: 7)
    for name in ("busy", "idle"):
        found.set_state(name, 1, "READY")
    found.set_state("broken", 2, "FAILED")
    return found


def test_what_was_done_between_two_looks(metrics: Metrics) -> None:
    busy, _ = metrics.observer("busy", 1, 4000), metrics.observer("idle", 1)
    answer(busy, 1000, 0.9)
    before = looked(metrics, 10.0)
    answer(busy, 30)
    busy.failed(ErrorCode.INTERNAL, 0.003)
    busy.pending(4)
    busy.watch_queue(lambda: 0.5)
    metrics.refused("busy", ErrorCode.UNAVAILABLE)
    metrics.refused("nobody", ErrorCode.NOT_FOUND)
    seen = view(looked(metrics, 12.0), before)
    assert (seen.ready, seen.in_flight, seen.interval_seconds, seen.requests_per_second) == (True, 7, 2.0, 15.0)
    assert seen.resident_bytes > 1e6
    assert seen.refused_per_second == {"": 0.5, "busy": 0.5}
    row = row_of(seen, "busy")
    assert (row.version, row.state, row.requests_per_second, row.failures_per_second) == ("1", "ready", 15.0, 0.5)
    assert (row.rows_per_execution, row.pending, row.oldest_seconds, row.weights_bytes) == (6.0, 4, 0.5, 4000)
    assert row.p50_seconds is not None
    assert row.p99_seconds is not None
    assert 0.0025 < row.p50_seconds < row.p99_seconds <= 0.005, "those before do not count"
    assert row_of(seen, "idle").p50_seconds is None
    assert row_of(seen, "idle").requests_per_second == 0.0
    assert row_of(seen, "broken").state == "failed"


def test_the_first_look_and_a_server_that_has_started_again_say_what_is(metrics: Metrics) -> None:
    answer(metrics.observer("busy", 1), 10)
    first = looked(metrics, 10.0)
    started_again = Scrape(5.0, started=first.started - 100, numbers=first.numbers, states=first.states)
    for before in (None, started_again):
        row = row_of(view(first, before), "busy")
        assert (row.requests_per_second, row.p99_seconds, row.rows_per_execution) == (None, None, None)
        assert view(first, before).requests_per_second is None


def test_versions_come_and_go_and_come_again(metrics: Metrics) -> None:
    gone = metrics.observer("gone", 1)
    answer(gone, 5)
    again = metrics.observer("again", 1)
    answer(again, 50)
    before = looked(metrics, 0.0)
    gone.close()
    again.close()
    answer(metrics.observer("again", 1), 3)
    answer(metrics.observer("new", 1), 4)
    seen = view(looked(metrics, 1.0), before)
    rates = {row.model: row.requests_per_second for row in seen.rows}
    assert rates == {"again": 3.0, "new": 4.0, "busy": 0.0, "idle": 0.0, "broken": 0.0}


def test_names_are_read_as_they_are(metrics: Metrics) -> None:
    name = 'a"b\\c\nd} 1'
    metrics.set_state(name, 1, "READY")
    answer(metrics.observer(name, 1), 1)
    assert row_of(view(looked(metrics, 1.0), None), name).state == "ready"


def test_quantiles_are_those_of_prometheus() -> None:
    buckets = ((1.0, 10.0), (2.0, 30.0), (4.0, 40.0), (math.inf, 50.0))
    assert quantile(buckets, 0.1) == 0.5
    assert quantile(buckets, 0.5) == 1.75
    assert quantile(buckets, 0.7) == 3.0
    assert quantile(buckets, 0.99) == 4.0
    assert quantile(((1.0, 0.0), (math.inf, 0.0)), 0.5) is None
    assert quantile((), 0.5) is None


@pytest.mark.parametrize(
    "page", ["", "<html>", "ingot_compiler_jobs 3\n", "ingot_server_ready yes\n", "ingot_model_state 1\n"]
)
def test_other_pages_are_refused(page: str) -> None:
    with pytest.raises(IngotError, match="not those of a runtime service"):
        Scrape.of(page, 0.0)
