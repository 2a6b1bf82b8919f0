"""Triton's metrics, for dashboards and autoscalers that were made for it.

Names, labels and units: triton-inference-server, ``docs/user_guide/metrics.md``. Of what a group of requests shared, the durations count
for each of them, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from runtime_service.batching.statistics import Duration, Snapshot
from shared_ir.errors import ErrorCode
from shared_ir.service_kit.telemetry.exposition import COUNTER, GAUGE, Family, Sample

_MODEL = ("model", "version")
_OTHER = "OTHER"
REASONS = ("REJECTED", "CANCELED", "BACKEND", _OTHER)
_REASON = {
    ErrorCode.RESOURCE_EXHAUSTED: "REJECTED",
    ErrorCode.UNAVAILABLE: "REJECTED",
    ErrorCode.DEADLINE_EXCEEDED: "REJECTED",
    ErrorCode.CANCELLED: "CANCELED",
    ErrorCode.INTERNAL: "BACKEND",
    ErrorCode.OUT_OF_MEMORY: "BACKEND",
    ErrorCode.RESOURCE_LIMIT: "BACKEND",
}
"""Of what is not here it is OTHER: mistakes of clients."""

FAILURE = Family(
    "nv_inference_request_failure", COUNTER, (*_MODEL, "reason"), "Number of failed inference requests, all batch sizes"
)
PENDING = Family(
    "nv_inference_pending_request_count", GAUGE, _MODEL, "Instantaneous number of pending requests awaiting execution"
)
_COUNTS: dict[Family, Callable[[Snapshot], int]] = {
    Family(
        "nv_inference_request_success", COUNTER, _MODEL, "Number of successful inference requests, all batch sizes"
    ): lambda each: each.success.count,
    Family(
        "nv_inference_count", COUNTER, _MODEL, "Number of inferences performed; a batch of n is n of them"
    ): lambda each: each.inference_count,
    Family("nv_inference_exec_count", COUNTER, _MODEL, "Number of model executions performed"): lambda each: (
        each.execution_count
    ),
}
_TIMES: dict[Family, Callable[[Snapshot], Duration]] = {
    Family(
        "nv_inference_request_duration_us", COUNTER, _MODEL, "Cumulative inference request duration in microseconds"
    ): lambda each: each.success,
    Family(
        "nv_inference_queue_duration_us", COUNTER, _MODEL, "Cumulative inference queuing duration in microseconds"
    ): lambda each: each.queue,
    Family(
        "nv_inference_compute_input_duration_us", COUNTER, _MODEL, "Cumulative compute input duration in microseconds"
    ): lambda each: each.requests.compute_input,
    Family(
        "nv_inference_compute_infer_duration_us",
        COUNTER,
        _MODEL,
        "Cumulative compute inference duration in microseconds",
    ): lambda each: each.requests.compute_infer,
    Family(
        "nv_inference_compute_output_duration_us",
        COUNTER,
        _MODEL,
        "Cumulative inference compute output duration in microseconds",
    ): lambda each: each.requests.compute_output,
}
FAMILIES = (FAILURE, PENDING, *_COUNTS, *_TIMES)


def of_versions(seen: Sequence[tuple[str, Snapshot]]) -> Iterator[tuple[Family, Sequence[Sample]]]:
    """From the labels of each version and its numbers; every reason of failures is there from the beginning."""
    for family, count in _COUNTS.items():
        yield family, [(labels, count(each)) for labels, each in seen]
    yield (
        FAILURE,
        [
            (f'{labels},reason="{reason}"', failures)
            for labels, each in seen
            for reason, failures in _failures(each).items()
        ],
    )
    yield PENDING, [(labels, each.pending) for labels, each in seen]
    for family, time in _TIMES.items():
        yield family, [(labels, time(each).nanoseconds // 1000) for labels, each in seen]


def _failures(seen: Snapshot) -> dict[str, int]:
    found = dict.fromkeys(REASONS, 0)
    for code, count in seen.failures.items():
        found[_REASON.get(code, _OTHER)] += count
    return found
