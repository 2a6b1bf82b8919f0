"""Writing files so that a reader sees all of one or nothing."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path


def write_atomically(path: Path, data: bytes | memoryview | Path) -> None:
    """Write ``data`` (bytes, or the file that holds them) to a temporary name, fsync, rename over ``path``."""
    temporary = write_temporary(path, data)
    try:
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def create_atomically(path: Path, data: bytes | memoryview | Path) -> bool:
    """Like :func:`write_atomically`, but leave an existing file alone and return False."""
    temporary = write_temporary(path, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def write_temporary(path: Path, data: bytes | memoryview | Path) -> Path:
    """Write and fsync ``data`` beside ``path`` under a temporary name; return that name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:80]}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            if isinstance(data, Path):
                with data.open("rb") as source:
                    shutil.copyfileobj(source, file, 1024 * 1024)
            else:
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
