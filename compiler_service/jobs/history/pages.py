"""Jobs, a page at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from compiler_service.jobs.history.lists import JobFilter
from compiler_service.jobs.persistence.names import done_key, job_key
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import JobRecord
from shared_ir.registry.pages import Page, PageRoom, read_token, write_token

_ANY = JobFilter()
_MOST_LOOKED_AT = 1000
"""Jobs that one call reads, for the sake of a filter that few pass."""


class JobPages:
    """Those of ``store``."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._lists = store.lists

    def page(
        self,
        size: int,
        token: str = "",
        chosen: JobFilter = _ANY,
        weigh: Callable[[JobRecord], int] = lambda _: 0,
    ) -> Page[JobRecord]:
        """Jobs that pass, the newest first; perhaps fewer than ``size`` although there are more, as where ``weigh`` says that they are big.

        Raises:
            IngotError: INVALID_ARGUMENT, the token is none of this list.
        """
        last = read_token(token, chosen, int, 0)
        room = PageRoom(size, weigh)
        looked_at = 0
        for some in self._lists.newest(chosen, last, min(size + 1, 100)):
            loaded = {record.id: record for record in self._store.load([id for _, id in some if id])}
            for number, id in some:
                if room.is_full or looked_at == _MOST_LOOKED_AT or not id:
                    return Page(room.items, write_token(last if id else number, chosen))
                record = loaded.get(id)
                if (
                    record is not None
                    and not _is_elsewhere(record, number)
                    and chosen.takes(record)
                    and not room.take(record)
                ):
                    return Page(room.items, write_token(last, chosen))
                last, looked_at = number, looked_at + 1
            self._mend_lists(chosen, some, loaded)
        return Page(room.items)

    def _mend_lists(self, chosen: JobFilter, some: Sequence[tuple[int, str]], loaded: Mapping[str, JobRecord]) -> None:
        """Take out who is gone; a version before this one leaves a job in the list of the state that it was in."""
        missing = {id: number for number, id in some if id and id not in loaded}
        known = self._store.known(list(missing)) if missing else ()  # what nobody here trusts is not gone
        gone = [number for id, number in missing.items() if id not in known]
        self._lists.forget([*gone, *(n for n, id in some if id in loaded and _is_elsewhere(loaded[id], n))])
        for record in loaded.values():
            if chosen.state not in (None, record.state) and record.number:
                self._lists.mend(record, job_key(record.id))

    def take_over(self) -> int:
        """Put jobs into their lists that a version before this one has created; how many were looked at."""
        ids = self._store.redis.zrange("ingot:jobs", 0, 999)
        for record in self._store.load(ids):
            if record.number:
                continue
            pipe = self._store.redis.pipeline()
            self._lists.add(pipe, record, "" if self._store.redis.exists(done_key(record.id)) else job_key(record.id))
            pipe.zrem("ingot:jobs", record.id)
            pipe.execute()
        if ids:
            self._store.redis.zrem("ingot:jobs", *ids)
        return len(ids)

    def keep_lists(self) -> None:
        """Unfinished jobs stay in their lists, however long they take; what is gone leaves them."""
        for record in self._store.active():
            self._lists.mend(record, job_key(record.id))
        self._lists.prune(time.time() - self._store.keep_seconds)


def _is_elsewhere(record: JobRecord, number: int) -> bool:
    """Whether a place is one that a job had before Redis forgot it, and it was ordered again."""
    return record.number not in (0, number)
