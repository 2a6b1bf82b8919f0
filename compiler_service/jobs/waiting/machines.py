"""On which machines the workers are that verify, as they say while they live. Keys, all below ``ingot:``::

machines             set     kinds of machines that there were
machine:<kind>       string  what machines of this kind run, JSON; expires unless one of their workers renews it
machines:gathering   string  here while it is not known yet who is: Redis has just begun, or lost its data
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from redis import Redis

from shared_ir.foreign_json import foreign_json
from shared_ir.machine.machine import Machine

_KINDS, _GATHERING = "ingot:machines", "ingot:machines:gathering"
logger = logging.getLogger(__name__)


class Machines:
    """Those of one installation."""

    def __init__(self, redis: Redis) -> None:
        self._redis: Any = redis

    def say(self, machine: Machine, seconds: float) -> None:
        """A worker on ``machine`` verifies. Holds for ``seconds``; workers say it four times as often."""
        milliseconds = max(1, int(seconds * 1000))
        pipe = self._redis.pipeline()
        if not self._redis.exists(_KINDS):
            pipe.set(_GATHERING, "1", px=max(1, milliseconds // 2))
        pipe.set(_machine(machine.kind), json.dumps(machine.to_dict()), px=milliseconds)
        pipe.sadd(_KINDS, machine.kind)
        pipe.execute()

    def living(self) -> Mapping[str, Machine]:
        """By kind, those of which a worker said not long ago that it lives."""
        kinds = sorted(self._redis.smembers(_KINDS))
        texts = self._redis.mget([_machine(kind) for kind in kinds]) if kinds else ()
        return {kind: machine for kind, text in zip(kinds, texts, strict=True) if text and (machine := _read(text))}

    def all_have_spoken(self) -> bool:
        """Whether there was time for every worker to say that it lives."""
        return bool(self._redis.exists(_KINDS)) and not self._redis.exists(_GATHERING)


def _machine(kind: str) -> str:
    return f"ingot:machine:{kind}"


def _read(text: str) -> Machine | None:
    """None for what another version says in another way."""
    try:
        return Machine.from_dict(foreign_json(text))
    except (ValueError, LookupError, TypeError):
        logger.warning("a worker says of its machine what is not understood: %s", text[:200])
        return None
