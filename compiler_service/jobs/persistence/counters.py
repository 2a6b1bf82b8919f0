"""Totals over all jobs, kept beside the records so that every worker adds to the same numbers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis

from compiler_service.boundary.parts import Standing
from compiler_service.jobs.records import TargetRecord
from shared_ir.foreign_json import foreign_json
from shared_ir.machine.target import PRESETS

BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
"""Upper bounds of the stage duration histogram, in seconds."""

_TARGETS, _CACHE, _BUCKET, _SUM = "ingot:count:targets", "ingot:count:cache", "ingot:count:bucket", "ingot:count:sum"
_BOUNDARY = "ingot:boundary:"
_CONSUMED, _WORKER, _SUSPECTS = "ingot:count:consumed", "ingot:worker:", "ingot:suspects"


@dataclass(frozen=True)
class StageDurations:
    """``counts[i]`` durations of at most ``BUCKETS[i]`` seconds, not cumulative; the last count is for longer ones."""

    counts: tuple[int, ...]
    total: float


class Counters:
    """Counts of finished work."""

    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis

    def target_finished(self, state: str, target: TargetRecord, code: str) -> None:
        """``code`` is the error code, empty for success."""
        self._redis.hincrby(_TARGETS, "|".join((state, counted(target), code)), 1)

    def cache(self, result: str) -> None:
        """``hit``, ``miss`` or ``shared`` (another job was compiling the same)."""
        self._redis.hincrby(_CACHE, result, 1)

    def stage_finished(self, stage: str, seconds: float) -> None:
        bucket = sum(seconds > bound for bound in BUCKETS)
        self._redis.hincrby(_BUCKET, f"{stage}|{bucket}", 1)
        self._redis.hincrbyfloat(_SUM, stage, seconds)

    def consumed(self, stage: str) -> None:
        """A worker took a stage, just now."""
        self._redis.hset(_CONSUMED, stage, str(time.time()))

    def last_consumed(self) -> Mapping[str, float]:
        """When a stage was last taken, in seconds since the epoch."""
        return {stage: float(text) for stage, text in self._redis.hgetall(_CONSUMED).items()}

    def workers(self) -> int:
        """Those that said not long ago that they live."""
        return sum(1 for _ in self._redis.scan_iter(f"{_WORKER}*", count=1000))

    def stuck(self, seconds: float) -> int:
        """Jobs or targets that had neither a message nor a worker for so long, as those who reconcile noted."""
        before = time.time() - seconds
        return sum(float(since) < before for since in self._redis.hvals(_SUSPECTS))

    def boundary_stands(self, machine: str, standing: Standing, seconds: float) -> None:
        """What of the boundary holds on a machine that compiles; forgotten after ``seconds`` without a word."""
        self._redis.set(f"{_BOUNDARY}{machine}", json.dumps(standing.to_dict()), ex=max(1, round(seconds)))

    def boundaries(self) -> Sequence[Standing]:
        """Those of all machines with a worker."""
        names = list(self._redis.scan_iter(f"{_BOUNDARY}*"))
        return [Standing.from_dict(foreign_json(text)) for text in (self._redis.mget(names) if names else ()) if text]

    def targets(self) -> Mapping[tuple[str, str, str], int]:
        """Finished targets by state, target and error code."""
        found = {}
        for name, count in self._redis.hgetall(_TARGETS).items():
            state, target, code = name.split("|")
            found[state, target, code] = int(count)
        return found

    def cache_results(self) -> Mapping[str, int]:
        return {name: int(count) for name, count in self._redis.hgetall(_CACHE).items()}

    def stages(self) -> Mapping[str, StageDurations]:
        counts: dict[str, list[int]] = {}
        for name, count in self._redis.hgetall(_BUCKET).items():
            stage, bucket = name.split("|")
            counts.setdefault(stage, [0] * (len(BUCKETS) + 1))[int(bucket)] = int(count)
        sums = self._redis.hgetall(_SUM)
        return {stage: StageDurations(tuple(own), float(sums.get(stage, 0))) for stage, own in counts.items()}


def counted(target: TargetRecord) -> str:
    """What a target is counted as: its name, or where it has none its architecture and cpu. What else clients write there, of which there
    is no end, is not told apart: each text would be a series for good."""
    name = next(iter(target.target.split()), "")
    if name == "host" or name in PRESETS:
        return name
    architecture, cpu = (str(target.spec.get(part, "")) for part in ("triple", "cpu"))
    return f"{architecture.partition('-')[0]}/{cpu}".replace("|", "/")
