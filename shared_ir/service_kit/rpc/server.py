"""A gRPC server on one event loop: frames, heads and whole messages are its thread's, what is computed is that of others.

A call that consists of one message takes a thread once that is there, so nobody holds one by being slow; a call that is known to be
quick is answered by the thread of the loop itself, without any hand-off (``docs/design/rpc.md``).
"""

from __future__ import annotations

import logging
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION
from grpc_reflection.v1alpha.reflection import ReflectionServicer
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server

from shared_ir.service_kit.calls.handler import refusing
from shared_ir.service_kit.calls.lanes import CallStage, Lane, ServerCall, name_of
from shared_ir.service_kit.calls.shares import is_for_others
from shared_ir.service_kit.connection_counts import ConnectionCounts
from shared_ir.service_kit.event_loop import EventLoop
from shared_ir.service_kit.listening import SharedSockets, listening, port_of
from shared_ir.service_kit.memory.room import GRACE_SECONDS, RequestRoom
from shared_ir.service_kit.putting_off import PuttingOff
from shared_ir.service_kit.rpc.answers import Answers, crowded
from shared_ir.service_kit.rpc.call import Aborted, RpcCall
from shared_ir.service_kit.rpc.endpoint import RpcEndpoint
from shared_ir.service_kit.rpc.method import RpcMethod
from shared_ir.service_kit.rpc.request_head import RequestHead
from shared_ir.service_kit.status import internal
from shared_ir.service_kit.telemetry.call_log import CallLog
from shared_ir.service_kit.tls import CONNECTION_BYTES, RenewedContext, TlsFiles
from shared_ir.service_kit.waiting import WouldWait

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS, _SHORT_LOOK_SECONDS = 0.25, 0.02
"""Between two looks at the calls, and where threads are short."""
_GREETING_SECONDS = 20.0
"""For a TLS handshake."""
_PARTING_SECONDS = 3.0
"""In which clients take what was written last."""
_MOST_CONNECTIONS = 16_384
"""And no more than half of the files that the process may have open, which others need as well."""
_MOST_CALLS = 16_384
"""One more is refused; and so it is where one peer has half of them."""


class Details(NamedTuple):
    """As interceptors of gRPC know a call before it is one."""

    method: str
    invocation_metadata: Any


class RpcServer:
    """Serves the handlers that are added, as gRPC's generated code does, at the addresses that are bound.

    Args:
        lane_of: the lane of a method, by its full name.
        room: of the bytes that calls hold.
        most_message: largest message, in bytes.
        interceptors: of gRPC; the first one is asked first.
        log: where calls that are over are told of.
    """

    def __init__(
        self,
        lane_of: Callable[[str], Lane],
        room: RequestRoom,
        most_message: int,
        interceptors: Sequence[grpc.ServerInterceptor[Any, Any]] = (),
        log: CallLog | None = None,
    ) -> None:
        self.room = room
        self._lane_of = lane_of
        self._most_message = most_message
        self._handlers: dict[str, Any] = {}
        self._methods: dict[str, RpcMethod] = {}
        self._find = self._chained(interceptors)
        self._endpoints: set[RpcEndpoint] = set()
        self._connections_of: Counter[str] = Counter()
        self._most_connections = _most_connections()
        self._calls: set[RpcCall] = set()
        self._by_peer: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._answers = Answers(room, log or CallLog(), self._lock)
        self._is_leaving = self._has_tls = False
        self._counts: ConnectionCounts | None = None
        self._lanes: set[Lane] = set()
        self.loop = EventLoop("rpc", _failed)
        self._putting_off = PuttingOff(self.loop.later)

    # ---- what generated code calls

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[Any]) -> None:
        """NOTE: generated code registers each handler by its name too, which is what is used here."""

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Any]) -> None:
        self._handlers |= {f"/{service_name}/{name}": handler for name, handler in method_handlers.items()}

    def reflect(self, services: Sequence[str], pool: DescriptorPool) -> None:
        """Describe ``services`` to who asks; ``pool`` has what they are made of, and the service that does."""
        servicer = ReflectionServicer((*services, REFLECTION), pool)
        add_ServerReflectionServicer_to_server(servicer, self)

    # ---- life

    def bind(self, address: str | SharedSockets, tls: TlsFiles | None = None) -> int:
        """Listen at ``address``; returns the port. Raises IngotError INVALID_ARGUMENT: it, or a file of ``tls``, cannot be used."""
        context = None
        if tls is not None:
            self._has_tls = True
            context = RenewedContext(tls, ["h2"])
        found = listening(address, "gRPC")
        self._counts = address.counts if isinstance(address, SharedSockets) else None
        self.loop.listen(found, lambda: RpcEndpoint(self), context, _GREETING_SECONDS, counts=self._counts)
        self._tell_count()
        return port_of(found)

    def start(self) -> None:
        self.loop.start(self._begin)

    def stop(self, grace: float) -> threading.Event:
        """Refuse new calls, let those in flight finish for ``grace`` seconds; the event is set when all is over."""
        self.loop.stop(lambda: self._leave(time.monotonic() + grace))
        return self.loop.ended

    # ---- calls, in the thread of the loop

    def connected(self, endpoint: RpcEndpoint) -> bool:
        peer, count, most = name_of(endpoint.peer), len(self._endpoints), self._most_connections
        if self._is_leaving or count >= most or is_for_others(count, self._connections_of[peer], most):
            return False
        self._endpoints.add(endpoint)
        self._connections_of[peer] += 1
        self._tell_count()
        return True

    def disconnected(self, endpoint: RpcEndpoint) -> None:
        if endpoint in self._endpoints:
            self._endpoints.remove(endpoint)
            peer = name_of(endpoint.peer)
            self._connections_of[peer] -= 1
            if not self._connections_of[peer]:
                del self._connections_of[peer]
            self._tell_count()
        if self._has_tls:
            self.room.passed(CONNECTION_BYTES)

    def _tell_count(self) -> None:
        if self._counts is not None:
            self._counts.tell(len(self._endpoints))

    def begin(self, endpoint: RpcEndpoint, stream: int, head: RequestHead) -> RpcCall | None:
        try:
            handler = self._find(Details(head.path, head.metadata))
        except Exception as error:  # of an interceptor; it is no matter of other calls of the connection
            _LOG.exception("a call could not be let in")
            handler = refusing(internal(error))
        if handler is None:
            return None
        method = self._method(head.path, handler)
        call = RpcCall(endpoint, stream, head, method, self.room, self._most_message)
        if method.is_refusal:
            call.is_refused = True
            with suppress(Aborted):
                method.behaviour(None, call)
        elif self._is_crowded(call.watched.peer) or (method.at_once is None and method.lane.is_full(call.watched.peer)):
            call.is_refused = True
            call.fail(crowded())
        elif (lack := call.hold_head()) is not None:
            call.is_refused = True
            call.fail(lack)
        else:
            self._calls.add(call)
            self._by_peer[call.watched.peer] += 1
            if head.timeout is not None:
                call.timer = self.loop.later(head.timeout, self._expire, call)
        return call

    def dispatch(self, call: RpcCall) -> None:
        method = call.method
        call.has_begun = True
        is_quick = method.at_once is not None and call.message is not None and method.at_once(call.message)
        if not (is_quick and self._answer_at_once(call, may_be_put_off=True)):
            self._dispatch_to_lane(call)

    def _answer_at_once(self, call: RpcCall, *, may_be_put_off: bool) -> bool:
        """Whether it is answered here, or is put off until it may be."""
        call.is_at_once, call.guest.waits = True, False
        try:
            self._answers.answer(call)
        except WouldWait as reason:
            call.is_at_once, call.guest.waits = False, True
            call.guest.forget(call.guest.held)
            again = partial(self.loop.do, self._dispatch_again, call)
            return may_be_put_off and self._putting_off.until_free(reason.place, again, call.time_remaining())
        return True

    def _dispatch_again(self, call: RpcCall) -> None:
        """It was put off, once."""
        if not (call.is_over or self._answer_at_once(call, may_be_put_off=False)):
            self._dispatch_to_lane(call)

    def _dispatch_to_lane(self, call: RpcCall) -> None:
        method = call.method
        if method.lane.is_full(call.watched.peer):
            call.fail(crowded())
            call.transport.finish(call)
            return
        if not method.takes_stream:
            call.watched.enter(CallStage.OURS)
        try:
            method.lane.executor.submit_for(call.watched.peer, self._answers.answer, call)
        except RuntimeError:
            call.transport.drop(call)

    def ended(self, call: RpcCall) -> None:
        if call in self._calls:
            self._calls.discard(call)
            self._by_peer[call.watched.peer] -= 1
            if not self._by_peer[call.watched.peer]:
                del self._by_peer[call.watched.peer]
        call.watched.end()
        if not call.has_begun and call.assembler.held:
            self.room.passed(call.assembler.held)

    def _is_crowded(self, peer: str) -> bool:
        """NOTE: one peer alone leaves room for others."""
        return len(self._calls) >= _MOST_CALLS or self._by_peer.get(peer, 0) >= _MOST_CALLS // 2

    def post(self, action: Callable[[RpcCall], None], call: RpcCall) -> None:
        self.loop.post(action, call)

    def retry(self, action: Callable[[RpcCall], None], call: RpcCall) -> None:
        self.loop.later(_SHORT_LOOK_SECONDS, action, call)

    def _expire(self, call: RpcCall) -> None:
        call.abandon(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline of the call has passed")
        call.transport.finish(call)
        if not call.is_over:  # its client does not take what goes before
            call.transport.drop(call)

    def _method(self, path: str, handler: Any) -> RpcMethod:
        """NOTE: interceptors may give another handler for every call."""
        known = self._methods.get(path)
        if known is not None and known.handler is handler:
            return known
        found = RpcMethod.of(path, handler, self._lane_of(path))
        self._lanes.add(found.lane)
        if self._handlers.get(path) is handler:
            self._methods[path] = found
        return found

    def _chained(self, interceptors: Sequence[Any]) -> Callable[[Details], Any]:
        def find(details: Details) -> Any:
            return self._handlers.get(details.method)

        for each in reversed(interceptors):
            find = partial(each.intercept_service, find)
        return find

    # ---- the loop

    def _begin(self) -> None:
        self.loop.later(_LOOK_SECONDS, self._look)
        self.loop.later(_SHORT_LOOK_SECONDS, self._look_at_lanes)

    def _look(self) -> None:
        """Let go of who keeps the server waiting for too long."""
        self.loop.later(_LOOK_SECONDS, self._look)
        now = time.monotonic()
        _cancel([call.watched for call in self._calls if call.watched.is_late(now)])
        if len(self._calls) >= _MOST_CALLS // 2:
            _cancel(self._crowding(now))
        if self._is_leaving:
            self._say_farewell()
        for endpoint in tuple(self._endpoints):
            endpoint.look(now)
        if len(self._endpoints) >= self._most_connections // 2:
            self._let_go(now)

    def _let_go(self, now: float) -> None:
        """Of the peer that has most connections, those that are not used."""
        most = self._connections_of.most_common(1)[0][0]
        for endpoint in tuple(self._endpoints):
            if endpoint.is_idle(now) and name_of(endpoint.peer) == most:
                endpoint.part()

    def _crowding(self, now: float) -> list[ServerCall]:
        """Of the peer that has most calls, those whose clients let us wait."""
        most = self._by_peer.most_common(1)[0][0]
        of_peer = [call.watched for call in self._calls if call.watched.peer == most]
        return [each for each in of_peer if each.stage is not CallStage.OURS and now - each.since > GRACE_SECONDS]

    def _look_at_lanes(self) -> None:
        """Give threads of who waits for his client to others. NOTE: often where they are short, so apart from what goes over all calls."""
        now = time.monotonic()
        with self._lock:
            late = [call for lane in self._lanes for call in lane.victims(now)]
            is_short = any(lane.is_short for lane in self._lanes)
        self.loop.later(_SHORT_LOOK_SECONDS if is_short else _LOOK_SECONDS, self._look_at_lanes)
        _cancel(late)

    def _say_farewell(self) -> None:
        for call in tuple(self._calls):
            if call.watched.stage is CallStage.ARRIVING and (farewell := call.watched.farewell) is not None:
                call.watched.farewell = None
                farewell()

    def _leave(self, deadline: float) -> None:
        self._is_leaving = True
        self.loop.refuse()
        for endpoint in tuple(self._endpoints):
            endpoint.leave()
        self._await_end(deadline)

    def _await_end(self, deadline: float) -> None:
        if self._calls and time.monotonic() < deadline:
            self.loop.later(_SHORT_LOOK_SECONDS, self._await_end, deadline)
            return
        for call in tuple(self._calls):
            call.transport.drop(call)
        for endpoint in tuple(self._endpoints):
            endpoint.close()
        self._await_written(time.monotonic() + _PARTING_SECONDS)

    def _await_written(self, deadline: float) -> None:
        """The last answers have left, or are not taken."""
        if self._endpoints and time.monotonic() < deadline:
            self.loop.later(_SHORT_LOOK_SECONDS, self._await_written, deadline)
        else:
            self.loop.end(_SHORT_LOOK_SECONDS)


def _failed(call: RpcCall) -> None:
    call.transport.drop(call)


def _most_connections() -> int:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(_MOST_CONNECTIONS, files // 2)


def _cancel(calls: Iterable[ServerCall]) -> None:
    for call in calls:
        if not call.cancelled:
            call.cancel()
