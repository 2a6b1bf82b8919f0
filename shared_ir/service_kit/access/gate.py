"""Who a call comes from, by the token that it carries."""

from __future__ import annotations

import hmac
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.access.principal import Principal
from shared_ir.service_kit.access.token_file import Grant, hash_of, read_token_file

_LOG = logging.getLogger(__name__)
HEADER = "authorization"
_SCHEME = "bearer "
"""Written in whatever case (RFC 9110, section 11.1)."""
_EVERYONE = Principal()
_Stamp = tuple[int, int, int]


class Gate(Protocol):
    """Tells callers apart. ``changes`` is whether one that is let in may be so no longer some time later."""

    changes: bool

    def caller(self, header: str | bytes | None) -> Principal:
        """Who sends ``header``, the ``authorization`` of a call (None where it has none).

        Raises:
            IngotError: UNAUTHENTICATED; UNAVAILABLE, who may call cannot be told at the moment.
        """


class OpenGate:
    """Everyone may do everything."""

    changes = False

    def caller(self, header: str | bytes | None) -> Principal:
        return _EVERYONE


class SingleToken:
    """One token for everything, compared in a time that does not depend on what a call carries."""

    changes = False

    def __init__(self, token: str) -> None:
        self._expected = token.encode()

    def accepts(self, header: str | bytes | None) -> bool:
        data = header.encode(errors="replace") if isinstance(header, str) else header or b""
        scheme, token = data[: len(_SCHEME)], data[len(_SCHEME) :]
        return hmac.compare_digest(token, self._expected) and scheme.lower() == _SCHEME.encode()

    def caller(self, header: str | bytes | None) -> Principal:
        if not self.accepts(header):
            raise unauthenticated()
        return _EVERYONE


class FileOfTokens:
    """The tokens of a file as it is when a call comes; and one for everything, where there is one.

    A file that has become unusable lets nobody in: a token that was taken away by a file that is damaged would else go on.

    Raises:
        IngotError: INVALID_ARGUMENT, the file is unusable from the start.
    """

    changes = True

    def __init__(self, path: Path, single: SingleToken | None = None, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._single = single
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp: _Stamp | None = _stamp(path)
        self._fault: IngotError | None = None
        self._grants = _by_hash(path)

    def caller(self, header: str | bytes | None) -> Principal:
        if self._single is not None and self._single.accepts(header):
            return _EVERYONE
        grants = self._current()
        text = header.decode(errors="replace") if isinstance(header, bytes) else header or ""
        scheme, token = text[: len(_SCHEME)], text[len(_SCHEME) :]
        grant = grants.get(hash_of(token)) if scheme.lower() == _SCHEME else None
        if grant is None:
            raise unauthenticated()
        if grant.is_over(self._clock()):
            raise unauthenticated(f"the token {grant.principal.user!r} has expired")
        return grant.principal

    def _current(self) -> Mapping[str, Grant]:
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            with self._lock:
                self._reload(stamp)
        if self._fault is not None:
            raise replace(self._fault)  # what is raised twice has the tracebacks of both
        return self._grants

    def _reload(self, stamp: _Stamp | None) -> None:
        if stamp == self._stamp:
            return
        try:
            self._grants, self._fault = _by_hash(self._path), None
            _LOG.info("%d tokens are known now", len(self._grants))
        except IngotError as error:
            _LOG.error("nobody is let in: %s", error)
            message, remedy = "the service cannot tell who may call", "Try again later, or tell the operator."
            self._grants, self._fault = {}, IngotError(ErrorCode.UNAVAILABLE, message, remedy=remedy)
        self._stamp = stamp


def make_gate(token: str, tokens: Path | None) -> Gate:
    """The gate that settings ask for; open where they name neither a token nor a file of them."""
    single = SingleToken(token) if token else None
    if tokens is not None:
        return FileOfTokens(tokens, single)
    return single or OpenGate()


def unauthenticated(message: str = "the call carries no token, or one that the service does not know") -> IngotError:
    return IngotError(
        ErrorCode.UNAUTHENTICATED,
        message,
        field=HEADER,
        expected="Bearer <token>",
        remedy="Set INGOT_TOKEN or INGOT_TOKEN_FILE, or send it as `authorization: Bearer <token>`.",
    )


def _by_hash(path: Path) -> dict[str, Grant]:
    return {grant.sha256: grant for grant in read_token_file(path).grants}


def _stamp(path: Path) -> _Stamp | None:
    """Changes whenever the file does; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
