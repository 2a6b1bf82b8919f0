"""One call: what servicers know as the context of gRPC, on a stream of an HTTP/2 connection."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol

import grpc

from shared_ir.errors import IngotError
from shared_ir.service_kit.calls.lanes import ServerCall
from shared_ir.service_kit.http2.frames import DEFAULT_WINDOW_BYTES
from shared_ir.service_kit.memory.room import SMALL_BYTES, WAITING_BYTES, RequestRoom, no_room
from shared_ir.service_kit.rpc.messages import PREFIX_BYTES, Assembler, framed
from shared_ir.service_kit.rpc.method import RpcMethod
from shared_ir.service_kit.rpc.request_head import Metadata, RequestHead
from shared_ir.service_kit.status import grpc_metadata, grpc_status, status_text
from shared_ir.service_kit.waiting import WouldWait

_LOG = logging.getLogger(__name__)
_MOST_WINDOW = 4 << 20
"""Bytes that may be on their way at once of a message."""
_LOOK_SECONDS = 5.0


class Aborted(Exception):
    """A servicer has ended its call."""


class CallTransport(Protocol):
    """The connection of a call. May be asked from any thread; what it does it does in the thread of the connection."""

    @property
    def peer(self) -> str: ...

    def auth_context(self) -> dict[str, list[bytes]]: ...

    def push(self, call: RpcCall, message: bytes, /) -> None:
        """One message of several."""

    def finish(self, call: RpcCall, /) -> None:
        """The call is answered: its status, with the message that goes before it where there is one."""

    def drop(self, call: RpcCall, /) -> None:
        """The call ends without a status."""

    def resume(self, call: RpcCall, /) -> None:
        """All messages that have come were taken: more may come."""


class RpcCall:
    """``watched`` says what it waits for, and ``guest`` is what it holds; ``started`` is on ``time.monotonic``."""

    def __init__(
        self,
        transport: CallTransport,
        stream: int,
        head: RequestHead,
        method: RpcMethod,
        room: RequestRoom,
        most_message: int,
    ) -> None:
        self.transport, self.stream, self.head, self.method = transport, stream, head, method
        self.started = time.monotonic()
        self.deadline = None if head.timeout is None else self.started + head.timeout
        self.timer: Any = None
        self.watched = ServerCall(method.lane, self, room)
        self.guest = self.watched.guest
        self.assembler = Assembler(most_message)
        self.message: bytes | None = None
        """The only one that it consists of; several are ``requests``."""
        self.message_bytes = 0
        self.is_at_once = False
        """Whether it is answered by the thread of the loop, which must not wait."""
        self.answer: bytes | None = None
        """The only message that it is answered with; several are ``outgoing``."""
        self.outgoing: deque[bytes] = deque()
        self.has_begun = self.has_head = self.is_refused = self.is_over = False
        self.is_admitted = self.is_held_up = False
        """Its client may send no more before there is room for it."""
        self._window = DEFAULT_WINDOW_BYTES
        self._arrived = self._counted = 0
        self._given = self._handed = self._written = 0
        """Bytes of answers: in all, those that the connection has been handed, and those of these that are on their way."""
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._trailing: Metadata = ()
        self._callbacks: list[Callable[[], None]] | None = []
        self._lock = threading.Lock()
        self._drained: threading.Condition | None = None
        """Is waited for by who sends more than a little."""
        self._when_drained: Callable[[], None] | None = None
        self.requests = RequestStream(self) if method.takes_stream else None

    # ---- what servicers ask

    def peer(self) -> str:
        return self.transport.peer

    def auth_context(self) -> dict[str, list[bytes]]:
        """Of a client that has shown a certificate, by gRPC's names of properties."""
        return self.transport.auth_context()

    def invocation_metadata(self) -> Metadata:
        return self.head.metadata

    def time_remaining(self) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def is_active(self) -> bool:
        return not self.is_over

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Is called when the call is over; False where it is over already."""
        with self._lock:
            if self._callbacks is None:
                return False
            self._callbacks.append(callback)
            return True

    def cancel(self) -> None:
        self.transport.drop(self)

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        self._code, self._details = code, details
        raise Aborted(details)

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def set_details(self, details: str) -> None:
        self._details = details

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        self._trailing = metadata

    def code(self) -> grpc.StatusCode | None:
        return self._code

    def details(self) -> bytes:
        return self._details.encode()

    def trailing_metadata(self) -> Metadata:
        return self._trailing

    # ---- what is done to it

    def fail(self, error: IngotError) -> None:
        """It is to end with ``error``."""
        self._code, self._details, self._trailing = grpc_status(error), status_text(error), grpc_metadata(error)

    def abandon(self, code: grpc.StatusCode, details: str) -> None:
        """It is to end so, whatever is computed of it."""
        self.answer, self._code, self._details, self._trailing = None, code, details, ()
        self.outgoing.clear()

    def arrived(self, count: int) -> None:
        """Bytes of its messages have come.

        Raises:
            IngotError: RESOURCE_EXHAUSTED, there is no room for them. A stream goes on, without others, until there is.
        """
        with self._lock:
            self._window -= count
            self._arrived += count
        try:
            self._count(0)
        except WouldWait:
            return  # it is counted with what comes next, or before more may come
        except IngotError:
            if not self.method.takes_stream:
                raise

    def hold_head(self) -> IngotError | None:
        """Count what its head takes; why there is no room for that."""
        try:
            self.guest.take_at_once(self.head.size)
        except WouldWait:
            return no_room(self.guest)
        except IngotError as error:
            return error
        return None

    def admit(self) -> None:
        """Its message does not come at once. Raises IngotError: it need not come at all."""
        if not self.is_admitted and self.method.admits is not None and (beginning := self.assembler.beginning):
            self.is_admitted = True
            self.method.admits(beginning, self.watched.peer)

    def granted(self) -> int:
        """How many bytes more may come: of a message that is not whole as many as have come of it, so that who sends nothing gets nothing.

        Raises:
            IngotError: RESOURCE_EXHAUSTED, there is no room for them.
            WouldWait: there may be soon.
        """
        if self.message is not None or (self.requests is not None and not self.requests.is_empty):
            return 0
        if not self.assembler.is_between:
            self._count(0, WAITING_BYTES)
        missing = self.assembler.missing
        target = min(missing, max(DEFAULT_WINDOW_BYTES, min(self.assembler.held, _MOST_WINDOW)))
        if self.method.takes_stream:
            target = max(target, DEFAULT_WINDOW_BYTES)
        if self._window > target // 2:
            return 0
        count = target - self._window
        self._count(count)
        with self._lock:
            self._window += count
        return count

    def taken(self, count: int | None = None) -> None:
        """So many bytes, or all, have become messages that are counted as such."""
        with self._lock:
            self._arrived -= self._arrived if count is None else count
            less = max(0, self._counted - self._needed())
            self._counted -= less
        self.guest.give_part(less)

    def _needed(self, further: int = 0) -> int:
        """Bytes that have come, and those that may come, ``further`` ones among them, beyond what every stream may send."""
        return self._arrived + max(0, self._window + further - DEFAULT_WINDOW_BYTES)

    def _count(self, further: int, least: int = SMALL_BYTES) -> None:
        """Have room for what is here, and for as many bytes more as are to be let in, ``least`` at least; raises as :meth:`granted`."""
        with self._lock:
            more = self._needed(further) - self._counted
            if more >= least:
                self.guest.take_at_once(more, least)
                self._counted += more

    def send(self, message: bytes) -> None:
        """One of several answers; waits until what is more than a little is on its way."""
        self.give(message)
        if self.outstanding <= SMALL_BYTES:
            return
        with self._lock:
            changed = self._drained = self._drained or threading.Condition(self._lock)
            while self.outstanding > SMALL_BYTES and not self.is_over:
                changed.wait(_LOOK_SECONDS)

    def give(self, message: bytes) -> None:
        """One of several answers, for which nobody waits."""
        data = framed(message)
        with self._lock:
            self._given += len(data)
        self.transport.push(self, data)

    @property
    def outstanding(self) -> int:
        """Bytes of answers that are not on their way."""
        return self._given - self._written

    def handed(self, count: int) -> None:
        """The connection has so many bytes more."""
        self._handed += count

    def drained(self) -> None:
        """What the connection was handed is on its way."""
        with self._lock:
            self._written = self._handed
            if self._drained is not None:
                self._drained.notify_all()
            action, is_drained = self._when_drained, self._written == self._given
            if is_drained:
                self._when_drained = None
        if is_drained and action is not None:
            action()

    def when_drained(self, action: Callable[[], None]) -> None:
        """``action`` is called once, when all is on its way that was given: in the thread of the loop, or here where that is so already, or
        will not be any more. It does not take time, and does not raise."""
        with self._lock:
            waits = self.outstanding > 0 and not self.is_over
            self._when_drained = action if waits else None
        if not waits:
            action()

    def end(self) -> None:
        """Nothing can be sent any more."""
        if self.timer is not None:
            self.timer.cancel()
        with self._lock:
            callbacks, self._callbacks, self.is_over = self._callbacks or (), None, True
            self._when_drained = None
            if self._drained is not None:
                self._drained.notify_all()
        if self.requests is not None:
            self.requests.drop()
        for callback in callbacks:
            try:
                callback()
            except Exception:  # others have to learn of it as well, and this thread serves all
                _LOG.exception("what was to follow a call failed")


class RequestStream:
    """The messages of a call that takes several, as they come."""

    def __init__(self, call: RpcCall) -> None:
        self._call: RpcCall | None = call
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._is_whole: bool | None = None

    def put(self, message: bytes) -> None:
        with self._changed:
            self._waiting.append(message)
            self._changed.notify()

    def end(self) -> None:
        """No other comes: the client has said so."""
        with self._changed:
            if self._is_whole is None:
                self._is_whole = True
            self._changed.notify()

    def drop(self) -> None:
        """The call is over: what was not taken is let go of, and so is the call."""
        with self._changed:
            self._is_whole = bool(self._is_whole and not self._waiting)
            self._waiting.clear()
            self._call = None
            self._changed.notify()

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def __iter__(self) -> Iterator[bytes]:
        while (message := self._next()) is not None:
            yield message
            message = None  # the next one may be long in coming

    def _next(self) -> bytes | None:
        """Raises RpcError, as gRPC's own server does: the call ended before its client had said all."""
        with self._changed:
            while not self._waiting:
                if self._is_whole is not None:
                    if not self._is_whole:
                        raise grpc.RpcError("the call is over")
                    return None
                self._changed.wait()
            message = self._waiting.popleft()
            is_empty = not self._waiting
            call = self._call
        if call is not None:
            call.taken(PREFIX_BYTES + len(message))
            if is_empty:
                call.transport.resume(call)
        return message
