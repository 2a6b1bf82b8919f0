"""Runs one compile stage in a process of its own, with limits, and kills it when it must stop.

LLVM aborts and hostile models exhaust memory: neither may take a worker along. The child gets files and a clean
environment; no credentials, no signing key, no connection to Redis or the object store.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.files import write_atomically

REQUEST_FILE = "request.json"
RESULT_FILE = "result.json"
MOST_LINE_CHARACTERS = 4000
MOST_LINES = 2000
_INHERITED = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "DEBUG", "VERIFY", "LD_LIBRARY_PATH", "TZ")


@dataclass(frozen=True)
class StageLimits:
    """What one stage may use.

    Attributes:
        memory: address space of each of its processes in bytes.
        seconds: wall-clock time.
        file_size: bytes of the largest file that it writes.
        open_files: file descriptors.
        threads: threads it should use for computing.
    """

    memory: int = 16 * 1024**3
    seconds: float = 3600.0
    file_size: int = 16 * 1024**3
    open_files: int = 1024
    threads: int = 2


class StoppedError(Exception):
    """The stage was killed because ``should_stop`` said so."""


@dataclass(frozen=True)
class StageRunner:
    """Starts stages.

    Args:
        command: what to start; the working directory is added as its argument.
        limits: of every stage.
        cache: where the stage may keep files between runs, such as the linker's.
    """

    command: Sequence[str]
    limits: StageLimits = StageLimits()
    cache: Path | None = None

    def run(
        self,
        work: Path,
        request: Mapping[str, Any],
        on_message: Callable[[Mapping[str, Any]], None],
        should_stop: Callable[[], bool],
    ) -> Mapping[str, Any]:
        """Run the stage that ``request`` describes in directory ``work``; what it answers.

        ``on_message`` gets ``{"stage", "done", "total", "message"}`` for progress and ``{"log"}`` for each line printed.

        Raises:
            IngotError: what the stage raised; RESOURCE_LIMIT when it exceeded a limit; COMPILER_FAULT when it died.
            StoppedError: ``should_stop`` became true.
        """
        document = dict(request) | {"limits": asdict(self.limits)}
        write_atomically(work / REQUEST_FILE, json.dumps(document).encode())
        reader, writer = os.pipe()
        try:
            process = subprocess.Popen(
                [*self.command, str(work), str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(writer,),
                start_new_session=True,
                env=self._environment(work),
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        with process, os.fdopen(reader, "rb") as progress:
            try:
                timed_out = self._attend(process, progress, on_message, should_stop)
            finally:
                _kill(process)
        if timed_out:
            raise _limit("time", f"{self.limits.seconds:g} seconds")
        return self._result(work, process.returncode)

    def _attend(
        self,
        process: subprocess.Popen[bytes],
        progress: IO[bytes],
        on_message: Callable[[Mapping[str, Any]], None],
        should_stop: Callable[[], bool],
    ) -> bool:
        """Pass messages on until the process ends; True when its time is up."""
        assert process.stdout is not None
        deadline = time.monotonic() + self.limits.seconds
        lines = _Lines(on_message)
        with selectors.DefaultSelector() as selector:
            selector.register(progress, selectors.EVENT_READ, lines.progress)
            selector.register(process.stdout, selectors.EVENT_READ, lines.log)
            while selector.get_map():
                for key, _ in selector.select(timeout=0.25):
                    if not key.data(os.read(key.fd, 65536)):
                        selector.unregister(key.fileobj)
                if should_stop():
                    raise StoppedError
                if time.monotonic() > deadline:
                    return True
                if process.poll() is not None and not selector.select(timeout=0):
                    break  # a grandchild may still hold the pipes
        return False

    def _environment(self, work: Path) -> dict[str, str]:
        own = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        own |= {"HOME": str(work), "TMPDIR": str(work), "PYTHONUNBUFFERED": "1"}
        if self.cache is not None:
            own["INGOT_CACHE_DIR"] = str(self.cache)
        threads = str(self.limits.threads)
        return own | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}

    def _result(self, work: Path, status: int) -> Mapping[str, Any]:
        path = work / RESULT_FILE
        if status == 0 and path.is_file():
            answer: dict[str, Any] = json.loads(path.read_bytes())
            if "error" in answer:
                raise IngotError.from_dict(answer["error"])
            return answer
        if status in (-signal.SIGXCPU, -signal.SIGKILL):
            raise _limit("memory or time", f"{self.limits.memory} bytes, {self.limits.seconds:g} seconds")
        if status == -signal.SIGXFSZ:
            raise _limit("disk", f"files of {self.limits.file_size} bytes")
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        raise IngotError(
            ErrorCode.COMPILER_FAULT,
            f"the compiler died with {how}",
            remedy="Please report this with the job's log; compiling at a lower opt_level may avoid it.",
        )


class _Lines:
    """Cuts the bytes of two pipes into lines."""

    def __init__(self, on_message: Callable[[Mapping[str, Any]], None]) -> None:
        self._on_message = on_message
        self._rest = {"progress": b"", "log": b""}
        self._logged = 0

    def progress(self, data: bytes) -> bool:
        for line in self._cut("progress", data):
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict):
                    self._on_message(message)
        return bool(data)

    def log(self, data: bytes) -> bool:
        for line in self._cut("log", data):
            self._logged += 1
            if self._logged <= MOST_LINES:
                self._on_message({"log": line.decode("utf-8", "replace").rstrip()})
        return bool(data)

    def _cut(self, name: str, data: bytes) -> Sequence[bytes]:
        *lines, rest = (self._rest[name] + data).split(b"\n")
        if not data and rest:
            lines, rest = [*lines, rest], b""
        self._rest[name] = rest[:MOST_LINE_CHARACTERS]
        return [line[:MOST_LINE_CHARACTERS] for line in lines if line.strip()]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group: the stage and whatever it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _limit(what: str, allowed: str) -> IngotError:
    return IngotError(
        ErrorCode.RESOURCE_LIMIT,
        f"the compilation used more {what} than a job may",
        expected=f"at most {allowed}",
        remedy="Compile a smaller model, tune less, or ask the operator of the service for a higher limit.",
    )
