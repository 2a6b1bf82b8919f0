"""Every metric of the runtime service, described in one place (docs/metrics.md is generated from it).

Times are in seconds. What clients invent (names of models nobody serves) never becomes a label value.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

_MODEL = ("model", "version")
_LATENCY = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_LOAD = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(frozen=True, slots=True)
class MetricDescription:
    """One line of the table; ``name`` is as scraped, without the suffixes of histograms."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


class Metrics:
    """All collectors, registered with ``registry`` and with nothing global."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.descriptions: list[MetricDescription] = []
        self.request_success = self._counter(
            "ingot_inference_request_success_total", "Requests answered with a result.", _MODEL
        )
        self.request_failure = self._counter(
            "ingot_inference_request_failure_total",
            "Requests answered with an error; reason is its code, model is empty when no served model was named.",
            (*_MODEL, "reason"),
        )
        self.rows = self._counter(
            "ingot_inference_rows_total", "Rows computed; an execution of a model without batch dim is one.", _MODEL
        )
        self.executions = self._counter(
            "ingot_inference_executions_total", "Executions; rows / executions is the mean batch.", _MODEL
        )
        self.batch_release = self._counter(
            "ingot_inference_batch_release_total",
            "Why batches left the queue: full, delay, idle, closing, unbatched.",
            (*_MODEL, "reason"),
        )
        self.batch_rows = self._histogram("ingot_inference_batch_rows", "Rows per execution.", _MODEL, _ROWS)
        self.request_duration = self._histogram(
            "ingot_inference_request_duration_seconds",
            "From the decoded request to its result, queueing included.",
            _MODEL,
            _LATENCY,
        )
        self.queue_duration = self._histogram(
            "ingot_inference_queue_duration_seconds", "Wait of a request for its execution.", _MODEL, _LATENCY
        )
        self.compute_duration = self._histogram(
            "ingot_inference_compute_duration_seconds", "Native computation of an execution.", _MODEL, _LATENCY
        )
        self.pending = self._gauge("ingot_inference_pending_requests", "Requests in the queue now.", _MODEL)
        self.oldest_pending = self._gauge(
            "ingot_inference_oldest_pending_seconds", "Age of the oldest request in the queue.", _MODEL
        )
        self.model_state = self._gauge(
            "ingot_model_state", "1 for the state that a model version is in.", (*_MODEL, "state")
        )
        self.model_share = self._gauge(
            "ingot_model_share",
            "Part of the requests without a version that a label of a split gets.",
            (*_MODEL, "label"),
        )
        self.load_duration = self._histogram(
            "ingot_model_load_duration_seconds", "Fetching, verifying, loading and warming up.", ("model",), _LOAD
        )
        self.load_failure = self._counter(
            "ingot_model_load_failure_total", "Attempts to load a version that failed.", ("model", "reason")
        )
        self.poll_failure = self._counter(
            "ingot_repository_poll_failure_total", "Polls of the artifact store that failed; loaded models stay.", ()
        )
        self.ready = self._gauge("ingot_server_ready", "1 when the server is ready (INGOT_RUNTIME_READY).", ())
        self.in_flight = self._gauge("ingot_server_in_flight_requests", "Inference requests being served now.", ())
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

    def _counter(self, name: str, help_text: str, labels: tuple[str, ...]) -> Counter:
        self.descriptions.append(MetricDescription(name, "counter", labels, help_text))
        return Counter(name, help_text, labels, registry=self.registry)

    def _gauge(self, name: str, help_text: str, labels: tuple[str, ...]) -> Gauge:
        self.descriptions.append(MetricDescription(name, "gauge", labels, help_text))
        return Gauge(name, help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
        self.descriptions.append(MetricDescription(name, "histogram", labels, help_text))
        return Histogram(name, help_text, labels, registry=self.registry, buckets=buckets)


def markdown() -> str:
    """The table of docs/metrics.md."""
    described = Metrics(CollectorRegistry()).descriptions
    rows = [f"| `{d.name}` | {d.kind} | {', '.join(d.labels)} | {d.help} |" for d in described]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows, ""])


def main(arguments: list[str]) -> None:
    """``--write FILE`` renews the table between the marks of a document; without it the table is printed."""
    if arguments[:1] != ["--write"]:
        print(markdown())
        return
    document = Path(arguments[1])
    begin, mark, rest = document.read_text().partition("<!-- generated -->\n")
    document.write_text(begin + mark + markdown() + "<!-- end -->" + rest.partition("<!-- end -->")[2])


if __name__ == "__main__":
    main(sys.argv[1:])
