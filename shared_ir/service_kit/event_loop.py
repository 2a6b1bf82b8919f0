"""An event loop in a thread of its own, the sockets that it listens at, and what other threads hand to it."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

import uvloop

from shared_ir.service_kit.connection_counts import ConnectionCounts

_LOG = logging.getLogger(__name__)
S = TypeVar("S")
_AT_ONCE = 64
"""Connections that are accepted before others have their turn."""
_SHORT_SECONDS = 0.05
"""Without descriptors, for which connections then wait."""
_TURN_SECONDS = 0.001
"""Processes with fewer connections have so long to take the next one."""
_OUTRANKED_SECONDS = 0.02
"""Between two looks of a process at what waits to be accepted, and at whether others have come farther than it."""


class Greeting:
    """Stands for the transport of a connection until its client has been greeted."""

    def __init__(self, accepted: socket.socket) -> None:
        self._socket = accepted

    def abort(self) -> None:
        with suppress(OSError):  # NOTE: not the method of TLS sockets: that would let them go on in the clear
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    close = abort

    def is_closing(self) -> bool:
        return False

    def say(self, data: bytes) -> None:
        """Where that does not take time."""
        with suppress(OSError):
            self._socket.send(data)


class Accepted(Protocol):
    """A connection, which counts from its acceptance on. ``connection_made`` and what follows come later, or only ``connection_lost``."""

    def accepted(self, greeting: Greeting, name: Any, /) -> bool:
        """Whether there is room for it; ``name`` is that of its peer."""

    def connection_lost(self, error: Exception | None, /) -> None: ...


class ListeningPlace(NamedTuple):
    """Where connections come from, what is made of them, how long a client may take to make TLS of it, and how many connections each
    process has that accepts there, where there are several."""

    listener: socket.socket
    create: Callable[[], Accepted]
    tls: Callable[[], ssl.SSLContext] | None
    seconds: float
    counts: ConnectionCounts | None


class EventLoop:
    """``failed`` is told of the subject of an action that raised: it is a fault of ours, and the loop goes on.

    ``ended`` is set when the thread is through, and everything that it had open is closed.
    """

    def __init__(self, name: str, failed: Callable[[Any], None]) -> None:
        self.ended = threading.Event()
        self._failed = failed
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._places: list[ListeningPlace] = []
        self._greetings: set[asyncio.Task[None]] = set()
        self._posted: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._is_posted = False

    # ---- from any thread

    def listen(
        self,
        sockets: Iterable[socket.socket],
        create: Callable[[], Accepted],
        tls: Callable[[], ssl.SSLContext] | None,
        seconds: float,
        *,
        counts: ConnectionCounts | None,
    ) -> None:
        """Before :meth:`start`: each connection to ``sockets`` gets what ``create`` makes, with what ``tls`` gives in between, for which a
        client has so many seconds. Of sockets that other processes accept from as well, which have ``counts``, one is taken at a time, and
        by who has fewest connections, unless that one is busy: a burst is no matter of the first process that wakes alone. As long as
        others have come farther, such as one that has its models, none is taken."""
        self._places += [ListeningPlace(each, create, tls, seconds, counts) for each in sockets]

    def start(self, begin: Callable[[], None]) -> None:
        """``begin`` is the first that the thread does."""
        self._loop.call_soon(begin)
        self._thread.start()

    def stop(self, leave: Callable[[], None]) -> None:
        """Begin to end by ``leave`` in the thread of the loop, which ends with :meth:`end`; at once where it has not been started."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(leave)
            return
        self._close_places()
        self.ended.set()

    def post(self, action: Callable[[S], None], subject: S) -> None:
        """Do ``action(subject)`` in the thread of the loop, at once where this is that."""
        if threading.get_ident() == self._thread.ident:
            action(subject)
            return
        self._posted.append((action, subject))
        if not self._is_posted:
            self._is_posted = True
            try:
                self._loop.call_soon_threadsafe(self._do_posted)
            except RuntimeError:  # the loop has ended, and every connection with it
                return

    # ---- in its thread

    def later(self, seconds: float, action: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, action, *arguments)

    def do(self, action: Callable[[S], None], subject: S) -> None:
        """Do ``action(subject)``; where it raises, ``subject`` has failed."""
        try:
            action(subject)
        except Exception:
            _LOG.exception("a call could not be answered")
            self._failed(subject)

    def soon(self, action: Callable[..., object], *arguments: Any) -> None:
        """After others had their turn."""
        self._loop.call_soon(action, *arguments)

    def refuse(self) -> None:
        """No new connections."""
        for each in self._places:
            self._loop.remove_reader(each.listener)
        self._close_places()

    def end(self, seconds: float) -> None:
        """After so long."""
        self._loop.call_later(seconds, self._loop.stop)

    def _do_posted(self) -> None:
        """NOTE: what is posted from now on is posted anew; the deque is never another one, which a thread might still add to."""
        self._is_posted = False
        for _ in range(len(self._posted)):
            self.do(*self._posted.popleft())

    def _close_places(self) -> None:
        for each in self._places:
            each.listener.close()
        self._places.clear()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        for each in self._places:
            each.listener.setblocking(False)
            self._loop.add_reader(each.listener, self._accept, each)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
            self.ended.set()

    def _accept(self, place: ListeningPlace) -> None:
        if place.counts is None:
            self._take(place, _AT_ONCE)
        elif place.counts.is_outranked:
            self._loop.remove_reader(place.listener)
            self._loop.call_later(_OUTRANKED_SECONDS, self._accept_again, place)
        elif place.counts.is_ahead:
            self._loop.remove_reader(place.listener)
            self._loop.call_later(_TURN_SECONDS, self._accept_what_is_left, place)
        else:
            self._take(place, 1)

    def _accept_what_is_left(self, place: ListeningPlace) -> None:
        """After others had their turn, and if there still is something."""
        if place in self._places:
            self._loop.add_reader(place.listener, self._accept, place)
            self._take(place, 1)

    def _take(self, place: ListeningPlace, most: int) -> None:
        for _ in range(most):
            try:
                accepted, name = place.listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor is left
                self._loop.remove_reader(place.listener)
                self._loop.call_later(_SHORT_SECONDS, self._accept_again, place)
                return
            self._greet(place, accepted, name)

    def _accept_again(self, place: ListeningPlace) -> None:
        if place in self._places:
            self._loop.add_reader(place.listener, self._accept, place)

    def _greet(self, place: ListeningPlace, accepted: socket.socket, name: Any) -> None:
        accepted.setblocking(False)
        protocol = place.create()
        if not protocol.accepted(Greeting(accepted), name):
            accepted.close()
            return
        task = self._loop.create_task(self._connect(place, protocol, accepted))
        self._greetings.add(task)
        task.add_done_callback(self._greetings.discard)

    async def _connect(self, place: ListeningPlace, protocol: Any, accepted: socket.socket) -> None:
        seconds = place.seconds if place.tls is not None else None
        try:
            if accepted.family != socket.AF_UNIX:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            context = None if place.tls is None else place.tls()
            await self._loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=context, ssl_handshake_timeout=seconds
            )
        except Exception as error:  # whatever keeps it from being a connection is its client's
            _LOG.debug("a connection ended before it began: %s", error)
            accepted.close()
            protocol.connection_lost(error)
