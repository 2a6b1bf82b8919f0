"""Who may be addressed, and from where, on a server that asks for no token.

A page on the web can make the browser of its reader send requests to a server of that reader's own machine or network: to its address
(then the browser says whose page it is, ``Origin``), or to a name of the page's that suddenly stands for that address ("DNS rebinding";
then ``Host`` is the page's). Programs that are not browsers are not kept out by this, nor meant to be.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http.message import HttpRequest, HttpResponse

_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_NAME = re.compile(r"\.?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?")
_ORIGIN = re.compile(r"https?://([^/?#@\s]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Hosts:
    """Names by which clients without a token may address a server, beside IP addresses and ``localhost``.

    Attributes:
        names: in lower case; one that starts with a dot stands for all that end so.
        variable: the setting that holds them.
    """

    names: frozenset[str] = frozenset()
    variable: str = ""

    @classmethod
    def parse(cls, text: str, variable: str) -> Self:
        """From names that are separated by commas; ``*`` is every name.

        Raises:
            IngotError: INVALID_ARGUMENT, a name that no request could have: with a scheme, a port, a pattern.
        """
        names = frozenset(name.strip().lower() for name in text.split(",") if name.strip())
        for name in sorted(names - {"*"}):
            if not _NAME.fullmatch(name):
                expected = "names such as models.example.com, .example.com for all below it, or *"
                message = "not the name of a server"
                raise IngotError(
                    ErrorCode.INVALID_ARGUMENT, message, field=variable, expected=expected, received=name[:100]
                )
        return cls(names, variable)

    def refusal(self, request: HttpRequest) -> HttpResponse | None:
        """Why ``request`` is not answered; ``None`` where it may be."""
        if "*" in self.names:
            return None
        host = request.headers.get("host")
        if host is not None and not _is_known(self.names, host):
            return self._refused(HTTPStatus.MISDIRECTED_REQUEST, "the server has no such name", "Host", host)
        origin = request.headers.get("origin")
        if origin is not None and not self._is_at_home(origin, host or ""):
            message = "pages of other sites may not send requests here"
            return self._refused(HTTPStatus.FORBIDDEN, message, "Origin", origin)
        return None

    def _is_at_home(self, origin: str, host: str) -> bool:
        match = _ORIGIN.fullmatch(origin)
        if match is None:  # "null" among them
            return False
        authority = _AUTHORITY.fullmatch(match[1])
        return match[1].lower() == host.lower() or (
            authority is not None and _is_named(self.names, authority[1].lower())
        )

    def _refused(self, status: HTTPStatus, message: str, field: str, received: str) -> HttpResponse:
        error = IngotError(
            ErrorCode.INVALID_ARGUMENT,
            message,
            field=field,
            expected="an IP address, localhost or a configured name"
            if field == "Host"
            else "no Origin, or the server's own",
            received=repr(received[:100]),
            remedy=f"Add the name to {self.variable} of the server, or let it ask for a token."
            if self.variable
            else "",
        )
        return HttpResponse.failure(error, status)


@functools.lru_cache(maxsize=256)
def _is_known(names: frozenset[str], authority: str) -> bool:
    """Whether a client that asks ``authority`` means this server."""
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return False
    name = match[1].strip("[]").rstrip(".").lower()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost") or _is_named(names, name)
    return True  # no page can have an address for its name without being served from there


def _is_named(names: frozenset[str], name: str) -> bool:
    return name in names or any(known.startswith(".") and name.endswith(known) for known in names)
