"""The Redis transport of kombu, which also tells when it last asked for a message, and goes on where Redis was away."""

from __future__ import annotations

import logging
import time
from typing import Any

from celery.worker.consumer import Consumer
from kombu import transport
from kombu.connection import Connection
from kombu.transport import redis, virtual
from redis.exceptions import RedisError, ResponseError

_LOG = logging.getLogger(__name__)
_NAME = f"{__name__}:RedisTransport"
MOST_PAUSE_SECONDS = 5
"""Between two tries to reach a Redis that is away: well below the time after which a worker counts as one that takes no work."""

_REFUSED_PAUSE_SECONDS = 1.0


class Polls:
    """When this process last asked the broker for a message, by :func:`time.monotonic`."""

    last = 0.0


class QoS(redis.QoS):
    """Counts the messages that are being worked on."""

    def ack(self, delivery_tag: str) -> None:
        """A message whose end Redis could not be told has ended all the same. It would take its place among those that are worked on for
        good, and who has one place would never ask again: not even find that the connection is broken."""
        try:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]
        except (RedisError, OSError):
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]
            raise


class Channel(redis.Channel):
    """Asks once a second while it may take a message: so long does one ``BRPOP`` wait."""

    QoS = QoS

    def _brpop_start(self, timeout: float | None = None) -> Any:
        Polls.last = time.monotonic()
        return super()._brpop_start(timeout)  # type: ignore[no-untyped-call]

    def _brpop_read(self, **options: Any) -> Any:
        """NOTE: a message that kombu cannot make sense of would end the worker. It has been taken off the list, and is gone."""
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            _LOG.warning("what is no message is dropped: %s: %.200s", type(error).__name__, error)
            return True


class RedisTransport(redis.Transport):
    Channel = Channel


class PatientConnection(Connection):
    """Pauses between tries to connect that do not grow without end: kombu's come to half a minute."""

    def _ensure_connection(self, *arguments: Any, **named: Any) -> Any:
        return super()._ensure_connection(  # type: ignore[no-untyped-call]
            *arguments, **{"interval_max": MOST_PAUSE_SECONDS} | named
        )


class PatientConsumer(Consumer):  # type: ignore[misc]
    """Waits where Redis is there and refuses: its memory or its disk is full, or it has become a replica. Celery ends the worker then,
    unless it is told to try again (``broker_channel_error_retry``), which it does at once and without a pause."""

    def on_connection_error_before_connected(self, exc: Exception) -> None:
        super().on_connection_error_before_connected(exc)
        _pause_where_refused(exc)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        super().on_connection_error_after_connected(exc)
        _pause_where_refused(exc)


def _pause_where_refused(error: Exception) -> None:
    if isinstance(error, ResponseError):
        time.sleep(_REFUSED_PAUSE_SECONDS)


def install() -> None:
    """Take the place of kombu's own transport, by its table of names, in this process."""
    for name in ("redis", "rediss"):
        transport.TRANSPORT_ALIASES[name] = _NAME
