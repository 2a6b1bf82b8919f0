"""Every metric of the runtime service, described in one place (docs/metrics.md is generated from it).

Times are in seconds. What clients invent (names of models nobody serves) never becomes a label value. Numbers of a version are those of its
:class:`runtime_service.batching.statistics.ModelObserver`, and are gone with it.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from runtime_service import triton_metrics
from runtime_service.batching.statistics import Histograms, ModelObserver, Snapshot
from runtime_service.splitting import Share
from shared_ir.errors import ErrorCode
from shared_ir.service_kit.telemetry.exposition import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    OPEN_METRICS,
    Exposition,
    Family,
    Sample,
    labelled,
)
from shared_ir.service_kit.telemetry.histogram import Histogram

_LOG = logging.getLogger(__name__)
_MODEL = ("model", "version")
_LOAD = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
OTHERS = "*"
"""As a model: those versions together that have no histograms of their own."""

SUCCESS = Family("ingot_inference_request_success_total", COUNTER, _MODEL, "Requests answered with a result.")
FAILURE = Family(
    "ingot_inference_request_failure_total",
    COUNTER,
    (*_MODEL, "reason"),
    "Requests answered with an error, by its code; version is empty where none was reached, model where none is served by that name.",
)
ROWS = Family(
    "ingot_inference_rows_total", COUNTER, _MODEL, "Rows computed; an execution of a model without batch dim is one."
)
EXECUTIONS = Family(
    "ingot_inference_executions_total", COUNTER, _MODEL, "Executions; rows / executions is the mean batch."
)
RELEASES = Family(
    "ingot_inference_batch_release_total",
    COUNTER,
    (*_MODEL, "reason"),
    "Why batches left the queue: full, preferred, delay, idle, closing, unbatched.",
)
PENDING = Family("ingot_inference_pending_requests", GAUGE, _MODEL, "Requests in the queue now.")
OLDEST = Family("ingot_inference_oldest_pending_seconds", GAUGE, _MODEL, "Age of the oldest request in the queue.")
BATCH_ROWS = Family("ingot_inference_batch_rows", HISTOGRAM, _MODEL, "Rows per execution.")
REQUEST_DURATION = Family(
    "ingot_inference_request_duration_seconds",
    HISTOGRAM,
    _MODEL,
    "From the decoded request to its result or error, queueing included.",
)
QUEUE_DURATION = Family(
    "ingot_inference_queue_duration_seconds", HISTOGRAM, _MODEL, "Wait of a request for its execution."
)
COMPUTE_DURATION = Family(
    "ingot_inference_compute_duration_seconds", HISTOGRAM, _MODEL, "Native computation of an execution."
)
STATE = Family("ingot_model_state", GAUGE, (*_MODEL, "state"), "1, with the state that a model version is in.")
SHARE = Family(
    "ingot_model_share",
    GAUGE,
    (*_MODEL, "label"),
    "Part of the requests without a version that a label or number of a split policy gets, from 0 to 1; the first term has that of what is "
    "not served.",
)
WEIGHTS = Family(
    "ingot_model_weights_bytes", GAUGE, _MODEL, "Memory of the weights of a version, which its instances share."
)
LOAD_DURATION = Family(
    "ingot_model_load_duration_seconds", HISTOGRAM, (), "Fetching, verifying, loading and warming up a version."
)
LOAD_FAILURE = Family(
    "ingot_model_load_failure_total", COUNTER, ("model", "reason"), "Attempts to load a version that failed."
)
POLL_FAILURE = Family(
    "ingot_repository_poll_failure_total", COUNTER, (), "Polls of the artifact store that failed; loaded models stay."
)
READY = Family("ingot_server_ready", GAUGE, (), "1 when the server is ready by its rule (INGOT_RUNTIME_READY).")
IN_FLIGHT = Family("ingot_server_in_flight_requests", GAUGE, (), "Inference requests that are being served now.")
FAMILIES = (
    SUCCESS,
    FAILURE,
    ROWS,
    EXECUTIONS,
    RELEASES,
    BATCH_ROWS,
    REQUEST_DURATION,
    QUEUE_DURATION,
    COMPUTE_DURATION,
    PENDING,
    OLDEST,
    STATE,
    SHARE,
    WEIGHTS,
    LOAD_DURATION,
    LOAD_FAILURE,
    POLL_FAILURE,
    READY,
    IN_FLIGHT,
)

_DISTRIBUTIONS = {
    BATCH_ROWS: "rows",
    REQUEST_DURATION: "request",
    QUEUE_DURATION: "queue",
    COMPUTE_DURATION: "compute",
}
"""Histograms of a version, by the attribute of :class:`Histograms` that has them."""


@dataclass(slots=True)
class _Model:
    """What is counted of a model that no version of it counts."""

    states: dict[int, str] = field(default_factory=dict)
    shares: Sequence[Share] = ()
    refusals: Counter[ErrorCode] = field(default_factory=Counter)
    load_failures: Counter[ErrorCode] = field(default_factory=Counter)


class Metrics:
    """All numbers that are scraped; nothing is global. May be used from any thread.

    Args:
        most_histograms: versions that have histograms of their own, in the order of their first requests; others share one set.
        triton: whether Triton's metrics are there beside ours.
    """

    def __init__(self, most_histograms: int = 200, *, triton: bool = False) -> None:
        self.ready: Callable[[], bool] = lambda: False
        self.in_flight: Callable[[], int] = lambda: 0
        self._most_histograms = most_histograms
        self._has_triton = triton
        self._lock = threading.Lock()
        self._versions: dict[tuple[str, str], ModelObserver] = {}
        self._models: dict[str, _Model] = {}
        self._strangers = _Model()
        self._others = Histograms()
        self._own: set[Histograms] = set()
        self._is_full = False
        self._loads = Histogram(_LOAD)
        self._poll_failures = 0
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)

    def observer(self, model: str, version: int, weights_bytes: int = 0) -> ModelObserver:
        """What counts for a version, from here on to its end. One of the same version that is still there is scraped no more."""
        found = ModelObserver(model, str(version), weights_bytes, self._claim, self._forget_version)
        with self._lock:
            self._versions[found.model, found.version] = found
        return found

    def set_state(self, model: str, version: int, state: str) -> None:
        with self._lock:
            self._models.setdefault(model, _Model()).states[version] = state

    def drop_state(self, model: str, version: int) -> None:
        with self._lock:
            if model in self._models:
                self._models[model].states.pop(version, None)

    def set_shares(self, model: str, shares: Sequence[Share]) -> None:
        """Who shares its requests by weight now."""
        with self._lock:
            self._models.setdefault(model, _Model()).shares = shares

    def forget(self, model: str) -> None:
        """It is served no more."""
        with self._lock:
            self._models.pop(model, None)

    def refused(self, model: str, code: ErrorCode) -> None:
        """A request for ``model``, as its client names it, that reached no version."""
        with self._lock:
            self._models.get(model, self._strangers).refusals[code] += 1

    def loaded(self, seconds: float) -> None:
        with self._lock:
            self._loads.observe(seconds)

    def load_failed(self, model: str, code: ErrorCode) -> None:
        with self._lock:
            self._models.setdefault(model, _Model()).load_failures[code] += 1

    def poll_failed(self) -> None:
        with self._lock:
            self._poll_failures += 1

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """A page in the format that an ``Accept`` header asks for, and its ``Content-Type``."""
        encode, content_type = choose_encoder(accept)
        page = Exposition(content_type.startswith(OPEN_METRICS))
        self._write(page)
        return page.encoded() + encode(self._process), content_type

    def _write(self, page: Exposition) -> None:
        with self._lock:
            observers = sorted(self._versions.values(), key=lambda each: (each.model, each.version))
            others = list(self._of_models())
            refusals, loads = list(self._refusals()), self._loads.copy()
        seen = [
            (labelled(model=each.model, version=each.version), each.snapshot(has_batches=False)) for each in observers
        ]
        for family, samples in _of_versions(seen):
            page.numbers(family, samples)
        failures = [(f'{labels},reason="{code}"', n) for labels, each in seen for code, n in each.failures.items()]
        page.numbers(FAILURE, failures + refusals)
        weights = [(labels, own.weights_bytes) for (labels, _), own in zip(seen, observers, strict=True)]
        page.numbers(WEIGHTS, weights)
        histograms = self._histograms(observers)
        for family, name in _DISTRIBUTIONS.items():
            page.histograms(family, [(labels, getattr(each, name)) for labels, each in histograms])
        page.histograms(LOAD_DURATION, [("", loads)])
        for family, samples in others:
            page.numbers(family, samples)
        page.numbers(READY, [("", int(self.ready()))])
        page.numbers(IN_FLIGHT, [("", self.in_flight())])
        if self._has_triton:
            for family, samples in triton_metrics.of_versions(seen):
                page.numbers(family, samples)

    def _histograms(self, observers: Iterable[ModelObserver]) -> Sequence[tuple[str, Histograms]]:
        """Those that have seen something; of versions that share them, once."""
        own = [(each.model, each.version, each.histograms) for each in observers]
        found = [(labelled(model=m, version=v), h.copy()) for m, v, h in own if h is not None and h is not self._others]
        return [*found, (labelled(model=OTHERS, version=""), self._others.copy())] if self._is_full else found

    def _refusals(self) -> Iterator[Sample]:
        for name, model in (("", self._strangers), *sorted(self._models.items())):
            for code, count in model.refusals.items():
                yield labelled(model=name, version="", reason=code), count

    def _of_models(self) -> Iterator[tuple[Family, Sequence[Sample]]]:
        models = sorted(self._models.items())
        states = [
            (labelled(model=name, version=str(version), state=state), 1)
            for name, model in models
            for version, state in sorted(model.states.items())
        ]
        yield STATE, states
        yield SHARE, [part for name, model in models for part in _parts(name, model.shares)]
        failures = [
            (labelled(model=name, reason=code), count)
            for name, model in models
            for code, count in model.load_failures.items()
        ]
        yield LOAD_FAILURE, failures
        yield POLL_FAILURE, [("", self._poll_failures)]

    def _claim(self) -> Histograms:
        """At the first observation of a version."""
        with self._lock:
            if len(self._own) < self._most_histograms:
                self._own.add(found := Histograms())
                return found
            is_first, self._is_full = not self._is_full, True
        if is_first:
            _LOG.warning(
                "%d versions have histograms of their own: those to come are model=%r together; INGOT_RUNTIME_MAX_HISTOGRAMS allows more",
                self._most_histograms,
                OTHERS,
            )
        return self._others

    def _forget_version(self, observer: ModelObserver) -> None:
        key = observer.model, observer.version
        with self._lock:
            if observer.histograms is not None:
                self._own.discard(observer.histograms)
            if self._versions.get(key) is observer:
                del self._versions[key]


def _parts(model: str, shares: Sequence[Share]) -> Iterator[Sample]:
    total = sum(share.weight for share in shares)
    for share in shares:
        yield labelled(model=model, version=str(share.version), label=share.term), share.weight / total


def _of_versions(seen: Sequence[tuple[str, Snapshot]]) -> Iterator[tuple[Family, Sequence[Sample]]]:
    yield SUCCESS, [(labels, each.success.count) for labels, each in seen]
    yield ROWS, [(labels, each.inference_count) for labels, each in seen]
    yield EXECUTIONS, [(labels, each.execution_count) for labels, each in seen]
    yield RELEASES, [(f'{labels},reason="{why}"', n) for labels, each in seen for why, n in each.releases.items()]
    yield PENDING, [(labels, each.pending) for labels, each in seen]
    yield OLDEST, [(labels, each.oldest) for labels, each in seen]


def markdown() -> str:
    """The table of docs/metrics.md."""
    rows = [f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {each.help} |" for each in FAMILIES]
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
