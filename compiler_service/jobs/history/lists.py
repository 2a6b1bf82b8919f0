"""Which jobs there are, by what can be asked for, without looking at others.

Each job has a number, higher than that of the job before. Numbers lie in chunks of 512, and so does what is known of their jobs. Below
``ingot:list:`` are::

    number             string  the number that was given last
    from, to           zset    chunk -> when its first job was created, and its last one
    ids:<chunk>        hash    place in the chunk -> id
    <trait>            set     chunks that hold a job with a trait, such as ``model=resnet``
    <chunk>:<trait>    set     their places

Redis keeps sets of small numbers in two bytes for each, and finds what several have in common by itself. All of a chunk is forgotten when
nothing of it was written for somewhat longer than finished jobs are remembered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from redis import Redis

from compiler_service.jobs.records import JobRecord, JobState
from shared_ir.digest import sha256_hex

_PREFIX = "ingot:list:"
_CHUNK_NUMBERS = 512
"""As many as Redis keeps tightly packed, by its own settings."""
_MARGIN_SECONDS = 2 * 3600
"""A chunk outlives its jobs by so much: longer than it takes until unfinished ones are put into their lists again."""
_LONGEST_TRAIT = 40
T = TypeVar("T")
_MOST_CHUNKS = 1000
"""That one call looks into, for the sake of filters that few jobs pass together."""

# KEYS: number given last, hash of the job or none. ARGV: prefix, number or empty for a new one, id, created, seconds, traits.
_ADD = f"""
local number = tonumber(ARGV[2])
if KEYS[2] then
  if redis.call('EXISTS', KEYS[2]) == 0 then return end
  number = number or tonumber(redis.call('HGET', KEYS[2], 'number'))
end
if not number then
  number = redis.call('INCR', KEYS[1])
  if number == 1 then
    number = math.floor(tonumber(ARGV[4])) * 1000
    redis.call('SET', KEYS[1], string.format('%.0f', number))
  end
end
local chunk, place = string.format('%.0f', math.floor(number / {_CHUNK_NUMBERS})), string.format('%.0f', number % {_CHUNK_NUMBERS})
local first, last = redis.call('ZSCORE', ARGV[1] .. 'from', chunk), redis.call('ZSCORE', ARGV[1] .. 'to', chunk)
if not first or tonumber(ARGV[4]) < tonumber(first) then redis.call('ZADD', ARGV[1] .. 'from', ARGV[4], chunk) end
if not last or tonumber(ARGV[4]) > tonumber(last) then redis.call('ZADD', ARGV[1] .. 'to', ARGV[4], chunk) end
redis.call('HSET', ARGV[1] .. 'ids:' .. chunk, place, ARGV[3])
redis.call('EXPIRE', ARGV[1] .. 'ids:' .. chunk, ARGV[5])
for i = 6, #ARGV do
  local chunks, places = ARGV[1] .. ARGV[i], ARGV[1] .. chunk .. ':' .. ARGV[i]
  redis.call('SADD', chunks, chunk)
  redis.call('SADD', places, place)
  redis.call('EXPIRE', chunks, ARGV[5])
  redis.call('EXPIRE', places, ARGV[5])
end
if KEYS[2] then redis.call('HSET', KEYS[2], 'number', string.format('%.0f', number)) end
"""

MOVE = f"""
local now, number = redis.call('HGET', KEYS[1], 'state'), tonumber(redis.call('HGET', KEYS[1], 'number'))
if number and now ~= state then
  local chunk, place = string.format('%.0f', math.floor(number / {_CHUNK_NUMBERS})), string.format('%.0f', number % {_CHUNK_NUMBERS})
  local chunks, places = '{_PREFIX}state=' .. now, '{_PREFIX}' .. chunk .. ':state=' .. now
  redis.call('SREM', '{_PREFIX}' .. chunk .. ':state=' .. state, place)
  redis.call('SADD', chunks, chunk)
  redis.call('SADD', places, place)
  redis.call('EXPIRE', chunks, seconds)
  redis.call('EXPIRE', places, seconds)
end
"""
"""Lua for whoever has changed the state of a job in its hash KEYS[1]: ``state`` was the one before, ``seconds`` as of :class:`JobLists`."""


@dataclass(frozen=True)
class JobFilter:
    """Jobs for which all of this holds; what is empty, None or 0 holds for any.

    Attributes:
        target: a target of theirs was asked for by this text, or has this triple or cpu.
        since, until: when they were ordered, in seconds since the epoch.
        prefix: with which the name of the model begins: a namespace and what ends it.
    """

    state: JobState | None = None
    model: str = ""
    target: str = ""
    label: str = ""
    user: str = ""
    since: float = 0.0
    until: float = 0.0
    prefix: str = ""

    @property
    def traits(self) -> tuple[str, ...]:
        own = {
            "state": self.state,
            "model": self.model,
            "target": self.target,
            "label": self.label,
            "user": self.user,
            "in": self.prefix,
        }
        return tuple(_trait(name, value) for name, value in own.items() if value)

    def takes(self, record: JobRecord) -> bool:
        """Whether ``record`` is one of them: lists may be behind."""
        in_time = record.created >= self.since and (not self.until or record.created <= self.until)
        return in_time and set(self.traits) <= set(traits(record))


def traits(record: JobRecord) -> tuple[str, ...]:
    """What ``record`` can be found by."""
    prefix, dot, _ = record.name.partition(".")
    named = [
        ("state", record.state),
        ("model", record.name),
        ("user", record.user),
        ("in", prefix + dot if dot else ""),
    ]
    named += [("label", label) for label in record.labels]
    for target in record.targets:
        named += [
            ("target", text) for text in (target.target, target.spec.get("triple"), target.spec.get("cpu")) if text
        ]
    return tuple(dict.fromkeys(_trait(name, value) for name, value in named if value))


def _trait(name: str, value: str) -> str:
    return f"{name}={value if len(value) <= _LONGEST_TRAIT else sha256_hex(value.encode())[:_LONGEST_TRAIT]}"


class JobLists:
    """The lists of one installation. Finished jobs are remembered for ``keep_seconds``."""

    def __init__(self, redis: Redis, keep_seconds: int) -> None:
        self._redis: Any = redis
        self.seconds = keep_seconds + _MARGIN_SECONDS

    def add(self, pipe: Any, record: JobRecord, key: str = "") -> None:
        """Have ``pipe`` put a job into its lists, at the place of its number or at a new one that is noted in its hash ``key``."""
        keys = [f"{_PREFIX}number", *([key] if key else [])]
        number = record.number or ""
        arguments = [_PREFIX, number, record.id, record.created, self.seconds, *traits(record)]
        pipe.eval(_ADD, len(keys), *keys, *arguments)

    def mend(self, record: JobRecord, key: str) -> None:
        """Take a job that has a hash into the lists that it belongs in, and out of those of other states."""
        pipe = self._redis.pipeline()
        for state in JobState if record.number else ():
            if state is not record.state:
                pipe.srem(_of(_trait("state", state), record.number // _CHUNK_NUMBERS), record.number % _CHUNK_NUMBERS)
        self.add(pipe, record, key)
        pipe.execute()

    def newest(self, chosen: JobFilter, before: int, size: int) -> Iterator[Sequence[tuple[int, str]]]:
        """Numbers below ``before`` (0: all) and ids of jobs that pass, but for their time, the newest first, ``size`` at a time.

        A last one without an id stands where there may be more than one call looks for.
        """
        chunks = self._chunks(chosen, before)
        looked = chunks[:_MOST_CHUNKS]
        for some in (looked[:1], *_pieces(looked[1:], 16)):
            found = [(n, id) for n, id in self._places(some, chosen.traits) if not before or n < before]
            yield from _pieces(found, size)
        if len(chunks) > len(looked):
            yield [(looked[-1] * _CHUNK_NUMBERS, "")]

    def forget(self, numbers: Sequence[int]) -> None:
        """Jobs of these numbers are gone."""
        pipe = self._redis.pipeline(transaction=False)
        for number in numbers:
            pipe.hdel(f"{_PREFIX}ids:{number // _CHUNK_NUMBERS}", number % _CHUNK_NUMBERS)
        pipe.execute()

    def prune(self, before: float) -> None:
        """Forget the chunks whose jobs were all created before ``before``, and are gone."""
        chunks = self._redis.zrangebyscore(f"{_PREFIX}to", "-inf", before)
        pipe = self._redis.pipeline(transaction=False)
        for chunk in chunks:
            pipe.exists(f"{_PREFIX}ids:{chunk}")
        gone = [chunk for chunk, there in zip(chunks, pipe.execute(), strict=True) if not there]
        if gone:
            self._redis.zrem(f"{_PREFIX}from", *gone)
            self._redis.zrem(f"{_PREFIX}to", *gone)

    # ---- parts

    def _chunks(self, chosen: JobFilter, before: int) -> list[int]:
        """Those that may hold one, the newest first."""
        pipe, names = self._redis.pipeline(transaction=False), chosen.traits
        pipe.zrangebyscore(f"{_PREFIX}from", "-inf", chosen.until or "+inf")
        pipe.zrangebyscore(f"{_PREFIX}to", chosen.since, "+inf")
        if names:
            pipe.sinter([_PREFIX + name for name in names])
        found = set.intersection(*(set(answer) for answer in pipe.execute()))
        return sorted((n for n in map(int, found) if not before or n * _CHUNK_NUMBERS < before), reverse=True)

    def _places(self, chunks: Sequence[int], names: Sequence[str]) -> list[tuple[int, str]]:
        """Numbers and ids of the jobs in ``chunks`` that have all traits of ``names``."""
        pipe = self._redis.pipeline(transaction=False)
        for chunk in chunks:
            if names:
                pipe.sinter([_of(name, chunk) for name in names])
            else:
                pipe.hkeys(f"{_PREFIX}ids:{chunk}")
        places = [sorted(map(int, answer), reverse=True) for answer in pipe.execute()]
        held = [(chunk, own) for chunk, own in zip(chunks, places, strict=True) if own]
        for chunk, own in held:
            pipe.hmget(f"{_PREFIX}ids:{chunk}", own)
        return [
            (chunk * _CHUNK_NUMBERS + place, id)
            for (chunk, own), ids in zip(held, pipe.execute(), strict=True)
            for place, id in zip(own, ids, strict=True)
            if id
        ]


def _pieces(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _of(trait: str, chunk: int) -> str:
    return f"{_PREFIX}{chunk}:{trait}"
