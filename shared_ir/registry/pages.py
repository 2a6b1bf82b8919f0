"""Lists of a registry, a page at a time: of models by name, of versions from the newest to older ones, of what was changed."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from shared_ir.artifact.audit import Change, place
from shared_ir.artifact.bundles import SIZE, first_of
from shared_ir.artifact.published import PublishedLabel, Version, check_model_name, is_model_name
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.digest import canonical_json, sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.foreign_json import foreign_json
from shared_ir.storage.local import FileStore

USUAL_SIZE = 50
LARGEST_SIZE = 1000
_MOST_LOOKED_AT = 1000
"""Things that one call looks at, for the sake of a filter that few pass: the page may hold less, and its token goes on."""
MOST_BYTES = 2 << 20
"""Of the things in a page together, as they will travel: clients take messages of 4 MiB, unless they are told otherwise."""
_MOST_EMPTY = 3
"""Times that fifty numbers in a row may be those of deleted versions, before the names of all that are left are read."""
_THREADS = 16
"""Models that are read at once from a store behind a network."""
_LOG = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    """``token`` asks for the next page; empty when there is none."""

    items: tuple[T, ...]
    token: str = ""


class PageRoom(Generic[T]):
    """What a page has room for: ``size`` things of :data:`MOST_BYTES` together, and the first one in any case.

    ``weigh`` says how many bytes one is, and is asked once for each in their order.
    """

    def __init__(self, size: int, weigh: Callable[[T], int] = lambda _: 0) -> None:
        self._size = size
        self._weigh = weigh
        self._bytes = 0
        self.items: tuple[T, ...] = ()

    @property
    def is_full(self) -> bool:
        """Whether there are as many as were asked for."""
        return len(self.items) == self._size

    def take(self, item: T) -> bool:
        """Whether there was room."""
        self._bytes += self._weigh(item)
        if self.is_full or (self.items and self._bytes > MOST_BYTES):
            return False
        self.items += (item,)
        return True


@dataclass(frozen=True)
class ModelSummary:
    """A model with its newest version, and what its labels are; or with the ``error`` that keeps it from having any."""

    name: str
    newest: int
    labels: tuple[PublishedLabel, ...]
    error: IngotError | None = None


@dataclass(frozen=True)
class ModelFilter:
    """Models whose name starts with ``prefix``, and that have ``label``; any where it is empty."""

    prefix: str = ""
    label: str = ""

    def takes(self, model: ModelSummary) -> bool:
        """NOTE: nobody knows which labels a model has of which nothing is proven."""
        return model.error is not None or not self.label or any(own.label == self.label for own in model.labels)


@dataclass(frozen=True)
class VersionFilter:
    """Versions with a target of this triple or cpu, published from ``since`` until ``until`` (seconds since the epoch; 0: any)."""

    target: str = ""
    since: float = 0.0
    until: float = 0.0

    def takes(self, version: Version) -> bool:
        in_time = version.created >= self.since and not (self.until and version.created > self.until)
        return in_time and (not self.target or any(self.target in (own.triple, own.cpu) for own in version.targets))


@dataclass(frozen=True)
class ChangeFilter:
    """Changes of a model, of an action, by somebody, in a time, of models whose name starts with ``prefix``; any where it is empty."""

    model: str = ""
    action: str = ""
    by: str = ""
    since: float = 0.0
    until: float = 0.0
    prefix: str = ""

    def takes(self, change: Change) -> bool:
        """Whether it is by whom was asked for, and in time."""
        return self.by in ("", change.by) and not (self.until and change.time > self.until)


def page_size(asked: int) -> int:
    """Raises IngotError INVALID_ARGUMENT for a negative one."""
    if asked < 0:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a page has no such size",
            field="page_size",
            expected="0 or more",
            received=str(asked),
        )
    return min(asked or USUAL_SIZE, LARGEST_SIZE)


def models_page(
    repository: ArtifactRepository,
    size: int = USUAL_SIZE,
    token: str = "",
    chosen: ModelFilter = ModelFilter(),
    weigh: Callable[[ModelSummary], int] = lambda _: 0,
) -> Page[ModelSummary]:
    """Models in order of name. Those of which nothing is proven, and those that were seen before and are gone, say why.

    Raises:
        IngotError: INVALID_ARGUMENT, the token is none of this list; ARTIFACT_UNTRUSTED, what was seen before cannot be read.
    """
    after = read_token(token, chosen, str, "")
    known = sorted({*repository.store.folders("models"), *repository.proven.models_seen()})
    names = [name for name in known if name > after and name.startswith(chosen.prefix)]
    room = PageRoom(size, weigh)
    looked_at = 0
    with repository.proven.memory.together():
        while names and looked_at < _MOST_LOOKED_AT and not room.is_full:
            batch = names[: size - len(room.items)]
            looked_at += len(batch)
            for name, summary in zip(batch, _summaries(repository, batch), strict=True):
                if summary is not None and chosen.takes(summary) and not room.take(summary):
                    return Page(room.items, write_token(after, chosen))
                after = name
            names = names[len(batch) :]
    return Page(room.items, write_token(after, chosen) if names else "")


def model_summary(repository: ArtifactRepository, name: str) -> ModelSummary:
    """Raises IngotError as :func:`newest_version`."""
    newest = newest_version(repository, name)
    labels = repository.all_labels(name).found
    return ModelSummary(name, newest.number, tuple(labels[label] for label in sorted(labels)))


def versions_page(
    repository: ArtifactRepository,
    name: str,
    size: int = USUAL_SIZE,
    token: str = "",
    chosen: VersionFilter = VersionFilter(),
    weigh: Callable[[Version], int] = lambda _: 0,
) -> Page[Version]:
    """Versions of a model, the newest first, without those that nothing proves where there are others.

    Raises:
        IngotError: NOT_FOUND, there is no such model; INVALID_ARGUMENT, the token is none of this list; what keeps the newest version from
            being proven, where none is.
    """
    before = read_token(token, (name, chosen), int, 0)
    room = PageRoom(size, weigh)
    last, is_proven = 0, before > 0
    with repository.proven.memory.together():
        for looked_at, (number, read) in enumerate(_downwards(repository, name, before)):
            if room.is_full or looked_at == _MOST_LOOKED_AT:
                return Page(room.items, write_token(last, (name, chosen)))
            version = read()
            is_proven = is_proven or version is not None
            if version is not None and version.created < chosen.since:  # and what is older was published earlier
                return Page(room.items)
            if version is not None and chosen.takes(version) and not room.take(version):
                return Page(room.items, write_token(last, (name, chosen)))
            last = number
    if not is_proven:
        newest_version(repository, name)
    return Page(room.items)


def reader(repository: ArtifactRepository, name: str) -> Callable[[int], Version | None]:
    """Reads versions of a model by number, by way of bundles: of those that lie together the store is asked once. None for one that is not
    proven."""
    copies = dict[int, Mapping[str, str]]()

    def read(number: int) -> Version | None:
        first = first_of(number)
        if first not in copies:
            copies[first] = repository.bundles.copies(name, first)
        return repository.bundles.version(name, number, copies[first]) or repository.find_proven(name, number)

    return read


def _downwards(
    repository: ArtifactRepository, name: str, before: int
) -> Iterator[tuple[int, Callable[[], Version | None]]]:
    """Numbers below ``before`` (0: all) from the newest on, each with what reads its version. Asks the store for as much as is taken."""
    proven, read = repository.proven, reader(repository, check_model_name(name))
    if before:
        low = first_of(max(before - 1, 1))
        numbers = proven.numbers_between(name, low - 1, before)
    else:
        low = max(1, proven.newest_bundle(name) - SIZE)  # the newest bundle may be nearly empty
        numbers = proven.version_numbers(name, low - 1)
    empty = 0
    while True:
        for number in reversed(numbers):
            yield number, partial(read, number)
        if low == 1:
            return
        empty = 0 if numbers else empty + 1
        high, low = low, 1 if empty > _MOST_EMPTY else max(1, low - SIZE)
        numbers = proven.numbers_between(name, low - 1, high)


def changes_page(
    repository: ArtifactRepository,
    size: int = USUAL_SIZE,
    token: str = "",
    chosen: ChangeFilter = ChangeFilter(),
    weigh: Callable[[Change], int] = lambda _: 0,
) -> Page[Change]:
    """What was changed, the newest first.

    Raises:
        IngotError: INVALID_ARGUMENT, the token is none of this list.
    """
    after = read_token(token, chosen, str, "")
    room = PageRoom(size, weigh)
    last = after
    changes = repository.audit.newest(after, chosen.model, chosen.action, chosen.until, chosen.prefix)
    for looked_at, change in enumerate(changes):
        if room.is_full or looked_at == _MOST_LOOKED_AT:
            return Page(room.items, write_token(last, chosen))
        if not isinstance(change, str):
            if change.time < chosen.since:
                break
            if chosen.takes(change) and not room.take(change):
                return Page(room.items, write_token(last, chosen))
        last = place(change if isinstance(change, str) else change.id)
    return Page(room.items)


def newest_version(repository: ArtifactRepository, name: str) -> Version:
    """The newest version that is proven, for showing: what is served :meth:`ArtifactRepository.resolve` says, which passes none over.

    Raises:
        IngotError: NOT_FOUND, there is none; ARTIFACT_UNTRUSTED, ARTIFACT_CORRUPT, none is proven, for the newest one's reason.
    """
    newest = 0
    with repository.proven.memory.together():
        for number, read in _downwards(repository, name, 0):
            if (version := read()) is not None:
                return version
            newest = newest or number
    if newest:
        return repository.version(name, newest)
    raise repository.no_model(name)


def _summaries(repository: ArtifactRepository, names: Sequence[str]) -> Iterator[ModelSummary | None]:
    if isinstance(repository.store, FileStore):  # where threads would only wait for each other
        return map(partial(_summary, repository), names)
    with ThreadPoolExecutor(_THREADS) as pool:
        return iter(list(pool.map(partial(_summary, repository), names)))


def _summary(repository: ArtifactRepository, name: str) -> ModelSummary | None:
    """None for one that was deleted. One of which nothing is proven harms itself alone."""
    if not is_model_name(name):
        return None
    try:
        with repository.proven.memory.together():  # of this thread
            return model_summary(repository, name)
    except IngotError as error:
        if error.code is ErrorCode.UNAVAILABLE:
            raise
        if error.code is ErrorCode.NOT_FOUND:
            return None
        _LOG.warning("nothing of model %r is taken: %s", name, error)
        return ModelSummary(name, 0, (), error)


def write_token(place: str | int, chosen: Any) -> str:
    """A token goes on in the same list alone: it knows what was chosen."""
    return base64.urlsafe_b64encode(canonical_json([place, _fingerprint(chosen)])).decode()


def read_token(token: str, chosen: Any, kind: type[T], beginning: T) -> T:
    if not token:
        return beginning
    try:
        place, fingerprint = foreign_json(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, TypeError):
        place, fingerprint = None, ""
    if type(place) is not kind or fingerprint != _fingerprint(chosen) or len(str(place)) > 500:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the page token is none of this list",
            field="page_token",
            expected="the next_page_token of a call with the same filter",
            received=token[:100],
        )
    return place


def _fingerprint(chosen: Any) -> str:
    return sha256_hex(repr(chosen).encode())[:16]
