"""One connection of an HTTP/1.1 server. All of it runs in the thread of the loop, but for what takes time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.event_loop import EventLoop, Greeting
from shared_ir.service_kit.http.message import Application, HttpResponse
from shared_ir.service_kit.http1.answer import answered, is_quick, start_of
from shared_ir.service_kit.http1.arriving import ArrivingRequests, Whole
from shared_ir.service_kit.http1.head import HttpRefusal
from shared_ir.service_kit.http1.limits import HttpLimits
from shared_ir.service_kit.http1.phase import ConnectionPhase, ConnectionState
from shared_ir.service_kit.http1.source import Need, has_hung_up
from shared_ir.service_kit.memory.room import WAITING_BYTES, Guest, RequestRoom, peer_of
from shared_ir.service_kit.putting_off import PuttingOff
from shared_ir.service_kit.status import http_status, let_go, visible
from shared_ir.service_kit.waiting import WouldWait

_LOG = logging.getLogger(__name__)
_LEAST_BYTES_PER_SECOND = 64 * 1024
"""Bytes of an answer that a client takes a second at least, beside the time that every request has."""
_PIECE_BYTES = 64 * 1024
"""What a transport is given at a time, and keeps at most; an answer up to that size leaves in one piece with its head."""
_MOST_AHEAD = 64 * 1024
"""Bytes of further requests that are read while one is answered."""
_LINGER_SECONDS = 1.0
_ASK_SECONDS = 0.02
"""Between two questions for room."""
_NO_NOISE = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INTERNAL_SERVER_ERROR})
"""Statuses without a line in the log: metrics count refusals under load, and a failure of ours has its own line."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_THREAD = IngotError(
    ErrorCode.UNAVAILABLE, "the server has no thread for this request", remedy="Retry after a pause, or add replicas."
)


class ConnectionOwner(Protocol):
    """The server of a connection."""

    application: Application
    limits: HttpLimits
    room: RequestRoom
    stopping: bool
    loop: EventLoop
    putting_off: PuttingOff
    scratch: memoryview
    """What is read goes through it, of all connections, but for large bodies."""

    def connected(self, connection: Http1Connection, greeting: Greeting, /) -> bool:
        """Whether there is room for it, perhaps at the cost of another one."""

    def disconnected(self, connection: Http1Connection, /) -> None: ...

    def compute(self, connection: Http1Connection, whole: Whole, /) -> bool:
        """Call ``computed`` in another thread, and then ``answered`` in this one; False where there is no thread any more."""


class Http1Connection(asyncio.BufferedProtocol):
    """``since`` is when ``phase`` began, on ``time.monotonic``."""

    def __init__(self, server: ConnectionOwner) -> None:
        self.peer = ""
        self.phase = ConnectionPhase.IDLE
        self.since = time.monotonic()
        self.evicted = False
        """It serves no other request."""
        self._server = server
        self._state = ConnectionState.READING
        self._transport: Any = None
        self._guest: Guest
        self._arriving: ArrivingRequests
        self._deadline = self.since + server.limits.head_timeout
        """Until when it may stay as it is; while a request is computed, that is for others to say."""
        self._outgoing: deque[memoryview] = deque()
        """Of the answer, what the transport has not been given."""
        self._keeps = False
        """Whether another request may follow the answer that leaves."""
        self._is_paused = self._is_choked = False

    @property
    def busy(self) -> bool:
        return self.phase is not ConnectionPhase.IDLE

    # ---- of the transport

    def accepted(self, greeting: Greeting, name: Any) -> bool:
        self._transport = greeting
        self.peer = peer_of(name[0] if isinstance(name, tuple) else "")
        self._guest = self._server.room.enter(self.peer, self.evict)
        self._arriving = ArrivingRequests(self._server.application, self._guest, self.peer)
        return self._server.connected(self, greeting)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(_PIECE_BYTES, 0)
        self._enter(ConnectionState.READING, ConnectionPhase.IDLE, self._server.limits.idle_timeout)
        if self.evicted:
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._arriving.source.target or self._server.scratch

    def buffer_updated(self, count: int) -> None:
        source = self._arriving.source
        if source.target is not None:
            source.filled(count)
        elif self._state not in (ConnectionState.LEAVING, ConnectionState.OVER):
            source.feed(bytes(self._server.scratch[:count]))
        if self._state is ConnectionState.READING:
            self._go_on()
        elif len(source) > _MOST_AHEAD:
            self._pause()

    def eof_received(self) -> bool:
        """NOTE: a client that has closed its side is told why its request cannot be read; if it is computed already, it counts as gone."""
        self._arriving.source.has_ended = True
        if self._state is ConnectionState.LEAVING or (
            self.phase is ConnectionPhase.IDLE and not self._arriving.has_begun
        ):
            return False
        if self._state is ConnectionState.READING:
            self._go_on()
        return self._transport.get_extra_info("ssl_object") is None  # TLS has no half of a connection

    def connection_lost(self, error: Exception | None) -> None:
        """NOTE: what is computed holds what it holds until it is."""
        is_first, is_ours = self._state is not ConnectionState.OVER, self._state is ConnectionState.OURS
        self._state = ConnectionState.OVER
        self._arriving.end()
        self._outgoing.clear()
        if is_first and not is_ours:
            self._end()

    def _end(self) -> None:
        if self._guest.held:
            self._server.room.passed(self._guest.held)
        self._guest.leave()
        self._server.disconnected(self)

    def pause_writing(self) -> None:
        self._is_choked = True

    def resume_writing(self) -> None:
        self._is_choked = False
        if self._state is ConnectionState.WRITING:
            self._write_on()

    # ---- for the server

    def evict(self) -> None:
        """End what waits for the client; from any thread."""
        self.evicted = True
        self._server.loop.post(Http1Connection._evicted, self)

    def _evicted(self) -> None:
        if self._state in (ConnectionState.OURS, ConnectionState.OVER):
            return
        if self.phase is ConnectionPhase.IDLE or self._state is ConnectionState.WRITING:
            self.abort()
            return
        error = IngotError(
            ErrorCode.UNAVAILABLE,
            "the server needed the room of this request for others before it had arrived",
            remedy="Send it again, without pauses.",
        )
        self._refuse(error, HTTPStatus.SERVICE_UNAVAILABLE)

    def close_if_idle(self) -> None:
        """End a connection that waits for its next request; one that has just begun is still answered."""
        if self._state is ConnectionState.READING and not (self.busy or self._arriving.has_begun):
            self._leave(_LINGER_SECONDS)
            self._transport.close()

    def abort(self) -> None:
        if self._state is not ConnectionState.OURS:
            self._guest.give_part(self._guest.held)
        self._transport.abort()

    def fail(self) -> None:
        """There is no answer to its request: it was not computed, or cannot be sent."""
        if self._state is ConnectionState.OVER:
            self._end()
            return
        self._enter(ConnectionState.WRITING, ConnectionPhase.CLIENT, _LINGER_SECONDS)
        self.abort()

    def look(self, now: float) -> None:
        """Let go of a client that takes too long."""
        if self._state is ConnectionState.READING and self.phase is ConnectionPhase.CLIENT:
            self._count()
        if now < self._deadline or self._state in (ConnectionState.OURS, ConnectionState.OVER):
            return
        if self._state is ConnectionState.READING and self.phase is ConnectionPhase.IDLE:
            self._leave(_LINGER_SECONDS)
            self._transport.close()
        elif self._state in (ConnectionState.READING, ConnectionState.DUE):
            error = IngotError(ErrorCode.DEADLINE_EXCEEDED, "the request took too long to arrive")
            self._refuse(error, HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.abort()

    def _count(self) -> None:
        """What has come of a request that is not whole takes its part of the room, be it small. NOTE: what comes at once is not asked."""
        try:
            self._guest.take_at_once(self._arriving.held - self._guest.held, WAITING_BYTES)
        except WouldWait:
            return  # there may be room when it is looked at again
        except IngotError as error:
            self._refuse(error, http_status(error))

    # ---- a request

    def _enter(self, state: ConnectionState, phase: ConnectionPhase, seconds: float) -> None:
        now = time.monotonic()
        self._state, self.phase, self.since, self._deadline = state, phase, now, now + seconds
        self._guest.waits_since = now if phase is ConnectionPhase.CLIENT else None

    def _leave(self, seconds: float) -> None:
        self._enter(ConnectionState.LEAVING, ConnectionPhase.IDLE, seconds)

    def _turn(self) -> None:
        """What was due; nothing where the connection has become something else meanwhile."""
        if self._state is ConnectionState.DUE:
            self._state = ConnectionState.READING
            self._go_on()

    def _go_on(self) -> None:
        """Read on, as far as bytes have come."""
        if self.phase is ConnectionPhase.IDLE:
            self._enter(ConnectionState.READING, ConnectionPhase.CLIENT, self._server.limits.head_timeout)
        try:
            found = self._arriving.read()
        except HttpRefusal as refusal:
            self._refuse(refusal.error, refusal.status)
            let_go(refusal)
        except IngotError as error:
            self._refuse(error, http_status(error))
            let_go(error)
        else:
            if isinstance(found, Whole):
                self._answer(found)
            elif found is None:
                self._leave(_LINGER_SECONDS)
                self._transport.close()
            else:
                self._wait(found)

    def _wait(self, need: Need) -> None:
        arriving = self._arriving
        if arriving.head is not None:
            self._deadline = self.since + self._server.limits.request_timeout
        if need is Need.BYTES:
            if arriving.expects_continue:
                arriving.expects_continue = False
                self._transport.write(_CONTINUE)
            self._resume()
            return
        self._state = ConnectionState.DUE
        self._pause()
        self._server.loop.later(_ASK_SECONDS if need is Need.ROOM else 0.0, self._turn)

    def _answer(self, whole: Whole) -> None:
        if whole.admission is None:
            assert whole.answer is not None
            self._respond(whole.answer, whole.keeps)
            return
        self._enter(ConnectionState.OURS, ConnectionPhase.OURS, 0.0)
        if not (is_quick(whole) and self._answer_at_once(whole, may_be_put_off=True)):
            self._compute(whole)

    def _answer_at_once(self, whole: Whole, *, may_be_put_off: bool) -> bool:
        """Whether it is answered here, or is put off until it may be."""
        held = self._guest.held
        self._guest.waits = False
        try:
            response, keeps = self.computed(whole)
        except WouldWait as reason:
            self._guest.forget(self._guest.held - held)
            again = partial(self._server.loop.do, lambda each: each._answer_again(whole), self)
            return may_be_put_off and self._server.putting_off.until_free(reason.place, again)
        finally:
            self._guest.waits = True
        self.answered(response, keeps)
        return True

    def _answer_again(self, whole: Whole) -> None:
        """It was put off, once."""
        if self._state is ConnectionState.OVER:
            self._end()
        elif not self._answer_at_once(whole, may_be_put_off=False):
            self._compute(whole)

    def _compute(self, whole: Whole) -> None:
        if not self._server.compute(self, whole):
            self.answered(HttpResponse.failure(_NO_THREAD), False)

    def computed(self, whole: Whole) -> tuple[HttpResponse, bool]:
        """The answer to a request, and whether another one may follow; where its guest waits, in a thread that may."""
        return answered(whole, self._server.application, self._guest, self.peer, self._is_gone)

    def answered(self, response: HttpResponse, keeps: bool) -> None:
        if self._state is ConnectionState.OVER:
            self._end()
        else:
            self._respond(response, keeps)

    def _is_gone(self) -> bool:
        """Whether the client has closed the connection, or its sending side, which counts as that."""
        if self._arriving.source.has_ended or self._state is ConnectionState.OVER:
            return True
        return self._is_paused and has_hung_up(self._transport)

    def _refuse(self, error: IngotError, status: HTTPStatus) -> None:
        self._enter(ConnectionState.WRITING, ConnectionPhase.CLIENT, self._server.limits.request_timeout)
        self._arriving.abandon(error)
        self._respond(HttpResponse.failure(error, status), False)

    def _respond(self, response: HttpResponse, keeps: bool) -> None:
        head, length = self._arriving.head, sum(map(len, response.parts))
        self._keeps = keeps and not self._server.stopping and not self.evicted and "Connection" not in response.headers
        if response.status >= 400:
            self._log(response)
        start = start_of(response, length, head, self._keeps)
        parts = response.parts if head is None or head.method != "HEAD" else ()
        self._enter(
            ConnectionState.WRITING,
            ConnectionPhase.CLIENT,
            self._server.limits.request_timeout + length / _LEAST_BYTES_PER_SECOND,
        )
        if length <= _PIECE_BYTES:
            self._transport.write(b"".join((start, *parts)))
        else:
            self._outgoing.extend(map(memoryview, (start, *parts)))
        self._write_on()

    def _write_on(self) -> None:
        """As much of the answer as the transport takes."""
        while self._outgoing and not self._is_choked:
            piece = self._outgoing.popleft()
            if len(piece) > _PIECE_BYTES:
                self._outgoing.appendleft(piece[_PIECE_BYTES:])
            self._transport.write(piece[:_PIECE_BYTES])
        if not self._is_choked:
            self._sent()

    def _sent(self) -> None:
        """The answer is on its way."""
        self._guest.give_part(self._guest.held)
        if not self._keeps or self._transport.is_closing():
            self._linger()
            return
        self._enter(ConnectionState.READING, ConnectionPhase.IDLE, self._server.limits.idle_timeout)
        if len(self._arriving.source) or self._arriving.source.has_ended:
            self._state = ConnectionState.DUE
            self._server.loop.soon(self._turn)
        else:
            self._resume()

    def _linger(self) -> None:
        """Read on for a moment, so that the answer is not lost to the reset of a connection with unread data."""
        if (
            self._transport.get_extra_info("ssl_object") is not None
        ):  # it cannot be closed by half, and may still have to send
            self._leave(self._server.limits.request_timeout)
            self._transport.close()
            return
        self._leave(_LINGER_SECONDS)
        if self._arriving.source.has_ended or self.evicted or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()
            self._resume()

    def _pause(self) -> None:
        if not self._is_paused and self._state is not ConnectionState.OVER:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and self._state is not ConnectionState.OVER:
            self._is_paused = False
            self._transport.resume_reading()

    def _log(self, response: HttpResponse) -> None:
        """One line for what was refused, with nothing of the request but its method and path."""
        if response.status in _NO_NOISE or not response.note:
            return
        head = self._arriving.head
        what = f"{head.method} {visible(head.path, 200)}" if head else "what is no request"
        _LOG.info("%s from %s: %d %s", what, self.peer, response.status, visible(response.note, 300))
