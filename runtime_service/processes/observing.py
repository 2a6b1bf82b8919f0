"""What the port of metrics serves where there are several processes: the metrics of all, and whether all are ready."""

from __future__ import annotations

import enum
import logging
import threading
import time
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
_SECONDS = 2.0
"""For an answer: who asks here does not wait for long either."""


class Vital(enum.Enum):
    """Whether a process answers, does not listen (yet), or listens and gives no answer."""

    ANSWERS = enum.auto()
    ABSENT = enum.auto()
    SILENT = enum.auto()


class Asked:
    """``count`` processes, whose sockets are in ``folder``, all asked at the same time: one that hangs keeps no other from being heard."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._numbers = range(count)

    def all(self, path: str, accept: str = "") -> dict[int, tuple[bytes, str] | IngotError]:
        """By number what each serves at ``path`` (:func:`fetch`), or why it does not, within some seconds."""
        answers: dict[int, tuple[bytes, str] | IngotError] = {}

        def ask(number: int) -> None:
            try:
                answers[number] = fetch(self._folder / own_socket(number), path, accept, _SECONDS)
            except IngotError as error:
                answers[number] = error

        asking = [threading.Thread(target=ask, args=(number,), daemon=True) for number in self._numbers]
        end = time.monotonic() + _SECONDS
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join(max(0.0, end - time.monotonic()))
        return {number: answers.get(number) or _too_slow(number) for number in self._numbers}

    def vitals(self) -> dict[int, Vital]:
        """Of each, whether or not it has models."""
        return {number: _vital(found) for number, found in self.all(_LIVE).items()}


def _vital(found: object) -> Vital:
    if not isinstance(found, IngotError):
        return Vital.ANSWERS
    return Vital.ABSENT if isinstance(found.__cause__, ConnectionRefusedError | FileNotFoundError) else Vital.SILENT


def _too_slow(number: int) -> IngotError:
    message = "a serving process does not answer in time"
    return IngotError(ErrorCode.UNAVAILABLE, message, field=own_socket(number), received=f"none in {_SECONDS:.0f} s")


class AllObserved:
    """Of ``count`` processes, whose sockets are in ``folder``."""

    def __init__(self, folder: Path, count: int, hosts: Hosts) -> None:
        self._asked = Asked(folder, count)
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
        for number, found in self._asked.all(METRICS, accept).items():
            if isinstance(found, IngotError):
                _LOG.warning("process %d: %s", number, found)
            else:
                pages[number], kind = found[0].decode(), found[1]
        return merged(pages).encode(), kind

    def _live(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse.json({"live": True})

    def _ready(self, request: HttpRequest) -> HttpResponse:
        found = self._asked.all(_READY)
        silent = {number: error for number, error in found.items() if isinstance(error, IngotError)}
        if not silent:
            return HttpResponse.json({"ready": True})
        error = IngotError(
            ErrorCode.UNAVAILABLE,
            "not all serving processes are ready",
            field=f"process {', '.join(map(str, silent))}",
            received="; ".join(f"process {number}: {each.received}" for number, each in silent.items()),
            remedy="Try again in a moment: what has ended, or does not answer, is started anew.",
        )
        return HttpResponse.failure(error, HTTPStatus.SERVICE_UNAVAILABLE)
