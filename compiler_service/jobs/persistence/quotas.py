"""What a namespace holds of Redis: its unfinished jobs, and those of its stages that run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from shared_ir.errors import ErrorCode, IngotError

_RESERVED_SECONDS = 60.0
"""For so long a job may be on its way from the count to the queue."""

# KEYS: jobs of the namespace by the time until which they count in any case, all unfinished jobs. ARGV: limit, job, now, until. Jobs that
# are unfinished no more are dropped: who ended one may have ended before he said so.
_ENTER = """
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[3])) do
  if not redis.call('ZSCORE', KEYS[2], member) then redis.call('ZREM', KEYS[1], member) end
end
if redis.call('ZSCORE', KEYS[1], ARGV[2]) then return 1 end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[4], ARGV[2])
return 1
"""


class JobQuota:
    """Counts the unfinished jobs of namespaces: where they are made and ended, whoever orders them or puts them back."""

    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis
        self._enter = self._redis.register_script(_ENTER)

    @contextmanager
    def reserving(self, namespace: str, limit: int, job: str) -> Iterator[None]:
        """Around what makes ``job``, which counts from now on; no ``limit`` is none. Where that fails, the room is free again.

        Raises:
            IngotError: RESOURCE_EXHAUSTED.
        """
        if not (namespace and limit):
            yield
            return
        now = time.time()
        arguments: list[str | float] = [limit, job, now, now + _RESERVED_SECONDS]
        if not self._enter(keys=[_jobs(namespace), "ingot:active"], args=arguments):
            raise IngotError(
                ErrorCode.RESOURCE_EXHAUSTED,
                f"namespace {namespace!r} has as many unfinished jobs as it may",
                field="jobs",
                expected=f"at most {limit}",
                remedy="Submit again when one has finished, or cancel one.",
            )
        try:
            yield
        except BaseException:
            with suppress(RedisError):  # then it is free in a minute
                if self._redis.zscore("ingot:active", job) is None:  # else another call has made it
                    self.forget(namespace, job)
            raise

    def count(self, pipe: Any, namespace: str, job: str, created: float) -> None:
        """By ``pipe``, together with what makes it an unfinished job."""
        if namespace:
            pipe.zadd(_jobs(namespace), {job: created})

    def forget(self, namespace: str, job: str) -> None:
        """It has finished, or has not become one."""
        if namespace:
            self._redis.zrem(_jobs(namespace), job)


def _jobs(namespace: str) -> str:
    return f"ingot:namespace:{namespace}:jobs"


_GRACE_SECONDS = 10.0
"""Between having a slot and holding the lease of the stage."""

# KEYS: stages of the namespace that run, by when they began. ARGV: limit, member, now, prefix of keys of jobs. A stage counts while
# somebody holds its lease.
_TAKE = f"""
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', tonumber(ARGV[3]) - {_GRACE_SECONDS})) do
  local job, number = string.match(member, '^(.*):(-?%d+)$')
  if redis.call('EXISTS', ARGV[4] .. job .. ':lease:' .. number) == 0 then redis.call('ZREM', KEYS[1], member) end
end
if redis.call('ZSCORE', KEYS[1], ARGV[2]) then return 1 end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[2])
return 1
"""


class StageQuota:
    """Counts the running stages of namespaces."""

    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis
        self._take = self._redis.register_script(_TAKE)

    def take(self, namespace: str, limit: int, stage: str) -> bool:
        """Whether ``stage``, a member as :func:`compiler_service.jobs.persistence.store.member` names it, may run now."""
        if not (namespace and limit):
            return True
        return bool(self._take(keys=[_running(namespace)], args=[limit, stage, time.time(), "ingot:job:"]))

    def give(self, namespace: str, stage: str) -> None:
        if namespace:
            self._redis.zrem(_running(namespace), stage)


def _running(namespace: str) -> str:
    return f"ingot:namespace:{namespace}:running"
