"""What a runtime service did between two scrapes of its metrics (docs/metrics.md)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared_ir.errors import ErrorCode, IngotError

_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_REQUESTS = "ingot_inference_request_duration_seconds_bucket"
_STATE = "ingot_model_state"
_READY = "ingot_server_ready"
_FIELDS = {
    "ingot_inference_request_success_total": "successes",
    "ingot_inference_request_failure_total": "failures",
    "ingot_inference_rows_total": "rows",
    "ingot_inference_executions_total": "executions",
    "ingot_inference_pending_requests": "pending",
    "ingot_inference_oldest_pending_seconds": "oldest_seconds",
    "ingot_model_weights_bytes": "weights_bytes",
}
"""Of one version: samples of one name are added up."""
_SERVER = {
    _READY: "ready",
    "ingot_server_in_flight_requests": "in_flight",
    "process_resident_memory_bytes": "resident_bytes",
    "process_start_time_seconds": "started",
}
Buckets = tuple[tuple[float, float], ...]
"""Upper bounds, ascending, the last one infinite, and how many values are below each."""


@dataclass
class Numbers:
    """Of one version of a model; of one that has none, those requests that reached no version."""

    successes: float = 0
    failures: float = 0
    rows: float = 0
    executions: float = 0
    pending: float = 0
    oldest_seconds: float = 0
    weights_bytes: float = 0
    buckets: Buckets = ()


@dataclass(frozen=True)
class Scrape:
    """One look at a server, ``at`` seconds on some clock; ``states`` and ``numbers`` by model and version."""

    at: float
    ready: float = 0
    in_flight: float = 0
    resident_bytes: float = 0
    started: float = 0
    states: Mapping[tuple[str, str], str] = field(default_factory=dict)
    numbers: Mapping[tuple[str, str], Numbers] = field(default_factory=dict)

    @classmethod
    def of(cls, page: str, at: float) -> Scrape:
        """Raises IngotError INVALID_ARGUMENT: not a page of a runtime service's metrics."""
        server: dict[str, float] = {}
        states: dict[tuple[str, str], str] = {}
        numbers: dict[tuple[str, str], Numbers] = defaultdict(Numbers)
        buckets: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        try:
            for name, labels, value in _samples(page):
                key = labels.get("model", ""), labels.get("version", "")
                if name in _SERVER:
                    server[_SERVER[name]] = value
                elif name == _STATE:
                    states[key] = labels["state"]
                elif name == _REQUESTS:
                    buckets[key].append((float(labels["le"]), value))
                else:
                    own = _FIELDS[name]
                    setattr(numbers[key], own, getattr(numbers[key], own) + value)
        except (KeyError, ValueError) as error:
            raise _no_page() from error
        if "ready" not in server:
            raise _no_page()
        for key, found in buckets.items():
            numbers[key].buckets = tuple(sorted(found))
        return cls(at, **server, states=states, numbers=dict(numbers))


@dataclass(frozen=True)
class Row:
    """One version of a model; ``0`` is that of a model of which none could be chosen yet. What is asked of an interval is None where there
    was none, or nothing happened in it."""

    model: str
    version: str
    state: str
    requests_per_second: float | None
    failures_per_second: float | None
    p50_seconds: float | None
    p99_seconds: float | None
    rows_per_execution: float | None
    pending: int
    oldest_seconds: float
    weights_bytes: int


@dataclass(frozen=True)
class View:
    """A server as it is now, and what it did since the last look, ``interval_seconds`` before.

    Attributes:
        interval_seconds: None for the first look, and where the server has started again meanwhile.
        refused_per_second: requests that reached no version, by model; the empty name is that of models that are not served.
    """

    ready: bool
    in_flight: int
    resident_bytes: int
    interval_seconds: float | None
    requests_per_second: float | None
    refused_per_second: Mapping[str, float]
    rows: tuple[Row, ...]


def view(after: Scrape, before: Scrape | None) -> View:
    if before is not None and before.started != after.started:
        before = None
    seconds = after.at - before.at if before is not None else None
    old = before.numbers if before is not None else {}
    keys = sorted(key for key in {*after.numbers, *after.states} if key[1])
    rows = tuple(_row(key, after, old.get(key, Numbers()), seconds) for key in keys)
    refused = {
        model: (now.failures - old.get((model, version), Numbers()).failures) / seconds
        for (model, version), now in after.numbers.items()
        if seconds and not version
    }
    return View(
        bool(after.ready),
        int(after.in_flight),
        int(after.resident_bytes),
        seconds,
        sum(row.requests_per_second or 0.0 for row in rows) if seconds else None,
        {model: rate for model, rate in refused.items() if rate > 0},
        rows,
    )


def quantile(buckets: Buckets, part: float) -> float | None:
    """As Prometheus' ``histogram_quantile``: values lie evenly within a bucket; beyond the last bound, that bound."""
    total = buckets[-1][1] if buckets else 0.0
    if total <= 0:
        return None
    rank, below, start = part * total, 0.0, 0.0
    for bound, count in buckets[:-1]:
        if count >= rank:
            return start + (bound - start) * ((rank - below) / (count - below) if count > below else 0.0)
        below, start = count, bound
    return start


def _row(key: tuple[str, str], scrape: Scrape, old: Numbers, seconds: float | None) -> Row:
    now = scrape.numbers.get(key, Numbers())
    if now.successes < old.successes or now.rows < old.rows:
        old = Numbers()  # it was loaded again meanwhile
    before = dict(old.buckets)
    answered = tuple((bound, count - before.get(bound, 0.0)) for bound, count in now.buckets) if seconds else ()
    executions = now.executions - old.executions
    return Row(
        *key,
        scrape.states.get(key, "").lower(),
        (now.successes - old.successes) / seconds if seconds else None,
        (now.failures - old.failures) / seconds if seconds else None,
        quantile(answered, 0.5),
        quantile(answered, 0.99),
        (now.rows - old.rows) / executions if seconds and executions > 0 else None,
        int(now.pending),
        now.oldest_seconds,
        int(now.weights_bytes),
    )


def _samples(page: str) -> Sequence[tuple[str, Mapping[str, str], float]]:
    """Those of ``page`` that are looked at."""
    wanted = (*_FIELDS, *_SERVER, _STATE, _REQUESTS)
    found = []
    for line in page.splitlines():
        if line.startswith(wanted) and (match := _SAMPLE.fullmatch(line)) is not None and match[1] in wanted:
            labels = {name: _ESCAPED.sub(_unescaped, text) for name, text in _LABEL.findall(match[2] or "")}
            found.append((match[1], labels, float(match[3])))
    return found


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _no_page() -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "what the server calls its metrics are not those of a runtime service",
        expected=f"{_READY} among them",
        remedy="Name the HTTP port or the port of metrics of a runtime service.",
    )
