"""One call under watch, and the lanes of threads that calls of a kind have."""

from __future__ import annotations

import enum
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

from shared_ir.service_kit.calls.shares import is_for_others
from shared_ir.service_kit.memory.room import GRACE_SECONDS, Guest, RequestRoom, peer_of

CLIENT_SECONDS = 60.0
"""For so long a client may take to send a message, or to take an answer."""
_LEAST_BYTES_PER_SECOND = 64 * 1024
"""Bytes of an answer that a client takes a second at least, beside that; and of messages that it sends while others wait for its thread."""
_MOST_WAITING = 8
"""Calls that wait for each thread of a lane, where it does not say how many; more are refused."""


class CallStage(enum.Enum):
    ARRIVING = enum.auto()  # the client sends a message
    OURS = enum.auto()
    ANSWERING = enum.auto()  # the client takes an answer


class ServerCall:
    """One call; ``since`` is when ``stage`` began, on ``time.monotonic``, which may last ``limit`` seconds where it is not ours.
    ``farewell`` ends a stream that waits for its client while the server leaves."""

    __slots__ = (
        "_context",
        "_kept",
        "cancelled",
        "farewell",
        "guest",
        "lane",
        "limit",
        "peer",
        "since",
        "stage",
    )

    def __init__(self, lane: Lane, context: Any, room: RequestRoom) -> None:
        self.lane = lane
        peer = context.peer()
        self.peer = name_of(peer)
        self.cancelled = False
        self.farewell: Callable[[], None] | None = None
        self._context = context
        self._kept = self.since = 0.0
        self.stage = CallStage.OURS
        self.guest: Guest = room.enter(self.peer, self.cancel)
        self.enter(CallStage.ARRIVING)

    def enter(self, stage: CallStage, size: int = 0) -> None:
        """``size`` is that of an answer."""
        now = time.monotonic()
        if self.stage is not CallStage.OURS:
            self._kept += now - self.since
        if size:
            self.earn(size)
        patience = self.lane.patience if stage is CallStage.ARRIVING else CLIENT_SECONDS
        self.stage, self.since, self.limit = stage, now, patience + size / _LEAST_BYTES_PER_SECOND
        self.guest.waits_since = None if stage is CallStage.OURS else now

    def is_late(self, now: float) -> bool:
        return self.stage is not CallStage.OURS and now - self.since > self.limit

    def earn(self, size: int) -> None:
        """So many bytes have come, or are to be taken, for which a client needs time."""
        self._kept = max(0.0, self._kept - size / _LEAST_BYTES_PER_SECOND)

    def kept(self, now: float) -> float:
        """Seconds that its client has let the server wait in all, beyond those that its bytes may take. NOTE: a byte now and then begins a
        stage anew, but not this."""
        return self._kept + (0.0 if self.stage is CallStage.OURS else now - self.since)

    def hold(self, count: int) -> None:
        """Bytes of a message that came; raises IngotError RESOURCE_EXHAUSTED."""
        self.guest.take(count)

    def cancel(self) -> None:
        self.cancelled = True
        context = self._context
        if context is not None:
            context.cancel()

    def end(self) -> None:
        """NOTE: a call and its context know each other, and none is to wait for a collection of garbage."""
        self._context = self.farewell = None
        self.guest.leave()


class _Ticket:
    """Of what waits for a thread: whose it is, and whether it counts as waiting. It may be told not to be run."""

    __slots__ = ("is_void", "is_waiting", "peer")

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.is_waiting, self.is_void = True, False


class Threads(ThreadPoolExecutor):
    """Knows how many calls wait for one of them, whatever becomes of a call on its way here and afterwards."""

    def __init__(self, threads: int, thread_name_prefix: str) -> None:
        super().__init__(threads, thread_name_prefix)
        self._count = threading.Lock()
        self.waiting = 0
        self._by_peer: Counter[str] = Counter()

    def waiting_of(self, peer: str) -> int:
        """How many of them are of one peer."""
        return self._by_peer.get(peer, 0)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As :meth:`submit_for`, of nobody."""
        return self.submit_for("", fn, *args, **kwargs)

    def submit_for(self, peer: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Raises RuntimeError: they have ended, or the system gives none, and ``fn`` is not run, now or later."""
        ticket = _Ticket(peer)
        with self._count:
            self.waiting += 1
            self._by_peer[peer] += 1
        try:
            return super().submit(self._begin, ticket, fn, *args, **kwargs)
        except RuntimeError:
            # NOTE: where no thread can be started, the executor has queued it all the same, and another one may have taken it
            with self._count:
                ticket.is_void = ticket.is_waiting
                self._take_from_those_who_wait(ticket)
            if ticket.is_void:
                raise
            return Future()

    def _begin(self, ticket: _Ticket, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        with self._count:
            self._take_from_those_who_wait(ticket)
        return None if ticket.is_void else fn(*args, **kwargs)

    def _take_from_those_who_wait(self, ticket: _Ticket) -> None:
        if ticket.is_waiting:
            ticket.is_waiting = False
            self.waiting -= 1
            self._by_peer[ticket.peer] -= 1
            if not self._by_peer[ticket.peer]:
                del self._by_peer[ticket.peer]


class Lane:
    """Threads for calls of a kind, which calls of other kinds cannot take.

    Args:
        threads: calls that run at once.
        grace: seconds for which a client may keep a thread waiting while other calls wait for one.
        most_waiting: calls that wait for a thread; more are refused.
        patience: seconds that a client may take to send a message.
        work: where the messages of a stream are answered one by one, if they are.
        is_paced: whether it is all seconds together that a client lets a call wait that count as ``grace`` does, beyond those that its
            bytes may take; and not only those of one message, between which others may be silent for long.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        grace: float = GRACE_SECONDS,
        most_waiting: int = 0,
        patience: float = CLIENT_SECONDS,
        work: Lane | None = None,
        is_paced: bool = False,
    ) -> None:
        self.threads = threads
        self.most_waiting = most_waiting or _MOST_WAITING * threads
        self.grace = grace
        self.patience = patience
        self.work = work
        self.is_paced = is_paced
        self.running: set[ServerCall] = set()
        self.executor = Threads(threads, thread_name_prefix=f"grpc-{name}")

    @property
    def waiting(self) -> int:
        return self.executor.waiting

    def is_full(self, peer: str) -> bool:
        """Whether as many calls wait as may, of all or of one peer."""
        waiting, most = self.waiting, self.most_waiting
        return waiting >= most or is_for_others(waiting, self.executor.waiting_of(peer), most)

    @property
    def is_short(self) -> bool:
        return self.waiting > 0 and len(self.running) + self.waiting > self.threads

    def victims(self, now: float) -> list[ServerCall]:
        """Whose threads others get: of the peer that has most, those whose clients let us wait for longest."""
        if not self.is_short:
            return []
        counts = Counter(call.peer for call in self.running)
        late = [
            (counts[call.peer], seconds, call)
            for call in self.running
            if call.stage is not CallStage.OURS
            and not call.cancelled
            and (seconds := self._kept(call, counts[call.peer], now)) > self.grace
        ]
        late.sort(key=lambda entry: entry[:2], reverse=True)
        return [call for _, _, call in late[: self.waiting]]

    def _kept(self, call: ServerCall, of_peer: int, now: float) -> float:
        """Seconds that a call was kept waiting: since it last was not, or in all where its peer crowds others out."""
        crowds = 2 * of_peer > self.threads and self.waiting > self.executor.waiting_of(call.peer)
        return call.kept(now) if self.is_paced or crowds else now - call.since


def peer_name(context: Any) -> str:
    """Who counts as one client, of a call."""
    return name_of(context.peer())


def name_of(peer: str) -> str:
    """Of a peer, as gRPC writes it."""
    return peer_of(_host_of(peer))


@functools.lru_cache(maxsize=4096)
def _host_of(peer: str) -> str:
    """From gRPC's name of a peer: ``ipv4:10.0.0.1:5000``, ``ipv6:%5B::1%5D:5000``, ``unix:``."""
    kind, _, rest = peer.partition(":")
    return unquote(rest).rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else ""
