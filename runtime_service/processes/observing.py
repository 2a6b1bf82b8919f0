"""What the port of metrics serves where there are several processes: the metrics of all, and whether all are ready."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from runtime_service.processes.pages import merged
from runtime_service.processes.told import fetch, own_socket
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http.hosts import Hosts
from shared_ir.service_kit.http.message import Admission, HttpRequest, HttpResponse
from shared_ir.service_kit.http.metrics import METRICS, MOST_BODY, Scrapes

_LOG = logging.getLogger(__name__)
_LIVE, _READY = "/v2/health/live", "/v2/health/ready"


class AllObserved:
    """Of ``count`` processes, whose sockets are in ``folder``."""

    def __init__(self, folder: Path, count: int, hosts: Hosts) -> None:
        self._folder = folder
        self._count = count
        self._hosts = hosts
        self._answers: dict[str, Callable[[HttpRequest], HttpResponse]] = {
            METRICS: Scrapes(self._scrape),
            _LIVE: self._live,
            _READY: self._ready,
        }

    def admit(self, request: HttpRequest) -> HttpResponse | Admission:
        answer = self._answers.get(request.path)
        if answer is None or request.method not in ("GET", "HEAD"):
            listed = ", ".join(self._answers)
            return HttpResponse.failure(IngotError(ErrorCode.NOT_FOUND, f"only GET of {listed} is served here"))
        return self._hosts.refusal(request) or Admission(MOST_BODY, answer)

    def refused(self, request: HttpRequest, error: IngotError) -> None:
        """Nobody counts them."""

    def _scrape(self, accept: str) -> tuple[bytes, str]:
        """Of those that answer: one that is starting has none yet."""
        pages, kind = {}, "text/plain"
        for number in range(self._count):
            try:
                body, kind = fetch(self._folder / own_socket(number), METRICS, accept)
                pages[number] = body.decode()
            except IngotError as error:
                _LOG.warning("process %d: %s", number, error)
        return merged(pages).encode(), kind

    def _live(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse.json({"live": True})

    def _ready(self, request: HttpRequest) -> HttpResponse:
        try:
            for number in range(self._count):
                fetch(self._folder / own_socket(number), _READY)
        except IngotError as error:
            return HttpResponse.failure(error, HTTPStatus.SERVICE_UNAVAILABLE)
        return HttpResponse.json({"ready": True})
