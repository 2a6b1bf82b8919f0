"""Memory of an answer, and whether somebody waits for it still."""

from __future__ import annotations

import time

from runtime_service.batching.messages import InferRequest, Take
from runtime_service.batching.work import why_unwanted

_LOOK_SECONDS = 0.01
"""To ask whether a client has gone takes a call of the system."""


def taking(request: InferRequest) -> Take:
    """What ``request``'s answer asks before it makes something."""

    look_again = 0.0

    def take(size: int) -> None:
        nonlocal look_again
        if (now := time.monotonic()) >= look_again:
            look_again = now + _LOOK_SECONDS
            if (unwanted := why_unwanted(request.deadline, request.cancellation, now)) is not None:
                raise unwanted
        request.grow(size)

    return take
