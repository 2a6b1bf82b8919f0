"""Settings of a service: a dataclass read from environment variables, and what is refused of it."""

from __future__ import annotations

import difflib
import ipaddress
import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import is_within, whole_number
from shared_ir.service_kit.unix_sockets import UNIX

Variable = Callable[[str], str]
"""From the name of a field to that of its environment variable."""


OURS = "INGOT_"
MOST_PORT = 65535
MOST_SECONDS = 100 * 365 * 24 * 3600
"""A hundred years: clocks and Redis take more for an error."""
MOST_BYTES = 1 << 62
MOST_THINGS = 1 << 20
"""Streams, jobs at once."""
MOST_THREADS = 4096
"""Threads and processes at once: more than any machine has cores."""
_MOST_SOCKET_PATH = 107
"""Bytes that the kernel keeps of the path of a socket."""
ELSEWHERE = frozenset(
    {
        *("INGOT_COMPILER_ADDRESS", "INGOT_RUNTIME_ADDRESS", "INGOT_RUNTIME_HTTP_ADDRESS", "INGOT_CA_CERTIFICATE"),
        *("INGOT_CLIENT_CERTIFICATE", "INGOT_CLIENT_KEY", "INGOT_TOKEN_FILE", "INGOT_STORE_URL_FILE"),
        *("INGOT_REDIS_URL_FILE", "INGOT_API_TOKENS", "INGOT_LOG_FORMAT", "INGOT_TRACES", "INGOT_TRITON_METRICS"),
        *("INGOT_HOME", "INGOT_TOKEN", "INGOT_TRUST", "INGOT_CACHE_DIR", "INGOT_SANDBOX", "INGOT_STORE_URL"),
        *("INGOT_STORE_USER", "INGOT_STORE_PASSWORD", "INGOT_REDIS_PASSWORD"),
    }
)
"""Variables that clients, or ``deploy/compose.yaml``, read: they may stand in the environment of any service."""
_SERVICE_LINK = re.compile(r"\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?")
_LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


def without_service_links(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without what Kubernetes and Docker put into it for services whose names begin as our variables do.

    ``INGOT_COMPILER_PORT=tcp://10.0.0.1:8500`` has the name of a setting, and tells of a service named ``ingot-compiler``.
    """
    return {
        name: text
        for name, text in environment.items()
        if not _SERVICE_LINK.fullmatch(name) and not (name.endswith("_PORT") and _LINK_ADDRESS.match(text))
    }


def refuse_unknown(environment: Mapping[str, str], prefix: str, known: Collection[str]) -> None:
    """A misspelt setting would be none at all, and a service without its token, key or limit.

    Args:
        prefix: of the variables that are nobody else's. Others that begin with ``INGOT_`` are refused where they are
            nearly one of ``known``.
        known: names of all settings.

    Raises:
        IngotError: INVALID_ARGUMENT, naming a variable that is no setting, and the setting that is nearest.
    """
    for name in sorted(without_service_links(environment)):
        if not name.startswith(OURS) or name in known or name in ELSEWHERE:
            continue
        longer = [own for own in known if own.startswith(name)]
        nearest = longer or difflib.get_close_matches(name, known, 1, 0.6 if name.startswith(prefix) else 0.85)
        if nearest or name.startswith(prefix):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "there is no such setting",
                field=name,
                remedy=f"{f'Perhaps {nearest[0]} is meant. ' if nearest else ''}Rename or unset it; "
                "docs/operating.md has all settings.",
            )


def refuse_blank(environment: Mapping[str, str], names: Collection[str]) -> None:
    """A token that is there and empty, as an unset variable of a template leaves it, would be no token at all.

    Raises:
        IngotError: INVALID_ARGUMENT, naming the variable.
    """
    for name in names:
        if not environment.get(name, "set").strip():
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "a setting that guards the service is there and empty",
                field=name,
                expected="a value, or no such variable",
                received="blanks",
                remedy="Unset it if the service shall do without.",
            )


def read_fields(settings: type[Any], environment: Mapping[str, str], variable: Variable) -> dict[str, Any]:
    """The fields that ``environment`` has, each of the type of its default.

    Raises:
        IngotError: INVALID_ARGUMENT, naming the variable that is malformed.
    """
    return {
        own.name: _parse(name, environment[name], type(own.default))
        for own in fields(settings)
        if own.default is not MISSING and (name := variable(own.name)) in environment
    }


def require_at_least(settings: Any, least: float, names: tuple[str, ...], variable: Variable) -> None:
    """Raises IngotError INVALID_ARGUMENT, naming the first variable whose value is less."""
    for name in names:
        if not is_within(getattr(settings, name), least):
            raise out_of_range(variable(name), f"a number >= {least}", str(getattr(settings, name)))


def require_at_most(settings: Any, most: float, names: tuple[str, ...], variable: Variable) -> None:
    """Raises IngotError INVALID_ARGUMENT, naming the first variable whose value is more: of what no clock or table holds."""
    for name in names:
        if not is_within(getattr(settings, name), -math.inf, most):
            raise out_of_range(variable(name), f"a number <= {most}", str(getattr(settings, name))[:100])


def require_address(name: str, address: str) -> None:
    """Raises IngotError INVALID_ARGUMENT, naming the variable ``name``: neither empty nor ``host:port``. gRPC itself takes port 70000,
    and listens on another."""
    port = whole_number(address.rpartition(":")[2])
    if address and (":" not in address or port is None or port > MOST_PORT):
        raise out_of_range(name, f"host:port, with a port from 0 to {MOST_PORT}", address[:100])


def require_address_or_path(name: str, address: str) -> None:
    """As :func:`require_address`, for what may be ``unix:/path`` too."""
    if not address.startswith(UNIX):
        require_address(name, address)
        return
    path = address.removeprefix(UNIX)
    if not path.strip("/. ") or path.endswith("/") or len(os.fsencode(path)) > _MOST_SOCKET_PATH or "\0" in path:
        expected = f"unix: and the path of a socket, of {_MOST_SOCKET_PATH} bytes at most"
        raise out_of_range(name, expected, address[:200])


def require_whole_tls(settings: Any, variable: Variable) -> None:
    """TLS settings come whole: certificate and key together, and authorities of clients only with them.

    Raises:
        IngotError: INVALID_ARGUMENT, naming a variable that is given, and what is missing beside it.
    """
    names = ("tls_certificate", "tls_key", "tls_client_ca")
    given = [variable(name) for name in names if getattr(settings, name)]
    missing = [variable(name) for name in names[:2] if not getattr(settings, name)]
    if given and missing:
        raise out_of_range(given[0], f"{' and '.join(missing)} beside it", "nothing there, which would mean no TLS")


def require_token(name: str, token: str) -> None:
    """Raises IngotError INVALID_ARGUMENT, naming the variable ``name``: no client could send it."""
    if not (token.isascii() and token.isprintable()):
        raise out_of_range(name, "a line of printable ASCII characters", "other characters")


def require_redis(name: str, url: str) -> None:
    """Raises IngotError INVALID_ARGUMENT, naming the variable ``name``: not the URL of a Redis. It is not shown: it may hold a password."""
    expected = "redis://host:6379/0, rediss://host:6379/0 or unix:///path"
    try:
        parts = urlsplit(url)
        known = parts.path if parts.scheme == "unix" else parts.hostname
        database = parts.path.strip("/") if parts.scheme != "unix" else ""
        is_one = parts.scheme in ("redis", "rediss", "unix") and bool(known) and parts.port != -1
    except ValueError:  # of the port
        is_one, database = False, ""
    if not is_one or (database and whole_number(database) is None):
        raise out_of_range(name, expected, "another text")


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` can be reached from this machine alone. Names but ``localhost`` may be of any."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def out_of_range(name: str, expected: str, received: str) -> IngotError:
    message = "a setting is out of range"
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, field=name, expected=expected, received=received)


def _parse(name: str, text: str, default: type) -> Any:
    kind = Path if issubclass(default, Path) else default
    parse, expected = _KINDS[kind]
    try:
        return parse(text)
    except (ValueError, KeyError) as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a setting has the wrong kind of value",
            field=name,
            expected=expected,
            received=text[:100],
        ) from error


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def _path(text: str) -> Path:
    if not text.strip():  # what an unset variable of a template leaves would be the folder that the service starts in
        raise ValueError(text)
    return Path(text)


def _truth(text: str) -> bool:
    return {"1": True, "true": True, "0": False, "false": False}[text.strip().lower()]


_KINDS: Mapping[type, tuple[Callable[[str], Any], str]] = {
    bool: (_truth, "1 or 0"),
    int: (int, "an integer"),
    float: (_finite, "a number"),
    str: (str, "a text"),
    Path: (_path, "a path"),
}
