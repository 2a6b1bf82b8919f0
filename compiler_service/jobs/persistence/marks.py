"""Which store is this installation's, as its home and its Redis remember it: a service whose home is new on each start knows it too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from shared_ir.artifact.memory import Memory

_KEY = "ingot:store"


@dataclass(frozen=True)
class SharedMarks:
    """Of ``memory``, and what it does not know of ``redis``; without Redis, of ``memory`` alone."""

    memory: Memory
    redis: Any

    def mark(self, url: str) -> str:
        """As :class:`shared_ir.storage.mark.Marks`. Raises IngotError ARTIFACT_UNTRUSTED, the memory cannot be read."""
        known = self.memory.mark(url)
        if known:
            return known
        try:
            return str(self.redis.get(_KEY) or "")
        except (RedisError, ValueError):
            return ""

    def remember_mark(self, url: str, mark: str) -> None:
        self.memory.remember_mark(url, mark)
        try:
            self.redis.set(_KEY, mark, nx=True)
        except RedisError:
            return

    def knows(self, url: str) -> bool:
        return self.memory.knows(url)
