"""What the work on a job wrote: in a stream of Redis (``ingot:job:<id>:log``), and once it has finished in the object store too
(``logs/<job>.jsonl``), where it stays as long as finished jobs are remembered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from redis import Redis

from compiler_service.jobs.records import Event, JobStage
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.foreign_json import foreign_json
from shared_ir.registry.pages import Page, read_token, write_token
from shared_ir.storage.protocol import ObjectStore

MOST_LINES = 2000
"""The newest of a job."""
MOST_CHARACTERS = 500
"""The first of a line: a job has a megabyte at most, of text that has one byte for a character."""
_MOST_BYTES = 16 << 20
_FOLDER = "logs"


@dataclass(frozen=True)
class LogEntry:
    """``sequence`` is its place; ``target`` is empty for what is about the whole job, ``time`` in seconds since the epoch."""

    sequence: str
    time: float
    target: str
    stage: str
    level: str
    text: str


class LogStream:
    """Logs in Redis; each is forgotten when nothing was written for ``keep_seconds``."""

    def __init__(self, redis: Redis, keep_seconds: int) -> None:
        self._redis: Any = redis
        self._keep = keep_seconds

    def add(self, job: str, event: Event) -> None:
        """``event`` is of kind ``log``."""
        text, level = str(event.data.get("text", "")), str(event.data.get("level", ""))
        fields = {"target": event.target, "stage": event.stage, "level": level, "text": text[:MOST_CHARACTERS]}
        pipe = self._redis.pipeline(transaction=False)
        pipe.xadd(_stream(job), fields, maxlen=MOST_LINES, approximate=False)
        pipe.expire(_stream(job), self._keep)
        pipe.execute()

    def lines(self, job: str) -> Sequence[LogEntry]:
        return [_line(sequence, fields) for sequence, fields in self._redis.xrange(_stream(job))]


class Logs:
    """Logs of all jobs that are remembered."""

    def __init__(self, stream: LogStream, store: ObjectStore) -> None:
        self._stream = stream
        self._store = store

    def keep(self, job: str) -> None:
        """A job has finished. Doing it twice is harmless. Raises IngotError UNAVAILABLE."""
        lines = self._stream.lines(job)
        if lines:
            self._store.put(_path(job), "\n".join(json.dumps(asdict(line)) for line in lines).encode())

    def page(self, job: str, size: int, token: str = "", stage: str = "", target: str = "") -> Page[LogEntry]:
        """The oldest lines first; of one stage and one target alone, where they are given.

        Raises:
            IngotError: INVALID_ARGUMENT, there is no such stage, or the token is none of this log; UNAVAILABLE.
        """
        if stage and stage not in list(JobStage):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "there is no such stage",
                field="stage",
                expected=", ".join(JobStage),
                received=stage[:100],
            )
        after = _place(read_token(token, (job, stage, target), str, ""))
        lines = self._stream.lines(job) or self._kept(job)
        left = [
            line
            for line in lines
            if _place(line.sequence) > after and stage in ("", line.stage) and target in ("", line.target)
        ]
        more = write_token(left[size - 1].sequence, (job, stage, target)) if len(left) > size else ""
        return Page(tuple(left[:size]), more)

    def forget(self, before: float) -> None:
        """Delete those of jobs that finished before ``before``, in seconds since the epoch."""
        for info in list(self._store.list(_FOLDER)):
            if info.modified < before:
                self._store.delete(info.key)

    def _kept(self, job: str) -> Sequence[LogEntry]:
        try:
            text = self._store.get(_path(job), _MOST_BYTES)
            return [LogEntry(**foreign_json(line)) for line in text.splitlines()]
        except IngotError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
        except (ValueError, TypeError):  # it harms itself alone
            pass
        return ()


def _line(sequence: str, fields: dict[str, str]) -> LogEntry:
    own = {name: fields.get(name, "") for name in ("target", "stage", "level", "text")}
    return LogEntry(sequence, int(sequence.split("-")[0]) / 1000, **own)


def _place(sequence: str) -> tuple[int, ...]:
    """Raises IngotError INVALID_ARGUMENT."""
    try:
        return tuple(map(int, sequence.split("-"))) if sequence else ()
    except ValueError as error:
        message = "the page token is none of this log"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="page_token", received=sequence[:100]) from error


def _stream(job: str) -> str:
    return f"ingot:job:{job}:log"


def _path(job: str) -> str:
    return f"{_FOLDER}/{job}.jsonl"
