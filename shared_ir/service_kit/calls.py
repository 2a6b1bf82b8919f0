"""Calls of a gRPC server: which threads they get, what they may hold, and for how long a client may keep them waiting.

gRPC's own server takes a thread for a call as soon as its head is there, waits in it for the message without end, and answers a message
that is none with INTERNAL. Here a call waits for its message under watch, and gives its thread up where others need it.
"""

from __future__ import annotations

import logging
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.arrivals import Arrivals
from shared_ir.service_kit.lanes import Call, Lane, Stage
from shared_ir.service_kit.message_cost import cost_of
from shared_ir.service_kit.outlet import end_call, is_detached, non_blocking
from shared_ir.service_kit.room import Room
from shared_ir.service_kit.status import abort
from shared_ir.service_kit.telemetry.call_log import CallLog
from shared_ir.service_kit.telemetry.fields import current_fields, saying

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 0.25
_SHORT_LOOK_SECONDS = 0.02
"""Between two looks at the calls, and where threads are short."""
OPTIONS = (
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.max_connection_idle_ms", 300_000),
    ("grpc.max_allowed_incoming_connections", 16_384),
    ("grpc.max_concurrent_streams", 4096),
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.so_reuseport", 0),
)
"""Of every server: who connects and says nothing is let go. A connection may have all watchers that a service takes by default, and
room beside them: what ended counts as a stream for a while, and one too many is refused as if no server were there. Messages come as they
are: a compressed one would be as large as a message may be before anybody could count it."""


def prepare_process() -> None:
    """At the start of a server: as many descriptors as the system allows, and nothing in the log that gRPC has from its peers."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


_GONE = grpc.StatusCode.CANCELLED
"""What it means that a detached call ends without a status: its client has gone."""


_ANSWERED = threading.local()
"""``call`` is the one that this thread answers."""


def grow(count: int) -> None:
    """Bytes of the answer to the call of this thread, before they are made; raises IngotError RESOURCE_EXHAUSTED."""
    call: Call | None = getattr(_ANSWERED, "call", None)
    if call is not None:
        call.guest.grow(count)


@contextmanager
def _answering(call: Call) -> Iterator[None]:
    _ANSWERED.call = call
    try:
        yield
    finally:
        _ANSWERED.call = None


class CallGuard(grpc.ServerInterceptor):  # type: ignore[type-arg]  # not subscriptable at run time
    """Watches over the calls of a server.

    Args:
        lane_of: the lane of a method, by its full name.
        room: of the bytes that calls hold.
        most_message: largest message, in bytes.
        log: where calls that are over are told of.
    """

    def __init__(
        self, lane_of: Callable[[str], Lane], room: Room, most_message: int, log: CallLog | None = None
    ) -> None:
        self.room = room
        self.log = log or CallLog()
        self.arrivals = Arrivals()
        self._most_message = most_message
        self._lane_of = lane_of
        self._handlers: dict[str, _Guarded] = {}
        self._lock = threading.Lock()
        self._lanes: set[Lane] = set()
        self._calls: set[Call] = set()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        kept = self._handlers.get(method)
        if kept is None or kept.handler is not handler:
            kept = self._handlers[method] = _Guarded(self, self._lane_of(method), method, handler)
        lane = kept.lane
        if lane.waiting >= lane.most_waiting:
            return _CROWDED
        if lane.will_be_short:
            self._wake.set()
        return kept.replacement

    def enter(self, lane: Lane, context: Any) -> Call:
        """A call that has its thread."""
        call = Call(lane, context, self.room)
        with self._lock:
            lane.running.add(call)
            self._lanes.add(lane)
            self._calls.add(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="calls", daemon=True)
                self._thread.start()
        if not context.add_callback(lambda: self._ended(call)):
            self._ended(call)
        return call

    def leave(self, call: Call) -> None:
        """It gives its thread back."""
        with self._lock:
            call.lane.running.discard(call)

    def _ended(self, call: Call) -> None:
        with self._lock:
            self._calls.discard(call)
        call.end()

    def _watch(self) -> None:
        while True:
            self._wake.wait(_LOOK_SECONDS)
            self._wake.clear()
            try:
                self._look(time.monotonic())
            except Exception:  # the next look is not that of a dead thread
                _LOG.exception("a look at the calls failed")
            with self._lock:
                is_short = any(lane.is_short for lane in self._lanes)
            if is_short:
                time.sleep(_SHORT_LOOK_SECONDS)
                self._wake.set()

    def _look(self, now: float) -> None:
        with self._lock:
            late = [call for call in self._calls if call.stage is not Stage.OURS and now - call.since > call.limit]
            late += [call for lane in self._lanes for call in lane.victims(now)]
            arriving = [
                call for call in self._calls if call.stage is Stage.ARRIVING and now - call.since > _LOOK_SECONDS
            ]
        for call in late:
            if not call.cancelled:
                call.cancel()
        self._count(arriving)

    def _count(self, arriving: list[Call]) -> None:
        """What has come of messages that are not whole takes room too; of a connection it is the oldest call's."""
        if not arriving:
            return
        on_their_way = self.arrivals.on_their_way()
        for call in sorted(arriving, key=lambda call: call.since):
            call.arrives(min(on_their_way.pop(call.connection, 0), self._most_message))


class _Guarded:
    """A method whose messages we fetch and parse ourselves."""

    def __init__(self, guard: CallGuard, lane: Lane, method: str, handler: Any) -> None:
        self.lane = lane
        self.handler = handler
        self._guard = guard
        self._method = method
        self._cost = cost_of(handler.request_deserializer)
        self._parse, self._serialise = handler.request_deserializer, handler.response_serializer
        self._inner = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        if is_detached(self._inner):
            behaviour: Callable[..., Any] = self._detached
        else:
            behaviour = self._stream if handler.response_streaming else self._unary
        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        marked = _in_pool(behaviour, lane.executor)
        self.replacement = make(non_blocking(marked) if is_detached(self._inner) else marked)

    def _unary(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        with self._call(context) as call, _answering(call):
            data: bytes = self._serialise(self._inner(self._messages(call, requests), context))
            call.guest.settle(len(data))
            call.enter(Stage.ANSWERING, len(data))
            return data

    def _stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        with self._call(context) as call:
            for response in self._inner(self._messages(call, requests), context):
                data = self._serialise(response)
                call.enter(Stage.ANSWERING, len(data))
                yield data
                call.enter(Stage.OURS)

    def _detached(
        self, requests: Iterator[bytes], context: grpc.ServicerContext, send: Callable[[bytes | None], None]
    ) -> None:
        """The call goes on without this thread: see :mod:`shared_ir.service_kit.outlet`."""
        with self._call(context, is_detached=True) as call:
            attach = self._inner(self._messages(call, requests), context)
            attach(_Outlet(call, context, self._serialise, send))

    @contextmanager
    def _call(self, context: Any, is_detached: bool = False) -> Iterator[Call]:
        """A call that has its thread; ended with what the block raises, or left to what has ended it already, and told of once."""
        call, started = self._guard.enter(self.lane, context), time.monotonic()
        try:
            with saying():
                failed = True
                try:
                    yield call
                    failed = False
                except IngotError as error:
                    abort(context, error)
                finally:
                    tell = partial(self._guard.log.tell, self._method, call.peer, context, started, current_fields())
                    if failed or not is_detached or not context.add_callback(partial(tell, _GONE)):
                        tell()
        finally:
            self._guard.leave(call)

    def _messages(self, call: Call, requests: Iterator[bytes]) -> Any:
        """The one message of a call, or all of them as they come."""
        if self.handler.request_streaming:
            return self._each(call, requests)
        data = next(requests, None)
        if data is None:
            message = "the call carries no message"
            raise IngotError(ErrorCode.INVALID_ARGUMENT, message, expected="one message of its request type")
        return self._parsed(call, data)

    def _each(self, call: Call, requests: Iterator[bytes]) -> Iterator[Any]:
        for data in requests:
            yield self._parsed(call, data)
            call.drop()
            call.enter(Stage.ARRIVING)

    def _parsed(self, call: Call, data: bytes) -> Any:
        call.has_arrived()
        self._guard.arrivals.add(call.connection, len(data))
        call.hold(self._cost(data))
        try:
            message = self._parse(data)
        except Exception as error:  # whatever the parser makes of it: these bytes are no message
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "the call carries bytes that are no message of this method",
                expected="a message of the method's request type",
                received=f"{len(data)} bytes",
                remedy="Use stubs that were made from the service's own description.",
            ) from error
        call.enter(Stage.OURS)
        return message


class _Outlet:
    """A :class:`shared_ir.service_kit.outlet.Outlet` under watch."""

    def __init__(
        self,
        call: Call,
        context: grpc.ServicerContext,
        serialise: Callable[[Any], bytes],
        send: Callable[[bytes | None], None],
    ) -> None:
        self._call, self._context, self._serialise, self._send = call, context, serialise, send

    @property
    def is_open(self) -> bool:
        return bool(self._context.is_active())

    def send(self, message: Any) -> bool:
        data = self._serialise(message)
        self._call.enter(Stage.ANSWERING, len(data))
        self._send(data)
        self._call.enter(Stage.OURS)
        return self.is_open

    def end(self, error: IngotError | None = None) -> None:
        if self.is_open:
            end_call(self._context, self._send, error)

    def cancel(self) -> None:
        self._call.cancel()


def _in_pool(behaviour: Callable[..., Any], executor: ThreadPoolExecutor) -> Callable[..., Any]:
    """``behaviour`` with the mark by which gRPC finds its threads."""
    marked: Any = partial(behaviour)
    marked.experimental_thread_pool = executor
    return marked  # type: ignore[no-any-return]


def _refuse_crowd(requests: Any, context: grpc.ServicerContext) -> None:
    error = IngotError(
        ErrorCode.RESOURCE_EXHAUSTED,
        "too many calls wait on this server",
        remedy="Retry after a pause, or add replicas.",
    )
    abort(context, error)


_CROWDED = grpc.stream_stream_rpc_method_handler(_refuse_crowd)
