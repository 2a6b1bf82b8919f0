"""The HTTP/1.1 server: the standard library's, one thread per connection, with the limits it lacks.

Chosen by measurement: an identity application over loopback, 2 cores, keep-alive, 300 byte and 600 kB bodies:

    server                     1 client    4 clients   1 client, 600 kB
    http.server (threads)      7.7 k/s     13.9 k/s    5.0 k/s
    waitress 3.0               5.4 k/s      7.3 k/s    0.8 k/s
    cheroot 11.1               4.9 k/s      5.9 k/s    1.0 k/s
    uvicorn 0.54 (httptools)   4.0 k/s      9.9 k/s    1.3 k/s
    uvicorn 0.54 (h11)         3.5 k/s      6.0 k/s    1.4 k/s

It needs no dependency, and a body is read straight into the buffer that the tensors are views of. What it lacks is here:
limits on bodies, connections and the time a request may take to arrive, chunked and compressed bodies, a JSON error for
everything, and a way to stop that finishes what was begun.
"""

from __future__ import annotations

import io
import logging
import select
import socket
import socketserver
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from runtime_service.api.http_body import BadRequest, read_body
from runtime_service.api.http_message import Application, HttpRequest, HttpResponse
from shared_ir.errors import ErrorCode, IngotError

_LOG = logging.getLogger(__name__)
_POLL = 0.05
"""Seconds until a stopping server notices that it should."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds on what clients may hold. Times in seconds."""

    max_body: int = 256 * 1024 * 1024
    max_connections: int = 512
    idle_timeout: float = 75.0
    request_timeout: float = 60.0


class HttpServer(socketserver.ThreadingTCPServer):
    """Serves one application on one address; binds at once."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self, application: Application, address: str, limits: HttpLimits, context: ssl.SSLContext | None = None
    ) -> None:
        """Raises IngotError INVALID_ARGUMENT: the address cannot be used."""
        self.application = application
        self.limits = limits
        self.context = context
        self.stopping = False
        self._changed = threading.Condition()
        self._connections: set[_Connection] = set()
        host, _, port = address.rpartition(":")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host.strip("[]"), int(port)), _Connection)
        except (OSError, ValueError, OverflowError) as error:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"cannot listen for HTTP: {error}",
                field=address,
                expected="host:port",
                remedy="Choose another address: it may be in use by another process.",
            ) from error
        self.port = int(self.server_address[1])
        self._thread = threading.Thread(target=self.serve_forever, args=(_POLL,), name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, grace: float) -> None:
        """Take no new connections or requests, wait ``grace`` seconds for those begun, close everything."""
        self.stopping = True
        self.shutdown()
        self.server_close()
        with self._changed:
            for connection in self._connections:
                connection.close_if_idle()
            self._changed.wait_for(lambda: not self._connections, grace)
            for connection in self._connections:
                connection.abort()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for another connection; others are closed unanswered."""
        return len(self._connections) < self.limits.max_connections

    def opened(self, connection: _Connection) -> None:
        with self._changed:
            self._connections.add(connection)

    def closed(self, connection: _Connection) -> None:
        with self._changed:
            self._connections.discard(connection)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _LOG.debug("connection of %s failed", client_address, exc_info=True)


class _Reader(io.RawIOBase):
    """Reads a socket, giving each request ``request_timeout`` seconds from its first byte to its last."""

    def __init__(self, connection: socket.socket, limits: HttpLimits) -> None:
        self._socket = connection
        self._limits = limits
        self._deadline: float | None = None

    def expect_request(self) -> None:
        """From here until its first byte the connection may idle."""
        self._deadline = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._limits.idle_timeout if self._deadline is None else self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long to arrive")
        self._socket.settimeout(left)
        count = self._socket.recv_into(buffer)
        if self._deadline is None:
            self._deadline = time.monotonic() + self._limits.request_timeout
        return count


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "ingot"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and small bodies leave in one packet
    server: HttpServer

    def setup(self) -> None:
        self.busy = False
        if self.server.context is not None:
            self.request.settimeout(self.server.limits.request_timeout)
            self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()
        self.server.opened(self)
        self._reader = _Reader(self.connection, self.server.limits)
        self._input = io.BufferedReader(self._reader, 64 * 1024)
        self.rfile = self._input

    def handle(self) -> None:
        with suppress(OSError):  # the client went away
            super().handle()

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
        self.server.closed(self)

    def handle_one_request(self) -> None:
        """One request; sets ``close_connection`` when it was the last."""
        self.close_connection = True
        self._reader.expect_request()
        try:
            if not self._input.peek(1):
                return
            self.busy = True
            self.raw_requestline = self.rfile.readline(65537)
            if len(self.raw_requestline) > 65536:
                self.requestline, self.request_version, self.command = "", "", ""
                self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            elif self.raw_requestline and self.parse_request():
                self._answer()
        except TimeoutError:
            if self.busy:
                self._send(HttpResponse.error(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive"))
        finally:
            self.busy = False

    def _answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            body = read_body(self._input, self.headers, self.server.limits.max_body)
        except BadRequest as error:
            self.close_connection = True
            self._send(HttpResponse.error(error.status, error.message))
            self._linger()
            return
        path = self.path.partition("?")[0]
        response = self.server.application(HttpRequest(self.command, path, headers, body, self._has_gone))
        if self.server.stopping:
            self.close_connection = True
        self._send(response)

    def _has_gone(self) -> bool:
        """Whether the client has closed the connection, or its sending side, which counts as that."""
        poll = select.poll()
        try:
            poll.register(self.connection, select.POLLRDHUP)
            return bool(poll.poll(0))
        except (OSError, ValueError):  # it is closed already
            return True

    def handle_expect_100(self) -> bool:
        """Refuse a body that is too large before it is sent."""
        declared = self.headers.get("Content-Length", "0")
        if declared.isascii() and declared.isdecimal() and int(declared[:20]) > self.server.limits.max_body:
            return True  # `_answer` refuses it; the client has not been told to go on
        return super().handle_expect_100()

    def _send(self, response: HttpResponse) -> None:
        length = sum(map(len, response.parts))
        self.request_version = self.protocol_version  # the base class sends no headers to what looks like HTTP/0.9
        self.send_response_only(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            for part in response.parts:
                self.connection.settimeout(self.server.limits.request_timeout)
                self.wfile.write(part)
        self.wfile.flush()

    def _linger(self) -> None:
        """Read on for a moment, so that the answer is not lost to the reset of a connection with unread data."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            end = time.monotonic() + 1.0
            while (left := end - time.monotonic()) > 0:
                self.connection.settimeout(left)
                if not self.connection.recv(64 * 1024):
                    return

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Errors of the base class (malformed request line, headers) in our own form."""
        self.close_connection = True
        status = HTTPStatus(code)
        self._send(HttpResponse.error(status, message or status.phrase))

    def close_if_idle(self) -> None:
        """End a connection that waits for its next request; one that has just begun is still answered."""
        if not self.busy:
            with suppress(OSError):
                self.request.shutdown(socket.SHUT_RD)

    def abort(self) -> None:
        with suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        _LOG.debug("%s %s", self.address_string(), format % args)
