"""Sockets in folders: addresses ``unix:/path``."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNIX = "unix:"
"""Addresses that start so are paths of sockets."""


def vacated(address: str) -> Path:
    """The path of ``address``, where no socket of an earlier server lies any more; what is no socket stays, and keeps others from it."""
    path = Path(address.removeprefix(UNIX))
    with suppress(OSError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
    return path


@contextmanager
def for_this_user() -> Iterator[None]:
    """A socket that is bound in the block is for this user alone, from its first moment on."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
