"""A process that is asked a line at a time, for what may end it: whoever asks learns how it ended, and lives on."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

_END = b"--- that is all\n"
_IDLE_SECONDS = 10.0
"""After the last question it stays for so long: the next one need not wait for a start."""
_PIECE_BYTES = 1 << 16


class Answered(NamedTuple):
    """``said`` is what came of it on standard output and error; ``status`` how the process ended, None where it did not."""

    status: int | None
    said: str


class AskedProcess:
    """``command`` runs :func:`answer_lines`. It starts with the first question and anew after it has ended; questions go one by one."""

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        """``seconds``: that an answer may take."""
        self._command, self._seconds = command, seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._asked_at = 0.0

    def ask(self, line: str) -> Answered:
        """
        Raises:
            OSError: it cannot be started; TimeoutError: it did not answer in time, and was ended.
            ValueError: that is no line.
        """
        if len(line.splitlines()) > 1:
            raise ValueError("one question is one line")
        with self._lock:
            process = self._running()
            with suppress(BrokenPipeError):  # it has just ended, as reading tells
                assert process.stdin is not None
                process.stdin.write(line.encode() + b"\n")
                process.stdin.flush()
            said = self._read(process)
            self._asked_at = time.monotonic()
            if said.endswith(_END):
                return Answered(None, said.removesuffix(_END).decode(errors="replace"))
            self._process = None
            _close(process)
            return Answered(process.wait(), said.decode(errors="replace"))

    def _running(self) -> subprocess.Popen[bytes]:
        """NOTE: that of the process that this one is a copy of is not this one's to ask."""
        if self._process is None or self._owner != os.getpid():
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT)
            self._owner = os.getpid()
            threading.Thread(
                target=self._end_when_idle, args=(self._process,), name="asked process", daemon=True
            ).start()
        return self._process

    def _read(self, process: subprocess.Popen[bytes]) -> bytes:
        """Until it has said all, or has ended."""
        assert process.stdout is not None
        until, said, descriptor = time.monotonic() + self._seconds, bytearray(), process.stdout.fileno()
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        while not said.endswith(_END):
            if not ready.poll(max(0.0, until - time.monotonic()) * 1000):
                self._process = None
                process.kill()
                process.wait()
                _close(process)
                raise TimeoutError(f"no answer in {self._seconds:g} s")
            piece = os.read(descriptor, _PIECE_BYTES)
            if not piece:
                break
            said += piece
        return bytes(said)

    def _end_when_idle(self, process: subprocess.Popen[bytes]) -> None:
        while True:
            time.sleep(_IDLE_SECONDS)
            with self._lock:
                if self._process is not process:
                    return
                if time.monotonic() - self._asked_at >= _IDLE_SECONDS:
                    self._process = None
                    _close(process)
                    process.wait()
                    return


def answer_lines(answer: Callable[[str], None]) -> None:
    """What an asked process does: ``answer`` prints, for each line that comes; until none comes any more."""
    for line in sys.stdin:
        answer(line.rstrip("\n"))
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(1, _END)


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            assert pipe is not None
            pipe.close()
