"""What one model version has done: Triton's ``ModelStatistics`` numbers and the metrics, from one set of observations.

Source of the fields: triton-inference-server, ``docs/protocol/extension_statistics.md``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from runtime_service.batching.execution import BatchResult, Execution, ReleaseReason
from runtime_service.metrics import Metrics
from shared_ir.errors import ErrorCode


@dataclass(slots=True)
class Duration:
    """How often something happened and how long it took in all, in nanoseconds."""

    count: int = 0
    nanoseconds: int = 0

    def add(self, seconds: float, times: int = 1) -> None:
        self.count += times
        self.nanoseconds += int(seconds * 1e9) * times

    def copy(self) -> Duration:
        return Duration(self.count, self.nanoseconds)


@dataclass(slots=True)
class BatchStatistics:
    """Executions of one batch size."""

    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)

    def add(self, execution: Execution, times: int = 1) -> None:
        self.compute_input.add(execution.merge_time, times)
        self.compute_infer.add(execution.compute_time, times)
        self.compute_output.add(execution.split_time, times)

    def copy(self) -> BatchStatistics:
        return BatchStatistics(self.compute_input.copy(), self.compute_infer.copy(), self.compute_output.copy())


@dataclass(slots=True)
class Snapshot:
    """The numbers at one moment. ``last_inference`` is in milliseconds since the epoch."""

    inference_count: int = 0
    execution_count: int = 0
    last_inference: int = 0
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    requests: BatchStatistics = field(default_factory=BatchStatistics)
    batches: dict[int, BatchStatistics] = field(default_factory=dict)


class ModelObserver:
    """Records the requests and executions of one version of a model."""

    def __init__(self, metrics: Metrics, model: str, version: str, wall_clock: Callable[[], float] = time.time) -> None:
        self._lock = threading.Lock()
        self._totals = Snapshot()
        self._wall_clock = wall_clock
        self._metrics = metrics
        self._labels = (model, version)
        self._success = metrics.request_success.labels(*self._labels)
        self._rows = metrics.rows.labels(*self._labels)
        self._executions = metrics.executions.labels(*self._labels)
        self._batch_rows = metrics.batch_rows.labels(*self._labels)
        self._request_duration = metrics.request_duration.labels(*self._labels)
        self._queue_duration = metrics.queue_duration.labels(*self._labels)
        self._compute_duration = metrics.compute_duration.labels(*self._labels)
        self._pending = metrics.pending.labels(*self._labels)
        self._releases = {r: metrics.batch_release.labels(*self._labels, r.value) for r in ReleaseReason}

    def watch_queue(self, oldest_wait: Callable[[], float]) -> None:
        """Export ``oldest_wait()`` (seconds) at every scrape."""
        self._metrics.oldest_pending.labels(*self._labels).set_function(oldest_wait)

    def executed(self, execution: Execution) -> None:
        rows = max(1, execution.rows)
        with self._lock:
            self._totals.inference_count += rows
            self._totals.execution_count += 1
            self._totals.last_inference = int(self._wall_clock() * 1000)
            self._totals.batches.setdefault(rows, BatchStatistics()).add(execution)
        self._rows.inc(rows)
        self._executions.inc()
        self._batch_rows.observe(rows)
        self._compute_duration.observe(execution.compute_time)
        self._releases[execution.reason].inc()

    def pending(self, requests: int) -> None:
        self._pending.set(requests)

    def succeeded(self, result: BatchResult, seconds: float) -> None:
        with self._lock:
            self._totals.success.add(seconds)
            self._totals.queue.add(result.queue_time)
            self._totals.requests.add(result.execution)
        self._success.inc()
        self._request_duration.observe(seconds)
        self._queue_duration.observe(result.queue_time)

    def failed(self, code: ErrorCode, seconds: float) -> None:
        with self._lock:
            self._totals.fail.add(seconds)
        self._metrics.request_failure.labels(*self._labels, code.value).inc()
        self._request_duration.observe(seconds)

    def snapshot(self) -> Snapshot:
        with self._lock:
            totals = self._totals
            return Snapshot(
                totals.inference_count,
                totals.execution_count,
                totals.last_inference,
                totals.success.copy(),
                totals.fail.copy(),
                totals.queue.copy(),
                totals.requests.copy(),
                {rows: batch.copy() for rows, batch in sorted(totals.batches.items())},
            )

    def close(self) -> None:
        """Stop exporting the gauges of a version that is gone; its counters stay."""
        for gauge in (self._metrics.pending, self._metrics.oldest_pending):
            with suppress(KeyError):
                gauge.remove(*self._labels)
