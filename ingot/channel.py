"""gRPC channels, and calls whose failures are :class:`IngotError`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any, TypeVar

import grpc

from ingot.server_address import server_address
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import is_within
from shared_ir.service_kit.status import attached_error, nearest_code
from shared_ir.service_kit.tls import ClientTls

MOST_MESSAGE_BYTES = 256 * 1024 * 1024
"""Largest gRPC message in bytes, as the runtime service sends them by default."""

_RECONNECTING = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    (
        "grpc.use_local_subchannel_pool",
        1,
    ),  # else one more client of a process shares the pause of those who found nobody
    ("grpc.keepalive_time_ms", 330_000),  # servers let go who asks more than once in five minutes
    ("grpc.keepalive_timeout_ms", 20_000),
)
"""A service that is back is found within seconds; a machine that has gone without a word is missed at last."""

_NOBODY = re.compile(
    r"refused|resol[uv]|lookup|getaddrinfo|name or service|no address|timed out|timeout|unreachable|no route|no such file"
    r"|not known",
    re.IGNORECASE,
)
"""What is said where no connection came about."""
START_SERVICE = "Start it with `ingot up`, or set INGOT_COMPILER_ADDRESS or INGOT_RUNTIME_ADDRESS to where it runs."
_PERHAPS_TLS = (
    "If it runs there, perhaps one side alone speaks TLS (INGOT_CA_CERTIFICATE turns it on here: set it "
    "for a service with TLS, unset it for one without), or a certificate is not accepted: INGOT_CA_CERTIFICATE must hold the authority "
    "of the service's, INGOT_CLIENT_CERTIFICATE and INGOT_CLIENT_KEY one that has not expired, of an authority that the service trusts."
)
_MOST_SECONDS = 100 * 365 * 24 * 3600.0
"""A hundred years: clocks take more for an error."""
_T = TypeVar("_T")


def check_timeout(seconds: float) -> float:
    """Raises IngotError INVALID_ARGUMENT for what no clock counts to: with NaN a call would never end, or never begin."""
    if not isinstance(seconds, Real) or not is_within(seconds, 0, _MOST_SECONDS):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "not a time to wait for",
            field="timeout",
            expected=f"0 to {_MOST_SECONDS:.0f} seconds",
            received=str(seconds),
        )
    return seconds


def open_channel(address: str, tls: ClientTls | None = None) -> grpc.Channel:
    """Plain, or over TLS. Connects at the first call.

    Raises:
        IngotError: INVALID_ARGUMENT, the address is none, or a file cannot be read or does not hold what it should.
    """
    server_address(address)
    options = [
        ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MOST_MESSAGE_BYTES),
        *_RECONNECTING,
    ]
    if tls is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, tls.grpc_credentials(), options)


def authorization(token: str) -> tuple[tuple[str, str], ...]:
    """Metadata of every call. Raises IngotError INVALID_ARGUMENT for a token that cannot be sent."""
    if not (isinstance(token, str) and token.isascii() and token.isprintable()):
        message, expected = "the token cannot be sent", "a line of printable ASCII characters"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="token", expected=expected)
    return (("authorization", f"Bearer {token}"),) if token else ()


def call(address: str, function: Callable[[], _T]) -> _T:
    """``function()``; what gRPC raises becomes an IngotError."""
    try:
        return function()
    except grpc.RpcError as error:
        raise decode_error(address, error) from error
    except ValueError as error:  # what gRPC says of a channel that is closed
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "the client is closed", remedy="Make another one.") from error


def stream(address: str, function: Callable[[], Iterator[_T]]) -> Iterator[_T]:
    """As :func:`call`, for a stream of responses; it is cancelled when the caller stops reading."""
    responses = call(address, function)
    try:
        yield from responses
    except grpc.RpcError as error:
        raise decode_error(address, error) from error
    finally:
        responses.cancel()  # type: ignore[attr-defined]


def decode_error(address: str, error: Any, start: str = START_SERVICE) -> IngotError:
    """The error that the service attached, or the nearest one for the status; ``start``: what to do where it does not run."""
    attached = attached_error(error.trailing_metadata())
    if attached is not None:
        return attached
    status, details = error.code(), str(error.details() or "")
    if status is grpc.StatusCode.UNAVAILABLE:
        return unreachable(address, details, start)
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return late(address, details)
    remedy = (
        "Set INGOT_TOKEN or INGOT_TOKEN_FILE to the service's token."
        if status is grpc.StatusCode.UNAUTHENTICATED
        else ""
    )
    return IngotError(nearest_code(status), details[:1000] or str(status), remedy=remedy)


def unreachable(address: str, reason: str, start: str) -> IngotError:
    """The error of a service that cannot be asked.

    Args:
        reason: what the library says of it. Nobody listens, or somebody does with whom no connection can be made: that TLS is
            the matter is told by neither side in so many words, but only where somebody listens can it be.
        start: what to do where it does not run.
    """
    remedy = start if _NOBODY.search(reason) else f"{start} {_PERHAPS_TLS}"
    return IngotError(
        ErrorCode.UNAVAILABLE, f"the service at {address} cannot be reached ({reason[:200]})", remedy=remedy
    )


def late(address: str, reason: str) -> IngotError:
    """The error of a call that the client gave no more time."""
    return IngotError(
        ErrorCode.DEADLINE_EXCEEDED,
        f"the service at {address} did not answer in time ({reason[:200]})",
        remedy="Try again, or give the call more time; the log of the service says what it waits for.",
    )
