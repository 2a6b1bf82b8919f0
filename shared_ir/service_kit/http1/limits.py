"""Bounds on what clients of an HTTP server may hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds on what clients may hold. Times in seconds.

    Attributes:
        max_connections: counted from their acceptance on; for another one the idlest is closed.
        idle_timeout: between two requests.
        head_timeout: from the first byte of a request to the end of its head, and for a TLS handshake.
        request_timeout: from the first byte of a request to its last, and for the client to take the answer.
    """

    max_connections: int = 512
    idle_timeout: float = 75.0
    head_timeout: float = 10.0
    request_timeout: float = 60.0
