"""Job records, their events, leases and single flights in Redis.

Redis is a working memory: everything here may be lost without losing an artifact (:mod:`shared_ir.artifact.repository`).
Keys, all below ``ingot:``::

    job:<id>             hash    the record (codec.py)
    done:<id>            string  a job that had finished when it was ordered, packed (packing.py); it has no events
    job:<id>:events      stream  history, newest 5000
    job:<id>:log         stream  what the work on it wrote (jobs/history/logs.py)
    job:<id>:lease:<n>   string  token of the worker that runs target n, expires unless it is renewed
    list:...                     which jobs there are (jobs/history/lists.py)
    jobs                 zset    ids of those that a version before this one has created, until they are in those lists
    active               zset    ids of unfinished jobs by time of creation
    namespace:<name>:jobs        zset    ids of the unfinished jobs of a namespace (quotas.py)
    flight:<key>...              who compiles an artifact key for a namespace at the moment (jobs/waiting/flights.py)
    suspects             hash    "<job>:<target>" that had neither message nor lease -> since when
    worker:<id>          string  a worker that lives, expires unless it is renewed
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from compiler_service.jobs.history.lists import MOVE, JobLists
from compiler_service.jobs.history.logs import LogStream
from compiler_service.jobs.persistence.codec import SECONDS, decode, encode, encode_changes, namespace_of
from compiler_service.jobs.persistence.names import FINISHED, done_key, job_key, member, split_member
from compiler_service.jobs.persistence.packing import pack, unpack
from compiler_service.jobs.persistence.quotas import JobQuota
from compiler_service.jobs.persistence.seal import ORDER, Seal
from compiler_service.jobs.records import WHOLE_JOB, Event, JobRecord
from compiler_service.jobs.waiting.flights import Flights
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.foreign_json import foreign_json
from shared_ir.numerals import whole_number

_LOG = logging.getLogger(__name__)
MOST_EVENTS_OF_JOB = 5000
"""Events kept per job."""

# KEYS: job hash. ARGV: field with the state, seconds for lists, then pairs. Returns 1; 0 when that state is final; -1 when there is no job.
_PATCH = f"""
local state = redis.call('HGET', KEYS[1], ARGV[1])
if not state then return -1 end
if {FINISHED} then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
local seconds = ARGV[2]
if ARGV[1] == 'state' then
{MOVE}end
return 1
"""

# KEYS: job hash. ARGV: field, amount. Returns the sum, as text; "0" when there is no job: a sum alone would pass for one.
_COUNT = f"""
if redis.call('HEXISTS', KEYS[1], '{ORDER}') == 0 then return '0' end
return redis.call('HINCRBYFLOAT', KEYS[1], ARGV[1], ARGV[2])
"""

# KEYS: lease. ARGV: token, milliseconds. Takes or renews; 0 when another holds it.
_LEASE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

# KEYS: lease. ARGV: token.
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""


class ForgottenError(IngotError):
    """There is no ``job`` of this id: NOT_FOUND. There may have been one, or may be one again, when the orders have been read."""

    job = ""


class JobStore:
    """The jobs of one installation.

    Args:
        redis: a client with ``decode_responses=True``.
        keep_seconds: how long a finished job is remembered.
        seal: signs orders and tells whose are taken; None takes any, for those that only look.
    """

    def __init__(self, redis: Redis, keep_seconds: int = 7 * 24 * 3600, seal: Seal | None = None) -> None:
        self.redis: Any = redis  # redis-py types every answer as maybe awaitable
        self.keep_seconds = keep_seconds
        self._seal = seal
        self.lists = JobLists(redis, keep_seconds)
        self.log = LogStream(redis, keep_seconds)
        self.flights = Flights(redis, keep_seconds)
        self.quota = JobQuota(redis)
        self._patch = self.redis.register_script(_PATCH)
        self._count = self.redis.register_script(_COUNT)
        self._lease = self.redis.register_script(_LEASE)
        self._release = self.redis.register_script(_RELEASE)

    # ---- records

    def seal(self, record: JobRecord) -> dict[str, str]:
        """The fields of a new record."""
        fields = encode(record)
        return self._seal.put(fields) if self._seal else fields

    def create(self, record: JobRecord, sealed: Mapping[str, str] | None = None) -> None:
        """``sealed`` as :meth:`seal` gave it; by default it is made here. What lay in its place is gone."""
        fields = dict(sealed or self.seal(record))
        pipe = self.redis.pipeline()
        if record.state.finished:
            pipe.set(done_key(record.id), pack(fields), ex=self.keep_seconds)
            self.lists.add(pipe, record)
            pipe.execute()
            return
        pipe.delete(job_key(record.id))
        pipe.hset(job_key(record.id), mapping=fields)
        pipe.zadd("ingot:active", {record.id: record.created})
        self.quota.count(pipe, record.source.namespace, record.id, record.created)
        self.lists.add(pipe, record, job_key(record.id))
        pipe.execute()
        self.add_event(record.id, Event("state"))

    def get(self, job: str) -> JobRecord:
        """Raises ForgottenError; IngotError ARTIFACT_UNTRUSTED, nobody ordered it."""
        fields = self.fields(job)
        if ORDER not in fields:
            remedy = "Finished jobs are forgotten after some days; the models that they published stay."
            error = ForgottenError(ErrorCode.NOT_FOUND, f"no job {job!r}", field="id", remedy=remedy)
            error.job = job
            raise error
        return self._proven(job, fields)

    def load(self, ids: Sequence[str]) -> list[JobRecord]:
        """Those of ``ids`` that are here and proven, in this order."""
        found: list[JobRecord] = []
        gone: list[str] = []
        for job, fields in zip(ids, self._fields(ids), strict=True):
            try:
                if ORDER not in fields:
                    gone.append(job)
                    continue
                found.append(self._proven(job, fields))
            except IngotError as error:
                _LOG.warning("job %s is not taken: %s", job, error)
                if error.code is not ErrorCode.INTERNAL:  # a later version may know what it says
                    gone.append(job)
        if gone:
            self.redis.zrem("ingot:jobs", *gone)
            self.redis.zrem("ingot:active", *gone)
        return found

    def active(self) -> Sequence[JobRecord]:
        """Jobs that have not finished, oldest first. Who finished one may have ended before he had concluded it."""
        found = self.load(self.redis.zrange("ingot:active", 0, -1))
        for record in found:
            if record.state.finished:
                self._conclude(record.id)
        return [record for record in found if not record.state.finished]

    def keep_active(self, records: Sequence[JobRecord]) -> None:
        """Unfinished jobs are looked after from now on, also those that a process has dropped that did not know the key of their order."""
        if records:
            self.redis.zadd("ingot:active", {record.id: record.created for record in records}, nx=True)

    def active_count(self) -> int:
        return int(self.redis.zcard("ingot:active"))

    def update(self, job: str, **changes: Any) -> bool:
        """Change attributes of an unfinished job; False when it has finished already."""
        if not self._apply(job, "state", encode_changes(changes)):
            return False
        if "state" in changes:
            if changes["state"].finished:
                self._conclude(job)
            else:
                self.add_event(job, Event("state"))
        return True

    def _conclude(self, job: str) -> None:
        """What follows the end of a job, which is told before it is active no more: whoever dies in between, another does it again."""
        self.add_event(job, Event("state"))
        self._expire(job)
        self.redis.zrem("ingot:active", job)
        self.quota.forget(namespace_of(self.fields(job)), job)

    def update_target(self, job: str, target: int, **changes: Any) -> bool:
        """Change attributes of an unfinished target; False when it has finished already."""
        applied = self._apply(job, f"{target}.state", encode_changes(changes, target))
        if applied and ("state" in changes or "stage" in changes):
            self.add_event(job, Event("state"))
        return applied

    def change(self, job: str, number: int, **changes: Any) -> bool:
        """Change what a job and its targets have alike, of the job itself for WHOLE_JOB; False when that has finished already."""
        if number == WHOLE_JOB:
            return self.update(job, **changes)
        return self.update_target(job, number, **changes)

    def add_seconds(self, job: str, stage: str, seconds: float) -> None:
        """Of a job that is here; one that Redis has forgotten gets no part of a record."""
        self._count(keys=[job_key(job)], args=[SECONDS + stage, seconds])

    def count_loss(self, job: str, target: int, stage: str) -> int:
        """How often the worker of this stage was lost, this time included; 0 of a job that is not here."""
        return int(self._count(keys=[job_key(job)], args=[f"losses.{target}.{stage}", 1]))

    def count_failure(self, job: str, target: int, stage: str, code: str) -> int:
        """How often this stage has failed with ``code``, this time included; 0 of a job that is not here."""
        return int(self._count(keys=[job_key(job)], args=[f"failures.{target}.{stage}.{code}", 1]))

    def count_tuned(self, job: str, target: int, seconds: float) -> float:
        """For how long a target was tuned in all, these ``seconds`` included; 0 of a job that is not here."""
        return float(self._count(keys=[job_key(job)], args=[f"tuned.{target}", seconds]))

    def known(self, jobs: Sequence[str]) -> frozenset[str]:
        """Those of ``jobs`` that are here, finished or not."""
        pipe = self.redis.pipeline(transaction=False)
        for job in jobs:
            pipe.exists(job_key(job), done_key(job))
        return frozenset(job for job, there in zip(jobs, pipe.execute(), strict=True) if there)

    def fields(self, job: str) -> Mapping[str, str]:
        """The record as it lies here, for who keeps it elsewhere; empty where there is none."""
        return self._fields([job])[0]

    def read(self, job: str, fields: Mapping[str, str]) -> JobRecord:
        """The record of ``job`` that ``fields`` are. Raises IngotError ARTIFACT_UNTRUSTED."""
        return self._proven(job, fields)

    # ---- events

    def add_event(self, job: str, event: Event) -> None:
        """Tell those who watch; a line is kept in the log as well."""
        if event.kind == "log":
            self.log.add(job, event)
        fields = {"kind": event.kind, "target": event.target, "data": json.dumps(dict(event.data))}
        fields |= {"stage": event.stage} if event.stage else {}
        self.redis.xadd(_events(job), fields, maxlen=MOST_EVENTS_OF_JOB, approximate=True)

    def events(self, job: str, after: str = "", block_seconds: float = 0.0) -> Sequence[Event]:
        """The events after sequence ``after``, waiting up to ``block_seconds`` for the first."""
        if after and None in map(whole_number, after.split("-", 1)):
            expected = "the sequence of an event, <number>-<number>"
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT, "not a sequence", field="after", expected=expected, received=after
            )
        return self.events_of({job: after}, block_seconds).get(job, [])

    def events_of(self, after: Mapping[str, str], block_seconds: float = 0.0) -> Mapping[str, Sequence[Event]]:
        """The events of several jobs after the sequence of each, as far as there are any; see :meth:`events`."""
        block = max(1, int(block_seconds * 1000)) if block_seconds else None
        jobs = {_events(job): job for job in after}
        answer = self.redis.xread({key: after[job] or "0-0" for key, job in jobs.items()}, count=500, block=block)
        pairs = answer.items() if isinstance(answer, dict) else (answer or [])
        return {jobs[key]: [_event(sequence, fields) for sequence, fields in _flat(entries)] for key, entries in pairs}

    # ---- leases: one worker per target at a time

    def lease(self, job: str, target: int, token: str, seconds: float) -> bool:
        """Take or renew the right to work on a target; False when another worker holds it."""
        return bool(self._lease(keys=[_lease(job, target)], args=[token, int(seconds * 1000)]))

    def release(self, job: str, target: int, token: str) -> None:
        self._release(keys=[_lease(job, target)], args=[token])

    def leased(self, job: str, target: int) -> bool:
        return bool(self.redis.exists(_lease(job, target)))

    def leases(self, members: Sequence[tuple[str, int]]) -> frozenset[tuple[str, int]]:
        """Those of ``members`` that somebody works on."""
        pipe = self.redis.pipeline(transaction=False)
        for job, target in members:
            pipe.exists(_lease(job, target))
        return frozenset(own for own, there in zip(members, pipe.execute(), strict=True) if there)

    # ---- who lives, and who seems to be forgotten

    def say_alive(self, worker: str, seconds: float) -> None:
        """Holds for ``seconds``."""
        self.redis.set(_worker(worker), "1", px=max(1, int(seconds * 1000)))

    def is_alive(self, worker: str) -> bool:
        return bool(self.redis.exists(_worker(worker)))

    def suspects(self) -> Mapping[tuple[str, int], float]:
        """Targets that had neither a message nor a lease when they were looked at, and since when."""
        found: dict[tuple[str, int], float] = {}
        for name, since in self.redis.hgetall("ingot:suspects").items():
            with contextlib.suppress(ValueError):  # somebody else wrote it: it keeps nobody else from being found
                found[split_member(name)] = float(since)
        return found

    def set_suspects(self, suspects: Mapping[tuple[str, int], float]) -> None:
        pipe = self.redis.pipeline()
        pipe.delete("ingot:suspects")
        if suspects:
            pipe.hset("ingot:suspects", mapping={member(*name): str(since) for name, since in suspects.items()})
        pipe.execute()

    # ---- once

    def claim(self, name: str, seconds: float) -> bool:
        """True for one caller in every ``seconds``."""
        return bool(self.redis.set(f"ingot:claim:{name}", "1", px=int(seconds * 1000), nx=True))

    def give_back(self, name: str) -> None:
        """What was claimed may be claimed again."""
        self.redis.delete(f"ingot:claim:{name}")

    # ---- parts

    def _apply(self, job: str, guard: str, fields: Mapping[str, str]) -> bool:
        arguments = [guard, str(self.lists.seconds), *(text for pair in fields.items() for text in pair)]
        return int(self._patch(keys=[job_key(job)], args=arguments)) == 1

    def _fields(self, jobs: Sequence[str]) -> list[dict[str, str]]:
        """Of each its hash, or what is packed; empty where there is neither, or nothing that makes sense."""
        pipe = self.redis.pipeline(transaction=False)
        for job in jobs:
            pipe.hgetall(job_key(job))
            pipe.get(done_key(job))
        answers = [_of_its_kind(answer) for answer in pipe.execute(raise_on_error=False)]
        return [_unpacked(packed) or fields or {} for fields, packed in zip(answers[::2], answers[1::2], strict=True)]

    def _proven(self, job: str, fields: Mapping[str, str]) -> JobRecord:
        """Raises IngotError ARTIFACT_UNTRUSTED: somebody else wrote it, it makes no sense, or it is that of another id."""
        if self._seal is not None:
            self._seal.check(fields)
        try:
            record = decode(fields)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            message, received = "the record of a job in Redis makes no sense", f"{type(error).__name__}: {error}"[:200]
            raise IngotError(ErrorCode.ARTIFACT_UNTRUSTED, message, field=job[:100], received=received) from error
        if record.id != job:
            message = "a job lies under the id of another"
            raise IngotError(ErrorCode.ARTIFACT_UNTRUSTED, message, expected=job[:100], received=record.id[:100])
        return record

    def _expire(self, job: str) -> None:
        self.redis.expire(job_key(job), self.keep_seconds)
        self.redis.expire(_events(job), self.keep_seconds)


def _flat(entries: Any) -> Iterator[tuple[str, Mapping[str, str]]]:
    """NOTE: redis-py wraps the entries of a stream in one more list under RESP3."""
    for entry in entries:
        if isinstance(entry, list):
            yield from _flat(entry)
        else:
            yield entry


def _event(sequence: str, fields: Mapping[str, str]) -> Event:
    seconds = int(sequence.split("-")[0]) / 1000 or time.time()
    try:
        data, stage = dict(foreign_json(fields["data"])), fields.get("stage", "")
        return Event(fields["kind"], fields["target"], data, sequence, seconds, stage)
    except (ValueError, LookupError, TypeError, RecursionError):  # those behind it are told all the same
        return Event("unreadable", "", {}, sequence, seconds)


def _of_its_kind(answer: Any) -> Any:
    """None for what is of another kind than it should be: somebody else wrote it, and it harms its job alone."""
    if not isinstance(answer, RedisError):
        return answer
    if "WRONGTYPE" in str(answer):
        return None
    raise answer


def _unpacked(text: str | None) -> dict[str, str]:
    try:
        return unpack(text) if text else {}
    except (ValueError, zlib.error):  # none that was packed here
        return {}


def _events(job: str) -> str:
    return f"ingot:job:{job}:events"


def _lease(job: str, target: int) -> str:
    return f"ingot:job:{job}:lease:{target}"


def _worker(worker: str) -> str:
    return f"ingot:worker:{worker}"
