"""Sockets that listen at an address: ``host:port``, ``[::]:port`` for IPv4 as well, ``unix:path``."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NamedTuple, TypeAlias

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.connection_counts import ConnectionCounts
from shared_ir.service_kit.settings import MOST_PORT
from shared_ir.service_kit.unix_sockets import UNIX, for_this_user, vacated

_QUEUED_CONNECTIONS = 512
Sockets: TypeAlias = tuple[socket.socket, ...]


class SharedSockets(NamedTuple):
    """Those that other processes accept from as well, and how many connections each of them has."""

    sockets: Sockets
    counts: ConnectionCounts


class CannotListen(IngotError):
    """An address cannot be used."""


def listening(address: str | SharedSockets, protocol: str) -> Sockets:
    """Sockets at every address that ``address`` means, with one port; ``protocol`` is what they are for. Those that listen already,
    as another process has made them, are taken as they are.

    Raises:
        CannotListen: INVALID_ARGUMENT.
    """
    if not isinstance(address, str):
        return address.sockets
    try:
        if address.startswith(UNIX):
            return (_at_path(vacated(address)),)
        host, _, port = address.rpartition(":")
        return _at_host(host.strip("[]"), int(port))
    except (OSError, ValueError, OverflowError) as error:
        raise CannotListen(
            ErrorCode.INVALID_ARGUMENT,
            f"cannot listen for {protocol}",
            field=address,
            received=str(error),
            remedy="Choose another address: it may be in use by another process.",
        ) from error


def port_of(sockets: Sockets) -> int:
    """Of the first one; 0 in a folder."""
    name = sockets[0].getsockname()
    return int(name[1]) if isinstance(name, tuple) else 0


def address_of(address: str, port: int) -> str:
    """``address`` with the ``port`` in use."""
    return address if address.startswith(UNIX) else f"{address.rpartition(':')[0]}:{port}"


def _at_host(host: str, port: int) -> Sockets:
    if not 0 <= port <= MOST_PORT:  # the resolver would take the rest of it
        raise ValueError(f"{port} is no port")
    found: list[socket.socket] = []
    try:
        for family, _, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
            both = family == socket.AF_INET6 and host == "::" and socket.has_dualstack_ipv6()
            at = (place[0], found[0].getsockname()[1] if found else place[1], *place[2:])
            try:
                found.append(socket.create_server(at, family=family, backlog=_QUEUED_CONNECTIONS, dualstack_ipv6=both))
            except OSError:
                if family != socket.AF_INET6 or host == "::":
                    raise  # a name may mean an IPv6 address that this machine does not have
    except OSError:
        for each in found:
            each.close()
        raise
    if not found:
        raise OSError(f"{host} is no address of this machine")
    return tuple(found)


def _at_path(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    try:
        with for_this_user():
            found.bind(str(path))
        found.listen(_QUEUED_CONNECTIONS)
    except OSError:
        found.close()
        raise
    return found
