"""One connection of the HTTP/1.1 server, in a thread of its own."""

from __future__ import annotations

import enum
import io
import logging
import select
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http_body import declared_length, has_body, read_body
from shared_ir.service_kit.http_head import Head, HttpRefusal, read_head
from shared_ir.service_kit.http_message import Application, HttpRequest, HttpResponse
from shared_ir.service_kit.room import Room
from shared_ir.service_kit.status import http_status, internal, visible

_LOG = logging.getLogger(__name__)
_SLOWEST_READER = 64 * 1024
"""Bytes of an answer that a client takes a second at least, beside the time that every request has."""
_TOGETHER_BYTES = 64 * 1024
"""Answers up to so many bytes leave in one piece with their head."""
_LINGER_SECONDS = 1.0
_TURN_SECONDS, _TURNS = 0.05, 5
"""For so long a request waits for its turn, so many times at most: the one before may compute, or wait for its client."""
_NO_NOISE = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INTERNAL_SERVER_ERROR})
"""Statuses without a line in the log: metrics count refusals under load, and a failure of ours has its own line."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds on what clients may hold. Times in seconds.

    Attributes:
        max_connections: counted from their acceptance on; for another one the idlest is closed.
        idle_timeout: between two requests.
        head_timeout: from the first byte of a request to the end of its head, and for a TLS handshake.
        request_timeout: from the first byte of a request to its last, and for the client to take the answer.
    """

    max_connections: int = 512
    idle_timeout: float = 75.0
    head_timeout: float = 10.0
    request_timeout: float = 60.0


class Phase(enum.IntEnum):
    """What a connection does; the lower, the sooner it is closed for another."""

    IDLE = 0  # between requests, in its handshake, or refused already
    CLIENT = 1  # the client sends its request, or takes its answer
    OURS = 2  # the request is computed


class Owner(Protocol):
    """The server of a connection."""

    application: Application
    limits: HttpLimits
    room: Room
    stopping: bool
    turn: threading.Lock

    def secure(self, connection: socket.socket, /) -> socket.socket: ...

    def closed(self, connection: Connection, /) -> None: ...


class _Reader(io.RawIOBase):
    """Reads a socket until a deadline."""

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self.deadline = 0.0
        self.is_asked = False
        """Whether the question is what has been read already, not what is still to come."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self.is_asked:
            return None
        left = self.deadline - time.monotonic()
        if left <= 0 or self.socket is None:
            raise TimeoutError("the request took too long to arrive")
        self.socket.settimeout(left)
        return self.socket.recv_into(buffer)


class Connection:
    """``since`` is when ``phase`` began, on ``time.monotonic``."""

    def __init__(self, server: Owner, accepted: socket.socket, peer: str) -> None:
        self.peer = peer
        self.phase = Phase.IDLE
        self.since = time.monotonic()
        self.evicted = False
        """It serves no other request."""
        self._answering = False
        self._arriving: HttpRequest | None = None
        """What was admitted, until its body is there."""
        self._server = server
        self._socket = accepted
        self._raw = _Reader()
        self._input = io.BufferedReader(self._raw, 64 * 1024)
        self._guest = server.room.enter(peer, self.evict)

    @property
    def busy(self) -> bool:
        return self.phase is not Phase.IDLE

    def run(self) -> None:
        """Serve it to its end."""
        try:
            self._socket.settimeout(self._server.limits.head_timeout)
            self._socket = self._raw.socket = self._server.secure(self._socket)
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.do_handshake()
            while self._serve_in_turn():
                pass
        except (OSError, ValueError) as error:  # the client went away, or never spoke TLS; ValueError: closed meanwhile
            _LOG.debug("connection of %s ended: %s", self.peer, error)
        finally:
            self._guest.leave()
            with suppress(OSError):
                self._socket.close()
            self._server.closed(self)

    def evict(self) -> None:
        """End what waits for the client; called from another thread."""
        self.evicted = True
        # NOTE: what reads finds the end of the stream, and can still answer; what writes is ended.
        _shut(self._socket, socket.SHUT_RD if self.phase is Phase.CLIENT and not self._answering else socket.SHUT_RDWR)

    def close_if_idle(self) -> None:
        """End a connection that waits for its next request; one that has just begun is still answered."""
        if not self.busy:
            _shut(self._socket, socket.SHUT_RD)

    def abort(self) -> None:
        _shut(self._socket, socket.SHUT_RDWR)

    def _enter(self, phase: Phase) -> None:
        now = time.monotonic()
        self.phase, self.since = phase, now
        self._guest.waits_since = now if phase is Phase.CLIENT else None

    def _serve_in_turn(self) -> bool:
        """One request. Those that came together with the one before take turns with others of their kind for a moment: threads that
        never wait for their clients would leave the interpreter to nobody else."""
        self._raw.is_asked = True
        came_together = bool(self._input.peek(1))
        self._raw.is_asked = False
        if not (came_together and self._has_its_turn()):
            return not self.evicted and self._serve_one()
        try:
            return self._serve_one()
        finally:
            self._server.turn.release()

    def _has_its_turn(self) -> bool:
        """Whether the turn is this connection's; after a while it goes on without."""
        for _ in range(_TURNS):
            if self.evicted:
                return False
            if self._server.turn.acquire(timeout=_TURN_SECONDS):
                return True
        return False

    def _serve_one(self) -> bool:
        """One request; whether another may follow."""
        limits = self._server.limits
        self._raw.deadline = time.monotonic() + limits.idle_timeout
        if not self._input.peek(1):
            return False
        self._enter(Phase.CLIENT)
        began = time.monotonic()
        self._raw.deadline = began + limits.head_timeout
        head: Head | None = None
        try:
            head = read_head(self._input)
            if head is None:
                return False
            self._raw.deadline = began + limits.request_timeout
            response, keeps = self._answer(head)
        except HttpRefusal as refusal:
            response, keeps = self._refused(refusal.error, refusal.status)
        except TimeoutError:
            error = IngotError(ErrorCode.DEADLINE_EXCEEDED, "the request took too long to arrive")
            response, keeps = self._refused(error, HTTPStatus.REQUEST_TIMEOUT)
        except IngotError as error:
            response, keeps = self._refused(error, http_status(error))
        keeps = keeps and not self._server.stopping and not self.evicted and "Connection" not in response.headers
        self._log(head, response)
        self._send(head, response, keeps)
        if not keeps:
            self._linger()
        self._guest.give(self._guest.held)
        self._enter(Phase.IDLE)
        return keeps

    def _answer(self, head: Head) -> tuple[HttpResponse, bool]:
        path = head.target.partition("?")[0]
        asked = HttpRequest(head.method, path, head.fields, peer=self.peer)
        admitted = self._server.application.admit(asked)
        if isinstance(admitted, HttpResponse):
            return admitted, head.keeps and not has_body(head)
        self._arriving = asked
        length = declared_length(head, admitted)
        if length != 0 and head.fields.get("expect", "").lower() == "100-continue":
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = read_body(self._input, head, admitted, self._guest)
        self._arriving = None
        self._enter(Phase.OURS)
        guest = self._guest
        request = HttpRequest(
            head.method, path, head.fields, body, self._has_gone, guest.holding, self.peer, guest.grow, guest.take
        )
        try:
            response = self._server.application(request)
        except Exception as error:
            _LOG.exception("an application failed")
            response = HttpResponse.failure(internal(error))
        guest.settle(sum(map(len, response.parts)))
        return response, head.keeps

    def _refused(self, error: IngotError, status: HTTPStatus) -> tuple[HttpResponse, bool]:
        if self.evicted and self.phase is Phase.CLIENT:
            error = IngotError(
                ErrorCode.UNAVAILABLE,
                "the server needed the room of this request for others before it had arrived",
                remedy="Send it again, without pauses.",
            )
            status = HTTPStatus.SERVICE_UNAVAILABLE
        if self._arriving is not None:
            self._server.application.refused(self._arriving, error)
        return HttpResponse.failure(error, status), False

    def _has_gone(self) -> bool:
        """Whether the client has closed the connection, or its sending side, which counts as that."""
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLRDHUP)
            return bool(poll.poll(0))
        except (OSError, ValueError):  # it is closed already
            return True

    def _send(self, head: Head | None, response: HttpResponse, keeps: bool) -> None:
        length = sum(map(len, response.parts))
        lines = [f"HTTP/1.1 {response.status.value} {response.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        lines.append(f"Content-Length: {length}")
        if not keeps and "Connection" not in response.headers:
            lines.append("Connection: close")
        if keeps and head is not None and head.is_old:
            lines.append("Connection: keep-alive")
        start = "\r\n".join([*lines, "", ""]).encode("latin-1")
        parts = response.parts if head is None or head.method != "HEAD" else ()
        self._answering = True
        self._enter(Phase.CLIENT)
        deadline = time.monotonic() + self._server.limits.request_timeout + length / _SLOWEST_READER
        if length <= _TOGETHER_BYTES:
            self._send_all(b"".join((start, *parts)), deadline)
        else:
            for part in (start, *parts):
                self._send_all(part, deadline)
        self._answering = False

    def _send_all(self, data: bytes, deadline: float) -> None:
        left = memoryview(data)
        while left:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                raise TimeoutError("the client does not take its answer")
            self._socket.settimeout(seconds)
            left = left[self._socket.send(left) :]

    def _linger(self) -> None:
        """Read on for a moment, so that the answer is not lost to the reset of a connection with unread data."""
        self._enter(Phase.IDLE)
        if self.evicted:
            return
        _shut(self._socket, socket.SHUT_WR)
        with suppress(OSError):
            end = time.monotonic() + _LINGER_SECONDS
            while (left := end - time.monotonic()) > 0:
                self._socket.settimeout(left)
                if not self._socket.recv(64 * 1024):
                    return

    def _log(self, head: Head | None, response: HttpResponse) -> None:
        """One line for what was refused, with nothing of the request but its method and path."""
        if response.status < 400 or response.status in _NO_NOISE or not response.note:
            return
        what = f"{head.method} {visible(head.target.partition('?')[0], 200)}" if head else "what is no request"
        _LOG.info("%s from %s: %d %s", what, self.peer, response.status, visible(response.note, 300))


def _shut(connection: socket.socket, how: int) -> None:
    """NOTE: not the method of TLS sockets: that would let them go on in the clear."""
    with suppress(OSError):
        socket.socket.shutdown(connection, how)
