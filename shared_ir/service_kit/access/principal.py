"""Who calls, and what that allows."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from shared_ir.errors import ErrorCode, IngotError

_NAMESPACE = re.compile(r"(?=.{1,32}$)[a-z0-9]+(?:-[a-z0-9]+)*")


class TokenScope(enum.StrEnum):
    """What a token may be good for."""

    READ = "read"
    UPLOAD = "upload"
    COMPILE = "compile"
    PUBLISH = "publish"
    LABEL = "label"
    DELETE = "delete"


EVERY_SCOPE = frozenset(TokenScope)


@dataclass(frozen=True)
class Quota:
    """What a namespace may hold at once; 0 is no limit of its own.

    Attributes:
        bytes: of its uploaded files.
        jobs: that have not finished.
        running_stages: of its jobs.
    """

    bytes: int = 0
    jobs: int = 0
    running_stages: int = 0


@dataclass(frozen=True)
class Principal:
    """A caller.

    Attributes:
        user: name of its token, empty where the service asks for none.
        namespace: in which it sees its models, jobs and files; empty for all of the installation.
    """

    user: str = ""
    namespace: str = ""
    scopes: frozenset[TokenScope] = EVERY_SCOPE
    quota: Quota = Quota()

    def require(self, *scopes: TokenScope) -> None:
        """Raises IngotError PERMISSION_DENIED, naming the scopes that are missing."""
        missing = [scope.value for scope in scopes if scope not in self.scopes]
        if missing:
            raise IngotError(
                ErrorCode.PERMISSION_DENIED,
                f"the token {self.user!r} may not do this",
                field="scopes",
                expected=", ".join(missing),
                received=", ".join(sorted(self.scopes)) or "none",
                remedy="Use a token that has the scope, or ask who runs the service for one.",
            )


def check_namespace(name: str) -> str:
    """Raises IngotError INVALID_ARGUMENT. NOTE: without a dot, which ends the namespace in the name of a model."""
    if not _NAMESPACE.fullmatch(name):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "not a name for a namespace",
            field="namespace",
            expected="1 to 32 small letters and digits, with single hyphens between them",
            received=repr(name)[:100],
        )
    return name
