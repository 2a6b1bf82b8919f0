"""How a call is answered, by whatever kind its method is; in the thread that it was given."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import grpc

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.calls.answering import answering
from shared_ir.service_kit.calls.exchange import Exchange
from shared_ir.service_kit.calls.exchange import MessageHandling as ExchangeMethod
from shared_ir.service_kit.calls.lanes import CallStage, Lane, ServerCall
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.rpc.call import Aborted, RequestStream, RpcCall
from shared_ir.service_kit.rpc.method import RpcMethod
from shared_ir.service_kit.status import internal, let_go
from shared_ir.service_kit.telemetry.call_log import CallLog
from shared_ir.service_kit.telemetry.fields import current_fields, saying
from shared_ir.service_kit.waiting import WouldWait

_LOG = logging.getLogger(__name__)
_GONE = grpc.StatusCode.CANCELLED
"""What it means that a call ends without a status: its client has gone."""


class Answers:
    """Of one server; ``lock`` is that of what lanes run."""

    def __init__(self, room: RequestRoom, log: CallLog, lock: threading.Lock) -> None:
        self._room, self._log, self._lock = room, log, lock

    def answer(self, call: RpcCall) -> None:
        """Compute the answer of a call, and send it. Raises WouldWait, in the thread of the loop alone."""
        if call.is_over:
            return
        method = call.method
        if not (method.takes_stream or method.gives_stream):
            self._settle(call, self._unary)
            call.transport.finish(call)
            return
        ends_later = method.terms is not None or method.is_detached
        with self._keeping(call):
            self._settle(call, self._way(method), ends_later)
        if not ends_later:
            call.transport.finish(call)

    def _way(self, method: RpcMethod) -> Callable[[RpcCall], None]:
        if method.terms is not None:
            return self._exchange
        if method.is_detached:
            return self._attach
        return self._stream if method.gives_stream else self._unary

    def _settle(self, call: RpcCall, answer: Callable[[RpcCall], None], ends_later: bool = False) -> None:
        """What ``answer`` raises becomes the status of the call, of which one line is told once it is over."""
        with saying(), answering(call.watched):
            failed = True
            try:
                answer(call)
                failed = False
            except Aborted as aborted:
                let_go(aborted)
            except WouldWait:
                raise
            except IngotError as error:
                call.fail(error)
                let_go(error)
            except Exception as error:
                # who sends to a client that has gone may fail as it likes; who has set a status has told why
                if not call.is_over and call.code() is None:
                    _LOG.exception("a call failed")
                    call.fail(internal(error))
                let_go(error)
            tell = partial(self._log.tell, call.method.path, call.watched.peer, call, call.started, current_fields())
            if failed or not ends_later or not call.add_callback(partial(tell, _GONE)):
                tell()
        if failed and ends_later:
            call.transport.finish(call)

    @contextmanager
    def _keeping(self, call: RpcCall) -> Iterator[None]:
        """It holds a thread of its lane; where it waits for its client meanwhile, that is given to others who need it."""
        running = call.method.lane.running
        with self._lock:
            running.add(call.watched)
        try:
            yield
        finally:
            with self._lock:
                running.discard(call.watched)

    def _unary(self, call: RpcCall) -> None:
        data: bytes = call.method.serialise(call.method.behaviour(self._request(call), call))
        call.guest.settle(len(data))
        call.answer = data

    def _stream(self, call: RpcCall) -> None:
        for response in call.method.behaviour(self._request(call), call):
            data = call.method.serialise(response)
            call.watched.enter(CallStage.ANSWERING, len(data))
            call.send(data)
            call.watched.enter(CallStage.OURS)

    def _attach(self, call: RpcCall) -> None:
        attach = call.method.behaviour(self._request(call), call)
        attach(_Outlet(call))

    def _exchange(self, call: RpcCall) -> None:
        method = call.method
        assert method.terms is not None
        assert call.requests is not None
        own = ExchangeMethod(method.terms, method.cost, method.read, method.behaviour, method.serialise, answering)
        Exchange(_Keeper(self._room, self._lock), own, call.watched, call, partial(_send, call)).run(call.requests)

    def _request(self, call: RpcCall) -> Any:
        """The one message of a call, or all of them as they come."""
        if call.requests is not None:
            return self._each(call, call.requests)
        data = call.message
        assert data is not None
        if not call.is_at_once:
            call.message = None
        call.taken()
        call.watched.hold(call.method.cost(data))
        return call.method.read(data)

    def _each(self, call: RpcCall, requests: RequestStream) -> Iterator[Any]:
        for data in requests:
            size = call.method.cost(data)
            call.watched.earn(len(data))
            with call.guest.holding(size):
                message = call.method.read(data)
                call.watched.enter(CallStage.OURS)
                yield message
            del data, message  # the next one may be long in coming
            call.watched.enter(CallStage.ARRIVING)


class _Keeper(NamedTuple):
    """Counts the messages of an exchange."""

    room: RequestRoom
    lock: threading.Lock

    def queue(self, lane: Lane, peer: str) -> None:
        if lane.is_full(peer):
            raise crowded()

    def start(self, call: ServerCall) -> None:
        with self.lock:
            call.lane.running.add(call)

    def finish(self, call: ServerCall) -> None:
        with self.lock:
            call.lane.running.discard(call)


class _Outlet:
    """Of a detached call: :class:`shared_ir.service_kit.calls.outlet.Outlet`."""

    def __init__(self, call: RpcCall) -> None:
        self._call = call

    @property
    def is_open(self) -> bool:
        return self._call.is_active()

    @property
    def outstanding(self) -> int:
        return self._call.outstanding

    def send(self, message: Any) -> bool:
        data = self._call.method.serialise(message)
        if not self._call.outstanding:  # else the client has let us wait already
            self._call.watched.enter(CallStage.ANSWERING, len(data))
        self._call.give(data)
        self._call.when_drained(partial(self._call.watched.enter, CallStage.OURS))
        return self.is_open

    def when_drained(self, action: Callable[[], None]) -> None:
        def drained() -> None:
            self._call.watched.enter(CallStage.OURS)
            action()

        self._call.when_drained(drained)

    def end(self, error: IngotError | None = None) -> None:
        if error is not None:
            self._call.fail(error)
        self._call.transport.finish(self._call)

    def cancel(self) -> None:
        self._call.watched.cancel()


def _send(call: RpcCall, data: bytes | None) -> None:
    if data is None:
        call.transport.finish(call)
    else:
        call.send(data)


def crowded() -> IngotError:
    """What is told to who would wait where too many do."""
    message, remedy = "too many calls wait on this server", "Retry after a pause, or add replicas."
    return IngotError(ErrorCode.RESOURCE_EXHAUSTED, message, remedy=remedy)
