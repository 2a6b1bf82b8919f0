"""Until when a caller waits."""

from __future__ import annotations

import time
from collections.abc import Mapping

from runtime_service.batching.messages import Parameter
from shared_ir.errors import ErrorCode, IngotError

_YEAR_SECONDS = 365 * 86400.0
"""gRPC tells of a call without a deadline that centuries remain; from a year on there is none."""


def deadline(parameters: Mapping[str, Parameter], remaining: float | None = None) -> float | None:
    """The earlier of the call's deadline and the ``timeout`` parameter (microseconds), on ``time.monotonic``.

    Args:
        parameters: of the request.
        remaining: seconds until the deadline of the call, ``None`` when the protocol has none.

    Raises:
        IngotError: INVALID_ARGUMENT, ``timeout`` is not a number >= 0.
    """
    timeout = parameters.get("timeout", 0)
    if isinstance(timeout, (bool, str)) or not 0 <= timeout < 1e18:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the parameter 'timeout' is malformed",
            field="timeout",
            expected="microseconds, a number >= 0",
            received=repr(timeout)[:100],
        )
    seconds = min(_YEAR_SECONDS if remaining is None else remaining, timeout / 1e6 if timeout else _YEAR_SECONDS)
    return time.monotonic() + seconds if seconds < _YEAR_SECONDS else None
