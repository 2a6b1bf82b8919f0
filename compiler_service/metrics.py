"""``/metrics`` of the compiler service. The numbers come from Redis, so they cover all workers."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from redis.exceptions import RedisError

from compiler_service.boundary.parts import BoundaryPart, Standing
from compiler_service.boundary.state import standing
from compiler_service.jobs.persistence.counters import BUCKETS, Counters
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import JobState

_LOG = logging.getLogger(__name__)
WAIT_SECONDS = 1.0
"""For Redis, at each scrape."""
FRESH_SECONDS = 4.0
"""For so long what Redis said stands for what it would say, where it takes longer than that."""
STUCK_SECONDS = 60.0
"""After which somebody should look."""


@dataclass(frozen=True)
class _Seen:
    """What Redis said, and when; nothing of one that is away."""

    metrics: Sequence[Metric] = ()
    standings: Sequence[Standing] = ()
    is_up: bool = False
    at: float = -math.inf


class JobMetrics:
    """A Prometheus collector over job records and counters."""

    def __init__(self, store: JobStore, counters: Counters) -> None:
        self._store = store
        self._counters = counters
        self._lock = threading.Lock()
        self._seen = _Seen()
        self._asked: threading.Event | None = None
        """Set when the question that is under way has been answered."""

    def collect(self) -> Iterator[Metric]:
        """NOTE: without Redis the process still answers, so that the scrape itself tells what is down. One that hangs is waited for
        no longer than scrapers wait: until the question is answered, what it said last is told, for a while."""
        seen = self._look()
        up = GaugeMetricFamily("ingot_compiler_queue_up", "1 when the job queue can be reached.")
        up.add_metric([], float(seen.is_up))
        yield up
        yield boundary_gauge([standing(), *seen.standings])
        yield from seen.metrics

    def _look(self) -> _Seen:
        with self._lock:
            asked = self._asked
            if asked is None:
                asked = self._asked = threading.Event()
                threading.Thread(target=self._ask, args=(asked,), name="metrics", daemon=True).start()
        asked.wait(WAIT_SECONDS)
        seen = self._seen
        return seen if time.monotonic() - seen.at < FRESH_SECONDS else _Seen()

    def _ask(self, asked: threading.Event) -> None:
        seen = _Seen(at=time.monotonic())
        try:
            metrics = [*self._jobs(), *self._totals(), *self._workers()]
            seen = _Seen(metrics, self._counters.boundaries(), True, time.monotonic())
        except RedisError:
            pass
        except Exception:  # a record that no release of ours wrote
            _LOG.exception("the metrics of jobs cannot be read")
        finally:
            with self._lock:
                self._seen, self._asked = seen, None
            asked.set()

    def _jobs(self) -> Iterator[Metric]:
        active = self._store.active()
        states = Counter(record.state for record in active)
        jobs = GaugeMetricFamily("ingot_compiler_jobs", "Unfinished jobs by state.", labels=["state"])
        for state in (JobState.QUEUED, JobState.RUNNING):
            jobs.add_metric([state.value.lower()], states[state])
        yield jobs
        waiting = [record.created for record in active if record.state is JobState.QUEUED]
        age = max(0.0, time.time() - min(waiting)) if waiting else 0.0
        yield GaugeMetricFamily(
            "ingot_compiler_queue_age_seconds", "Age of the oldest job that has not started.", value=age
        )

    def _totals(self) -> Iterator[Metric]:
        finished = CounterMetricFamily(
            "ingot_compiler_targets_finished",
            "Finished targets of jobs, by state, target and error code.",
            labels=["state", "target", "code"],
        )
        for (state, target, code), count in sorted(self._counters.targets().items()):
            finished.add_metric([state.lower(), target, code], count)
        yield finished
        cache = CounterMetricFamily(
            "ingot_compiler_cache",
            "Targets by what the artifact cache had: hit, miss, or shared with a job under way.",
            labels=["result"],
        )
        results = self._counters.cache_results()
        for result in ("hit", "miss", "shared"):
            cache.add_metric([result], results.get(result, 0))
        yield cache
        stages = HistogramMetricFamily("ingot_compiler_stage_seconds", "Duration of stages.", labels=["stage"])
        for stage, durations in sorted(self._counters.stages().items()):
            total, buckets = 0, []
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), durations.counts, strict=True):
                total += count
                buckets.append((bound, total))
            stages.add_metric([stage], buckets, durations.total)
        yield stages

    def _workers(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "ingot_compiler_workers", "Workers that said not long ago that they live.", value=self._counters.workers()
        )
        taken = GaugeMetricFamily(
            "ingot_compiler_last_consumption_timestamp_seconds", "When a worker last took a stage.", labels=["stage"]
        )
        for stage, when in sorted(self._counters.last_consumed().items()):
            taken.add_metric([stage], when)
        yield taken
        yield GaugeMetricFamily(
            "ingot_compiler_stuck",
            f"Jobs and targets that have had neither a message nor a worker for {STUCK_SECONDS:.0f} s.",
            value=self._counters.stuck(STUCK_SECONDS),
        )


def boundary_gauge(standings: Sequence[Standing]) -> Metric:
    gauge = GaugeMetricFamily(
        "ingot_compiler_boundary",
        "1 where a part of the boundary around compilations holds on every machine that compiles or checks models.",
        labels=["part"],
    )
    for part in BoundaryPart:
        gauge.add_metric([part.value], float(all(standing.holds(part) for standing in standings)))
    return gauge


def make_registry(store: JobStore, counters: Counters) -> CollectorRegistry:
    """A registry of its own: nothing is global."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(JobMetrics(store, counters))
    return registry
