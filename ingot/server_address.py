"""Where a server can be."""

from __future__ import annotations

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import whole_number
from shared_ir.service_kit.settings import MOST_PORT

DEVICE_PORT = 50070
"""Where the measuring server of a device listens unless it is told otherwise."""


def server_address(address: str, name: str = "address") -> str:
    """``address``, where a server can be at it.

    Args:
        name: of the argument or variable that holds it.

    Raises:
        IngotError: INVALID_ARGUMENT, not ``host:port``. Resolvers take port 87036 for 21500, and would ask whoever listens there.
    """
    host, _, text = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    port = whole_number(text)
    if not host or not address.isprintable() or set(host) & set("/@ ") or port is None or not 0 < port <= MOST_PORT:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "not the address of a server",
            field=name,
            expected=f"host:port, with a port from 1 to {MOST_PORT}",
            received=str(address)[:100],
        )
    return address


def device_address(text: str) -> str:
    """``host``, ``host:port``, ``::1`` or ``[::1]:port``, with the port. Raises IngotError INVALID_ARGUMENT."""
    if text.count(":") > 1 and not text.startswith("["):
        text = f"[{text}]"
    is_whole = ":" in text.rpartition("]")[2]
    return server_address(text if is_whole else f"{text}:{DEVICE_PORT}", "device")
