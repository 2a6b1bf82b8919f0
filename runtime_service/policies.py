"""How models are served: which of their versions, and what state they keep.

Versions: ``stable``, ``latest:2``, ``3+4``, ``all``, ``stable:95+canary:5``.

Grammar: a policy is terms joined by ``+``; a term is ``all``, ``latest``, ``latest:N``, a version number or a label, the last two
perhaps with ``:WEIGHT``. The first term names the default version. A label that is not the first term may be missing (no canary
today). Terms with weights share the requests that name no version; what is missing leaves its share to the default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from runtime_service.splitting import MOST_WEIGHT, Share
from shared_ir.artifact.published import ALL_VERSIONS, NEWEST_VERSION, NO_LABELS
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import whole_number
from shared_ir.printable import some_of

_PLAIN = re.compile(rf"{ALL_VERSIONS}|{NEWEST_VERSION}(:[1-9][0-9]*)?")
_NAMED = re.compile(r"(?P<name>[1-9][0-9]*|[a-z][a-z0-9_.-]*)(:(?P<weight>[0-9]{1,8}))?")


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
    """The versions to serve, in ascending order, the one that unversioned requests go to, and the labels among them.

    ``shares`` are those who share the unversioned requests; where there are none, all of them go to the default. ``term`` is the first of
    the policy, which names the default; ``missing`` says why other terms of it stand for no version.
    """

    versions: tuple[int, ...]
    default: int
    labels: Mapping[str, int]
    shares: tuple[Share, ...] = ()
    term: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def served_shares(self) -> tuple[Share, ...]:
        """Who gets which part of the requests: what belongs to a term that is not served counts for the first one, which has it."""
        weights: dict[tuple[str, int], int] = {}
        for share in self.shares:
            is_served = self.labels.get(share.term, whole_number(share.term)) == share.version
            to = (share.term, share.version) if is_served else (self.term, self.default)
            weights[to] = weights.get(to, 0) + share.weight
        return tuple(Share(term, version, weight) for (term, version), weight in weights.items())


@dataclass(frozen=True, slots=True)
class PolicyTerm:
    """``all``, ``latest``, ``latest:N``, a number or a label; ``weight`` is None where it was given none."""

    name: str
    weight: int | None = None

    def __str__(self) -> str:
        return self.name if self.weight is None else f"{self.name}:{self.weight}"


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    terms: tuple[PolicyTerm, ...]

    @classmethod
    def parse(cls, text: str, where: str = "policy") -> Self:
        """Raises IngotError INVALID_ARGUMENT, naming ``where`` it stands: not in the grammar."""

        def odd(expected: str) -> IngotError:
            received = repr(text)[:200]
            return IngotError(
                ErrorCode.INVALID_ARGUMENT, "not a version policy", field=where, expected=expected, received=received
            )

        terms = tuple(filter(None, (_term(term.strip()) for term in text.split("+"))))
        if len(terms) <= text.count("+"):
            raise odd(
                "labels, version numbers, latest, latest:N or all, joined by +, the first two perhaps with :WEIGHT"
            )
        weights = {term.name: term.weight for term in terms if term.weight is not None}
        if weights and (terms[0].weight is None or not 0 < sum(weights.values()) <= MOST_WEIGHT):
            raise odd(f"where there are weights, one of the first term, and 1 to {MOST_WEIGHT} together")
        if len(weights) < sum(term.weight is not None for term in terms):
            raise odd("one weight for each label or number")
        return cls(terms)

    def __str__(self) -> str:
        return "+".join(map(str, self.terms))

    def select(self, catalogue: PolicyCatalogue) -> Selection:
        """The versions of ``catalogue`` that this policy asks for.

        Raises:
            IngotError: NOT_FOUND, a version or the first label does not exist; what is wrong with the first label.
        """
        chosen: list[int] = []
        shares = []
        missing = {}
        for index, term in enumerate(self.terms):
            resolved = _resolve(term.name, catalogue)
            fault = catalogue.faults.get(term.name) or (None if resolved else _no_version(term.name, catalogue))
            if fault is not None:
                if index == 0 or (not resolved and whole_number(term.name) is not None):
                    raise fault
                missing[term.name] = str(fault)
            chosen += resolved
            if term.weight:
                shares.append(Share(term.name, (resolved or chosen)[0], term.weight))
        versions = tuple(sorted(set(chosen)))
        labels = {label: version for label, version in catalogue.labels.items() if version in versions}
        return Selection(versions, chosen[0], labels, tuple(shares), self.terms[0].name, missing)


def _no_version(term: str, catalogue: PolicyCatalogue) -> IngotError:
    return IngotError(
        ErrorCode.NOT_FOUND,
        f"the store has no version {term!r} of the model",
        expected=some_of([*sorted(catalogue.versions), *sorted(catalogue.labels)]) or "(none)",
        received=term,
        remedy="Publish that version, set the label, or change the version policy.",
    )


def _term(text: str) -> PolicyTerm | None:
    """None for what is none."""
    if _PLAIN.fullmatch(text):
        return PolicyTerm(text)
    match = _NAMED.fullmatch(text)
    if match is None or match["name"] in NO_LABELS:
        return None
    return PolicyTerm(match["name"], None if match["weight"] is None else int(match["weight"]))


def _resolve(term: str, catalogue: PolicyCatalogue) -> list[int]:
    """Versions of one term, the preferred one first."""
    newest_first = sorted(catalogue.versions, reverse=True)
    if term == ALL_VERSIONS:
        return newest_first
    if _PLAIN.fullmatch(term) and term not in catalogue.labels:
        return newest_first[: whole_number(term.partition(":")[2] or "1")]
    number = whole_number(term)
    if number is not None:
        return [number] if number in catalogue.versions else []
    return [catalogue.labels[term]] if term in catalogue.labels else []
