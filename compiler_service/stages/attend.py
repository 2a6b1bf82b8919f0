"""Waiting for a stage: passing on what it says, until it ends, must stop or has used up its time."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from typing import IO, Protocol

from compiler_service.stages.messages import Lines


class StoppedError(Exception):
    """The stage was killed because ``should_stop`` said so."""


class StageProcess(Protocol):
    """A process."""

    def poll(self) -> int | None:
        """Its exit status (negative: the signal that ended it) once it has ended."""


def attend(
    stage: StageProcess,
    progress: IO[bytes],
    log: IO[bytes],
    lines: Lines,
    should_stop: Callable[[], bool],
    seconds: float,
) -> bool:
    """Pass messages on until the process ends; True when its time is up. Raises StoppedError."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(progress, selectors.EVENT_READ, lines.progress)
        selector.register(log, selectors.EVENT_READ, lines.log)
        while selector.get_map():
            for key, _ in selector.select(timeout=0.25):
                if not key.data(os.read(key.fd, 65536)):
                    selector.unregister(key.fileobj)
            if should_stop():
                raise StoppedError
            if time.monotonic() > deadline:
                return True
            if stage.poll() is not None and not selector.select(timeout=0):
                break  # a grandchild may still hold the pipes
    return False
