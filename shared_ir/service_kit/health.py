"""``grpc.health.v1``: what probes and clients ask before anything else.

The servicer that comes with gRPC tells watchers while it holds the lock that checks need: one watcher that reads nothing would stop all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
CHECK, WATCH = f"/{SERVICE}/Check", f"/{SERVICE}/Watch"
Status = health_pb2.HealthCheckResponse
_UNKNOWN: int = Status.SERVICE_UNKNOWN
_LOOK_SECONDS = 5.0
"""How often a watcher looks whether its client is still there."""


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # generated code is untyped
    """States by the names of services, and by those of other things, which only callers may ask for whom ``knows`` tells so."""

    def __init__(self, knows: Callable[[grpc.ServicerContext], bool] = lambda context: True) -> None:
        self._knows = knows
        self._changed = threading.Condition()
        self._states: dict[str, int] = {}
        self._others: dict[str, int] = {}
        self._leaving = False

    def set(self, name: str, is_serving: bool) -> None:
        with self._changed:
            if not self._leaving:
                self._states[name] = Status.SERVING if is_serving else Status.NOT_SERVING
                self._changed.notify_all()

    def set_others(self, states: Mapping[str, bool]) -> None:
        """All that there is beside services, and whether it serves."""
        with self._changed:
            found = {name: Status.SERVING if state else Status.NOT_SERVING for name, state in states.items()}
            if not self._leaving and found != self._others:
                self._others = found
                self._changed.notify_all()

    def leave(self) -> None:
        """Say no from here on, whatever is set."""
        with self._changed:
            self._leaving = True
            self._states = dict.fromkeys(self._states, Status.NOT_SERVING)
            self._others = dict.fromkeys(self._others, Status.NOT_SERVING)
            self._changed.notify_all()

    def Check(self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext) -> Any:
        state = self._state(request.service, self._knows(context))
        if state == _UNKNOWN:
            context.abort(grpc.StatusCode.NOT_FOUND, "no service of that name")
        return Status(status=state)

    def Watch(self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext) -> Iterator[Any]:
        told, knows = None, self._knows(context)
        while context.is_active():
            found, is_last = self._await_change(request.service, knows, told)
            if found != told:
                told = found
                yield Status(status=found)
            if is_last:
                return

    def _await_change(self, name: str, knows: bool, told: int | None) -> tuple[int, bool]:
        """The state of a service once it is not ``told`` any more, or after some seconds; and whether there is none after it."""
        with self._changed:
            self._changed.wait_for(lambda: self._state(name, knows) != told, _LOOK_SECONDS)
            return self._state(name, knows), self._leaving

    def _state(self, name: str, knows: bool) -> int:
        return self._states.get(name) or (self._others.get(name) if knows else None) or _UNKNOWN
