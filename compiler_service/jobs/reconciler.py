"""Nothing is stuck: every unfinished job has, at all times, a message in the queue, a live lease, or a living leader.

State is written first and the message is sent second, and between the two anything may die: the API after a submission, a worker
between two stages, Redis with its data. No path mends that by itself. Instead one process at a time looks, every few seconds, at what
each unfinished job waits for (:mod:`compiler_service.jobs.due`), and what has lost its message, its worker or its leader is sent
again. Sending once too often is harmless: a stage that has passed is not done again, and one that runs is leased.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from compiler_service.jobs.due import Due, due
from compiler_service.jobs.neighbours import Member
from compiler_service.jobs.records import JobRecord, JobStage
from compiler_service.jobs.service import JobService
from shared_ir.errors import ErrorCode, IngotError

MAX_LOSSES = 5
"""How often the worker of a stage may be lost before that counts as the fault of the stage. What a stage does seldom harms its worker,
which is another process; workers on machines that are taken away at any time are lost several times during a long stage."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """What one look sent again: stages whose worker was lost, whose message was, and whose time to be tried again has come; targets
    whose leader had gone; jobs that Redis had forgotten."""

    lost: int = 0
    forgotten: int = 0
    tried: int = 0
    led: int = 0
    restored: int = 0


class Reconciler:
    """Looks after the jobs of ``service``.

    Args:
        grace_seconds: for so long a job may be between a message and a lease.
    """

    def __init__(self, service: JobService, grace_seconds: float) -> None:
        self._service = service
        self._store = service.store
        self._grace = grace_seconds
        self._told: set[str] = set()

    def look(self) -> Found:
        """Once through all unfinished jobs. Raises IngotError UNAVAILABLE, RedisError."""
        counts = dict.fromkeys(("lost", "forgotten", "tried", "led"), 0)
        before, suspects = self._store.suspects(), dict[Member, float]()
        waiting: Collection[Member] | None = None
        active = [(record, due(record)) for record in self._store.active()]
        leased = self._store.leases([(record.id, own.number) for record, dues in active for own in dues])
        for record, dues in active:
            try:
                if self._service.end_late(record):
                    continue
                counts["led"] += self._follow(record)
                for own in dues:
                    what = "" if (record.id, own.number) in leased else _why_idle(own)
                    if what == "suspect":
                        waiting = self._service.dispatch.waiting() if waiting is None else waiting
                        what = self._suspect((record.id, own.number), before, suspects, waiting)
                    if what and self._again(record.id, own, what):
                        counts[what] += 1
            except IngotError as error:
                if error.code is ErrorCode.UNAVAILABLE:
                    raise
                logger.warning("job %s is not looked after: %s", record.id, error)
        self._store.set_suspects(suspects)
        return Found(**counts)

    def restore(self) -> Found:
        """Put back what Redis has forgotten of the orders in the store, or holds something else in place of, and close those of jobs that
        have finished."""
        service, count = self._service, 0
        unfinished, open_jobs = service.orders.unfinished(), list[JobRecord]()
        known = self._store.known(unfinished)
        for job in unfinished:
            try:
                record = self._proven(job) if job in known else None
                if record is None:
                    count += service.restore(job)
                elif record.state.finished:
                    service.close(job)
                else:
                    open_jobs.append(record)
            except IngotError as error:
                if error.code is ErrorCode.UNAVAILABLE:
                    raise
                if job not in self._told:
                    logger.warning("the order of job %s is not taken: %s", job, error)
                self._told.add(job)
        self._told &= set(unfinished)
        self._store.keep_active(open_jobs)
        return Found(restored=count)

    # ---- parts

    def _proven(self, job: str) -> JobRecord | None:
        """None where what lies in Redis is not what was ordered."""
        try:
            return self._store.get(job)
        except IngotError as error:
            if error.code not in (ErrorCode.NOT_FOUND, ErrorCode.ARTIFACT_UNTRUSTED):
                raise
            return None

    def _suspect(
        self, who: Member, before: Mapping[Member, float], suspects: dict[Member, float], waiting: Collection[Member]
    ) -> str:
        """``forgotten`` once there was no message for long enough."""
        if who in waiting:
            return ""
        since = before.get(who, time.time())
        if time.time() - since >= self._grace:
            return "forgotten"
        suspects[who] = since
        return ""

    def _again(self, job: str, seen: Due, what: str) -> bool:
        """Send it, if it still stands as it was seen."""
        record = self._store.get(job)
        now = next((own for own in due(record) if own.number == seen.number), None)
        if now != seen or self._store.leased(job, seen.number):
            return False
        if what == "lost":
            self._resume(record, seen)
        else:
            self._send(record, seen, "the message was lost; it is sent again" if what == "forgotten" else "")
        return True

    def _resume(self, record: JobRecord, own: Due) -> None:
        """A stage ran when its lease ended. A worker that is gone is a loss; one that lives had lost Redis."""
        stage = own.stage
        if self._store.is_alive(own.worker):
            self._send(record, own, f"the lease of stage {stage.value!r} has ended; it starts again")
            return
        losses = self._store.count_loss(record.id, own.number, stage)
        if losses < MAX_LOSSES:
            self._send(record, own, f"the worker was lost during stage {stage.value!r}; it starts again on another one")
            return
        self._service.fail(record.id, own.number, lost_too_often(stage, losses))

    def _send(self, record: JobRecord, own: Due, why: str) -> None:
        """``why`` it is done again is told to those who watch."""
        if self._store.change(record.id, own.number, leased=False, resume_at=0.0):
            if why:
                self._service.tell(record, own.number, why)
            self._service.dispatch.send(record, own.number, own.stage)

    def _follow(self, record: JobRecord) -> int:
        """Targets of ``record`` whose leader does not lead them any more; they are told, or take the lead."""
        followers = [n for n, t in enumerate(record.targets) if t.follows and not t.state.finished]
        return sum(self._service.follow(record.id, number) for number in followers)


def _why_idle(own: Due) -> str:
    """``lost``, ``tried`` or ``suspect`` for what nobody works on; empty where that is as it should be."""
    if own.leased:
        return "lost"
    if own.resume_at:
        return "tried" if own.resume_at <= time.time() else ""
    return "suspect"


def lost_too_often(stage: JobStage, losses: int) -> IngotError:
    return IngotError(
        ErrorCode.WORKER_LOST,
        f"the worker was lost {losses} times during stage {stage.value!r}",
        remedy="Submit the job again. If it happens again, the workers' logs say what ends them; a machine short of memory may.",
    )
