"""``/metrics`` over HTTP, in the format that a scraper asks for."""

from __future__ import annotations

import threading
from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http.hosts import Hosts
from shared_ir.service_kit.http.message import Admission, HttpRequest, HttpResponse

METRICS = "/metrics"
MOST_BODY = 64 * 1024
"""Bytes of the body of a request that needs none."""
Scrape = Callable[[str], tuple[bytes, str]]
"""From the ``Accept`` header to a page and its ``Content-Type``."""

_MOST_SCRAPES = 4
"""At once: a crowd of them would leave the interpreter to nobody else."""


class Scrapes:
    """Of one port: those of another one do not keep it from being scraped."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape
        self._room = threading.BoundedSemaphore(_MOST_SCRAPES)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """A page in the format that the ``Accept`` header asks for."""
        if not self._room.acquire(blocking=False):
            error = IngotError(ErrorCode.RESOURCE_EXHAUSTED, "others scrape the metrics already")
            return HttpResponse.failure(error, headers={"Connection": "close"})
        try:
            page, content_type = self._scrape(request.headers.get("accept", ""))
            return HttpResponse(parts=(page,), headers={"Content-Type": content_type})
        finally:
            self._room.release()


class MetricsApplication:
    """The metrics of a registry, and nothing else."""

    def __init__(self, registry: CollectorRegistry, hosts: Hosts) -> None:
        self._registry = registry
        self._scrapes = Scrapes(self._scrape)
        self._hosts = hosts

    def admit(self, request: HttpRequest) -> HttpResponse | Admission:
        if request.path != METRICS or request.method not in ("GET", "HEAD"):
            return HttpResponse.failure(IngotError(ErrorCode.NOT_FOUND, "only GET /metrics is served here"))
        return self._hosts.refusal(request) or Admission(MOST_BODY, self._scrapes)

    def refused(self, request: HttpRequest, error: IngotError) -> None:
        """Nobody counts them."""

    def _scrape(self, accept: str) -> tuple[bytes, str]:
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
