"""What one model version has done: Triton's ``ModelStatistics`` numbers and the metrics, from one set of observations.

Source of the fields: triton-inference-server, ``docs/protocol/extension_statistics.md``.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime_service.batching.execution import BatchResult, Execution, ReleaseReason
from shared_ir.errors import ErrorCode
from shared_ir.service_kit.telemetry.histogram import Histogram

_LATENCY = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_WAIT = (1e-3, 5e-3, 0.025, 0.1, 0.25, 1.0, 5.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64)
_MOST_SIZES = 1024
"""Batch sizes with numbers of their own. Of rows of nothing there may be any number, as many as clients think of."""


@dataclass(frozen=True, slots=True)
class Duration:
    """How often something happened and how long it took in all, in nanoseconds."""

    count: int = 0
    nanoseconds: int = 0


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """Executions of one batch size."""

    compute_input: Duration = Duration()
    compute_infer: Duration = Duration()
    compute_output: Duration = Duration()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The numbers at one moment.

    Attributes:
        last_inference: in milliseconds since the epoch.
        batches: by rows.
        failures: by the code of the error.
        releases: by the reason why a batch left the queue.
        pending: requests in the queue.
        oldest: age of the oldest of them, in seconds.
    """

    inference_count: int = 0
    execution_count: int = 0
    last_inference: int = 0
    success: Duration = Duration()
    fail: Duration = Duration()
    queue: Duration = Duration()
    requests: BatchStatistics = BatchStatistics()
    batches: dict[int, BatchStatistics] = field(default_factory=dict)
    failures: dict[ErrorCode, int] = field(default_factory=dict)
    releases: dict[ReleaseReason, int] = field(default_factory=dict)
    pending: int = 0
    oldest: float = 0.0


class Histograms:
    """Of one version, or of several together. Times in seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.request = Histogram(_LATENCY)
        self.queue = Histogram(_WAIT)
        self.compute = Histogram(_LATENCY)
        self.rows = Histogram(_ROWS)

    def executed(self, rows: int, seconds: float) -> None:
        with self._lock:
            self.rows.observe(rows)
            self.compute.observe(seconds)

    def answered(self, seconds: float, queued: float | None) -> None:
        """``queued``: seconds in the queue, if it was computed."""
        with self._lock:
            self.request.observe(seconds)
            if queued is not None:
                self.queue.observe(queued)

    def copy(self) -> Histograms:
        found = Histograms()
        with self._lock:
            for name in ("request", "queue", "compute", "rows"):
                setattr(found, name, getattr(self, name).copy())
        return found


@dataclass(slots=True)
class _Computed:
    """Executions, and what their parts took in seconds."""

    count: int = 0
    merging: float = 0.0
    computing: float = 0.0
    splitting: float = 0.0

    def add(self, execution: Execution) -> None:
        self.count += 1
        self.merging += execution.merge_time
        self.computing += execution.compute_time
        self.splitting += execution.split_time

    def shown(self) -> BatchStatistics:
        parts = (self.merging, self.computing, self.splitting)
        return BatchStatistics(*(_duration(self.count, seconds) for seconds in parts))


class ModelObserver:
    """Records the requests and executions of one version of a model.

    What happens for each request is counted in plain numbers, and written only when somebody looks.
    """

    def __init__(
        self,
        model: str,
        version: str,
        weights_bytes: int = 0,
        histograms: Callable[[], Histograms] = Histograms,
        closed: Callable[[ModelObserver], object] = lambda observer: None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """``histograms`` is asked at the first observation, ``closed`` told when the version is gone."""
        self.model = model
        self.version = version
        self.weights_bytes = weights_bytes
        self._lock = threading.Lock()
        self._make_histograms = histograms
        self._histograms: Histograms | None = None
        self._closed = closed
        self._wall_clock = wall_clock
        self._oldest: Callable[[], float] = lambda: 0.0
        self._pending = 0
        self._rows = self._executions = self._succeeded = self._failed = 0
        self._success_seconds = self._fail_seconds = self._queue_seconds = self._last = 0.0
        self._requests = _Computed()
        self._batches: dict[int, _Computed] = {}
        self._releases: Counter[ReleaseReason] = Counter()
        self._failures: Counter[ErrorCode] = Counter()

    def watch_queue(self, oldest_wait: Callable[[], float]) -> None:
        """``oldest_wait()`` (seconds) is asked whenever somebody looks."""
        self._oldest = oldest_wait

    def executed(self, execution: Execution) -> None:
        rows = max(1, execution.rows)
        now = self._wall_clock()
        with self._lock:
            self._rows += rows
            self._executions += 1
            self._last = now
            self._releases[execution.reason] += 1
            batch = self._batches.get(rows)
            if batch is None and len(self._batches) < _MOST_SIZES:
                batch = self._batches[rows] = _Computed()
            if batch is not None:
                batch.add(execution)
            histograms = self._histograms or self._first()
        histograms.executed(rows, execution.compute_time)

    def pending(self, requests: int) -> None:
        self._pending = requests

    def succeeded(self, result: BatchResult, seconds: float) -> None:
        with self._lock:
            self._succeeded += 1
            self._success_seconds += seconds
            self._queue_seconds += result.queue_time
            self._requests.add(result.execution)
            histograms = self._histograms or self._first()
        histograms.answered(seconds, result.queue_time)

    def failed(self, code: ErrorCode, seconds: float) -> None:
        with self._lock:
            self._failed += 1
            self._fail_seconds += seconds
            self._failures[code] += 1
            histograms = self._histograms or self._first()
        histograms.answered(seconds, None)

    def snapshot(self, *, has_batches: bool = True) -> Snapshot:
        """``has_batches``: with numbers of each batch size, which take longer than all others together."""
        oldest = self._oldest()
        with self._lock:
            return Snapshot(
                self._rows,
                self._executions,
                int(self._last * 1000),
                _duration(self._succeeded, self._success_seconds),
                _duration(self._failed, self._fail_seconds),
                _duration(self._succeeded, self._queue_seconds),
                self._requests.shown(),
                {rows: batch.shown() for rows, batch in sorted(self._batches.items())} if has_batches else {},
                dict(self._failures),
                dict(self._releases),
                self._pending,
                oldest,
            )

    @property
    def histograms(self) -> Histograms | None:
        """None before the first observation."""
        return self._histograms

    def close(self) -> None:
        """The version is gone."""
        self._closed(self)

    def _first(self) -> Histograms:
        self._histograms = self._make_histograms()
        return self._histograms


def _duration(count: int, seconds: float) -> Duration:
    return Duration(count, round(seconds * 1e9))
