"""What a reader of a store has seen: the newest generation of each label and of each model's versions, and what was deleted.

A signature says that something was true once. Who can write the store can put an older signed label back, or a version that was deleted,
or take the newest version away; a reader that remembers refuses that. It remembers beyond its own life where it has a file to do so.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from shared_ir.errors import ErrorCode, IngotError

MEMORY_FILE = "seen.db"
"""Name of the file in the home of an installation."""

_LOG = logging.getLogger(__name__)
_TABLE = "CREATE TABLE IF NOT EXISTS seen (name TEXT PRIMARY KEY, generation INTEGER NOT NULL, digest TEXT NOT NULL)"
_ADVANCE = """INSERT INTO seen VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE
SET generation = excluded.generation, digest = excluded.digest WHERE excluded.generation > seen.generation"""
_MARK = "#mark"
_NEXT = """WITH RECURSIVE found (name) AS (
    SELECT min(name) FROM seen WHERE name >= :prefix AND name < :end
    UNION ALL
    SELECT (SELECT min(seen.name) FROM seen WHERE seen.name < :end AND seen.name >=
        substr(found.name, 1, :size + instr(substr(found.name || '/', :size + 1), '/') - 1) || '0')
    FROM found WHERE found.name IS NOT NULL
) SELECT name FROM found"""
"""The first name of each part below a prefix: '0' is what follows a slash."""
T = TypeVar("T")


@dataclass(frozen=True)
class Seen:
    """The newest ``generation`` of something, and the digest of what it was."""

    generation: int
    digest: str


@dataclass
class Memory:
    """Of one process, or of all that share ``file``.

    What the file should know and cannot say (damaged, not to be read) is refused. One that is not there knows nothing; one that cannot be
    written is told of once, and from then on what this process saw itself is what it knows beyond it.

    Attributes:
        changes: grows with each thing that is learnt. Who was refused by it, and read the store before it grew, reads it again.
    """

    file: Path | None = None
    changes: int = 0
    _own: dict[str, Seen] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _told: bool = False
    _open: threading.local = field(default_factory=threading.local)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What this thread remembers until the end is written to the file at once: a list names hundreds of things."""
        if self.file is None or getattr(self._open, "connection", None) is not None:
            yield
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.file, timeout=10)
        except (sqlite3.Error, OSError) as error:
            self._tell(error)
            yield
            return
        with closing(connection):
            self._open.connection, self._open.rows = connection, []
            try:
                yield
            finally:
                rows, self._open.connection = self._open.rows, None
                self._write(connection, rows)

    def seen(self, name: str) -> Seen | None:
        """NOTE: the file is asked once for each name, since a server looks at all of them every few seconds."""
        own = self._own.get(name)
        if own is None and (kept := self._kept(name)) is not None:
            with self._lock:
                own = self._own.setdefault(name, kept)
                self.changes += 1
        return own

    def refuse_older(self, name: str, generation: int, digest: str) -> None:
        """Remember this generation of ``name``, unless a newer one was seen.

        Raises:
            IngotError: ARTIFACT_UNTRUSTED, a newer one was seen, or another one of the same number.
        """
        before = self.seen(name)
        if before is None or generation > before.generation:
            self.remember(name, generation, digest)
        elif generation < before.generation:
            raise self.went_back(name, str(before.generation), str(generation))
        elif digest != before.digest:
            raise self._refused("the store holds something else than before", name, before.digest, digest)

    def remember(self, name: str, generation: int, digest: str = "") -> None:
        """That this generation of ``name`` was there, unless a newer one was seen."""
        before = self.seen(name)
        if before is None or generation > before.generation:
            self._keep(name, Seen(generation, digest))

    def mark(self, url: str) -> str:
        """As :class:`shared_ir.storage.mark.Marks`. Raises IngotError ARTIFACT_UNTRUSTED as :meth:`seen`."""
        found = self.seen(f"{url}{_MARK}")
        return found.digest if found else ""

    def remember_mark(self, url: str, mark: str) -> None:
        self.remember(f"{url}{_MARK}", 1, mark)

    def knows(self, url: str) -> bool:
        """Whether anything of the store at ``url`` was seen."""
        return bool(self.below(f"{url}/"))

    def below(self, prefix: str) -> frozenset[str]:
        """What follows ``prefix``, which ends with a slash, up to the next one, in the names of what was seen."""
        own = {name[len(prefix) :].partition("/")[0] for name in list(self._own) if name.startswith(prefix)}
        kept = self._asked(prefix, lambda connection: _below(connection, prefix)) or ()
        return frozenset(own.union(kept))

    def came_back(self, name: str) -> IngotError:
        return self._refused(
            "the store has gone back: it holds what was deleted", name, "nothing", "what was there before"
        )

    def went_back(self, name: str, expected: str, received: str) -> IngotError:
        message = "the store has gone back: it held something newer before"
        return self._refused(message, name, f"{expected} or newer", received)

    def _refused(self, message: str, name: str, expected: str, received: str) -> IngotError:
        what = f"remove {self.file}" if self.file else "start this process again"
        remedy = f"Restore the store. If it was changed on purpose, {what}."
        return IngotError(
            ErrorCode.ARTIFACT_UNTRUSTED, message, field=name, expected=expected, received=received, remedy=remedy
        )

    def _keep(self, name: str, seen: Seen) -> None:
        with self._lock:
            self._own[name] = seen
            self.changes += 1
        if self.file is None:
            return
        row = (name, seen.generation, seen.digest)
        if getattr(self._open, "connection", None) is not None:
            self._open.rows.append(row)
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.file, timeout=10)) as connection:
                self._write(connection, [row])
        except (sqlite3.Error, OSError) as error:
            self._tell(error)

    def _write(self, connection: sqlite3.Connection, rows: list[tuple[str, int, str]]) -> None:
        if not rows:
            return
        try:
            with connection:
                connection.execute(_TABLE)
                connection.executemany(_ADVANCE, rows)
        except sqlite3.Error as error:
            self._tell(error)

    def _kept(self, name: str) -> Seen | None:
        """Raises as :meth:`_asked`."""
        return self._asked(name, lambda connection: _row(connection, name))

    def _asked(self, name: str, ask: Callable[[sqlite3.Connection], T]) -> T | None:
        """What the file says about ``name``; None where there is none.

        Raises:
            IngotError: ARTIFACT_UNTRUSTED, there is a file, and it does not say.
        """
        try:
            if self.file is None or not self.file.exists() or not self.file.stat().st_size:
                return None
            held = getattr(self._open, "connection", None)
            if held is not None:
                return ask(held)
            with closing(sqlite3.connect(self.file, timeout=10)) as connection:
                return ask(connection)
        except (sqlite3.Error, OSError, ValueError) as error:
            raise IngotError(
                ErrorCode.ARTIFACT_UNTRUSTED,
                "what the store held before cannot be read, so nothing tells whether it has gone back",
                field=name,
                expected=f"a readable {self.file}",
                received=str(error)[:200],
                remedy=f"Restore {self.file}; or remove it, and what the store holds now is taken as it is.",
            ) from error

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            _LOG.warning("what the store held before is not remembered beyond this process: %s: %s", self.file, error)


def _row(connection: sqlite3.Connection, name: str) -> Seen | None:
    row = connection.execute("SELECT generation, digest FROM seen WHERE name = ?", (name,)).fetchone()
    return Seen(int(row[0]), str(row[1])) if row else None


def _below(connection: sqlite3.Connection, prefix: str) -> list[str]:
    """NOTE: from one name to the next, and not over all that was seen of each."""
    asked = {"prefix": prefix, "end": f"{prefix[:-1]}0", "size": len(prefix)}
    names = [str(row[0]) for row in connection.execute(_NEXT, asked) if row[0]]
    return [name[len(prefix) :].partition("/")[0] for name in names]
