"""Standard output and error of a process whose log is JSON: what libraries in C, crashes and ``print`` write there is JSON as well."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from typing import IO

from shared_ir.service_kit.telemetry import wrapper

_SECONDS = 5.0
"""For the last lines, when the descriptors are given back."""


class Descriptors:
    """Of this process. They lead to :mod:`shared_ir.service_kit.telemetry.wrapper` while they are taken."""

    def __init__(self) -> None:
        self._kept: IO[str] | None = None
        self._wrapper: subprocess.Popen[bytes] | None = None

    def take(self, process: str) -> IO[str]:
        """Standard error as it was, for lines that are JSON already."""
        if self._kept is not None:
            return self._kept
        kept = os.dup(2)
        reader, writer = os.pipe()
        command = [sys.executable, "-I", "-S", wrapper.__file__, process, str(os.getpid())]
        self._wrapper = subprocess.Popen(
            command, stdin=reader, stdout=kept, stderr=kept, env={}, cwd="/", start_new_session=True
        )
        sys.stdout.flush()
        for descriptor in (1, 2):
            os.dup2(writer, descriptor)
        os.close(reader)
        os.close(writer)
        self._kept = os.fdopen(kept, "w", buffering=1, errors="backslashreplace")
        return self._kept

    @property
    def before(self) -> int:
        """Standard error as it was: for programs that this process starts, and that write JSON of their own."""
        return 2 if self._kept is None else self._kept.fileno()

    def give_back(self) -> None:
        """Standard output and error are standard error as it was: for a program that takes the place of this one."""
        if self._kept is None or self._wrapper is None:
            return
        for descriptor in (1, 2):
            os.dup2(self._kept.fileno(), descriptor)
        with suppress(subprocess.TimeoutExpired):
            self._wrapper.wait(_SECONDS)


DESCRIPTORS = Descriptors()
"""There is one of each in a process."""
