"""The life of the server process: admission of requests, and the orderly way out."""

from __future__ import annotations

import enum
import threading
from collections import Counter

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.calls.shares import is_for_others


class ServerPhase(enum.StrEnum):
    SERVING = "serving"
    LAME_DUCK = "lame_duck"  # not ready any more, but still answering: load balancers need time to notice
    DRAINING = "draining"  # new requests are refused, those in flight are finished


class Lifecycle:
    """Counts requests in flight and decides whether another one may enter.

    ``max_in_flight`` keeps threads free for health checks and metrics when clients flood the server. While more than three quarters of
    it are in flight, a peer that has half of it gets no more: the last quarter is for others.
    """

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._phase = ServerPhase.SERVING
        self._in_flight = 0
        self._by_peer: Counter[str] = Counter()

    @property
    def phase(self) -> ServerPhase:
        return self._phase

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def request(self, peer: str = "") -> _Request:
        """Hold this while a request of ``peer`` is being served."""
        return _Request(self, peer)

    def begin(self, peer: str) -> None:
        """A request of ``peer`` begins.

        Raises:
            IngotError: UNAVAILABLE when draining, RESOURCE_EXHAUSTED when too many are in flight.
        """
        with self._lock:
            self._require_room(peer)
            self._in_flight += 1
            self._by_peer[peer] += 1

    def end(self, peer: str) -> None:
        """It is over."""
        with self._lock:
            self._in_flight -= 1
            self._by_peer[peer] -= 1
            if not self._by_peer[peer]:
                del self._by_peer[peer]
            if not self._in_flight:
                self._changed.notify_all()

    def check(self, peer: str = "") -> None:
        """Raises as :meth:`begin`, and holds nothing."""
        with self._lock:
            self._require_room(peer)

    def _require_room(self, peer: str) -> None:
        if self._phase is ServerPhase.DRAINING:
            raise IngotError(
                ErrorCode.UNAVAILABLE, "the server is shutting down", remedy="Retry against another replica."
            )
        if self._in_flight >= self._max_in_flight or self._has_its_share(peer):
            raise IngotError(
                ErrorCode.RESOURCE_EXHAUSTED,
                "too many requests are in flight on this server",
                expected=f"at most {self._max_in_flight}, and three quarters of them of one address",
                remedy="Retry after a pause, or add replicas.",
            )

    def _has_its_share(self, peer: str) -> bool:
        return bool(peer) and is_for_others(self._in_flight, self._by_peer[peer], self._max_in_flight)

    def enter(self, phase: ServerPhase) -> None:
        with self._lock:
            self._phase = phase
            self._changed.notify_all()

    def wait_idle(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until nothing is in flight; whether that came to be."""
        with self._lock:
            return self._changed.wait_for(lambda: self._in_flight == 0, timeout)


class _Request:
    """NOTE: every request goes through it; a generator would take thrice as long."""

    __slots__ = ("_lifecycle", "_peer")

    def __init__(self, lifecycle: Lifecycle, peer: str) -> None:
        self._lifecycle, self._peer = lifecycle, peer

    def __enter__(self) -> None:
        self._lifecycle.begin(self._peer)

    def __exit__(self, *_: object) -> None:
        self._lifecycle.end(self._peer)
