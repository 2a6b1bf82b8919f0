"""An engine in a fresh process, of which only one computes at a time: the others are stopped by signal."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import Any, Self

COMMAND_SECONDS = 1800.0


class EngineFailed(Exception):
    """The engine could not load, run or stay alive; the text says why."""


class EngineProcess:
    """Commands of :mod:`bench.worker`, sent and answered. The process runs only while it works on a command."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed in __exit__
        self._child = subprocess.Popen(
            [sys.executable, "-m", "bench.worker", engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
        )

    def command(self, do: str, timeout: float = COMMAND_SECONDS, **arguments: Any) -> dict[str, Any]:
        """The answer to one command.

        Raises:
            EngineFailed: the engine said so, died, or took longer than ``timeout`` seconds.
        """
        assert self._child.stdin is not None
        self._signal(signal.SIGCONT)
        try:
            self._child.stdin.write((json.dumps({"do": do, **arguments}) + "\n").encode())
            answer = self._read(do, timeout)
        except BrokenPipeError:
            raise self._died(do) from None
        finally:
            self._signal(signal.SIGSTOP)
        if "error" in answer:
            raise EngineFailed(str(answer["error"]))
        return answer

    def _read(self, do: str, timeout: float) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._child.stdout], [], [], timeout)
            if not ready:
                raise EngineFailed(f"{do} took longer than {timeout:g} s")
            part = os.read(self._child.stdout.fileno(), 1 << 20)
            if not part:
                raise self._died(do)
            line += part
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def _died(self, do: str) -> EngineFailed:
        status = self._child.wait()
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 400))
        tail = self._errors.read().decode(errors="replace").strip()
        return EngineFailed(f"the process died with status {status} during {do}: {tail}")

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.communicate()
        self._errors.close()
