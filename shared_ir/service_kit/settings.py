"""Settings of a service: a dataclass read from environment variables, and what is refused of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from shared_ir.errors import ErrorCode, IngotError

Variable = Callable[[str], str]
"""From the name of a field to that of its environment variable."""


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
        if getattr(settings, name) < least:
            raise out_of_range(variable(name), f"a number >= {least}", str(getattr(settings, name)))


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


def out_of_range(name: str, expected: str, received: str) -> IngotError:
    message = "a setting is out of range"
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, field=name, expected=expected, received=received)


def _parse(name: str, text: str, default: type) -> Any:
    kind = Path if issubclass(default, Path) else default
    parse, expected = _KINDS[kind]
    try:
        return parse(text)
    except ValueError as error:
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


_KINDS: Mapping[type, tuple[Callable[[str], Any], str]] = {
    int: (int, "an integer"),
    float: (_finite, "a number"),
    str: (str, "a text"),
    Path: (Path, "a path"),
}
