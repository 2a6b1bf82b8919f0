"""Those who watch jobs: one thread reads the events of all jobs that are watched, a few others tell who watches.

No watcher holds a thread: one that does not take what it is told is told no more until it has, and is let go after a while by the server
of its call; it may come again with the sequence of the last event that it saw.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from redis.exceptions import RedisError

from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import Event, JobRecord
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.calls.shares import is_for_others
from shared_ir.service_kit.memory.room import SMALL_BYTES
from shared_ir.service_kit.status import internal

_LOG = logging.getLogger(__name__)
_TELLERS = 4
_BLOCK_SECONDS = 0.25
"""For so long Redis is asked to wait for an event; one who begins to watch meanwhile is told what comes after that."""
_PAUSE_SECONDS = 0.02
"""Between two questions: what happens meanwhile is read at once."""
_LOOK_SECONDS = 10.0
"""How often the record of a job is read of which nothing is heard: it may have been lost."""
_MOST_AHEAD = 1000
"""Events that wait for a watcher to take them; it is told those after them when it has."""
_AWAY_SECONDS = 10.0
"""For so long Redis may be away before those who watch are told."""

Position = tuple[int, int]
"""A sequence in parts."""


class JobListener(Protocol):
    """Who is told; one call at a time."""

    @property
    def outstanding(self) -> int:
        """Bytes of what it was told that it has not taken."""

    def tell(self, event: Event, record: JobRecord) -> bool:
        """Without waiting; False when nobody listens any more."""

    def when_taken(self, action: Callable[[], None]) -> None:
        """Call ``action``, which takes no time, once nothing is outstanding; at once where that is so."""

    def end(self, error: IngotError | None) -> None: ...


class Watcher:
    """One who watches a job, and how far it has been told."""

    def __init__(self, job: str, after: str, listener: JobListener, peer: str) -> None:
        self.job = job
        self.after = after
        self.listener = listener
        self.peer = peer
        self.lock = threading.Lock()
        self.waiting: deque[tuple[Event, JobRecord]] = deque()
        self.is_told = False
        """A thread has it in hand, or will once it has taken what it was told."""
        self.error: IngotError | None = None
        self.is_ready = False
        """What had happened before it came is on its way."""
        self.is_ending = False
        self.is_gone = False

    @property
    def is_full(self) -> bool:
        return len(self.waiting) >= _MOST_AHEAD


class Watching:
    """Everyone who watches.

    Args:
        find: the record of a job; raises IngotError where there is none.
        most: watchers at once.
    """

    def __init__(self, store: JobStore, find: Callable[[str], JobRecord], most: int) -> None:
        self._store = store
        self._find = find
        self._most = most
        self._lock = threading.Lock()
        self._watchers: set[Watcher] = set()
        self._looked: dict[str, tuple[float, JobRecord]] = {}
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._tellers = ThreadPoolExecutor(_TELLERS, thread_name_prefix="teller")
        self._by_peer: Counter[str] = Counter()
        self._thread: threading.Thread | None = None
        self._away_since: float | None = None

    def __len__(self) -> int:
        return len(self._watchers)

    def add(self, job: str, after: str, listener: JobListener, peer: str = "") -> Watcher:
        """From now on ``listener`` is told what happened to a job after the event ``after``, and what happens, until it has finished.
        One ``peer`` leaves room for others.

        Raises:
            IngotError: NOT_FOUND; INVALID_ARGUMENT, ``after`` is no sequence; RESOURCE_EXHAUSTED.
        """
        watcher = Watcher(job, after, listener, peer)
        with self._lock:
            count, own = len(self._watchers), self._by_peer[peer]
            if self._stopping.is_set() or count >= self._most or is_for_others(count, own, self._most):
                raise _too_many(self._most)
            self._watchers.add(watcher)
            self._by_peer[peer] += 1
        try:
            record = self._find(job)
            if not after:
                watcher.waiting.append((Event("state", time=record.created), record))
            events = self._store.events(job, after)
            self._give(watcher, events, record)
            if record.state.finished and not events:
                self._end(watcher)
        except BaseException:
            self.remove(watcher)
            raise
        watcher.is_ready = True
        self._tell(watcher)
        self._start()
        return watcher

    def remove(self, watcher: Watcher) -> None:
        """Nobody listens any more."""
        watcher.is_gone = True
        with self._lock:
            if watcher in self._watchers:
                self._watchers.remove(watcher)
                self._by_peer[watcher.peer] -= 1
                if not self._by_peer[watcher.peer]:
                    del self._by_peer[watcher.peer]

    def stop(self) -> None:
        """End every stream."""
        self._stopping.set()
        self._wake.set()
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            self._end(watcher)

    # ---- one thread reads

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="watching", daemon=True)
                self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if not self._look():
                    self._wake.wait(1.0)
                    self._wake.clear()
                self._away_since = None
            except RedisError as error:
                self._redis_is_away(error)
            except Exception:  # the next look is not that of a dead thread
                _LOG.exception("a look at the jobs that are watched failed")
                time.sleep(1.0)
            time.sleep(_PAUSE_SECONDS)

    def _look(self) -> bool:
        """Read what has happened, and have it told; whether anybody watches."""
        by_job: defaultdict[str, list[Watcher]] = defaultdict(list)
        with self._lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            if watcher.is_ready and not (watcher.is_full or watcher.is_ending):
                by_job[watcher.job].append(watcher)
        if not by_job:
            self._looked.clear()
            return False
        after = {job: min((w.after for w in own), key=_position) for job, own in by_job.items()}
        found = self._store.events_of(after, _BLOCK_SECONDS)
        for job in self._looked.keys() - by_job.keys():
            del self._looked[job]
        for job, own in by_job.items():
            self._spread(job, own, found.get(job, ()))
        return True

    def _spread(self, job: str, watchers: Sequence[Watcher], events: Sequence[Event]) -> None:
        try:
            record = self._record(job, any(event.kind == "state" for event in events))
        except IngotError as error:
            for watcher in watchers:
                self._end(watcher, error)
            return
        for watcher in watchers:
            self._give(watcher, events, record)
            if record.state.finished and not events:
                self._end(watcher)
            self._tell(watcher)

    def _record(self, job: str, is_new: bool) -> JobRecord:
        """As it is, or was a few seconds ago where nothing is new. Raises IngotError."""
        looked, now = self._looked.get(job), time.monotonic()
        if looked is None or is_new or now - looked[0] > _LOOK_SECONDS:
            looked = self._looked[job] = (now, self._find(job))
        return looked[1]

    def _redis_is_away(self, error: RedisError) -> None:
        now = time.monotonic()
        self._away_since = self._away_since or now
        if now - self._away_since > _AWAY_SECONDS:
            _LOG.warning("those who watch jobs are sent away: %s", error)
            with self._lock:
                watchers = list(self._watchers)
            message, remedy = "the job queue cannot be reached", "Watch again in a moment, from the last event on."
            for watcher in watchers:
                self._end(watcher, IngotError(ErrorCode.UNAVAILABLE, message, remedy=remedy))
        time.sleep(_BLOCK_SECONDS)

    # ---- a few tell

    @staticmethod
    def _give(watcher: Watcher, events: Sequence[Event], record: JobRecord) -> None:
        for event in events:
            if watcher.is_full:
                return
            if _position(event.sequence) > _position(watcher.after):
                watcher.waiting.append((event, record))
                watcher.after = event.sequence

    def _end(self, watcher: Watcher, error: IngotError | None = None) -> None:
        """Once it has been told what waits for it."""
        watcher.error = error
        watcher.is_ending = True
        self._tell(watcher)

    def _tell(self, watcher: Watcher) -> None:
        with watcher.lock:
            if watcher.is_told or not (watcher.waiting or watcher.is_ending):
                return
            watcher.is_told = True
        self._tell_on(watcher)

    def _tell_on(self, watcher: Watcher) -> None:
        """Have a thread tell a watcher that nobody else tells."""
        self._tellers.submit(self._tell_all, watcher)

    def _tell_all(self, watcher: Watcher) -> None:
        try:
            while self._tell_next(watcher):
                pass
        except Exception as error:  # of one watcher: the others go on, and it does not come again for the same
            _LOG.exception("a watcher of job %s cannot be told", watcher.job)
            self.remove(watcher)
            watcher.listener.end(internal(error))

    def _tell_next(self, watcher: Watcher) -> bool:
        """Whether there may be more to tell now."""
        if watcher.waiting and not watcher.is_gone and watcher.listener.outstanding > SMALL_BYTES:
            watcher.listener.when_taken(lambda: self._tell_on(watcher))
            return False
        with watcher.lock:
            if watcher.is_gone or not (watcher.waiting or watcher.is_ending):
                watcher.is_told = False
                return False
            item = watcher.waiting.popleft() if watcher.waiting else None
        if item is None:
            watcher.is_gone = True
            watcher.listener.end(watcher.error)
            self.remove(watcher)
            return False
        is_there = watcher.listener.tell(*item)
        if not is_there:
            self.remove(watcher)
        return is_there


def _position(sequence: str) -> Position:
    milliseconds, _, number = (sequence or "0-0").partition("-")
    return int(milliseconds), int(number or 0)


def _too_many(most: int) -> IngotError:
    message = "there are too many watchers"
    remedy = "Try again later, or ask with GetJob."
    expected = f"at most {most} at once, and three quarters of them of one address"
    return IngotError(ErrorCode.RESOURCE_EXHAUSTED, message, expected=expected, remedy=remedy)
