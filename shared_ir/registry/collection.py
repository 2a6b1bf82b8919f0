"""Collecting garbage: blobs that nothing needs any more, and cached artifacts that nobody has used for long.

Each run is a generation: it marks what is needed, notes what is not, and takes what was noted in a run that is longer ago than the time
of grace, and is not needed now either. Needed is what hangs from a version, a label, a cached or staged artifact, a running job, or a
version that was deleted within the time of grace, which somebody may still be downloading. What was written within that time stays in
any case: whoever stores a blob that is there already writes it again once it is older than half an hour. Uploads that nobody has gone on
with for that time are taken too.

Records are read without asking who signed them. One that cannot be read keeps the run from taking anything, since nobody knows what it
needs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from shared_ir.artifact.audit import Change
from shared_ir.artifact.published import SCHEMA
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signed import parse_document
from shared_ir.digest import canonical_json
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import is_within
from shared_ir.registry.records import below, keys_of, pointed_at, read_record
from shared_ir.storage.drafts import abandoned
from shared_ir.storage.protocol import ObjectInfo, ObjectStore

LEAST_GRACE = 3600.0
"""Seconds; twice as long as a blob counts as fresh (:data:`shared_ir.artifact.blobs.FRESH_SECONDS`)."""
LEAST_CACHE = 2 * 24 * 3600.0
"""Seconds; twice as long as a record counts as used (:data:`shared_ir.artifact.repository.USED_SECONDS`)."""
LEAST_SOURCES = 3600.0
"""Seconds; between the upload of a model and the order of a job that needs it."""
STATE = "collection/state.json"
UPLOADS = "uploads"
"""Folder of uploads under way."""
_MOST_STATE_BYTES = 256 << 20
_BLOBS = "blobs/sha256"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pins:
    """What running jobs need: artifact keys, and the keys of uploaded files in the store."""

    keys: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()


@dataclass(frozen=True)
class CollectionTimes:
    """Times in seconds: ``grace`` of blobs that nothing needs; ``cache`` of artifacts that are of no version and were not used;
    ``sources`` of uploaded models (0: they are kept)."""

    grace: float = 24 * 3600.0
    cache: float = 30 * 24 * 3600.0
    sources: float = 0.0

    def __post_init__(self) -> None:
        leasts = {"grace": LEAST_GRACE, "cache": LEAST_CACHE} | ({"sources": LEAST_SOURCES} if self.sources else {})
        for name, least in leasts.items():
            value = getattr(self, name)
            if not is_within(value, least):
                raise IngotError(
                    ErrorCode.INVALID_ARGUMENT,
                    "what is in use could be collected within such a time",
                    field=name,
                    expected=f"at least {least:g} seconds{' (0: they are kept)' if name == 'sources' else ''}",
                    received=f"{value:g}",
                )


@dataclass
class Collected:
    """What a run found and took; with ``dry_run`` what it would have taken.

    Attributes:
        generation: which run of this store it is.
        kept, condemned: blobs that are needed, and those that are not but stay for the time of grace.
        taken: keys of objects, and their bytes.
        unreadable: keys of records that keep anything from being taken, with the reason.
    """

    generation: int
    dry_run: bool
    kept: int = 0
    condemned: int = 0
    taken: list[str] = field(default_factory=list)
    taken_bytes: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)


def collect(
    repository: ArtifactRepository,
    pins: Callable[[], Pins],
    rule: CollectionTimes = CollectionTimes(),
    dry_run: bool = False,
    by: str = "collection",
    now: float | None = None,
) -> Collected:
    """One run. ``pins`` is asked what running jobs need, before and after it is found out what else is needed.

    Raises:
        IngotError: UNAVAILABLE, the store or what knows of the jobs cannot be reached: nothing is taken then.
    """
    return _Run(repository, pins, rule, dry_run, by, time.time() if now is None else now).run()


@dataclass
class _Run:
    repository: ArtifactRepository
    pins: Callable[[], Pins]
    rule: CollectionTimes
    dry_run: bool
    by: str
    now: float

    def run(self) -> Collected:
        state, tag = self._state()
        result = Collected(int(state.get("generation", 0)) + 1, self.dry_run)
        self._collect_artifacts(result)
        before = self.pins()
        needed = self._needed(result, before)
        noted = self._sweep(result, needed, _noted(state))
        self._collect_sources(result, before)
        self._collect_uploads(result)
        if not self.dry_run:
            self._write_state(state | {"schema": SCHEMA, "generation": result.generation, "condemned": noted}, tag)
            if result.taken:
                after = f"{len(result.taken)} objects, {result.taken_bytes} bytes"
                self.repository.audit.write(Change("collect", self.by, after=after), self.repository.signer)
        return result

    @property
    def store(self) -> ObjectStore:
        return self.repository.store

    # ---- what is needed

    def _needed(self, result: Collected, pins: Pins) -> set[str]:
        """NOTE: in the order in which an artifact goes on: whatever moves while this looks is seen in one of its places."""
        needed: set[str] = set()
        for key, digest in self._roots(result):
            try:
                needed.update(below(self.store, digest))
            except IngotError as error:
                self._cannot_read(result, key, error)
        return needed

    def _roots(self, result: Collected) -> Iterator[tuple[str, str]]:
        for folder in ("staged", "artifacts"):
            for key in self.store.keys(folder):
                yield from self._root(result, key, "descriptor")
        for name in self.store.folders("models"):
            for key in self.store.keys(f"models/{name}/versions"):
                yield from self._root(result, key, "index")
            yield from self._fragile_roots(name)

    def _fragile_roots(self, name: str) -> Iterator[tuple[str, str]]:
        """Of labels, and of what was deleted a moment ago. What they point at may have gone: then it needs nothing."""
        found: list[tuple[str, str]] = []
        for key in self.store.keys(f"models/{name}/labels"):
            found += [(key, str(self._document(key).get("index", "")))]
        for info in (i for f in ("deleted", "deleted-through") for i in self.store.list(f"models/{name}/{f}")):
            if info.modified > self.now - self.rule.grace:
                indexes = self._document(info.key).get("indexes")
                found += [(info.key, str(digest)) for digest in (indexes if isinstance(indexes, list) else ())]
        for key, digest in found:
            if (
                digest.startswith("sha256:")
                and self.store.size(f"{_BLOBS}/{digest.removeprefix('sha256:')}") is not None
            ):
                yield key, digest

    def _root(self, result: Collected, key: str, field: str) -> Iterator[tuple[str, str]]:
        try:
            yield key, pointed_at(read_record(self.store, key), field)
        except IngotError as error:
            if error.code is not ErrorCode.NOT_FOUND:  # it was deleted meanwhile
                self._cannot_read(result, key, error)

    def _document(self, key: str) -> dict[str, Any]:
        try:
            return read_record(self.store, key)
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            return {}

    # ---- what is taken

    def _collect_artifacts(self, result: Collected) -> None:
        """Cached artifacts that are of no version and of no job, and were not used for long; what they need goes in a later run."""
        published = self._published_keys(result)
        if result.unreadable:
            return
        pinned = self.pins().keys
        for folder in ("staged", "artifacts"):
            for info in list(self.store.list(folder)):
                key = info.key.removeprefix(f"{folder}/").removesuffix(".json")
                if info.modified < self.now - self.rule.cache and key not in published and key not in pinned:
                    self._take(result, info, self.now - self.rule.cache)

    def _published_keys(self, result: Collected) -> set[str]:
        keys: set[str] = set()
        for name in self.store.folders("models"):
            for key in self.store.keys(f"models/{name}/versions"):
                for _, digest in self._root(result, key, "index"):
                    try:
                        keys.update(keys_of(self.store, digest))
                    except IngotError as error:
                        self._cannot_read(result, key, error)
        return keys

    def _cannot_read(self, result: Collected, key: str, error: IngotError) -> None:
        """Raises the error of a store that is away."""
        if error.code is ErrorCode.UNAVAILABLE:
            raise error
        if key not in result.unreadable:
            result.unreadable[key] = str(error)

    def _sweep(self, result: Collected, needed: set[str], before: dict[str, float]) -> dict[str, float]:
        """What was noted until now; blobs that are not needed, with the moment at which that was noted first."""
        noted: dict[str, float] = {}
        for info in list(self.store.list(_BLOBS)):
            digest = f"sha256:{info.key.rpartition('/')[2]}"
            if digest in needed:
                result.kept += 1
                continue
            since = max(before.get(digest, self.now), info.modified)
            if (
                since > self.now - self.rule.grace
                or result.unreadable
                or not self._take(result, info, self.now - self.rule.grace)
            ):
                noted[digest] = since
                result.condemned += 1
        return noted

    def _collect_sources(self, result: Collected, pins: Pins) -> None:
        if not self.rule.sources:
            return
        needed = pins.sources | self.pins().sources
        for info in list(self.store.list("sources")):
            old = info.modified < self.now - self.rule.sources
            if old and info.key not in needed:
                self._take(result, info, self.now - self.rule.sources)

    def _collect_uploads(self, result: Collected) -> None:
        """Those that nobody has gone on with for the time of grace."""
        before = self.now - self.rule.grace
        for info in list(abandoned(self.store.list(UPLOADS), before)):
            self._take(result, info, before)

    def _take(self, result: Collected, info: ObjectInfo, before: float) -> bool:
        """Whether it is gone, or would be. One that was written since is not."""
        if not self.dry_run and not self.store.delete_unused(info.key, before):
            return False
        result.taken.append(info.key)
        result.taken_bytes += info.size
        return True

    # ---- from run to run

    def _state(self) -> tuple[dict[str, Any], str]:
        try:
            data, tag = self.store.get_tagged(STATE, _MOST_STATE_BYTES)
            return parse_document(data, STATE), tag
        except IngotError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            return {}, ""

    def _write_state(self, state: dict[str, Any], tag: str) -> None:
        """Of two runs at once the first one's notes count: what is noted late is only taken later."""
        data = canonical_json(state)
        if not (self.store.replace(STATE, data, tag) if tag else self.store.put_if_absent(STATE, data)):
            _LOG.warning("another run wrote %s at the same time: what this one noted is not kept", STATE)


def _noted(state: dict[str, Any]) -> dict[str, float]:
    found = state.get("condemned")
    items: Iterable[tuple[Any, Any]] = found.items() if isinstance(found, dict) else ()
    return {
        str(digest): float(moment)
        for digest, moment in items
        if isinstance(moment, int | float) and is_within(moment, 0)
    }
