"""Whether Redis and the object store can be reached, asked all the time by threads of their own, and said as health.

Health checks themselves ask nobody: they answer at once, whatever is away, and whatever other calls wait for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Gauge
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from compiler_service.api.permissions import SERVICE
from shared_ir.errors import IngotError
from shared_ir.service_kit.health import Health
from shared_ir.storage.protocol import ObjectStore

_LOG = logging.getLogger(__name__)
LIVENESS = "liveness"
"""Name for the health service that is SERVING as long as the process answers; ``redis`` and ``store`` are those alone, the empty name
and that of the service mean that both are there. No other name is known."""
_EVERY_SECONDS = 1.0
_REDIS_SECONDS = 2.0
_PATIENCE = {"redis": 5.0, "store": 15.0}
"""Seconds without an answer after which something is away: a question may be under way for longer than it should."""
_REFUSALS = 2
"""In a row, after which something is away, however young its last answer is. One alone may be a connection that was just closed."""
_FIRST_SECONDS = 1.0
_PROBED_KEY = "health/probe"
"""Of the store; nothing need be there."""
_WRITTEN_KEY, _WRITTEN_SECONDS = "ingot:probe", 60
"""In Redis: one that answers and refuses to write, full or a replica, serves no job."""


@dataclass
class Probed:
    """What is asked. ``answered`` is when it did last, in seconds of the monotonic clock; so many ``refusals`` came since."""

    ask: Callable[[], object]
    answered: float | None = None
    refusals: int = 0
    fault: str = "it has not answered yet"
    first: threading.Event = field(default_factory=threading.Event)

    def question(self) -> None:
        """Ask once."""
        try:
            self.ask()
            self.answered, self.refusals = time.monotonic(), 0
        except (RedisError, IngotError, OSError) as error:
            self.refusals, self.fault = self.refusals + 1, str(error)[:300]
        self.first.set()

    def is_there(self, patience: float) -> bool:
        """Whether it answered in the last ``patience`` seconds, and has not refused since."""
        return self.answered is not None and self.refusals < _REFUSALS and time.monotonic() - self.answered < patience


class Probes:
    """Asks Redis and the store, and tells ``health`` what that says."""

    def __init__(
        self,
        redis_url: str,
        store: ObjectStore,
        health: Health,
        registry: CollectorRegistry,
        patience: Mapping[str, float] = _PATIENCE,
    ) -> None:
        redis = Redis.from_url(
            redis_url, socket_timeout=_REDIS_SECONDS, socket_connect_timeout=_REDIS_SECONDS, retry=Retry(NoBackoff(), 0)
        )
        self._health = health
        self._patience = patience
        self._probed = {
            "redis": Probed(lambda: redis.set(_WRITTEN_KEY, "", ex=_WRITTEN_SECONDS)),
            "store": Probed(lambda: store.size(_PROBED_KEY)),
        }
        self._up = Gauge(
            "ingot_compiler_up", "1 when what the service needs can be reached.", ("what",), registry=registry
        )
        self._said: dict[str, bool] = {}

    def start(self, stopping: threading.Event) -> None:
        """Return when both have answered once, or after a second."""
        self._health.set(LIVENESS, True)
        for name, probed in self._probed.items():
            threading.Thread(target=self._ask, args=(probed, stopping), name=f"probe-{name}", daemon=True).start()
        deadline = time.monotonic() + _FIRST_SECONDS
        for probed in self._probed.values():
            probed.first.wait(max(0.0, deadline - time.monotonic()))
        self._say()
        threading.Thread(target=self._judge, args=(stopping,), name="probes", daemon=True).start()

    def _ask(self, probed: Probed, stopping: threading.Event) -> None:
        while not stopping.is_set():
            probed.question()
            stopping.wait(_EVERY_SECONDS)

    def _judge(self, stopping: threading.Event) -> None:
        while not stopping.wait(_EVERY_SECONDS):
            self._say()

    def _say(self) -> None:
        for name, probed in self._probed.items():
            is_there = probed.is_there(self._patience[name])
            if self._said.get(name) is not is_there:
                _LOG.log(
                    logging.INFO if is_there else logging.ERROR,
                    "%s %s",
                    name,
                    "is there" if is_there else f"is away: {probed.fault}",
                )
            self._said[name] = is_there
            self._up.labels(name).set(float(is_there))
            self._health.set(name, is_there)
        for name in ("", SERVICE):
            self._health.set(name, all(self._said.values()))
