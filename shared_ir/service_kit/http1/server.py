"""The HTTP/1.1 server: one event loop with all connections, threads for what takes time, limits on everything that a client may hold.

Heads and bodies are read by the thread of the loop (``docs/design/http.md``); a request takes a thread once it is whole, or none where
it is known to be quick. Connections count from their acceptance on. Where there is no room for another one, the peer that has most loses
one: the one that has been idle for longest, or else the one whose client has kept the server waiting for longest, or else, once it is
answered, one whose request is computed. So there is room for a health check whatever others do.
"""

from __future__ import annotations

import logging
import resource
import time
from collections import Counter

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.calls.lanes import Threads
from shared_ir.service_kit.event_loop import EventLoop, Greeting
from shared_ir.service_kit.http.message import Application, HttpResponse
from shared_ir.service_kit.http1.answer import start_of
from shared_ir.service_kit.http1.arriving import Whole
from shared_ir.service_kit.http1.connection import Http1Connection
from shared_ir.service_kit.http1.limits import HttpLimits
from shared_ir.service_kit.http1.phase import ConnectionPhase
from shared_ir.service_kit.listening import SharedSockets, listening, port_of
from shared_ir.service_kit.memory.room import GRACE_SECONDS, RequestRoom
from shared_ir.service_kit.putting_off import PuttingOff
from shared_ir.service_kit.status import internal
from shared_ir.service_kit.tls import CONNECTION_BYTES, RenewedContext, TlsFiles

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 0.1
"""Between two looks at the clients."""
_STOP_SECONDS = 0.02
"""Between two looks of a server that leaves; what has come by the first one is answered."""
_PARTING_SECONDS = 3.0
"""What is waited for beyond grace at most, for connections that are closed to be so."""
_SCRATCH_BYTES = 64 * 1024
_FULL = IngotError(ErrorCode.UNAVAILABLE, "every connection of this server is computing")


class HttpServer:
    """Serves one application on one address; binds at once."""

    def __init__(
        self,
        application: Application,
        address: str | SharedSockets,
        limits: HttpLimits,
        tls: TlsFiles | None = None,
        room: RequestRoom | None = None,
    ) -> None:
        """``room`` is what the requests of several servers share.

        Raises:
            IngotError: INVALID_ARGUMENT, the address, or a file of ``tls``, cannot be used.
        """
        self.application = application
        self.limits = limits
        self.room = room or RequestRoom(1 << 30)
        self.stopping = False
        self.loop = EventLoop("http", _failed)
        self.putting_off = PuttingOff(self.loop.later)
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._has_tls = tls is not None
        context = None if tls is None else RenewedContext(tls)
        self._most = min(limits.max_connections, _most_connections())
        self._connections: dict[Http1Connection, None] = {}
        self._threads = Threads(2 * self._most, "http")
        sockets = listening(address, "HTTP")
        self.port = port_of(sockets)
        self._refusal = _refusal() if context is None else b""
        self._counts = address.counts if isinstance(address, SharedSockets) else None
        self.loop.listen(sockets, lambda: Http1Connection(self), context, limits.head_timeout, counts=self._counts)
        self._tell_count()

    def start(self) -> None:
        self.loop.start(self._look)

    def stop(self, grace: float) -> None:
        """Take no new connections or requests, wait ``grace`` seconds for those begun, close everything."""
        self.stopping = True
        self.loop.stop(lambda: self._leave(time.monotonic() + grace))
        self.loop.ended.wait(grace + _PARTING_SECONDS)
        self._threads.shutdown(wait=False, cancel_futures=True)

    # ---- of connections

    def connected(self, connection: Http1Connection, greeting: Greeting) -> bool:
        if self.stopping or not self._make_room():
            greeting.say(self._refusal)
            return False
        self._connections[connection] = None
        self._tell_count()
        return True

    def disconnected(self, connection: Http1Connection) -> None:
        self._connections.pop(connection, None)
        self._tell_count()
        if self._has_tls:
            self.room.passed(CONNECTION_BYTES)

    def _tell_count(self) -> None:
        if self._counts is not None:
            self._counts.tell(len(self._connections))

    def compute(self, connection: Http1Connection, whole: Whole) -> bool:
        def compute() -> None:
            try:
                response, keeps = connection.computed(whole)
            except Exception as error:  # nobody would hear of it here
                _LOG.exception("a request could not be answered")
                response, keeps = HttpResponse.failure(internal(error)), False
            self.loop.post(lambda each: each.answered(response, keeps), connection)

        try:
            self._threads.submit(compute)
        except RuntimeError:  # they have ended, or the system gives no more of them
            return False
        return True

    # ---- in the thread of the loop

    def _make_room(self) -> bool:
        """Whether there is room for one connection more, after one was told to leave where it had to be."""
        if len(self._connections) < self._most:
            return True
        staying = [connection for connection in self._connections if not connection.evicted]
        if len(staying) < self._most:
            return True
        now, most = time.monotonic(), 2 * self._most
        grace = GRACE_SECONDS if len(self._connections) < most else 0.0
        leaving = [
            each
            for each in self._connections
            if each.evicted and each.phase is not ConnectionPhase.OURS and now - each.since >= grace
        ]
        if not staying or len(self._connections) - len(leaving) >= most:
            return False
        for each in leaving:
            each.abort()
        self._victim(staying, now).evict()  # what is computed leaves by itself, with its answer
        return True

    def _victim(self, staying: list[Http1Connection], now: float) -> Http1Connection:
        """Of the peer that has most: who is idle for longest, or else has let us wait for longest, or else is computed for longest."""
        counts = Counter(connection.peer for connection in staying)
        half = self._most // 2

        def rank(each: Http1Connection) -> tuple[bool, int, int, float]:
            waits = now - each.since
            young = each.phase is ConnectionPhase.CLIENT and waits <= GRACE_SECONDS and counts[each.peer] <= half
            return counts[each.peer] > half, -ConnectionPhase.OURS if young else -each.phase, counts[each.peer], waits

        return max(staying, key=rank)

    def _look(self) -> None:
        self.loop.later(_LOOK_SECONDS, self._look)
        now = time.monotonic()
        for connection in tuple(self._connections):
            try:
                connection.look(now)
            except Exception:  # it is no matter of others
                _LOG.exception("a connection could not be let go")
                connection.fail()

    def _leave(self, deadline: float) -> None:
        self.loop.refuse()
        self.loop.later(_STOP_SECONDS, self._await_end, deadline)

    def _await_end(self, deadline: float) -> None:
        for connection in tuple(self._connections):
            connection.close_if_idle()
        if self._connections and time.monotonic() < deadline:
            self.loop.later(_STOP_SECONDS, self._await_end, deadline)
            return
        for connection in tuple(self._connections):
            connection.abort()
        self.loop.end(_STOP_SECONDS)


def _refusal() -> bytes:
    """What is said to who comes when there is no room."""
    response = HttpResponse.failure(_FULL)
    return start_of(response, sum(map(len, response.parts)), None, False) + b"".join(response.parts)


def _failed(connection: Http1Connection) -> None:
    connection.fail()


def _most_connections() -> int:
    """No more than a quarter of the files that the process may open, which others need as well."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(1, files // 4) if files != resource.RLIM_INFINITY else 1 << 20
