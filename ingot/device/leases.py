"""Who has the device: one tuner at a time, for as long as it gives signs of life."""

from __future__ import annotations

import contextlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from shared_ir.errors import ErrorCode, IngotError

LEAST_SECONDS, MOST_SECONDS = 0.5, 600.0
"""Of a lease, from one sign of life to the next."""
_LOOK_SECONDS = 0.1


@dataclass
class _Lease:
    id: str
    seconds: float
    until: float
    ends: list[Callable[[], None]] = field(default_factory=list)


class Leases:
    """At most one lease. What is done under it is ended with it.

    Args:
        clock: seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: _Lease | None = None

    def take(self, seconds: float) -> str:
        """The id of a new lease, which ends ``seconds`` after it was last renewed.

        Raises:
            IngotError: INVALID_ARGUMENT; RESOURCE_EXHAUSTED, another has the device, and for how long at least.
        """
        if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "not a time for a lease",
                field="seconds",
                expected=f"{LEAST_SECONDS:g} to {MOST_SECONDS:g}",
                received=str(seconds)[:40],
            )
        self.look()
        with self._lock:
            if self._held is not None:
                left = self._held.until - self._clock()
                raise IngotError(
                    ErrorCode.RESOURCE_EXHAUSTED,
                    f"the device is leased by another tuner, for {max(left, 0.0):.1f} s more if that is heard of no more",
                    remedy="Try again later: one tuner measures at a time.",
                )
            self._held = _Lease(secrets.token_urlsafe(24), seconds, self._clock() + seconds)
            return self._held.id

    def renew(self, id: str) -> float:
        """Seconds that the lease has from now on. Raises IngotError NOT_FOUND, it has ended."""
        self.look()
        with self._lock:
            lease = self._of(id)
            lease.until = self._clock() + lease.seconds
            return lease.seconds

    def release(self, id: str) -> None:
        """End a lease, unless it has ended already."""
        with self._lock, contextlib.suppress(IngotError):
            self._of(id).until = self._clock()
        self.look()

    def require(self, id: str) -> None:
        """Raises IngotError NOT_FOUND, there is no such lease (any more)."""
        self.look()
        with self._lock:
            self._of(id)

    @contextlib.contextmanager
    def under(self, id: str, end: Callable[[], None]) -> Iterator[None]:
        """In the block something is done under a lease: ``end`` is called, by another thread, if that ends before.

        Raises:
            IngotError: NOT_FOUND, as :meth:`require`.
        """
        self.look()
        with self._lock:
            lease = self._of(id)
            lease.ends.append(end)
        try:
            yield
        finally:
            with self._lock:
                lease.ends.remove(end)

    @property
    def seconds_left(self) -> float | None:
        """Of the lease if nobody renews it; None where there is none."""
        self.look()
        with self._lock:
            return None if self._held is None else max(self._held.until - self._clock(), 0.0)

    def look(self) -> None:
        """End the lease where its time is up."""
        with self._lock:
            lease = self._held
            if lease is None or self._clock() < lease.until:
                return
            self._held = None
            ends = list(lease.ends)
        for end in ends:
            end()

    def watch(self, stopping: threading.Event) -> None:
        """Look again and again, in a thread of its own, until ``stopping`` is set; then what is left ends."""

        def watch() -> None:
            while not stopping.wait(_LOOK_SECONDS):
                self.look()
            with self._lock:
                held = self._held
            if held is not None:
                self.release(held.id)

        threading.Thread(target=watch, name="leases", daemon=True).start()

    def _of(self, id: str) -> _Lease:
        if self._held is None or not hmac.compare_digest(self._held.id.encode(), id.encode()):
            raise IngotError(
                ErrorCode.NOT_FOUND,
                "there is no such lease: it has ended, or there never was one",
                field="lease",
                remedy="Take a new one; renew it before its time is up.",
            )
        return self._held
