"""What tells a store in a folder from an empty folder in its place: a mark that is made once, when a store begins.

A folder that was moved away, or a volume that is not mounted, looks like a store in which there is nothing yet. Who has seen a store
before refuses that, instead of beginning another one.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from shared_ir.digest import canonical_json
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.foreign_json import foreign_json
from shared_ir.storage.files import create_atomically

MARK = "ingot-store.json"
"""Name of the file with the id of the store."""
_LARGEST_MARK_BYTES = 4096
_FOLDERS = ("models", "blobs", "orders", "sources")
"""A store of before marks has one of these."""


def has_begun(root: Path) -> bool:
    """Whether a store lies in a folder."""
    return (root / MARK).exists() or any((root / name).is_dir() for name in _FOLDERS)


class Marks(Protocol):
    """Which stores were seen before: the id of each, by its URL."""

    def mark(self, url: str) -> str:
        """Empty for none."""

    def remember_mark(self, url: str, mark: str) -> None:
        """What is known already stays."""

    def knows(self, url: str) -> bool:
        """Whether anything of this store was seen."""


@dataclass
class StoreMark:
    """Of the store at ``root``.

    Args:
        makes: whether a store may begin here; who only reads leaves that to others.
    """

    root: Path
    url: str
    marks: Marks
    makes: bool = True
    _held: tuple[object, ...] | None = field(default=None, repr=False)

    def require(self) -> None:
        """NOTE: asks the system for the state of one file, and no more as long as that stays.

        Raises:
            IngotError: UNAVAILABLE, the store is not there, or another one is.
        """
        try:
            state = self._state()
        except (FileNotFoundError, NotADirectoryError):
            if not self._may_begin():
                raise self._away(
                    "there is none", "a folder without a mark" if self.root.is_dir() else "no folder"
                ) from None
            if not self.makes:
                return
            create_atomically(self.root / MARK, canonical_json({"schema": 1, "id": secrets.token_hex(16)}))
            state = self._state()
        except OSError as error:
            raise self._away("it cannot be read", error.strerror or type(error).__name__) from error
        if state != self._held:
            self._compare()
            self._held = state

    def _state(self) -> tuple[object, ...]:
        status = (self.root / MARK).stat()
        return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)

    def _may_begin(self) -> bool:
        """Nobody has seen a store here; or it is one from before there were marks."""
        if self._held is not None or self.marks.mark(self.url):
            return False
        return not self.marks.knows(self.url) or has_begun(self.root)

    def _compare(self) -> None:
        found = self._read()
        try:
            known = self.marks.mark(self.url)
        except (
            IngotError
        ):  # what was seen cannot be read: what it would say of labels and versions is refused one by one
            return
        if known not in ("", found):
            raise self._away("another one lies there", f"a store with the mark {found!r}", known)
        self.marks.remember_mark(self.url, found)

    def _read(self) -> str:
        try:
            with (self.root / MARK).open("rb") as file:
                found = foreign_json(file.read(_LARGEST_MARK_BYTES))["id"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._away("it cannot be told whether it is itself", f"{MARK}: {type(error).__name__}") from error
        return str(found)[:100]

    def _away(self, why: str, received: str, mark: str = "") -> IngotError:
        mark = mark or self.marks.mark(self.url)
        return IngotError(
            ErrorCode.UNAVAILABLE,
            f"the store is away: {why}",
            field=self.url,
            expected=f"{MARK} with the id {mark!r}" if mark else f"a readable {MARK}",
            received=received,
            remedy="Mount the volume, or put the folder back. If the store was replaced on purpose, remove seen.db in the homes of the "
            "services, and `ingot:store` in Redis.",
        )
