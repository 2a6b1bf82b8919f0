"""``/metrics`` of the compiler service. The numbers come from Redis at each scrape, so they cover all workers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from redis.exceptions import RedisError

from compiler_service.boundary.parts import Part, Standing
from compiler_service.boundary.state import standing
from compiler_service.jobs.counters import BUCKETS, Counters
from compiler_service.jobs.records import JobState
from compiler_service.jobs.store import JobStore

STUCK_SECONDS = 60.0
"""After which somebody should look."""


class JobMetrics:
    """A Prometheus collector over job records and counters."""

    def __init__(self, store: JobStore, counters: Counters) -> None:
        self._store = store
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """NOTE: without Redis the process still answers, so that the scrape itself tells what is down."""
        standings = [standing()]
        up = GaugeMetricFamily("ingot_compiler_queue_up", "1 when the job queue can be reached.")
        try:
            metrics = [*self._jobs(), *self._totals(), *self._workers()]
            standings += self._counters.boundaries()
            up.add_metric([], 1)
        except RedisError:
            metrics = []
            up.add_metric([], 0)
        yield up
        yield boundary_gauge(standings)
        yield from metrics

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
    for part in Part:
        gauge.add_metric([part.value], float(all(standing.holds(part) for standing in standings)))
    return gauge


def make_registry(store: JobStore, counters: Counters) -> CollectorRegistry:
    """A registry of its own: nothing is global."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(JobMetrics(store, counters))
    return registry
