"""The order in which waiting stages are taken: users take turns, and of one the higher priority goes first, then the older job.

A message of the broker says that a stage waits; which one its worker then takes is decided here, so that nobody waits behind all of
somebody else's. For each of three lines, below ``ingot:line:<name>:``, there are::

    users        zset    users of whom a stage waits, by the seconds that they have had
    had          hash    user -> the same, also of those of whom none waits
    least        string  seconds that who had the last turn had had before: who comes anew counts as if he had had them too
    of:<user>    zset    "<job>:<target>:<stage>" that wait, the first to be taken first
    running      hash    "<job>:<target>" -> when it was taken, and whose it is

Whose stages run least has the next turn; of several, who has had the least time. So somebody else's stages of an hour keep a job of short
stages waiting once, and not before each of its stages. All of this may be lost, or differ from the messages that
there are: what waits then without a message is found by the reconciler, and a message for which nothing waits does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from redis import Redis

from compiler_service.jobs.records import JobRecord, JobStage
from shared_ir.errors import ErrorCode, IngotError

LINES: Mapping[JobStage, str] = {
    JobStage.INGEST: "compile",
    JobStage.TUNE: "tune",
    JobStage.BUILD: "compile",
    JobStage.VERIFY: "verify",
    JobStage.PUBLISH: "compile",
}
"""Tuning takes long, and verification wants the machine that the code is for: a worker may take either, or leave it to others."""
LARGEST_PRIORITY = 9
_GRACE_SECONDS = 10.0
"""Between having a turn and holding the lease of the stage."""
_LEAST_SECONDS = 0.001
"""That a turn counts for, however short."""
_CENTURIES = 1e11
"""More seconds than any two jobs are apart."""

Waiting = tuple[JobStage, str, int]
"""A stage of a job, or of its target of that number."""

# KEYS: line. ARGV: user, rank, member.
_JOIN = """
redis.call('ZADD', KEYS[1] .. ':of:' .. ARGV[1], ARGV[2], ARGV[3])
if not redis.call('ZSCORE', KEYS[1] .. ':users', ARGV[1]) then
  local had = tonumber(redis.call('HGET', KEYS[1] .. ':had', ARGV[1])) or 0
  local least = tonumber(redis.call('GET', KEYS[1] .. ':least')) or 0
  redis.call('ZADD', KEYS[1] .. ':users', tostring(math.max(had, least)), ARGV[1])
end
return 1
"""

# KEYS: line. ARGV: member, now. Who had the turn has had the time since then.
_LEAVE = """
local held = redis.call('HGET', KEYS[1] .. ':running', ARGV[1])
if not held then return 0 end
redis.call('HDEL', KEYS[1] .. ':running', ARGV[1])
local since, user = string.match(held, '^(%S+) (.*)$')
local had = (tonumber(redis.call('HGET', KEYS[1] .. ':had', user)) or 0) + math.max(0, ARGV[2] - since)
redis.call('HSET', KEYS[1] .. ':had', user, string.format('%.3f', had))
if redis.call('ZSCORE', KEYS[1] .. ':users', user) then
  redis.call('ZADD', KEYS[1] .. ':users', string.format('%.3f', had), user)
end
return 1
"""

# KEYS: line. ARGV: now, prefix of keys of jobs. Returns the member that is taken.
_TAKE = f"""
local running, held = {{}}, redis.call('HGETALL', KEYS[1] .. ':running')
for i = 1, #held, 2 do
  local since, user = string.match(held[i + 1], '^(%S+) (.*)$')
  local job, number = string.match(held[i], '^(.*):(-?%d+)$')
  local old = ARGV[1] - tonumber(since) > {_GRACE_SECONDS}
  if old and redis.call('EXISTS', ARGV[2] .. job .. ':lease:' .. number) == 0 then
    redis.call('HDEL', KEYS[1] .. ':running', held[i])
  else
    running[user] = (running[user] or 0) + 1
  end
end
local best, least
for _, user in ipairs(redis.call('ZRANGE', KEYS[1] .. ':users', 0, -1)) do
  local count = running[user] or 0
  if not best or count < least then best, least = user, count end
end
if not best then return false end
local own = KEYS[1] .. ':of:' .. best
local member = redis.call('ZRANGE', own, 0, 0)[1]
if member then
  redis.call('ZREM', own, member)
  redis.call('HSET', KEYS[1] .. ':running', string.match(member, '^(.*):'), ARGV[1] .. ' ' .. best)
end
local had = tonumber(redis.call('ZSCORE', KEYS[1] .. ':users', best))
if had > (tonumber(redis.call('GET', KEYS[1] .. ':least')) or 0) then
  redis.call('SET', KEYS[1] .. ':least', string.format('%.3f', had))
end
had = string.format('%.3f', had + {_LEAST_SECONDS})
redis.call('HSET', KEYS[1] .. ':had', best, had)
if redis.call('EXISTS', own) == 1 then
  redis.call('ZADD', KEYS[1] .. ':users', had, best)
else
  redis.call('ZREM', KEYS[1] .. ':users', best)
end
return member
"""


class Line:
    """Those of one installation, which stand in three lines by stage."""

    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis
        self._join = self._redis.register_script(_JOIN)
        self._take = self._redis.register_script(_TAKE)
        self._leave = self._redis.register_script(_LEAVE)

    def join(self, stage: JobStage, record: JobRecord, number: int) -> None:
        """From now on ``stage`` waits. Doing it again is harmless."""
        user = record.user or record.source.namespace
        rank = record.created - record.priority * _CENTURIES
        self._join(keys=[_key(LINES[stage])], args=[user, repr(rank), f"{record.id}:{number}:{stage.value}"])

    def take(self, name: str) -> Waiting | None:
        """The stage whose turn it is in a line, which waits no longer; None where none does."""
        found = self._take(keys=[_key(name)], args=[time.time(), "ingot:job:"])
        return _waiting(found) if found else None

    def leave(self, stage: JobStage, job: str, number: int) -> None:
        """A stage that was taken does not run any more."""
        self._leave(keys=[_key(LINES[stage])], args=[f"{job}:{number}", time.time()])

    def standing(self, name: str) -> frozenset[tuple[str, int]]:
        """Jobs and targets with a stage that waits in a line."""
        users = self._redis.zrange(f"{_key(name)}:users", 0, -1)
        pipe = self._redis.pipeline(transaction=False)
        for user in users:
            pipe.zrange(f"{_key(name)}:of:{user}", 0, -1)
        return frozenset(_waiting(member)[1:] for members in pipe.execute() for member in members)


def check_priority(priority: int) -> None:
    """Raises IngotError INVALID_ARGUMENT."""
    if abs(priority) > LARGEST_PRIORITY:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "there is no such priority",
            field="priority",
            expected=f"-{LARGEST_PRIORITY} to {LARGEST_PRIORITY}",
            received=str(priority),
            remedy="Leave it out for 0, which is in the middle.",
        )


def _waiting(member: str) -> Waiting:
    job, number, stage = member.rsplit(":", 2)
    return JobStage(stage), job, int(number)


def _key(name: str) -> str:
    return f"ingot:line:{name}"
