"""The order in which waiting stages are taken: users take turns, and of one the higher priority goes first, then the older job.

A message of the broker says that a stage waits; which one its worker then takes is decided here, so that nobody waits behind all of
somebody else's. For each of three lines, below ``ingot:line:<name>:``, there are::

    users        zset    users of whom a stage waits, by the seconds that they have had
    had          hash    user -> the same, also of those of whom none waits
    least        string  seconds that who had the last turn had had before: who comes anew counts as if he had had them too
    of:<user>    zset    "<job>:<target>:<stage>" that wait, the first to be taken first
    needs        hash    "<job>:<target>:<stage>" that wait -> what a worker must be able to run, empty for nothing
    running      hash    "<job>:<target>" -> when it was taken, and whose it is

Whose stages run least has the next turn; of several, who has had the least time. So somebody else's stages of an hour keep a job of short
stages waiting once, and not before each of its stages. A stage that others wait for too stands in the place of each of them, and the
first of its places that has a turn is the one that it is taken from. All of this may be lost, or differ from the messages that
there are: what waits then without a message is found by the reconciler, and a message for which nothing waits does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from redis import Redis

from compiler_service.jobs.neighbours import Member
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
_CENTURIES_SECONDS = 1e11
"""More seconds than any two jobs are apart."""
_STAGES_AT_ONCE = 100
"""Stages of a user that are looked at together for one whose need is met."""

Waiting = tuple[JobStage, str, int]
"""A stage of a job, or of its target of that number."""

Place = tuple[str, float]
"""A user, and a rank among his stages: the lowest goes first."""

_STAND = """
local own = redis.call('ZSCORE', KEYS[1] .. ':of:' .. ARGV[1], ARGV[3])
if not own or tonumber(ARGV[2]) < tonumber(own) then redis.call('ZADD', KEYS[1] .. ':of:' .. ARGV[1], ARGV[2], ARGV[3]) end
if not redis.call('ZSCORE', KEYS[1] .. ':users', ARGV[1]) then
  local had = tonumber(redis.call('HGET', KEYS[1] .. ':had', ARGV[1])) or 0
  local least = tonumber(redis.call('GET', KEYS[1] .. ':least')) or 0
  redis.call('ZADD', KEYS[1] .. ':users', tostring(math.max(had, least)), ARGV[1])
end
return 1
"""

# KEYS: line. ARGV: user, rank, member, need.
_JOIN = "redis.call('HSET', KEYS[1] .. ':needs', ARGV[3], ARGV[4])" + _STAND

# KEYS: line. ARGV: user, rank, member. What does not wait gets no place.
_LEND = "if redis.call('HEXISTS', KEYS[1] .. ':needs', ARGV[3]) == 0 then return 0 end" + _STAND

# KEYS: line. ARGV: user, rank or empty for no place any more, member. What does not wait has none.
_SETTLE = """
if redis.call('HEXISTS', KEYS[1] .. ':needs', ARGV[3]) == 0 then return 0 end
local own = KEYS[1] .. ':of:' .. ARGV[1]
if ARGV[2] ~= '' then
  if redis.call('ZSCORE', own, ARGV[3]) then redis.call('ZADD', own, ARGV[2], ARGV[3]) end
  return 1
end
redis.call('ZREM', own, ARGV[3])
if redis.call('EXISTS', own) == 0 then redis.call('ZREM', KEYS[1] .. ':users', ARGV[1]) end
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

# KEYS: line. ARGV: now, prefix of keys of jobs, 1 to take whatever is needed, else 0 and then the needs that are met. Returns the member
# that is taken.
_TAKE = f"""
local needs, users = KEYS[1] .. ':needs', redis.call('ZRANGE', KEYS[1] .. ':users', 0, -1)
local any, met = ARGV[3] == '1', {{}}
for i = 4, #ARGV do met[ARGV[i]] = true end

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

local function first(user)
  local at, some = 0, any and 1 or {_STAGES_AT_ONCE}
  while true do
    local members = redis.call('ZRANGE', KEYS[1] .. ':of:' .. user, at, at + some - 1)
    for _, member in ipairs(members) do
      local need = not any and redis.call('HGET', needs, member)
      if not need or need == '' or met[need] then return member end
    end
    if #members < some then return nil end
    at = at + some
  end
end

local best, least, member
for _, user in ipairs(users) do
  local count = running[user] or 0
  if not best or count < least then
    local found = first(user)
    if found then best, least, member = user, count, found end
  end
end
if not best then return false end

for _, user in ipairs(users) do
  redis.call('ZREM', KEYS[1] .. ':of:' .. user, member)
end
redis.call('HDEL', needs, member)
redis.call('HSET', KEYS[1] .. ':running', string.match(member, '^(.*):'), ARGV[1] .. ' ' .. best)
local had = tonumber(redis.call('ZSCORE', KEYS[1] .. ':users', best))
if had > (tonumber(redis.call('GET', KEYS[1] .. ':least')) or 0) then
  redis.call('SET', KEYS[1] .. ':least', string.format('%.3f', had))
end
had = string.format('%.3f', had + {_LEAST_SECONDS})
redis.call('HSET', KEYS[1] .. ':had', best, had)
redis.call('ZADD', KEYS[1] .. ':users', had, best)
for _, user in ipairs(users) do
  if redis.call('EXISTS', KEYS[1] .. ':of:' .. user) == 0 then redis.call('ZREM', KEYS[1] .. ':users', user) end
end
return member
"""


class WaitingLine:
    """Those of one installation, which stand in three lines by stage."""

    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis
        self._join = self._redis.register_script(_JOIN)
        self._lend = self._redis.register_script(_LEND)
        self._settle = self._redis.register_script(_SETTLE)
        self._take = self._redis.register_script(_TAKE)
        self._leave = self._redis.register_script(_LEAVE)

    def join(self, stage: JobStage, record: JobRecord, number: int, need: str = "") -> None:
        """From now on ``stage`` waits, for a worker that meets ``need``. Doing it again is harmless."""
        user, rank = place(record)
        self._join(keys=[_key(LINES[stage])], args=[user, repr(rank), _member(stage, record.id, number), need])

    def lend(self, stage: JobStage, job: str, number: int, place: Place) -> None:
        """Where ``stage`` waits, it does so in this place too, until it is taken."""
        user, rank = place
        self._lend(keys=[_key(LINES[stage])], args=[user, repr(rank), _member(stage, job, number)])

    def settle(self, stage: JobStage, job: str, number: int, user: str, rank: float | None) -> None:
        """Where ``stage`` waits in a place of ``user``, that has this rank from now on; None for no place of his any more."""
        text = "" if rank is None else repr(rank)
        self._settle(keys=[_key(LINES[stage])], args=[user, text, _member(stage, job, number)])

    def take(self, name: str, meets: Callable[[str], bool] | None = None) -> Waiting | None:
        """The stage whose turn it is in a line, of those whose need ``meets`` says is met, which waits no longer; None where there is none.

        Without ``meets`` every need is.
        """
        met = () if meets is None else filter(meets, {*self._redis.hvals(f"{_key(name)}:needs")} - {""})
        found = self._take(keys=[_key(name)], args=[time.time(), "ingot:job:", int(meets is None), *met])
        return _waiting(found) if found else None

    def leave(self, stage: JobStage, job: str, number: int) -> None:
        """A stage that was taken does not run any more."""
        self._leave(keys=[_key(LINES[stage])], args=[f"{job}:{number}", time.time()])

    def standing(self, name: str) -> Mapping[Member, str]:
        """Jobs and targets with a stage that waits in a line, and what it needs."""
        users = self._redis.zrange(f"{_key(name)}:users", 0, -1)
        pipe = self._redis.pipeline(transaction=False)
        pipe.hgetall(f"{_key(name)}:needs")
        for user in users:
            pipe.zrange(f"{_key(name)}:of:{user}", 0, -1)
        needs, *lists = pipe.execute()
        return {_waiting(member)[1:]: needs.get(member, "") for members in lists for member in members}


def place(record: JobRecord) -> Place:
    """Where the stages of a job stand."""
    return record.user or record.source.namespace, record.created - record.priority * _CENTURIES_SECONDS


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


def _member(stage: JobStage, job: str, number: int) -> str:
    return f"{job}:{number}:{stage.value}"


def _waiting(member: str) -> Waiting:
    job, number, stage = member.rsplit(":", 2)
    return JobStage(stage), job, int(number)


def _key(name: str) -> str:
    return f"ingot:line:{name}"
