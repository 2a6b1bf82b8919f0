"""The HTTP/1.1 server: the standard library's sockets, one thread per connection, with limits on everything that a client may hold.

Chosen by measurement: an identity application over loopback, 2 cores, keep-alive, 300 byte and 600 kB bodies:

    server                     1 client    4 clients   1 client, 600 kB
    http.server (threads)      7.7 k/s     13.9 k/s    5.0 k/s
    waitress 3.0               5.4 k/s      7.3 k/s    0.8 k/s
    cheroot 11.1               4.9 k/s      5.9 k/s    1.0 k/s
    uvicorn 0.54 (httptools)   4.0 k/s      9.9 k/s    1.3 k/s
    uvicorn 0.54 (h11)         3.5 k/s      6.0 k/s    1.4 k/s

It needs no dependency, and a body is read straight into the buffer that the tensors are views of. Connections count from their
acceptance on. Where there is no room for another one, the peer that has most loses one: the one that has been idle for longest, or else
the one whose client has kept the server waiting for longest, or else, once it is answered, one whose request is computed. So there is
room for a health check whatever others do.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import ssl
import threading
import time
from collections import Counter
from contextlib import nullcontext, suppress
from http import HTTPStatus
from typing import Any

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http_connection import Connection, HttpLimits, Phase
from shared_ir.service_kit.http_message import Application, HttpResponse
from shared_ir.service_kit.room import GRACE_SECONDS, Room, peer_of
from shared_ir.service_kit.unix_sockets import UNIX, for_this_user, vacated

__all__ = ["HttpLimits", "HttpServer"]
_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.05
"""Seconds until a stopping server notices that it should."""
_FULL = IngotError(ErrorCode.UNAVAILABLE, "every connection of this server is computing")


class HttpServer(socketserver.TCPServer):
    """Serves one application on one address; binds at once."""

    allow_reuse_address = True
    request_queue_size = 512

    def __init__(
        self,
        application: Application,
        address: str,
        limits: HttpLimits,
        context: ssl.SSLContext | None = None,
        room: Room | None = None,
    ) -> None:
        """``room`` is what the requests of several servers share.

        Raises:
            IngotError: INVALID_ARGUMENT, the address cannot be used.
        """
        self.application = application
        self.limits = limits
        self.context = context
        self.room = room or Room(1 << 30)
        self.stopping = False
        self.turn = threading.Lock()
        self._changed = threading.Condition()
        self._connections: dict[Connection, None] = {}
        try:
            super().__init__(self._place(address), socketserver.BaseRequestHandler)
        except (OSError, ValueError, OverflowError) as error:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"cannot listen for HTTP: {error}",
                field=address,
                expected="host:port",
                remedy="Choose another address: it may be in use by another process.",
            ) from error
        self.port = int(self.server_address[1]) if self.address_family != socket.AF_UNIX else 0
        self._thread = threading.Thread(target=self.serve_forever, args=(_POLL_SECONDS,), name="http", daemon=True)

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

    def server_bind(self) -> None:
        with for_this_user() if self.address_family == socket.AF_UNIX else nullcontext():
            super().server_bind()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:  # no descriptor is left
            self._make_room(0)
            time.sleep(_POLL_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, at the cost of another one where there are too many."""
        if self.address_family != socket.AF_UNIX:
            request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        peer = peer_of(client_address[0] if client_address else "")
        if not self._make_room(self.limits.max_connections):
            self._turn_away(request)
            return
        connection = Connection(self, request, peer)
        with self._changed:
            self._connections[connection] = None
        try:
            threading.Thread(target=connection.run, name="http-connection", daemon=True).start()
        except RuntimeError:  # the system gives no more threads
            self.closed(connection)
            raise

    def secure(self, connection: socket.socket) -> socket.socket:
        """``connection`` with TLS around it where there is TLS; the handshake is still to be made."""
        if self.context is None:
            return connection
        return self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def closed(self, connection: Connection) -> None:
        with self._changed:
            self._connections.pop(connection, None)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _LOG.warning("a connection could not be served", exc_info=True)

    def _place(self, address: str) -> Any:
        if address.startswith(UNIX):
            self.address_family = socket.AF_UNIX
            return str(vacated(address))
        host, _, port = address.rpartition(":")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return host.strip("[]"), int(port)

    def _make_room(self, most: int) -> bool:
        """Whether there are fewer than ``most`` connections beside those that leave, after one was told to where it had to be."""
        with self._changed:
            staying = [connection for connection in self._connections if not connection.evicted]
            if len(staying) < most:
                return True
            now, most_threads = time.monotonic(), 2 * self.limits.max_connections
            grace = GRACE_SECONDS if len(self._connections) < most_threads else 0.0
            leaving = [
                each
                for each in self._connections
                if each.evicted and each.phase is not Phase.OURS and now - each.since >= grace
            ]
            if not staying or len(self._connections) - len(leaving) >= most_threads:
                return False
            victim = self._victim(staying, now)
            victim.evicted = True
            if (
                victim.phase is not Phase.OURS
            ):  # what is computed leaves by itself, with its answer, or when the next one comes
                leaving.append(victim)
        for each in leaving:
            each.evict()
        return True

    def _victim(self, staying: list[Connection], now: float) -> Connection:
        """Of the peer that has most: who is idle for longest, or else has let us wait for longest, or else is computed for longest."""
        counts = Counter(connection.peer for connection in staying)
        half = self.limits.max_connections // 2

        def rank(each: Connection) -> tuple[bool, int, int, float]:
            waits = now - each.since
            young = each.phase is Phase.CLIENT and waits <= GRACE_SECONDS and counts[each.peer] <= half
            return counts[each.peer] > half, -Phase.OURS if young else -each.phase, counts[each.peer], waits

        return max(staying, key=rank)

    def _turn_away(self, request: socket.socket) -> None:
        """Say so where that does not take time, and close."""
        if self.context is None:
            body = b"".join(HttpResponse.failure(_FULL).parts)
            status = HTTPStatus.SERVICE_UNAVAILABLE
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
            with suppress(OSError):
                request.setblocking(False)
                request.send(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        self.shutdown_request(request)
