"""How models are served: which of their versions, and what state they keep.

Versions: ``stable``, ``latest:2``, ``3+4``, ``all``.

Grammar: a policy is terms joined by ``+``; a term is ``all``, ``latest``, ``latest:N``, a version number or a label.
The first term names the default version. A label that is not the first term may be missing (no canary today).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import whole_number
from shared_ir.printable import some_of

_TERM = re.compile(r"all|latest(:[1-9][0-9]*)?|[1-9][0-9]*|[a-z][a-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class SequenceOptions:
    """How a model keeps state.

    Attributes:
        state: output that is the next value of an input, by that input.
        sizes: of symbols in the shape of a first state that no other input says.
        most: sequences at a time.
        idle_seconds: after its last request a sequence is forgotten.
        most_bytes: that the state of all sequences may take.
    """

    state: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    most: int = 1024
    idle_seconds: float = 60.0
    most_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class PolicyCatalogue:
    """What the store holds of one model: version numbers, labels that point at them, and why other labels do not count."""

    versions: tuple[int, ...]
    labels: Mapping[str, int]
    faults: Mapping[str, IngotError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Selection:
    """The versions to serve, in ascending order, the one that unversioned requests go to, and the labels among them."""

    versions: tuple[int, ...]
    default: int
    labels: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    terms: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises IngotError INVALID_ARGUMENT: not in the grammar."""
        terms = tuple(term.strip() for term in text.split("+"))
        for term in terms:
            if not _TERM.fullmatch(term):
                raise IngotError(
                    ErrorCode.INVALID_ARGUMENT,
                    "not a version policy",
                    expected="labels, version numbers, latest, latest:N or all, joined by +",
                    received=repr(text),
                )
        return cls(terms)

    def __str__(self) -> str:
        return "+".join(self.terms)

    def select(self, catalogue: PolicyCatalogue) -> Selection:
        """The versions of ``catalogue`` that this policy asks for.

        Raises:
            IngotError: NOT_FOUND, a version or the first label does not exist; what is wrong with the first label.
        """
        chosen: list[int] = []
        for index, term in enumerate(self.terms):
            resolved = _resolve(term, catalogue)
            if index == 0 and term in catalogue.faults:
                raise catalogue.faults[term]
            if not resolved and (index == 0 or whole_number(term) is not None):
                raise IngotError(
                    ErrorCode.NOT_FOUND,
                    f"the store has no version {term!r} of the model",
                    expected=some_of([*sorted(catalogue.versions), *sorted(catalogue.labels)]) or "(none)",
                    received=term,
                    remedy="Publish that version, set the label, or change the version policy.",
                )
            chosen += resolved
        versions = tuple(sorted(set(chosen)))
        labels = {label: version for label, version in catalogue.labels.items() if version in versions}
        return Selection(versions, chosen[0], labels)


def _resolve(term: str, catalogue: PolicyCatalogue) -> list[int]:
    """Versions of one term, the preferred one first."""
    newest_first = sorted(catalogue.versions, reverse=True)
    if term == "all":
        return newest_first
    if term.startswith("latest") and term not in catalogue.labels:
        return newest_first[: whole_number(term.partition(":")[2] or "1")]
    number = whole_number(term)
    if number is not None:
        return [number] if number in catalogue.versions else []
    return [catalogue.labels[term]] if term in catalogue.labels else []
