"""What of a store has changed since it was looked at last, for as few requests as that takes.

A store says that something has changed (:mod:`shared_ir.artifact.generation`): as long as it does not, one request is all. When it does,
and once a minute, for what writers did not tell, names and tags of the objects are listed, a request for a thousand of them; who does
not say anything, since only older versions have written it, is listed each time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from shared_ir.artifact.generation import generation
from shared_ir.errors import IngotError
from shared_ir.storage.protocol import ObjectInfo, ObjectStore

SECONDS_BETWEEN_LISTS = 60.0
_MOST_ONE_BY_ONE = 16
"""Models that are listed apart; more are found in a list of all."""
_FOLDERS = frozenset({"versions", "labels", "deleted", "deleted-through"})
"""Of a model: what decides which versions it has, and where its labels point."""


@dataclass
class StoreChanges:
    """``trusted`` gives the ids of the keys that are trusted: with another one records count that did not, though they are the same."""

    store: ObjectStore
    trusted: Callable[[], frozenset[str]]
    clock: Callable[[], float] = time.monotonic
    _seen: tuple[str, frozenset[str]] = ("", frozenset())
    _states: dict[str, bytes] = field(default_factory=dict)
    _listed_at: float = float("-inf")

    def since_last(self, names: Collection[str] | None) -> frozenset[str]:
        """Models whose records are others than when this was asked last, at first all that have some.

        Args:
            names: the models that are of interest; None: every one of the store.

        Raises:
            IngotError: UNAVAILABLE. The next answer has what this one would have had.
        """
        # before anything is listed: what comes later is seen next time
        seen = self._generation(), self.trusted()
        now = self.clock()
        is_known = names is None or all(name in self._states for name in names)
        if seen[0] and seen == self._seen and is_known and now - self._listed_at < SECONDS_BETWEEN_LISTS:
            return frozenset()
        states = dict.fromkeys(names or (), b"") | self._list(None if names is None else frozenset(names))
        changed = {name for name in states.keys() | self._states.keys() if states.get(name) != self._states.get(name)}
        if seen[1] != self._seen[1]:
            changed |= states.keys()
        self._seen, self._states, self._listed_at = seen, states, now
        return frozenset(changed)

    def _generation(self) -> str:
        """Empty where it cannot be had: a bucket may refuse to say that there is no such object to who may list some of it alone."""
        try:
            return generation(self.store)
        except IngotError:
            return ""

    def _list(self, names: frozenset[str] | None) -> dict[str, bytes]:
        """What tells one state of the records of each model from another."""
        prefixes = ["models"]
        if names is not None and len(names) <= _MOST_ONE_BY_ONE:
            prefixes = [f"models/{name}" for name in names]
        found: dict[str, hashlib._Hash] = {}
        for prefix in prefixes:
            for name, info in _records(self.store.list(prefix)):
                if names is None or name in names:
                    found.setdefault(name, hashlib.sha256()).update(f"{info.key}\0{info.tag}\0".encode())
        return {name: state.digest() for name, state in found.items()}


def _records(found: Iterator[ObjectInfo]) -> Iterator[tuple[str, ObjectInfo]]:
    for info in found:
        _, name, folder, *_ = (*info.key.split("/", 3), "", "")
        if folder in _FOLDERS:
            yield name, info
