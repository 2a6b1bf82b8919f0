"""Taking versions and models away: signed, so that it cannot be undone by who only writes to the store, and never under a label.

A deletion is written first; then labels are looked at once more, since who sets a label looks for deletions afterwards; then the
records go. What the versions alone needed stays until it is collected (:mod:`shared_ir.registry.collection`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from shared_ir.artifact.audit import Change
from shared_ir.artifact.generation import tell_readers
from shared_ir.artifact.published import (
    Deletion,
    check_model_name,
    deletion_document,
    deletion_path,
    version_path,
)
from shared_ir.artifact.publishing import next_number
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.records import index_digest


def delete_version(repository: ArtifactRepository, name: str, number: int, by: str = "") -> None:
    """Doing it once more, where it was left half done, is harmless.

    Raises:
        IngotError: NOT_FOUND; CONFLICT, a label points at it.
    """
    proven = repository.proven
    check_model_name(name)
    there = number > 0 and repository.store.size(version_path(name, number)) is not None
    if not there:
        repository.version(name, number)  # says that it is not there, and what is
    _refuse_labelled(repository, name, range(number, number + 1))
    digest = index_digest(repository.store, name, number)
    deletion = Deletion(name, number, number, (digest,) if digest else (), time.time(), by)
    if proven.deletion(name, number) is None:
        _write(repository, deletion)
        try:
            _refuse_labelled(repository, name, range(number, number + 1))
        except IngotError:
            repository.store.delete(deletion_path(name, number, number))
            raise
    repository.store.delete(version_path(name, number))
    proven.remember_deletion(deletion)
    repository.bundles.change(name, {number: None})
    tell_readers(repository.store)
    repository.audit.write(Change("delete-version", by, name, number, before=digest), repository.signer)


def delete_model(repository: ArtifactRepository, name: str, by: str = "", force: bool = False) -> int:
    """All versions of a model that there are, how many; with ``force`` its labels first.

    Raises:
        IngotError: NOT_FOUND; CONFLICT, it has labels.
    """
    numbers = repository.version_numbers(name)
    if not numbers:
        raise repository.no_model(name)
    last = max(1, next_number(repository.proven, name) - 1)  # of numbers that nobody believes none is taken away
    everything = range(1, last + 1)
    if force:
        for label in repository.labels(name):
            repository.delete_label(name, label, by)
    _refuse_labelled(repository, name, everything)
    digests = [digest for number in numbers if (digest := index_digest(repository.store, name, number))]
    deletion = Deletion(name, 1, last, tuple(digests), time.time(), by)
    _write(repository, deletion)
    try:
        _refuse_labelled(repository, name, everything)
    except IngotError:
        repository.store.delete(deletion_path(name, last, 1))
        raise
    for number in numbers:
        repository.store.delete(version_path(name, number))
    repository.proven.remember_deletion(deletion)
    for kind in ("bundles", "contents"):
        for key in list(repository.store.keys(f"models/{name}/{kind}")):
            repository.store.delete(key)
    tell_readers(repository.store)
    repository.audit.write(Change("delete-model", by, name, before=str(len(numbers))), repository.signer)
    return len(numbers)


def _write(repository: ArtifactRepository, deletion: Deletion) -> None:
    path = deletion_path(deletion.name, deletion.number, deletion.first)
    repository.store.put(path, deletion_document(deletion, repository.signer))


def _refuse_labelled(repository: ArtifactRepository, name: str, numbers: Sequence[int]) -> None:
    held = {label: n for label, n in repository.labels(name).items() if n in numbers}
    if not held:
        return
    shown = ", ".join(f"{label}={number}" for label, number in sorted(held.items()))
    raise IngotError(
        ErrorCode.CONFLICT,
        f"model {name!r} has labels that point at what is to be deleted",
        field="label",
        received=shown[:200],
        remedy="Move the labels to another version, or delete them, first.",
    )
