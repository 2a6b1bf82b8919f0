"""The file of tokens: sha256 of each, never a token itself; what each may do, and what each namespace may hold.

    {"version": 1,
     "tokens": [{"id": "ci", "sha256": "...", "scopes": ["read", "upload"], "namespace": "vision", "expires": "2027-01-31T00:00:00+00:00"}],
     "namespaces": {"vision": {"bytes": 100000000000, "jobs": 20, "running_stages": 4}}}

Tokens are 32 random bytes: nobody finds one from its hash, so the hash needs neither salt nor stretching. Fields that are not known here
are kept.
"""

from __future__ import annotations

import fcntl
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.foreign_json import foreign_json
from shared_ir.service_kit.access.principal import Principal, Quota, TokenScope, check_namespace
from shared_ir.storage.files import write_atomically

FORMAT = 1
PREFIX = "ingot_"
"""By which programs that look for secrets find a token."""
MOST_FILE_BYTES = 4 << 20
_RANDOM_BYTES = 32
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Grant:
    """What one token allows. Times are in seconds since the epoch; ``expires`` is 0 for never."""

    principal: Principal
    sha256: str
    expires: float = 0.0

    def is_over(self, now: float) -> bool:
        return 0 < self.expires <= now


@dataclass(frozen=True)
class TokenFile:
    """What a file says. ``document`` is all of it."""

    document: Mapping[str, Any]
    grants: tuple[Grant, ...]

    @classmethod
    def empty(cls) -> Self:
        return cls.of({"version": FORMAT, "tokens": [], "namespaces": {}})

    @classmethod
    def parse(cls, data: bytes, where: str) -> Self:
        """Raises IngotError INVALID_ARGUMENT: it is damaged, or of a later format."""
        try:
            return cls.of(foreign_json(data))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise _damaged(where, f"{type(error).__name__}: {error}"[:200]) from error
        except IngotError as error:
            raise _damaged(where, str(error)[:300]) from error

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        if document["version"] != FORMAT:
            raise ValueError(f"version {document['version']!r}")
        quotas = {check_namespace(name): _quota(own) for name, own in document.get("namespaces", {}).items()}
        grants = tuple(_grant(own, quotas) for own in document["tokens"])
        for what in ({grant.principal.user for grant in grants}, {grant.sha256 for grant in grants}):
            if len(what) != len(grants):
                raise ValueError("two tokens have the same id, or the same hash")
        return cls(document, grants)

    def encode(self) -> bytes:
        return json.dumps(self.document, indent=2).encode() + b"\n"

    def with_token(self, principal: Principal, expires: float = 0.0) -> tuple[Self, str]:
        """The file with one token more, and the token, which is nowhere else.

        Raises:
            IngotError: ALREADY_EXISTS, there is one of that id; INVALID_ARGUMENT.
        """
        if any(grant.principal.user == principal.user for grant in self.grants):
            remedy = "Choose another id, or take the token away first."
            raise IngotError(
                ErrorCode.ALREADY_EXISTS, "there is a token of that id", field=principal.user, remedy=remedy
            )
        token = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        entry: dict[str, Any] = {
            "id": check_id(principal.user),
            "sha256": hash_of(token),
            "scopes": sorted(principal.scopes),
            "created": _text(datetime.now(UTC)),
        }
        entry |= {"namespace": check_namespace(principal.namespace)} if principal.namespace else {}
        entry |= {"expires": _text(datetime.fromtimestamp(expires, UTC))} if expires else {}
        return type(self).of({**self.document, "tokens": [*self.document["tokens"], entry]}), token

    def without(self, user: str) -> Self:
        """Raises IngotError NOT_FOUND."""
        kept = [entry for entry in self.document["tokens"] if entry["id"] != user]
        if len(kept) == len(self.grants):
            known = ", ".join(grant.principal.user for grant in self.grants) or "none"
            raise IngotError(ErrorCode.NOT_FOUND, "there is no token of that id", field=user[:100], expected=known)
        return type(self).of({**self.document, "tokens": kept})

    def with_quota(self, namespace: str, quota: Mapping[str, int]) -> Self:
        """``quota`` changes what it names of the quota that is there."""
        named = dict(self.document.get("namespaces", {}))
        named[check_namespace(namespace)] = {**named.get(namespace, {}), **quota}
        return type(self).of({**self.document, "namespaces": named})


def read_token_file(path: Path) -> TokenFile:
    """Raises IngotError INVALID_ARGUMENT: it cannot be read, may be written by anyone, or is damaged."""
    try:
        mode, size = path.stat().st_mode, path.stat().st_size
        if mode & 0o002:
            raise _damaged(str(path), f"mode {mode & 0o777:04o}: everyone may write it")
        if size > MOST_FILE_BYTES:
            raise _damaged(str(path), f"{size} bytes")
        return TokenFile.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise _damaged(str(path), error.strerror or str(error)) from error


@contextmanager
def editing(path: Path) -> Iterator[list[TokenFile]]:
    """A list of the file as it is (an empty one where there is none); what the block leaves in it is written as a whole.

    One editor at a time: others wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = [read_token_file(path) if path.exists() else TokenFile.empty()]
        yield held
        write_atomically(path, held[0].encode())


def hash_of(token: str) -> str:
    return sha256_hex(token.encode(errors="replace"))


def check_id(user: str) -> str:
    """Raises IngotError INVALID_ARGUMENT."""
    if not _ID.fullmatch(user):
        expected = "1 to 63 letters, digits, '.', '_', '@' and '-'"
        message = "not an id for a token"
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="id", expected=expected, received=repr(user)[:100])
    return user


def scopes_of(names: Sequence[str]) -> frozenset[TokenScope]:
    """Raises IngotError INVALID_ARGUMENT, naming what is no scope."""
    unknown = [str(name) for name in names if name not in list(TokenScope)]
    if unknown or not names:
        received = ", ".join(unknown) or "none"
        message, expected = "a token needs scopes that exist", ", ".join(TokenScope)
        raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field="scopes", expected=expected, received=received)
    return frozenset(map(TokenScope, names))


def _grant(entry: Mapping[str, Any], quotas: Mapping[str, Quota]) -> Grant:
    namespace = check_namespace(entry["namespace"]) if entry.get("namespace") else ""
    if not _SHA256.fullmatch(entry["sha256"]):
        raise ValueError(f"the sha256 of token {entry['id']!r} is none")
    known = [name for name in entry["scopes"] if name in list(TokenScope)]  # a later release may have more
    principal = Principal(
        check_id(entry["id"]), namespace, frozenset(map(TokenScope, known)), quotas.get(namespace, Quota())
    )
    expires = datetime.fromisoformat(entry["expires"]).timestamp() if entry.get("expires") else 0.0
    return Grant(principal, entry["sha256"], expires)


def _quota(entry: Mapping[str, Any]) -> Quota:
    found = {name: entry.get(name, 0) for name in Quota.__dataclass_fields__}
    for name, value in found.items():
        if type(value) is not int or value < 0:
            raise ValueError(f"{name} {value!r}")
    return Quota(**found)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _damaged(where: str, received: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "the file of tokens cannot be used",
        field=where,
        expected="a file as `ingot tokens` writes it",
        received=received,
        remedy="Write it with `ingot tokens`, or mend it.",
    )
