"""The Redis transport of kombu, which also tells when it last asked for a message."""

from __future__ import annotations

import time
from typing import Any

from kombu import transport
from kombu.transport import redis

_NAME = f"{__name__}:Transport"


class Polls:
    """When this process last asked the broker for a message, by :func:`time.monotonic`."""

    last = 0.0


class Channel(redis.Channel):
    """Asks once a second while it may take a message: so long does one ``BRPOP`` wait."""

    def _brpop_start(self, timeout: float | None = None) -> Any:
        Polls.last = time.monotonic()
        return super()._brpop_start(timeout)  # type: ignore[no-untyped-call]


class Transport(redis.Transport):
    Channel = Channel


def install() -> None:
    """Take the place of kombu's own transport, by its table of names, in this process."""
    for name in ("redis", "rediss"):
        transport.TRANSPORT_ALIASES[name] = _NAME
