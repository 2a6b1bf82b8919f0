"""Where a connection stands: what others ask of it (``ConnectionPhase``), and what it does next itself (``ConnectionState``)."""

from __future__ import annotations

import enum


class ConnectionPhase(enum.IntEnum):
    """What a connection does; the lower, the sooner it is closed for another."""

    IDLE = 0  # between requests, in its handshake, or refused already
    CLIENT = 1  # the client sends its request, or takes its answer
    OURS = 2  # the request is computed


class ConnectionState(enum.Enum):
    READING = enum.auto()  # the next request, as it comes
    DUE = enum.auto()  # it reads on when it has its turn, or room
    OURS = enum.auto()
    WRITING = enum.auto()
    LEAVING = enum.auto()  # what was written last is on its way, and nothing is answered any more
    OVER = enum.auto()
