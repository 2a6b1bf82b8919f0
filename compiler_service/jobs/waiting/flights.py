"""Single flight: one compilation of an artifact key at a time, which others of its namespace wait for. A ``key`` here is
:meth:`~compiler_service.jobs.records.JobRecord.flight`. Keys, below ``ingot:``::

flight:<key>         string  "<job>:<target>" that compiles it at the moment
flight:<key>:wait    set     "<job>:<target>" that wait for it
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from redis import Redis

from compiler_service.jobs.persistence.names import FINISHED, job_key, member, split_member

# KEYS: flight, waiters. ARGV: member, seconds, prefix of job hashes. Returns the member that leads. One whose job is gone or whose
# target has finished leads nobody any more, whatever kept it from saying so.
_JOIN_FLIGHT = f"""
local leader = redis.call('GET', KEYS[1])
if leader and leader ~= ARGV[1] then
  local job, number = string.match(leader, '^(.*):(%d+)$')
  local state = job and redis.call('HGET', ARGV[3] .. job, number .. '.state')
  if state and not ({FINISHED}) then
    redis.call('SADD', KEYS[2], ARGV[1])
    redis.call('EXPIRE', KEYS[2], ARGV[2])
    return leader
  end
end
redis.call('SREM', KEYS[2], ARGV[1])
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return ARGV[1]
"""

# KEYS: flight, waiters. ARGV: member. Returns the waiters when the member led, and ends the flight.
_END_FLIGHT = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {} end
local waiters = redis.call('SMEMBERS', KEYS[2])
redis.call('DEL', KEYS[1], KEYS[2])
return waiters
"""


class Flights:
    """Those of one installation. One that nobody ends is forgotten after ``keep_seconds``."""

    def __init__(self, redis: Redis, keep_seconds: int) -> None:
        self._redis: Any = redis
        self._keep_seconds = keep_seconds
        self._join = self._redis.register_script(_JOIN_FLIGHT)
        self._end = self._redis.register_script(_END_FLIGHT)

    def join(self, key: str, job: str, target: int) -> tuple[str, int]:
        """The target that compiles ``key``: this one, or another that this one now waits for."""
        arguments: list[str | int] = [member(job, target), self._keep_seconds, job_key("")]
        return split_member(self._join(keys=[_flight(key), _waiters(key)], args=arguments))

    def end(self, key: str, job: str, target: int) -> Sequence[tuple[str, int]]:
        """End a flight that this target leads; those who waited for it."""
        waiters = self._end(keys=[_flight(key), _waiters(key)], args=[member(job, target)])
        return [split_member(waiter) for waiter in sorted(waiters)]

    def leave(self, key: str, job: str, target: int) -> None:
        self._redis.srem(_waiters(key), member(job, target))

    def waiters(self, keys: Collection[str]) -> frozenset[str]:
        """The jobs with a target that waits for one of ``keys``."""
        pipe = self._redis.pipeline(transaction=False)
        for key in keys:
            pipe.smembers(_waiters(key))
        return frozenset(split_member(waiter)[0] for waiters in pipe.execute() for waiter in waiters)


def _flight(key: str) -> str:
    return f"ingot:flight:{key}"


def _waiters(key: str) -> str:
    return f"ingot:flight:{key}:wait"
