"""Runs one compile stage in a process of its own, with limits, and kills it when it must stop.

LLVM aborts and hostile models exhaust memory: neither may take a worker along. The child gets files and a clean
environment; no credentials, no signing key, no connection to Redis or the object store.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from compiler_service.boundary.parts import BoundaryPart
from compiler_service.boundary.policy import Grant, Policy
from compiler_service.boundary.private import private_places
from compiler_service.boundary.state import LAUNCH
from compiler_service.boundary.toolchain import importable, toolchain
from compiler_service.stages.attend import StoppedError, attend
from compiler_service.stages.group import adopt_orphans, end_group, kill_group
from compiler_service.stages.messages import Lines
from compiler_service.stages.outcome import exceeded, how_it_died, killed_for_memory, read_result
from shared_ir.machine.target import Target, target_from_dict
from shared_ir.storage.files import write_atomically

__all__ = ["StageLimits", "StageRunner", "StoppedError"]

REQUEST_FILE = "request.json"
BOUNDARY_FILE = "boundary.json"
PREPARE = "prepare"
"""The stage that fills the cache. It alone writes there, and reads no model."""
VERIFY = "verify"
_SHARED = ("native", "zig")
"""Folders of the cache that the toolchain uses; what else lies there belongs to others."""
_INHERITED = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "DEBUG", "VERIFY", "LD_LIBRARY_PATH", "TZ")


@dataclass(frozen=True)
class StageLimits:
    """What one stage may use.

    Attributes:
        memory: address space of each of its processes in bytes.
        seconds: wall-clock time.
        file_size: bytes of the largest file that it writes.
        open_files: file descriptors; a cold cache takes thousands, when zig builds a C library for a static program.
        threads: threads it should use for computing.
        processes: processes and threads at once.
    """

    memory: int = 16 * 1024**3
    seconds: float = 3600.0
    file_size: int = 16 * 1024**3
    open_files: int = 16384
    threads: int = 2
    processes: int = 4096

    def as_resources(self) -> Mapping[str, int]:
        """As :func:`compiler_service.boundary.limits.limit` takes them."""
        return {
            "memory": self.memory,
            "processor_seconds": int(self.seconds * max(1, self.threads)) + 1,
            "file_size": self.file_size,
            "open_files": self.open_files,
            "processes": self.processes,
        }


@dataclass(frozen=True)
class StageRunner:
    """Starts stages.

    Args:
        command: what to start; the working directory is added as its argument.
        limits: of every stage.
        cache: pieces that compilations share, such as the linker's. A stage reads them only: what it wrote would be
            linked into the models of others.
        programs: what it may start beside Python.
        required: parts of the boundary without which no stage is started.
        emulator: the program that runs code for a target here, which the stage that verifies may start; None for no such program.
    """

    command: Sequence[str]
    limits: StageLimits = StageLimits()
    cache: Path | None = None
    programs: Sequence[Path] = ()
    required: Sequence[BoundaryPart] = ()
    emulator: Callable[[Target], Path | None] = lambda _: None

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
        killed = killed_for_memory()
        adopt_orphans()
        reader, writer = os.pipe()
        refusal, refuses = os.pipe()
        os.set_blocking(refusal, False)
        write_atomically(work / BOUNDARY_FILE, self._policy(work, request, writer, refuses).to_json())
        try:
            process = subprocess.Popen(
                [*LAUNCH, str(work / BOUNDARY_FILE), *self.command, str(work), str(writer)],
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(writer, refuses),
                start_new_session=True,
                env=self._environment(work),
            )
        except BaseException:
            os.close(reader)
            os.close(refusal)
            raise
        finally:
            os.close(writer)
            os.close(refuses)
        with process, os.fdopen(reader, "rb") as progress, os.fdopen(refusal, "rb") as refused:
            try:
                assert process.stdout is not None
                lines, seconds = Lines(on_message), self.limits.seconds
                timed_out = attend(process, progress, process.stdout, lines, should_stop, seconds)
            finally:
                _kill(process)
            was_refused = bool(refused.read())
        if timed_out:
            raise exceeded("time", f"{self.limits.seconds:g} seconds")
        if process.returncode:
            own = self.limits
            raise how_it_died(process.returncode, own.seconds, own.file_size, killed, refused=was_refused)
        return read_result(work)

    def _policy(self, work: Path, request: Mapping[str, Any], progress: int, refusal: int) -> Policy:
        source = request.get("source") or {"model": "", "blobs": {}}
        files = [f for f in (source["model"], *source["blobs"].values(), request.get("artifact")) if f]
        return Policy(
            grants=(
                *toolchain((*self.programs, *self._emulator(request))),
                *((file, "read") for file in (*files, *filter(os.path.isfile, self.command[1:]))),
                *self._shared("write" if request["stage"] == PREPARE else "read"),
                (str(work), "write"),
            ),
            kept_out=private_places(),
            limits=self.limits.as_resources(),
            descriptors=(progress,),
            refusal=refusal,
            required=self.required,
            locks=request["stage"] == PREPARE or bool(request.get("options", {}).get("bundle")),
        )

    def _emulator(self, request: Mapping[str, Any]) -> Iterator[Path]:
        if request["stage"] == VERIFY:
            found = self.emulator(target_from_dict(request["target"]))
            if found is not None:
                yield found

    def _shared(self, purpose: str) -> Iterator[Grant]:
        for folder in (self.cache / name for name in _SHARED) if self.cache is not None else ():
            with contextlib.suppress(OSError):  # who needs it says so
                folder.mkdir(parents=True, exist_ok=True)
            yield str(folder), purpose

    def _environment(self, work: Path) -> dict[str, str]:
        own = inherited_environment() | {"HOME": str(work), "TMPDIR": str(work)}
        if self.cache is not None:
            own["INGOT_CACHE_DIR"] = str(self.cache)
        threads = str(self.limits.threads)
        return own | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}


def inherited_environment() -> dict[str, str]:
    """What a stage gets of this process's environment, and how its Python starts."""
    own = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    fixed = {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1", "ORT_DISABLE_TELEMETRY": "1"}
    return own | fixed | dict(importable().environment())


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group: the stage and whatever it started."""
    kill_group(process.pid)
    process.wait()
    end_group(process.pid)
