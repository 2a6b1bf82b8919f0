"""Processes of this machine by a word in their command line: those of a stage have ids of their own that say nothing here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path


def runs(word: str) -> bool:
    """Whether there is a process with ``word`` in its command line."""
    return any(word.encode() in command for command in _commands())


def ends(word: str, seconds: float = 20.0) -> bool:
    """Whether all of them end in time."""
    deadline = time.monotonic() + seconds
    while runs(word):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _commands() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes()
