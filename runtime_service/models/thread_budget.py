"""How many threads all models keep together: a model has threads of its own, and a thousand models would have thousands."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol


class Member(Protocol):
    """A model version that is loaded."""

    @property
    def threads(self) -> int:
        """That it keeps between two runs."""

    def rest(self) -> bool:
        """End them, until it runs again; False where it runs just now."""


class ThreadBudget:
    """Where the models have more than ``most`` threads (0: no limit), those of the least recently used end; they begin again with the
    next request for the model, which takes less than a millisecond more."""

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._awake: OrderedDict[Member, None] = OrderedDict()
        self._threads = 0

    @property
    def threads(self) -> int:
        """That models keep now."""
        return self._threads

    def is_awake(self, member: Member) -> bool:
        """Whether it has its threads, if it needs some."""
        return not member.threads or member in self._awake

    def use(self, member: Member) -> None:
        """Before ``member`` runs, or when it has begun to be: it has its threads from here on."""
        if not member.threads:
            return
        with self._lock:
            if member in self._awake:
                self._awake.move_to_end(member)
                return
            self._awake[member] = None
            self._threads += member.threads
            tired = self._tired()
        for other in tired:
            if not other.rest():
                self._put_back(other)

    def leave(self, member: Member) -> None:
        """When it is about to be closed."""
        with self._lock:
            if member in self._awake:
                del self._awake[member]
                self._threads -= member.threads

    def _put_back(self, member: Member) -> None:
        """One that runs, so that it keeps its threads; others are not asked for it."""
        with self._lock:
            if member not in self._awake:
                self._awake[member] = None
                self._threads += member.threads

    def _tired(self) -> list[Member]:
        """Those that have to end their threads, and count as if they had."""
        found = []
        while 0 < self._most < self._threads and len(self._awake) > 1:
            member, _ = self._awake.popitem(last=False)
            self._threads -= member.threads
            found.append(member)
        return found
