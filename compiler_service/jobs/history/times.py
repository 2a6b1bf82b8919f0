"""How long stages took, and from that how long a job will take.

``ingot:times:<model>`` is a hash of stage, and of ``<stage>|<target>``, to seconds: the newest count most.
"""

from __future__ import annotations

import time
from typing import Any

from redis import Redis

from compiler_service.jobs.due import remaining
from compiler_service.jobs.persistence.counters import Counters
from compiler_service.jobs.records import WHOLE_JOB, JobRecord, JobStage, TargetRecord

_WEIGHT = 0.4
"""Of the newest time, in the mean."""


class Times:
    """Those of an installation; of a model they are forgotten after ``keep_seconds`` without a new one."""

    def __init__(self, redis: Redis, counters: Counters, keep_seconds: int) -> None:
        self._redis: Any = redis
        self._counters = counters
        self._keep = keep_seconds

    def note(self, record: JobRecord, number: int, stage: JobStage, seconds: float) -> None:
        """A stage has passed."""
        key, names = _key(record), _names(record, number, stage)
        before = self._redis.hmget(key, names)
        means = [float(old) + _WEIGHT * (seconds - float(old)) if old else seconds for old in before]
        pipe = self._redis.pipeline(transaction=False)
        pipe.hset(key, mapping={name: f"{mean:.3f}" for name, mean in zip(names, means, strict=True)})
        pipe.expire(key, self._keep)
        pipe.execute()

    def left(self, record: JobRecord) -> float | None:
        """Seconds of work until a job has finished, without those in which it waits for a worker; None where they are not known. Where
        something is still to be tuned, stages of which nothing is known count nothing: most of the time is what tuning was told to take.
        """
        if record.state.finished or any(t.follows for t in record.targets if not t.state.finished):
            return None
        known = {name: float(text) for name, text in self._redis.hgetall(_key(record)).items()}
        known |= {f"any|{stage}": d.total / sum(d.counts) for stage, d in self._counters.stages().items()}
        own = [n for n, target in enumerate(record.targets) if not target.state.finished]
        whole = ([JobStage.INGEST] if own and not record.passed else []) + [JobStage.PUBLISH]
        is_tuned = any(JobStage.TUNE in remaining(record, n) for n in own)
        before_and_after = _sum([_left(record, WHOLE_JOB, stage, known) for stage in whole], is_tuned)
        each = [_sum([_left(record, n, stage, known) for stage in remaining(record, n)], is_tuned) for n in own]
        targets = _sum(each)
        if before_and_after is None or targets is None:
            return None
        # What runs side by side now is taken to go on so; else one waits for the other.
        at_once = max(1, sum(record.targets[n].leased for n in own))
        return before_and_after + max([targets / at_once, *(seconds for seconds in each if seconds is not None)])


def _left(record: JobRecord, number: int, stage: JobStage, known: dict[str, float]) -> float | None:
    """Of one stage that has not passed. Tuning takes as long as it is told to, or less: nothing is known of it from others."""
    names = [*reversed(_names(record, number, stage)), *([f"any|{stage}"] if stage is not JobStage.TUNE else [])]
    asked = float(record.options.get("tune") or 0) if stage is JobStage.TUNE else None
    usual = next((known[name] for name in names if name in known), asked)
    own: JobRecord | TargetRecord = record if number == WHOLE_JOB else record.targets[number]
    if usual is None or not (own.leased and own.stage == stage):
        return usual
    return max(0.0, usual - (time.time() - own.began))


def _names(record: JobRecord, number: int, stage: JobStage) -> list[str]:
    """Under which the time of a stage is noted, the nearest last."""
    name = f"{stage}{record.options.get('tune')}" if stage is JobStage.TUNE else stage.value
    return [name] if number == WHOLE_JOB else [name, f"{name}|{record.targets[number].target}"]


def _sum(seconds: list[float | None], passes_over: bool = False) -> float | None:
    known = [own for own in seconds if own is not None]
    return sum(known) if passes_over or len(known) == len(seconds) else None


def _key(record: JobRecord) -> str:
    return f"ingot:times:{record.name}"
