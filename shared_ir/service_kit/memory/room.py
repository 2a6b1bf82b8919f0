"""Memory that the requests of a server may hold, together and each peer's: what does not fit is refused, not allocated."""

from __future__ import annotations

import functools
import heapq
import ipaddress
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.memory.trimming import Trimming
from shared_ir.service_kit.waiting import WouldWait

GRACE_SECONDS = 1.0
"""For so long a peer may keep a server waiting before others are let in at its cost."""
SMALL_BYTES = 16 * 1024
"""Fewer bytes are not counted of what is whole: it is answered soon, or waits where few do."""
WAITING_BYTES = 1024
"""Fewer bytes are not counted of what is not whole: thousands of such messages may wait for their clients."""
_TOGETHER = 16
"""Guests with little each that have to go at once: the next one who asks need not look for another."""
_MOST_KNOWN = 1024
_WAIT_SECONDS = 0.5
"""What one that must go may take to do so."""


class RequestRoom:
    """Bytes, of which one peer may hold half with all of its requests together.

    Who asks for more than is left gets it at the cost of the guest that has kept the server waiting for longest, if that is longer than
    ``GRACE_SECONDS``; otherwise it is refused. So uploads that stand still hold nothing that others need.
    """

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = total
        self.share = max(1, total // 2)
        self._clock = clock
        self._changed = threading.Condition()
        self._held = 0
        self._by_peer: Counter[str] = Counter()
        self._guests: set[Guest] = set()
        self._going = 0
        self._going_of: Counter[str] = Counter()
        """Bytes of those who have been told to go: of all, and of each peer."""
        self._nobody_until: dict[str, float] = {}
        """Until when none of a peer, or of all, can have kept the server waiting for too long. NOTE: else everybody who is refused would
        cost a look at thousands of guests."""
        self._trimming = Trimming()

    @property
    def held(self) -> int:
        return self._held

    def enter(self, peer: str, evict: Callable[[], object]) -> Guest:
        """A guest that holds nothing yet; ``evict`` ends what it does, from another thread."""
        return Guest(self, peer, evict)

    def passed(self, count: int) -> None:
        """Bytes that nobody counts were given back, those of a connection: what a crowd leaves goes back to the system."""
        self._trimming.passed(count)

    def _leave(self, guest: Guest) -> None:
        self._trimming.soon(guest.held)
        with self._changed:
            self._add(guest, -guest.held)
            guest.has_left = True
            self._changed.notify_all()

    def _take(self, guest: Guest, count: int, wait: float = _WAIT_SECONDS) -> None:
        self._trimming.soon(count)  # who is refused has come all the same
        with self._changed:
            if self._fits(guest, count):
                self._add(guest, count)
                return
            if not wait and self._fits(guest, count, self._evicted(guest)):
                raise WouldWait
        while victims := self._victims(guest, count):
            for victim in victims:
                victim.evict()
            with self._changed:
                if self._changed.wait_for(lambda: self._fits(guest, count), wait):
                    self._add(guest, count)
                    return
            if not wait:
                raise WouldWait
        raise no_room(guest)

    def _give(self, guest: Guest, count: int) -> None:
        with self._changed:
            self._add(guest, -count)
            self._changed.notify_all()

    def _has(self, guest: Guest, count: int) -> bool:
        with self._changed:
            return self._fits(guest, count)

    def _fits(self, guest: Guest, count: int, leaving: tuple[int, int] = (0, 0)) -> bool:
        """Whether there is room, or will be once so many bytes have left, of all and of the peer.

        NOTE: shares are for peers with several requests; one alone is bounded by what a request may be.
        """
        held, of_peer = self._held - leaving[0], self._by_peer[guest.peer] - leaving[1]
        if held + count > self.total:
            return held == guest.held
        return of_peer + count <= self.share or of_peer == guest.held

    def _evicted(self, asking: Guest) -> tuple[int, int]:
        """Bytes of those who have been told to go: of all, and of the same peer."""
        own = asking.held if asking.evicted else 0
        return self._going - own, self._going_of[asking.peer] - own

    def _add(self, guest: Guest, count: int) -> None:
        """NOTE: a thread may still compute for a guest that has left, whose client has gone; nobody would give back what it takes."""
        if guest.has_left:
            return
        if not guest.held and guest.waits_since is not None:
            self._nobody_until.clear()
        guest.held += count
        self._held += count
        self._by_peer[guest.peer] += count
        if guest.evicted:
            self._goes(guest.peer, count)
        (self._guests.add if guest.held else self._guests.discard)(guest)
        if not self._by_peer[guest.peer]:
            del self._by_peer[guest.peer]

    def _goes(self, peer: str, count: int) -> None:
        self._going += count
        self._going_of[peer] += count
        if not self._going_of[peer]:
            del self._going_of[peer]

    def _victims(self, asking: Guest, count: int) -> list[Guest]:
        """Whom to take room from: of the asking peer where its own share is used up, else of the one that holds most. One, or several of
        those that hold little."""
        now = self._clock()
        with self._changed:
            own = self._by_peer[asking.peer] + count > self.share
            whose = asking.peer if own else ""
            if now <= self._nobody_until.get(whose, now - 1):
                return []
            waiting = [
                (self._by_peer[guest.peer], -guest.waits_since, id(guest), guest)
                for guest in self._guests
                if guest.waits_since is not None and not guest.evicted and (guest.peer == asking.peer or not own)
            ]
            late = [each for each in waiting if now + each[1] > GRACE_SECONDS and each[3] is not asking]
            if not late:
                oldest = max((each[1] for each in waiting), default=-now)
                if len(self._nobody_until) >= _MOST_KNOWN:
                    self._nobody_until.clear()
                self._nobody_until[whose] = GRACE_SECONDS - oldest
                return []
            return self._told_to_go(late)

    def _told_to_go(self, late: list[tuple[int, float, int, Guest]]) -> list[Guest]:
        first, *others = (entry[-1] for entry in heapq.nlargest(_TOGETHER, late))
        going = [first]
        if first.held < SMALL_BYTES:
            going += [each for each in others if each.held < SMALL_BYTES and each.peer == first.peer]
        for guest in going:
            guest.evicted = True
            self._goes(guest.peer, guest.held)
        return going


class Guest:
    """What one request holds. ``waits_since`` is set while the server waits for its client, on the clock of the room; ``waits`` is
    whether it may itself wait for others who have to go."""

    __slots__ = ("_charged", "_evict", "_grown", "evicted", "has_left", "held", "peer", "room", "waits", "waits_since")

    def __init__(self, room: RequestRoom, peer: str, evict: Callable[[], object]) -> None:
        self.room = room
        self._evict = evict
        self._grown = self._charged = 0
        self.peer = peer
        self.held = 0
        self.waits = True
        self.waits_since: float | None = None
        self.evicted = self.has_left = False

    def take(self, count: int) -> None:
        """Raises IngotError RESOURCE_EXHAUSTED: there is no room for so many bytes more; WouldWait, it does not wait for any."""
        if count >= SMALL_BYTES:
            self._more(count)

    def _more(self, count: int) -> None:
        if not (self.waits or self.room._has(self, count)):
            raise WouldWait
        self.room._take(self, count, _WAIT_SECONDS if self.waits else 0.0)

    def take_at_once(self, count: int, least: int = SMALL_BYTES) -> None:
        """As :meth:`take`, without waiting for who has to go; raises WouldWait where he may have gone when the same is asked again. Fewer
        than ``least`` bytes are not counted."""
        if count >= least:
            self.room._take(self, count, wait=0.0)

    def give(self, count: int) -> None:
        """Up to so many bytes of those that were taken."""
        if self.held and count >= SMALL_BYTES:
            self.room._give(self, min(count, self.held))

    def give_part(self, count: int) -> None:
        """So many bytes of what was taken, be they few."""
        if count and self.held:
            self.room._give(self, min(count, self.held))

    def grow(self, count: int) -> None:
        """So many bytes more of an answer, before they are made; raises as :meth:`take`, and where one answer would need the whole room."""
        self._grown += count
        if self._grown > self.room.total:
            raise IngotError(
                ErrorCode.RESOURCE_EXHAUSTED,
                "the answer is too large for this server",
                expected=f"at most {self.room.total} bytes while it is made",
                remedy="Send a smaller batch, or ask for outputs as binary data.",
            )
        if self._grown - self._charged >= SMALL_BYTES:
            self._more(self._grown - self._charged)
            self._charged = self._grown

    def settle(self, size: int) -> None:
        """The answer is made, and takes ``size`` bytes; raises as :meth:`take`."""
        charged, self._grown, self._charged = self._charged, 0, 0
        more = (size if size >= SMALL_BYTES else 0) - charged
        if more > 0:
            self._more(more)
        elif more:
            self.room._give(self, min(-more, self.held))

    def forget(self, count: int) -> None:
        """What was begun is begun anew: nothing has been made of an answer, and so many bytes are given back."""
        self._grown = self._charged = 0
        self.give_part(count)

    @contextmanager
    def holding(self, count: int) -> Iterator[None]:
        """Bytes for the time of a block; raises as :meth:`take`."""
        self.take(count)
        try:
            yield
        finally:
            self.give(count)

    def evict(self) -> None:
        self._evict()

    def leave(self) -> None:
        """Everything is given back, and nothing is counted for it any more; nobody is told to go."""
        self.room._leave(self)
        self._evict = _nobody


def _nobody() -> None:
    """Who has left."""


def no_room(guest: Guest) -> IngotError:
    """What is told to who asked for more than there is."""
    room = guest.room
    return IngotError(
        ErrorCode.RESOURCE_EXHAUSTED,
        "the requests that this server holds leave no room for this one",
        expected=f"at most {room.total} bytes together, and {room.share} from one address",
        remedy="Retry after a pause, or add replicas.",
    )


@functools.lru_cache(maxsize=4096)
def peer_of(address: str) -> str:
    """Who counts as one client: an IPv4 address, a network of 64 bits of IPv6 (as one subscriber gets it), or a local socket."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "local"
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped) if parsed.ipv4_mapped else str(ipaddress.ip_network((parsed, 64), strict=False))
