"""An object store in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shared_ir.storage.files import create_atomically, is_regular, open_regular, write_atomically
from shared_ir.storage.protocol import Data, ObjectInfo, check_key, not_found, too_large


@dataclass(frozen=True)
class FileStore:
    """A directory. Safe for many processes on one machine. Links in it are no objects: whoever made one could have others read what he
    cannot."""

    root: Path

    @property
    def url(self) -> str:
        return self.root.absolute().as_uri()

    def put(self, key: str, data: Data) -> None:
        write_atomically(self._path(key), data)

    def put_if_absent(self, key: str, data: Data) -> bool:
        path = self._path(key)
        return not path.exists() and create_atomically(path, data)

    def get(self, key: str, limit: int | None = None) -> bytes:
        try:
            with open_regular(self._path(key)) as file:
                size = os.fstat(file.fileno()).st_size
                if limit is not None and size > limit:
                    raise too_large(self.url, key, limit, size)
                return file.read(size)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise not_found(self.url, key) from error

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with open_regular(self.local_path(key)) as file:
            file.seek(start)
            return file.read(length)

    def size(self, key: str) -> int | None:
        path = self._path(key)
        return path.lstat().st_size if is_regular(path) else None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        found = []
        for directory, _, names in os.walk(self._path(prefix)):
            for name in names:
                if not name.startswith(".") and is_regular(
                    Path(directory, name)
                ):  # else a file still being written, or a link
                    found.append(Path(directory, name))
        for path in sorted(found, key=lambda p: p.relative_to(self.root).as_posix()):
            status = path.stat()
            yield ObjectInfo(path.relative_to(self.root).as_posix(), status.st_size, status.st_mtime)

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def local_path(self, key: str, limit: int | None = None) -> Path:
        size = self.size(key)
        if size is None:
            raise not_found(self.url, key)
        if limit is not None and size > limit:
            raise too_large(self.url, key, limit, size)
        return self._path(key)

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)
