"""The labels of models in a store: signed, each with a generation that only grows, and moved by comparing first."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from shared_ir.artifact.proof import StoreReader
from shared_ir.artifact.published import (
    ABSENT,
    LABEL,
    PublishedLabel,
    Version,
    check_model_name,
    label_document,
    label_path,
)
from shared_ir.artifact.signature import SigningKey
from shared_ir.artifact.signed import MAX_DOCUMENT_BYTES
from shared_ir.errors import ErrorCode, IngotError

_LOG = logging.getLogger(__name__)
MOST_LABELS = 256
"""Of one model, deleted ones included, whose records stay: who shows a model reads them all."""
_MOST_ATTEMPTS = 50
"""To replace a label that others replace at the same time."""
_AT_ONCE_MICROSECONDS = 1_000_000
"""Microseconds between two requests for the same label that count as one: the second, for where it points already, writes nothing."""


@dataclass(frozen=True)
class Labels:
    """Labels by name, and why a label that is there does not count."""

    found: Mapping[str, PublishedLabel]
    faults: Mapping[str, IngotError] = field(default_factory=dict)

    @property
    def numbers(self) -> Mapping[str, int]:
        """Version number by label."""
        return {name: label.number for name, label in self.found.items()}


@dataclass(frozen=True)
class Order:
    """Who asks for a label to be moved, when (seconds since the epoch; now), and the etag that it must have; any where it is empty.

    Who asked before what is there was asked for is too late: nothing changes. So a job that is run once more does not set a label back.
    """

    by: str = ""
    asked: float | None = None
    etag: str = ""


@dataclass(frozen=True)
class Move:
    """A label before (None: there was none that is proven) and after it was moved."""

    before: PublishedLabel | None
    after: PublishedLabel

    @property
    def is_elsewhere(self) -> bool:
        return self.before is None or self.before.moved != self.after.moved


@dataclass(frozen=True)
class LabelRecords:
    """Reads labels as they are proven, and writes them."""

    proven: StoreReader

    def names(self, name: str) -> tuple[str, ...]:
        """Of every file that may be a label, proven or not."""
        keys = self.proven.store.keys(f"models/{check_model_name(name)}/labels")
        stems = (key.rpartition("/")[2].removesuffix(".json") for key in keys)
        return tuple(stem for stem in stems if LABEL.fullmatch(stem))

    def all(self, name: str) -> Labels:
        found, faults = {}, {}
        for label in self.names(name):
            try:
                one = self.proven.label(name, label)
            except IngotError as error:
                if error.code is ErrorCode.UNAVAILABLE:
                    raise
                _LOG.warning("label %r of model %r is not taken: %s", label, name, error)
                faults[label] = error
                continue
            if one is not None and one.number:
                found[label] = one
        return Labels(found, faults)

    def find(self, name: str, label: str) -> PublishedLabel:
        """Raises IngotError NOT_FOUND; ARTIFACT_UNTRUSTED, ARTIFACT_CORRUPT."""
        found = self.proven.label(name, label) if label in self.names(name) else None
        if found is None or not found.number:
            expected = ", ".join(sorted(self.all(name).numbers)) or "a version number: it has no labels"
            message = f"model {name!r} has no label {label!r}"
            raise IngotError(ErrorCode.NOT_FOUND, message, field="label", expected=expected)
        return found

    def put(self, name: str, label: str, target: Version | None, signer: SigningKey, order: Order) -> Move | None:
        """Point a label at a version, or at none. What is replaced is what was read: of two writers at once one comes after the other.

        None where nothing was written: it points there already, or somebody asked for what is there later.

        Raises:
            IngotError: CONFLICT, the label is not what ``order`` expects; UNAVAILABLE, others move it without end; LIMIT_EXCEEDED, the
                model has no room for another one.
        """
        path = label_path(name, label)
        for _ in range(_MOST_ATTEMPTS):
            data, tag = self._tagged(path)
            before = None if data is None else self._believed(name, label, data)
            if data is None:
                self._require_room(name)
            _require(name, label, order.etag, before)
            after = self._next(name, label, target, before, order)
            if after is None:
                return None
            if self._write(path, label_document(after, signer), tag):
                return Move(before, after)
        message = f"label {label!r} of model {name!r} is being moved by others all the time"
        raise IngotError(ErrorCode.UNAVAILABLE, message, field="label", remedy="Try again in a moment.")

    def _require_room(self, name: str) -> None:
        """For one more label. Raises IngotError LIMIT_EXCEEDED."""
        count = len(self.names(name))
        if count >= MOST_LABELS:
            raise IngotError(
                ErrorCode.LIMIT_EXCEEDED,
                f"model {name!r} has as many labels as a model may have, deleted ones included",
                field="label",
                expected=f"at most {MOST_LABELS}",
                received=f"{count + 1}",
                remedy="Set one of its labels again, a deleted one too. What names one build is the number of its version.",
            )

    def is_there(self, name: str, label: str) -> bool:
        """Whether there is something to take away, be it proven or not."""
        data, _ = self._tagged(label_path(name, label))
        found = None if data is None else self._believed(name, label, data)
        return data is not None if found is None else found.number > 0

    def _next(
        self, name: str, label: str, target: Version | None, before: PublishedLabel | None, order: Order
    ) -> PublishedLabel | None:
        """What ``before`` is followed by; None where nothing is to be written."""
        generation = self.proven.next_generation(name, label)  # before has been seen: it comes after it
        asked = max(_now(), before.asked if before else 0) if order.asked is None else int(order.asked * 1e6)
        number, index = (target.number, target.index.digest) if target else (0, "")
        others, moved = {}, generation
        if before is not None:
            stays = (before.number, before.index) == (number, index)
            if asked < before.asked or (stays and asked - before.asked < _AT_ONCE_MICROSECONDS):
                return None
            others, moved = dict(before.others), before.moved if stays else generation
        by = before.by if before is not None and moved == before.moved else order.by
        return PublishedLabel(name, label, number, index, generation, asked, moved, by, others)

    def _tagged(self, path: str) -> tuple[bytes | None, str]:
        try:
            return self.proven.store.get_tagged(path, MAX_DOCUMENT_BYTES)
        except IngotError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            return None, ""

    def _believed(self, name: str, label: str, data: bytes) -> PublishedLabel | None:
        """None where what is there proves nothing."""
        try:
            return self.proven.label_of(name, label, data)
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            return None

    def _write(self, path: str, data: bytes, tag: str) -> bool:
        store = self.proven.store
        if store.replace(path, data, tag) if tag else store.put_if_absent(path, data):
            return True
        return self._tagged(path)[0] == data  # the answer to our own write was lost on its way


def _now() -> int:
    return time.time_ns() // 1000


def _require(name: str, label: str, etag: str, before: PublishedLabel | None) -> None:
    found = before.etag if before is not None else ABSENT
    if etag and etag != found:
        stands = (
            f"version {before.number}, etag {found}" if before and before.number else f"no such label, etag {ABSENT}"
        )
        raise IngotError(
            ErrorCode.CONFLICT,
            f"label {label!r} of model {name!r} was moved by somebody else",
            field="etag",
            expected=etag[:100],
            received=stands,
            remedy="Look at the model again, and decide anew.",
        )
