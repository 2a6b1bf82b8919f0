"""The labels of models in a store: signed, each with a generation that only grows."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from shared_ir.artifact.proof import StoreReader
from shared_ir.artifact.published import LABEL, Label, check_model_name, label_document, label_path
from shared_ir.artifact.signature import SigningKey
from shared_ir.errors import ErrorCode, IngotError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Labels:
    """Version number by label, and why a label that is there does not count."""

    numbers: Mapping[str, int]
    faults: Mapping[str, IngotError] = field(default_factory=dict)


@dataclass(frozen=True)
class LabelRecords:
    """Reads labels as they are proven, and writes them."""

    proven: StoreReader

    def names(self, name: str) -> tuple[str, ...]:
        """Of every file that may be a label, proven or not."""
        keys = (info.key for info in self.proven.store.list(f"models/{check_model_name(name)}/labels"))
        stems = (key.rpartition("/")[2].removesuffix(".json") for key in keys)
        return tuple(stem for stem in stems if LABEL.fullmatch(stem))

    def all(self, name: str) -> Labels:
        numbers, faults = {}, {}
        for label in self.names(name):
            try:
                found = self.proven.label(name, label)
            except IngotError as error:
                if error.code is ErrorCode.UNAVAILABLE:
                    raise
                _LOG.warning("label %r of model %r is not taken: %s", label, name, error)
                faults[label] = error
                continue
            if found is not None and found.number:
                numbers[label] = found.number
        return Labels(numbers, faults)

    def find(self, name: str, label: str) -> Label:
        """Raises IngotError NOT_FOUND; ARTIFACT_UNTRUSTED, ARTIFACT_CORRUPT."""
        found = self.proven.label(name, label) if label in self.names(name) else None
        if found is None or not found.number:
            expected = ", ".join(sorted(self.all(name).numbers)) or "a version number: it has no labels"
            message = f"model {name!r} has no label {label!r}"
            raise IngotError(ErrorCode.NOT_FOUND, message, field="label", expected=expected)
        return found

    def put(
        self, name: str, label: str, number: int, index: str, signer: SigningKey, asked: float | None = None
    ) -> None:
        """Point a label at a version, whose index has the digest ``index``; version 0: at none. One atomic write.

        Who ``asked`` for it (in seconds since the epoch; now) before what is there was asked for is too late: nothing changes. So a
        job that is run once more does not set a label back.
        """
        before = self._before(name, label)  # it has been seen now: the next generation comes after it
        moment = time.time_ns() // 1000 if asked is None else int(asked * 1e6)
        if before is not None and before.asked > moment:
            return
        generation = self.proven.next_generation(name, label)
        found = Label(name, label, number, index, generation, moment)
        self.proven.store.put(label_path(name, label), label_document(found, signer))

    def is_there(self, name: str, label: str) -> bool:
        """Whether there is something to take away, be it proven or not."""
        found = self._before(name, label)
        return found.number > 0 if found is not None else label in self.names(name)

    def _before(self, name: str, label: str) -> Label | None:
        """None where nothing is there, and where what is there proves nothing."""
        try:
            return self.proven.label(name, label)
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            return None
