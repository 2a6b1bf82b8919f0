"""``grpc.health.v1``: what probes and clients ask before anything else.

The servicer that comes with gRPC tells watchers while it holds the lock that checks need: one watcher that reads nothing would stop all.
It gives each watcher a thread too, and clients that check health by themselves (``healthCheckConfig``) make no call before they are told:
a crowd of watchers would keep them away. Here one thread tells all watchers, and waits for none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shared_ir.service_kit.calls.outlet import Attach, Outlet, detached
from shared_ir.service_kit.rpc.method import at_once

_LOG = logging.getLogger(__name__)
SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
CHECK, WATCH = f"/{SERVICE}/Check", f"/{SERVICE}/Watch"
Status = health_pb2.HealthCheckResponse
_MOST_NAME = 1024
"""Bytes of a name, and what is around it."""
_UNKNOWN: int = Status.SERVICE_UNKNOWN


class _HealthWatcher:
    """Who is told the state of ``name``, and what it was told last."""

    __slots__ = ("knows", "name", "outlet", "told")

    def __init__(self, name: str, knows: bool, outlet: Outlet) -> None:
        self.name, self.knows, self.outlet = name, knows, outlet
        self.told: int | None = None


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # generated code is untyped
    """States by the names of services, and by those of other things, which only callers may ask for whom ``knows`` tells so."""

    def __init__(self, knows: Callable[[grpc.ServicerContext], bool] = lambda context: True) -> None:
        self._knows = knows
        self._changed = threading.Condition()
        self._states: dict[str, int] = {}
        self._others: dict[str, int] = {}
        self._leaving = False
        self._watchers: set[_HealthWatcher] = set()
        self._teller: threading.Thread | None = None
        self._is_due = False
        """There may be something to tell."""

    def set(self, name: str, is_serving: bool) -> None:
        with self._changed:
            if not self._leaving:
                self._states[name] = Status.SERVING if is_serving else Status.NOT_SERVING
                self._notify()

    def set_others(self, states: Mapping[str, bool]) -> None:
        """All that there is beside services, and whether it serves."""
        with self._changed:
            found = {name: Status.SERVING if state else Status.NOT_SERVING for name, state in states.items()}
            if not self._leaving and found != self._others:
                self._others = found
                self._notify()

    def leave(self) -> None:
        """Say no from here on, whatever is set."""
        with self._changed:
            self._leaving = True
            self._states = dict.fromkeys(self._states, Status.NOT_SERVING)
            self._others = dict.fromkeys(self._others, Status.NOT_SERVING)
            self._notify()

    def _is_small(self, message: bytes) -> bool:
        return len(message) <= _MOST_NAME

    @at_once(_is_small)
    def Check(self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext) -> Any:
        """NOTE: takes no turn, so that no crowd has them all."""
        state = self._state(request.service, self._knows(context))
        if state == _UNKNOWN:
            context.abort(grpc.StatusCode.NOT_FOUND, "no service of that name")
        return Status(status=state)

    @detached
    def Watch(self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext) -> Attach:
        def attach(outlet: Outlet) -> None:
            watcher = _HealthWatcher(request.service, self._knows(context), outlet)
            with self._changed:
                self._watchers.add(watcher)
                if self._teller is None:
                    self._teller = threading.Thread(target=self._tell_all, name="health", daemon=True)
                    self._teller.start()
            if not context.add_callback(lambda: self._forget(watcher)):
                self._forget(watcher)
            self._notify()

        return attach

    def _forget(self, watcher: _HealthWatcher) -> None:
        with self._changed:
            self._watchers.discard(watcher)

    def _notify(self) -> None:
        with self._changed:
            self._is_due = True
            self._changed.notify_all()

    def _tell_all(self) -> None:
        """Tell each watcher what it does not know, until the server has left."""
        while (found := self._await_news()) is not None:
            news, ending = found
            for watcher, state in news:
                self._tell(watcher, state)
            for watcher in ending:
                watcher.outlet.end()
                self._forget(watcher)

    def _await_news(self) -> tuple[list[tuple[_HealthWatcher, int]], list[_HealthWatcher]] | None:
        """Who does not know its state, and who is told nothing after it; None where nobody is to be told any more."""
        with self._changed:
            if self._leaving and not self._watchers:
                self._teller = None
                return None
            self._changed.wait_for(lambda: self._is_due)
            self._is_due = False
            states = [(watcher, self._state(watcher.name, watcher.knows)) for watcher in self._watchers]
            news = [(watcher, state) for watcher, state in states if state != watcher.told]
            return news, list(self._watchers) if self._leaving else []

    def _tell(self, watcher: _HealthWatcher, state: int) -> None:
        """Who has not taken the one before is told when he has; by then it may be another one."""
        try:
            if watcher.outlet.outstanding:
                watcher.outlet.when_drained(self._notify)
                return
            watcher.told = state
            watcher.outlet.send(Status(status=state))
        except Exception:  # it is no matter of the others
            _LOG.exception("a watcher of health cannot be told")
            self._forget(watcher)

    def _state(self, name: str, knows: bool) -> int:
        return self._states.get(name) or (self._others.get(name) if knows else None) or _UNKNOWN
