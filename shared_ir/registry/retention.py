"""Which versions of a model may go: none that a label points at, none of the newest, none that is young."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import is_within
from shared_ir.registry.deletion import delete_version
from shared_ir.registry.pages import reader

_DAY_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Retention:
    """A version stays if one of these says so: it is among the ``last`` newest, it is younger than ``days``, or it has a label."""

    last: int
    days: float = 0.0

    def __post_init__(self) -> None:
        if self.last < 1 or not is_within(self.days, 0):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "such a rule would keep nothing",
                field="keep-last" if self.last < 1 else "keep-days",
                expected="1 or more versions, 0 or more days",
                received=f"{self.last} versions, {self.days:g} days",
            )


@dataclass(frozen=True)
class RetentionOutcome:
    """What became of a model: the versions that were, or would be, deleted, and those that stay for a reason that is no rule's."""

    name: str
    deleted: tuple[int, ...]
    left: tuple[str, ...] = ()


def expired(repository: ArtifactRepository, name: str, rule: Retention, now: float | None = None) -> tuple[int, ...]:
    """Ascending. A version that proves nothing stays, since nobody knows when it was made, and is none of the newest that do."""
    youngest = (time.time() if now is None else now) - rule.days * _DAY_SECONDS
    held, read = set(repository.labels(name).values()), reader(repository, name)
    with repository.proven.memory.together():
        numbers = reversed(repository.version_numbers(name))
        proven = [version for number in numbers if (version := read(number)) is not None]
    older = [version.number for version in proven[rule.last :] if version.created < youngest]
    return tuple(number for number in reversed(older) if number not in held)


def retain(
    repository: ArtifactRepository,
    rule: Retention,
    names: Sequence[str] = (),
    by: str = "retention",
    dry_run: bool = False,
) -> tuple[RetentionOutcome, ...]:
    """Delete what ``rule`` lets go, of these models or of all; with ``dry_run`` say what that would be.

    A label that is set on a version meanwhile keeps it.

    Raises:
        IngotError: NOT_FOUND, there is no model of a name in ``names``; nothing is deleted then.
    """
    unknown = next((name for name in names if not repository.version_numbers(name)), None)
    if unknown is not None:
        raise repository.no_model(unknown)
    outcomes = []
    for name in names or repository.models():
        deleted, left = [], []
        for number in expired(repository, name, rule):
            try:
                if not dry_run:
                    delete_version(repository, name, number, by)
                deleted.append(number)
            except IngotError as error:
                if error.code not in (ErrorCode.CONFLICT, ErrorCode.NOT_FOUND):
                    raise
                left.append(f"version {number}: {error}")
        outcomes.append(RetentionOutcome(name, tuple(deleted), tuple(left)))
    return tuple(outcomes)
